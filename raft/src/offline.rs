//! What lies in the folder of a node that does not run, for tools that read it.

use crate::bookkeeping::Bookkeeping;
use crate::codec::decode_vote;
use crate::types::term_index;
use bytes::Bytes;
use raftmq_model::ids::ReplicaId;
use std::io;

/// A vote as it lies in the vote file of a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoredVote {
    /// The term.
    pub term: u64,
    /// The replica that was voted for.
    pub replica: ReplicaId,
    /// Whether that replica is known to lead the term.
    pub committed: bool,
}

/// Decodes the vote of a log.
///
/// # Errors
/// `InvalidData` when the bytes are no vote of this version.
pub fn stored_vote(bytes: &[u8]) -> io::Result<StoredVote> {
    let vote = decode_vote(bytes)?;
    let replica = ReplicaId::from_u64(vote.leader_id.voted_for);
    Ok(StoredVote { term: vote.leader_id.term, replica, committed: vote.committed })
}

/// Term and index of the last entry that a state has applied, from the bookkeeping in it; `None` when none is.
///
/// # Errors
/// `InvalidData` when the bytes are no bookkeeping of this version.
pub fn stored_applied(bookkeeping: Bytes) -> io::Result<Option<(u64, u64)>> {
    Ok(Bookkeeping::decode(bookkeeping)?.applied.as_ref().map(term_index))
}
