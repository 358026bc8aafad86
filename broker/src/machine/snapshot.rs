//! The body of a kept snapshot: Raft's bookkeeping and all pairs of the state behind one entry.
//!
//! ```text
//! kept:  | version u8 1 | bookkeeping bytes u32 | bookkeeping | pairs |
//! pairs: | version u8 1 | (key bytes u32 | key | value bytes u32 | value)* |       (big-endian, ascending keys)
//! ```

use bytes::{Buf, BufMut, Bytes};
use raftmq_model::ids::GroupId;
use raftmq_model::machine::{GroupState, Limits, Loader};
use raftmq_raft::KeptSnapshot;
use raftmq_store::state::WriteBatch;
use std::io;

const VERSION: u8 = 1;

/// The snapshot of a state in which nothing is dirty.
pub(super) fn encode(bookkeeping: &Bytes, state: &GroupState) -> Vec<u8> {
    let mut body = vec![VERSION];
    body.put_u32(bookkeeping.len() as u32);
    body.put_slice(bookkeeping);
    body.put_u8(VERSION);
    state.export(|key, value| {
        body.put_u32(key.len() as u32);
        body.put_slice(&key);
        body.put_u32(value.len() as u32);
        body.put_slice(&value);
    });
    body
}

/// As a snapshot that came from another replica is kept here.
pub(super) fn join(bookkeeping: &Bytes, pairs: &Bytes) -> Vec<u8> {
    let mut body = vec![VERSION];
    body.put_u32(bookkeeping.len() as u32);
    body.put_slice(bookkeeping);
    body.put_slice(pairs);
    body
}

/// Takes bookkeeping and pairs apart.
pub(super) fn decode(mut body: Bytes) -> io::Result<KeptSnapshot> {
    version(&mut body)?;
    let bookkeeping = field(&mut body)?;
    Ok(KeptSnapshot { bookkeeping, data: body })
}

/// The state of a snapshot, and its pairs for the store.
pub(super) fn load(group: GroupId, rules: Limits, mut pairs: Bytes) -> io::Result<(GroupState, WriteBatch)> {
    version(&mut pairs)?;
    let mut loader = Loader::with_limits(group, rules);
    let mut batch = WriteBatch::new();
    while pairs.has_remaining() {
        let (key, value) = (field(&mut pairs)?, field(&mut pairs)?);
        loader.add(&key, &value).map_err(|error| damaged(&error.to_string()))?;
        batch.put(key, value);
    }
    Ok((loader.finish(), batch))
}

fn version(bytes: &mut Bytes) -> io::Result<()> {
    match bytes.try_get_u8() {
        Ok(VERSION) => Ok(()),
        Ok(version) => Err(damaged(&format!("version {version} is not known to this build"))),
        Err(_) => Err(damaged("it is empty")),
    }
}

fn field(bytes: &mut Bytes) -> io::Result<Bytes> {
    let len = bytes.try_get_u32().map_err(|_| damaged("it ends in the middle of a field"))? as usize;
    if len > bytes.len() {
        return Err(damaged("it ends in the middle of a field"));
    }
    Ok(bytes.split_to(len))
}

fn damaged(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the snapshot cannot be read: {reason}"))
}
