//! Errors of a client, by what the caller should do about them.

use raftmq_proto::v2::{Code, Status};
use std::error::Error as _;
use thiserror::Error;

/// Why one attempt, or a whole call, failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ClientError {
    /// An endpoint is not `host:port`, or there is none.
    #[error("{0:?} is no endpoint (host:port)")]
    Endpoint(String),
    /// The endpoint could not be reached: nothing was sent.
    #[error("{endpoint} cannot be reached: {message}")]
    Unreachable {
        /// The endpoint.
        endpoint: String,
        /// What the network says.
        message: String,
    },
    /// The call broke or timed out: whether the server took it is not known.
    #[error("the call to {endpoint} failed ({code:?}): {message}")]
    Transport {
        /// The endpoint.
        endpoint: String,
        /// The status of gRPC.
        code: tonic::Code,
        /// Its message.
        message: String,
    },
    /// The server answered with a status that is not OK.
    #[error("the server says {code} {}: {message}", code_name(*.code))]
    Refused {
        /// Number of a [`Code`], also one that this build does not know.
        code: i32,
        /// The server's sentence.
        message: String,
    },
    /// The answer makes no sense.
    #[error("the server's answer has {0}")]
    Malformed(&'static str),
    /// The route of a topic has no queue that could be used.
    #[error("the route of topic {0:?} has no queue for this")]
    NoQueue(String),
    /// Messages of one request must have one topic, and there must be at least one.
    #[error("a request takes one or more messages of one topic")]
    MixedTopics,
}

/// What a caller can do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// Try again, best at another endpoint.
    Retry,
    /// Try again, later.
    Overloaded,
    /// The topic, group or message does not exist.
    NotFound,
    /// Not allowed.
    Denied,
    /// The request can never succeed as it is.
    Invalid,
}

fn code_name(code: i32) -> &'static str {
    Code::try_from(code).map_or("(unknown code)", |code| code.as_str_name())
}

impl ClientError {
    /// What to do about it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            ClientError::Unreachable { .. } | ClientError::Malformed(_) => ErrorKind::Retry,
            ClientError::Transport { code, .. } => match code {
                tonic::Code::Unimplemented | tonic::Code::InvalidArgument | tonic::Code::OutOfRange => {
                    ErrorKind::Invalid
                }
                tonic::Code::Unauthenticated | tonic::Code::PermissionDenied => ErrorKind::Denied,
                _ => ErrorKind::Retry,
            },
            ClientError::Refused { code, .. } => kind_of(*code),
            ClientError::NoQueue(_) => ErrorKind::NotFound,
            ClientError::Endpoint(_) | ClientError::MixedTopics => ErrorKind::Invalid,
        }
    }

    /// The status code that the server answered with, if this build knows it.
    #[must_use]
    pub fn code(&self) -> Option<Code> {
        match self {
            ClientError::Refused { code, .. } => Code::try_from(*code).ok(),
            _ => None,
        }
    }

    /// Whether another attempt may succeed.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self.kind(), ErrorKind::Retry | ErrorKind::Overloaded)
    }

    /// Whether a request that failed like this may have had its effect.
    #[must_use]
    pub fn maybe_done(&self) -> bool {
        match self {
            ClientError::Transport { .. } | ClientError::Malformed(_) => true,
            // HA_NOT_AVAILABLE and TOO_MANY_REQUESTS are given before anything is proposed.
            ClientError::Refused { .. } => match self.code() {
                Some(Code::HaNotAvailable | Code::TooManyRequests) => false,
                _ => self.is_retryable(),
            },
            _ => false,
        }
    }

    /// Whether the endpoint itself is in trouble, so that others are better for a while.
    pub(crate) fn blames_endpoint(&self) -> bool {
        matches!(self, ClientError::Unreachable { .. } | ClientError::Transport { .. }) && self.is_retryable()
    }

    pub(crate) fn from_grpc(endpoint: &str, status: &tonic::Status) -> ClientError {
        let mut cause = status.source();
        while let Some(error) = cause {
            if error.is::<tonic::ConnectError>() {
                let message = status.message().to_owned();
                return ClientError::Unreachable { endpoint: endpoint.to_owned(), message };
            }
            cause = error.source();
        }
        ClientError::Transport {
            endpoint: endpoint.to_owned(),
            code: status.code(),
            message: status.message().to_owned(),
        }
    }
}

