//! Why a call could not be served here, in the words that travel to other nodes.

use raftmq_proto::forward::{Failure, failure::Kind};
use raftmq_raft::ProposeError;
use raftmq_store::commit_log::is_damage;

/// A failure with a sentence.
pub(crate) fn failure(kind: Kind, message: impl Into<String>) -> Failure {
    Failure { kind: kind as i32, leader_node: 0, message: message.into() }
}

/// The failure that a read of the log is to the caller: damage is being repaired, and what is asked again can be read then.
pub(super) fn of_read(kind: Kind, what: &str, error: &std::io::Error) -> Failure {
    let kind = if is_damage(error) { Kind::NotReady } else { kind };
    failure(kind, format!("{what} cannot be read: {error}"))
}

/// The failure that a proposal's error is to the caller.
pub(super) fn of_propose(error: ProposeError) -> Failure {
    let kind = match error {
        ProposeError::NotLeader { .. } => Kind::NotLeader,
        // A closed group is a node on its way down: its successor will lead.
        ProposeError::NotReady | ProposeError::Stopped => Kind::NotReady,
        ProposeError::Overloaded => Kind::Overloaded,
        ProposeError::TooLarge => Kind::Invalid,
        ProposeError::Unknown => Kind::Unknown,
    };
    let leader_node = match error {
        ProposeError::NotLeader { leader: Some(leader) } => leader.0,
        _ => 0,
    };
    Failure { kind: kind as i32, leader_node, message: error.to_string() }
}
