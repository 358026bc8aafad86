//! What a broker group's state says in the folder of a node that does not run, for tools that read it.

use super::checkpoint::{BOOKKEEPING_KEY, INSTALLED_KEY, Kept};
use super::open::load;
use bytes::Bytes;
use raftmq_model::ids::GroupId;
use raftmq_model::machine::Limits;
use raftmq_raft::stored_applied;
use raftmq_store::inspect::Checkpoint;
use raftmq_store::state::StateStore;
use std::io;

/// Reads the whole state of the last checkpoint: what it has applied, and where its queues end.
///
/// # Errors
/// When a pair of the state cannot be read, or the pairs contradict each other.
pub fn stored_checkpoint(group: GroupId, store: &dyn StateStore) -> io::Result<Checkpoint> {
    let state = load(group, Limits::default(), store)?;
    let kept = store.get(BOOKKEEPING_KEY)?.map(|value| Kept::decode(Bytes::from(value))).transpose()?;
    let applied = match kept {
        None => None,
        Some(kept) => {
            let applied = stored_applied(kept.bookkeeping)?;
            if applied.map_or(0, |(_, index)| index) != kept.applied {
                let what = format!("the state has applied {} and its bookkeeping {applied:?}", kept.applied);
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            }
            applied
        }
    };
    // A crash in the middle of installing a snapshot: the next start makes the queues anew.
    let installing = store.get(INSTALLED_KEY)?.is_some();
    let queues = if installing { Vec::new() } else { state.queues().collect() };
    Ok(Checkpoint { applied, queues })
}
