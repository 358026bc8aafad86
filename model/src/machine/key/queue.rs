//! A queue's next offset: `0x04 | topic u64 | queue u32` -> `| version | next u64 |`. Written at most once per run of
//! entries, so that producing writes no key per message.

use super::{Fields, LoadError, VERSION, join};
use crate::ids::{QueueId, QueueOffset, TopicUid};

pub(in crate::machine) const PREFIX: u8 = 0x04;

pub(in crate::machine) fn key(topic: TopicUid, queue: QueueId) -> Vec<u8> {
    join(PREFIX, [&topic.0.to_be_bytes(), &queue.0.to_be_bytes()])
}

pub(in crate::machine) fn value(next: QueueOffset) -> Vec<u8> {
    join(VERSION, [&next.0.to_be_bytes()])
}

pub(in crate::machine) fn decode(key: &[u8], value: &[u8]) -> Result<(TopicUid, QueueId, QueueOffset), LoadError> {
    let mut fields = Fields::of_key(key)?;
    let (topic, queue) = (TopicUid(fields.u64()?), QueueId(fields.u32()?));
    fields.end()?;
    let mut fields = Fields::of_value(value)?;
    let next = QueueOffset(fields.u64()?);
    fields.end().map(|()| (topic, queue, next))
}
