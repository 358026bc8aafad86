//! An attempt id and its batch: `0x09 | consumer group u64 | popped_at u64 | command_at u32` ->
//! `| version | topic u64 | queue u32 | at i64 | id length u32 | id | count u32 | count × offset u64 |`.

use super::{Fields, LoadError, VERSION, join};
use crate::ids::{ConsumerGroupUid, QueueId, QueueOffset, Timestamp, TopicUid};
use crate::machine::attempts::{Attempt, AttemptKey};

pub(in crate::machine) const PREFIX: u8 = 0x09;

pub(in crate::machine) fn key(group: ConsumerGroupUid, key: AttemptKey) -> Vec<u8> {
    join(PREFIX, [&group.0.to_be_bytes(), &key.popped_at.to_be_bytes(), &key.command_at.to_be_bytes()])
}

pub(in crate::machine) fn value(attempt: &Attempt) -> Vec<u8> {
    // Both lengths are bounded by `Limits` far below 4 GiB.
    let (id_len, count) = (attempt.id.len() as u32, attempt.offsets.len() as u32);
    let (topic, queue) = (attempt.topic.0.to_be_bytes(), attempt.queue.0.to_be_bytes());
    let id = attempt.id.as_bytes();
    let mut value =
        join(VERSION, [&topic, &queue, &attempt.at.0.to_be_bytes(), &id_len.to_be_bytes(), id, &count.to_be_bytes()]);
    for offset in &attempt.offsets {
        value.extend_from_slice(&offset.0.to_be_bytes());
    }
    value
}

/// The attempt comes back with `left` 0: the loader counts.
pub(in crate::machine) fn decode(
    key: &[u8],
    value: &[u8],
) -> Result<(ConsumerGroupUid, AttemptKey, Attempt), LoadError> {
    let mut fields = Fields::of_key(key)?;
    let group = ConsumerGroupUid(fields.u64()?);
    let key = AttemptKey { popped_at: fields.u64()?, command_at: fields.u32()? };
    fields.end()?;
    let mut fields = Fields::of_value(value)?;
    let (topic, queue) = (TopicUid(fields.u64()?), QueueId(fields.u32()?));
    let at = Timestamp(fields.i64()?);
    let id_len = fields.u32()? as usize;
    let id = std::str::from_utf8(fields.bytes(id_len)?).map_err(|_| LoadError::Record)?.into();
    let count = fields.u32()?;
    let offsets = (0..count).map(|_| fields.u64().map(QueueOffset)).collect::<Result<Vec<_>, _>>()?;
    fields.end()?;
    Ok((group, key, Attempt { topic, queue, id, at, offsets, left: 0 }))
}