fn kind_of(code: i32) -> ErrorKind {
    match Code::try_from(code) {
        Ok(
            Code::InternalServerError
            | Code::HaNotAvailable
            | Code::ProxyTimeout
            | Code::MasterPersistenceTimeout
            | Code::SlavePersistenceTimeout,
        ) => ErrorKind::Retry,
        Ok(Code::TooManyRequests) => ErrorKind::Overloaded,
        Ok(
            Code::NotFound
            | Code::MessageNotFound
            | Code::TopicNotFound
            | Code::ConsumerGroupNotFound
            | Code::OffsetNotFound,
        ) => ErrorKind::NotFound,
        Ok(Code::Unauthorized | Code::Forbidden | Code::PaymentRequired) => ErrorKind::Denied,
        _ => ErrorKind::Invalid,
    }
}

/// `Ok` for an OK status, else the error that it says.
pub(crate) fn check(status: Option<Status>) -> Result<(), ClientError> {
    let status = status.ok_or(ClientError::Malformed("no status"))?;
    if status.code == Code::Ok as i32 {
        return Ok(());
    }
    Err(ClientError::Refused { code: status.code, message: status.message })
}

/// Why a send failed for good.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("after {attempts} attempt(s): {cause}")]
pub struct SendError {
    /// What the last attempt says.
    pub cause: ClientError,
    /// Attempts made.
    pub attempts: u32,
    /// Whether the message may be stored all the same: at least one attempt ended without a certain answer.
    pub maybe_stored: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: Code) -> ClientError {
        ClientError::Refused { code: code as i32, message: String::new() }
    }

    #[test]
    fn codes_say_what_to_do() {
        use Code::{
            HaNotAvailable, InternalServerError, MasterPersistenceTimeout, ProxyTimeout, SlavePersistenceTimeout,
        };
        for code in
            [HaNotAvailable, InternalServerError, MasterPersistenceTimeout, ProxyTimeout, SlavePersistenceTimeout]
        {
            assert_eq!(refused(code).kind(), ErrorKind::Retry, "{code:?}");
        }
        assert_eq!(refused(Code::TooManyRequests).kind(), ErrorKind::Overloaded);
        assert_eq!(refused(Code::TopicNotFound).kind(), ErrorKind::NotFound);
        assert_eq!(refused(Code::Forbidden).kind(), ErrorKind::Denied);
        assert_eq!(refused(Code::IllegalTopic).kind(), ErrorKind::Invalid);
        assert!(!refused(Code::NotImplemented).is_retryable());
        let unknown = ClientError::Refused { code: 99, message: "new".to_owned() };
        assert_eq!(unknown.to_string(), "the server says 99 (unknown code): new");
    }

    #[test]
    fn only_certain_answers_rule_out_an_effect() {
        assert!(!refused(Code::HaNotAvailable).maybe_done() && !refused(Code::TooManyRequests).maybe_done());
        assert!(
            refused(Code::MasterPersistenceTimeout).maybe_done() && refused(Code::InternalServerError).maybe_done()
        );
        assert!(!refused(Code::IllegalTopic).maybe_done());
        let broken = ClientError::from_grpc("a:1", &tonic::Status::unavailable("reset"));
        assert!(broken.maybe_done() && broken.blames_endpoint());
        let unreachable = ClientError::Unreachable { endpoint: "a:1".to_owned(), message: String::new() };
        assert!(!unreachable.maybe_done() && unreachable.is_retryable());
    }
}
