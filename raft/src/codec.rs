//! Bytes of votes and entries in the log store.
//!
//! ```text
//! vote: | version u8 1 | committed u8 | reserved u16 0 | reserved u32 0 | term u64 | replica u64 |   big-endian
//! ```

use crate::types::{LeaderId, Membership, Payload, RaftEntry, Vote, log_id, term_index};
use bytes::{BufMut, Bytes, BytesMut};
use openraft::EntryPayload;
use raftmq_store::commit_log::{EntryKind, NewEntry, StoredEntry};
use std::io;

const VOTE_VERSION: u8 = 1;
const VOTE_BYTES: usize = 24;

pub(crate) fn encode_vote(vote: &Vote) -> Bytes {
    let mut bytes = BytesMut::with_capacity(VOTE_BYTES);
    bytes.put_u8(VOTE_VERSION);
    bytes.put_u8(u8::from(vote.committed));
    bytes.put_bytes(0, 6);
    bytes.put_u64(vote.leader_id.term);
    bytes.put_u64(vote.leader_id.voted_for);
    assert_eq!(bytes.len(), VOTE_BYTES);
    bytes.freeze()
}

pub(crate) fn decode_vote(bytes: &[u8]) -> io::Result<Vote> {
    let fixed: &[u8; VOTE_BYTES] = bytes.try_into().map_err(|_| damaged("a vote has 24 bytes"))?;
    let (head, numbers) = fixed.split_at(8);
    if head[0] != VOTE_VERSION || head[1] > 1 || head[2..].iter().any(|byte| *byte != 0) {
        return Err(damaged("the vote is of another version"));
    }
    let (term, replica) = numbers.split_at(8);
    Ok(Vote { leader_id: LeaderId { term: u64_of(term), voted_for: u64_of(replica) }, committed: head[1] == 1 })
}

fn u64_of(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |value, byte| (value << 8) | u64::from(*byte))
}

/// The log store's form of an entry: kind and payload.
pub(crate) fn split_entry(entry: &RaftEntry) -> io::Result<(EntryKind, Bytes)> {
    Ok(match &entry.payload {
        EntryPayload::Blank => (EntryKind::Blank, Bytes::new()),
        EntryPayload::Normal(payload) => (EntryKind::Batch, payload.bytes.clone()),
        // Maps and sets in it are ordered, so equal memberships are equal bytes on all replicas.
        EntryPayload::Membership(membership) => (EntryKind::Membership, serde_json::to_vec(membership)?.into()),
    })
}

/// The inverse of [`split_entry`]; `payload_offset` is 0 when not known.
pub(crate) fn join_entry(id: (u64, u64), kind: EntryKind, payload: Payload) -> io::Result<RaftEntry> {
    let payload = match kind {
        EntryKind::Blank => EntryPayload::Blank,
        EntryKind::Batch => EntryPayload::Normal(payload),
        EntryKind::Membership => EntryPayload::Membership(decode_membership(&payload.bytes)?),
    };
    Ok(RaftEntry { log_id: log_id(id), payload })
}

pub(crate) fn decode_membership(bytes: &[u8]) -> io::Result<Membership> {
    serde_json::from_slice(bytes).map_err(|error| damaged(&format!("a membership entry cannot be read: {error}")))
}

pub(crate) fn to_new_entry(entry: &RaftEntry) -> io::Result<NewEntry> {
    let (kind, payload) = split_entry(entry)?;
    let (term, index) = term_index(&entry.log_id);
    Ok(NewEntry { term, index, kind, payload })
}

pub(crate) fn from_stored(entry: StoredEntry) -> io::Result<RaftEntry> {
    let payload = Payload::placed(entry.payload, entry.payload_offset);
    join_entry((entry.term, entry.index), entry.kind, payload)
}

pub(crate) fn damaged(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason.to_owned())
}
