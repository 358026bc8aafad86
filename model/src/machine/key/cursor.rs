//! A consumer group's cursor in a queue: `0x07 | consumer group u64 | topic u64 | queue u32` -> `| version | cursor u64 |`.
//! Written at most once per run of entries.

use super::{Fields, LoadError, VERSION, join};
use crate::ids::{ConsumerGroupUid, QueueId, QueueOffset, TopicUid};
use crate::machine::ConsumedQueue;

pub(in crate::machine) const PREFIX: u8 = 0x07;

pub(in crate::machine) fn key(consumed: ConsumedQueue) -> Vec<u8> {
    let ConsumedQueue { consumer_group, topic, queue } = consumed;
    join(PREFIX, [&consumer_group.0.to_be_bytes(), &topic.0.to_be_bytes(), &queue.0.to_be_bytes()])
}

pub(in crate::machine) fn value(cursor: QueueOffset) -> Vec<u8> {
    join(VERSION, [&cursor.0.to_be_bytes()])
}

pub(in crate::machine) fn decode(key: &[u8], value: &[u8]) -> Result<(ConsumedQueue, QueueOffset), LoadError> {
    let mut fields = Fields::of_key(key)?;
    let consumer_group = ConsumerGroupUid(fields.u64()?);
    let consumed = ConsumedQueue { consumer_group, topic: TopicUid(fields.u64()?), queue: QueueId(fields.u32()?) };
    fields.end()?;
    let mut fields = Fields::of_value(value)?;
    let cursor = QueueOffset(fields.u64()?);
    fields.end().map(|()| (consumed, cursor))
}
