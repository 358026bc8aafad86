//! What the machine keeps for Raft beside its own state, and the envelope of a snapshot.
//!
//! ```text
//! bookkeeping: | version u8 1 | flags u8 | reserved u16 0 | reserved u32 0 | term u64 | index u64 | next_offset u64 | membership JSON |
//!              flags: 1 something is applied (term, index), 2 the state is an installed snapshot whose log starts at
//!              next_offset and whose log may not be reset yet
//! snapshot:    | version u8 1 | reserved u8×7 | next_offset u64 | machine's bytes |
//! ```
//! All integers are big-endian.

use crate::codec::damaged;
use crate::types::{LogId, StoredMembership, log_id, term_index};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::io;

const VERSION: u8 = 1;
const APPLIED: u8 = 1;
const INSTALLED: u8 = 2;
const BOOKKEEPING_HEADER_BYTES: usize = 32;
const SNAPSHOT_HEADER_BYTES: usize = 16;

/// What was applied, as Raft needs it back after a restart.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Bookkeeping {
    pub(crate) applied: Option<LogId>,
    pub(crate) membership: StoredMembership,
    /// Set by a snapshot: the CommitLog offset at which the entry after `applied` starts.
    pub(crate) installed_next_offset: Option<u64>,
}

impl Bookkeeping {
    pub(crate) fn encode(&self, membership_json: &[u8]) -> Bytes {
        let mut bytes = BytesMut::with_capacity(BOOKKEEPING_HEADER_BYTES + membership_json.len());
        let flags = if self.applied.is_some() { APPLIED } else { 0 }
            | if self.installed_next_offset.is_some() { INSTALLED } else { 0 };
        let (term, index) = self.applied.as_ref().map_or((0, 0), term_index);
        bytes.put_u8(VERSION);
        bytes.put_u8(flags);
        bytes.put_bytes(0, 6);
        bytes.put_u64(term);
        bytes.put_u64(index);
        bytes.put_u64(self.installed_next_offset.unwrap_or(0));
        assert_eq!(bytes.len(), BOOKKEEPING_HEADER_BYTES);
        bytes.put_slice(membership_json);
        bytes.freeze()
    }

    pub(crate) fn membership_json(&self) -> io::Result<Bytes> {
        Ok(serde_json::to_vec(&self.membership)?.into())
    }

    pub(crate) fn decode(mut bytes: Bytes) -> io::Result<Bookkeeping> {
        if bytes.len() < BOOKKEEPING_HEADER_BYTES {
            return Err(damaged("the Raft bookkeeping of the state is too short"));
        }
        let version = bytes.get_u8();
        if version != VERSION {
            let what =
                format!("the Raft bookkeeping of the state has the format version {version}, and this program knows");
            return Err(damaged(&format!("{what} up to {VERSION}: use a newer one")));
        }
        let flags = bytes.get_u8();
        let reserved = bytes.split_to(6);
        if flags & !(APPLIED | INSTALLED) != 0 || reserved.iter().any(|byte| *byte != 0) {
            return Err(damaged("the Raft bookkeeping of the state has unknown flags"));
        }
        let id = (bytes.get_u64(), bytes.get_u64());
        let next_offset = bytes.get_u64();
        let membership = serde_json::from_slice(&bytes)
            .map_err(|error| damaged(&format!("the membership in the state cannot be read: {error}")))?;
        Ok(Bookkeeping {
            applied: (flags & APPLIED != 0).then(|| log_id(id)),
            membership,
            installed_next_offset: (flags & INSTALLED != 0).then_some(next_offset),
        })
    }
}

/// Puts the machine's snapshot and the place where the log goes on into one.
pub(crate) fn wrap_snapshot(next_offset: u64, data: &[u8]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(SNAPSHOT_HEADER_BYTES + data.len());
    bytes.put_u8(VERSION);
    bytes.put_bytes(0, 7);
    bytes.put_u64(next_offset);
    assert_eq!(bytes.len(), SNAPSHOT_HEADER_BYTES);
    bytes.put_slice(data);
    bytes.freeze()
}

/// The inverse of [`wrap_snapshot`].
pub(crate) fn unwrap_snapshot(mut bytes: Bytes) -> io::Result<(u64, Bytes)> {
    if bytes.len() < SNAPSHOT_HEADER_BYTES {
        return Err(damaged("the snapshot is too short"));
    }
    let head = bytes.split_to(8);
    if head[0] != VERSION || head[1..].iter().any(|byte| *byte != 0) {
        return Err(damaged("the snapshot is of another version"));
    }
    let next_offset = bytes.get_u64();
    Ok((next_offset, bytes))
}
