//! A disk that is an older copy of itself: the node does not run on it.

use crate::exit::Failure;
use raftmq_model::ids::NodeId;
use raftmq_raft::StampError;

/// How the node ends.
pub(super) fn failure(node: NodeId, error: &StampError) -> Failure {
    Failure::fatal(match error {
        StampError::Older { .. } => format!(
            "{error}; what it acknowledged since may be missing: move the folder away, start the node with an empty one and run `raftmq replica replace {node}`"
        ),
        StampError::Failed(_) => error.to_string(),
    })
}
