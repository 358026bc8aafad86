//! A snapshot that replicas keep: `0x0C | index u64` -> `| version | offset u64 | at i64 | (topic u64 | queue u32 | next u64)* |`.

use super::{Fields, LoadError, VERSION, join};
use crate::ids::{PhysicalOffset, QueueId, QueueOffset, Timestamp, TopicUid};
use crate::machine::SnapshotPoint;

pub(in crate::machine) const PREFIX: u8 = 0x0C;

pub(in crate::machine) fn key(index: u64) -> Vec<u8> {
    join(PREFIX, [&index.to_be_bytes()])
}

pub(in crate::machine) fn value(point: &SnapshotPoint) -> Vec<u8> {
    let mut value = join(VERSION, [&point.offset.0.to_be_bytes(), &point.at.0.to_be_bytes()]);
    for (topic, queue, next) in &point.queues {
        value.extend_from_slice(&topic.0.to_be_bytes());
        value.extend_from_slice(&queue.0.to_be_bytes());
        value.extend_from_slice(&next.0.to_be_bytes());
    }
    value
}

pub(in crate::machine) fn decode(key: &[u8], value: &[u8]) -> Result<SnapshotPoint, LoadError> {
    let mut fields = Fields::of_key(key)?;
    let index = fields.u64()?;
    fields.end()?;
    let mut fields = Fields::of_value(value)?;
    let (offset, at) = (PhysicalOffset(fields.u64()?), Timestamp(fields.i64()?));
    let mut queues = Vec::new();
    while !fields.is_empty() {
        queues.push((TopicUid(fields.u64()?), QueueId(fields.u32()?), QueueOffset(fields.u64()?)));
    }
    Ok(SnapshotPoint { index, offset, at, queues })
}
