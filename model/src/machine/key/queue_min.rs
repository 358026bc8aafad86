//! A queue's first offset where messages were purged: `0x0D | topic u64 | queue u32` -> `| version | min u64 |`.

use super::{Fields, LoadError, VERSION, join};
use crate::ids::{QueueId, QueueOffset, TopicUid};

pub(in crate::machine) const PREFIX: u8 = 0x0D;

pub(in crate::machine) fn key(topic: TopicUid, queue: QueueId) -> Vec<u8> {
    join(PREFIX, [&topic.0.to_be_bytes(), &queue.0.to_be_bytes()])
}

pub(in crate::machine) fn value(min: QueueOffset) -> Vec<u8> {
    join(VERSION, [&min.0.to_be_bytes()])
}

pub(in crate::machine) fn decode(key: &[u8], value: &[u8]) -> Result<(TopicUid, QueueId, QueueOffset), LoadError> {
    let mut fields = Fields::of_key(key)?;
    let (topic, queue) = (TopicUid(fields.u64()?), QueueId(fields.u32()?));
    fields.end()?;
    let mut fields = Fields::of_value(value)?;
    let min = QueueOffset(fields.u64()?);
    fields.end().map(|()| (topic, queue, min))
}
