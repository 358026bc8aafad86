//! How a command ends: one sentence on stderr and a documented exit code (docs/cli.md).

use std::fmt;

/// Why a command did not do what was asked; the number is the process's exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum ExitKind {
    /// It was tried and failed, or a check that the command makes did not hold.
    Failed = 1,
    /// A mistake on the command line or in the configuration, or a port or data folder that cannot be used.
    Usage = 2,
    /// No node answered in time.
    Unreachable = 3,
    /// There is no such topic, group or node.
    NotFound = 4,
    /// The cluster refused: it exists already, it would be unsafe, a bound is reached.
    Refused = 5,
    /// A running node stopped because its store or its Raft core failed (sysexits' EX_SOFTWARE).
    Fatal = 70,
}

/// A sentence for people, and the exit code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The exit code.
    pub(crate) kind: ExitKind,
    /// One sentence, without the program's name and without a line break.
    pub(crate) sentence: String,
}

impl Failure {
    /// A failure of this kind.
    pub(crate) fn new(kind: ExitKind, sentence: impl Into<String>) -> Failure {
        let sentence: String = sentence.into();
        // A sentence is one line, whatever the error that it quotes contains.
        Failure { kind, sentence: sentence.split_whitespace().collect::<Vec<_>>().join(" ") }
    }

    /// [`ExitKind::Failed`].
    pub(crate) fn failed(sentence: impl Into<String>) -> Failure {
        Failure::new(ExitKind::Failed, sentence)
    }

    /// [`ExitKind::Usage`].
    pub(crate) fn usage(sentence: impl Into<String>) -> Failure {
        Failure::new(ExitKind::Usage, sentence)
    }

    /// [`ExitKind::Unreachable`].
    pub(crate) fn unreachable(sentence: impl Into<String>) -> Failure {
        Failure::new(ExitKind::Unreachable, sentence)
    }

    /// [`ExitKind::NotFound`].
    pub(crate) fn not_found(sentence: impl Into<String>) -> Failure {
        Failure::new(ExitKind::NotFound, sentence)
    }

    /// [`ExitKind::Refused`].
    pub(crate) fn refused(sentence: impl Into<String>) -> Failure {
        Failure::new(ExitKind::Refused, sentence)
    }

    /// [`ExitKind::Fatal`].
    pub(crate) fn fatal(sentence: impl Into<String>) -> Failure {
        Failure::new(ExitKind::Fatal, sentence)
    }
}

/// Ends the process here, without closing anything: after a failed write nothing may be written any more, and RocksDB aborts
/// when it is closed with a file whose write failed, where operators are promised an exit code.
pub(crate) fn end_now(failure: &Failure) -> ! {
    crate::output::tell(&format!("raftmq: {failure}"));
    // SAFETY: it takes a number and does not return.
    #[allow(unsafe_code, reason = "the standard library's exit runs what RocksDB left for the end of the process")]
    unsafe {
        libc::_exit(failure.kind as i32)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl std::error::Error for Failure {}

impl From<tonic::Status> for Failure {
    /// What an admin or public call's status means for the person at the command line.
    fn from(status: tonic::Status) -> Failure {
        use tonic::Code;
        let kind = match status.code() {
            Code::NotFound => ExitKind::NotFound,
            Code::Unavailable | Code::DeadlineExceeded => ExitKind::Unreachable,
            Code::FailedPrecondition
            | Code::Aborted
            | Code::AlreadyExists
            | Code::ResourceExhausted
            | Code::PermissionDenied => ExitKind::Refused,
            Code::InvalidArgument | Code::OutOfRange => ExitKind::Usage,
            _ => ExitKind::Failed,
        };
        let message = status.message();
        if message == "transport error" || status.code() == Code::Cancelled {
            let sentence = "the connection to the node was lost; what was asked may have been done or not";
            return Failure::unreachable(sentence);
        }
        if message.is_empty() {
            Failure::new(kind, format!("the node answered {:?}", status.code()))
        } else {
            Failure::new(kind, message)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_is_one_line() {
        assert_eq!(Failure::usage("a\n  b").sentence, "a b");
    }

    #[test]
    fn statuses_map_to_exit_codes() {
        assert_eq!(Failure::from(tonic::Status::not_found("no topic")).kind, ExitKind::NotFound);
        assert_eq!(Failure::from(tonic::Status::unavailable("")).kind, ExitKind::Unreachable);
        assert_eq!(ExitKind::Fatal as u8, 70);
    }
}
