//! A message in flight: `0x08 | consumer group u64 | topic u64 | queue u32 | offset u64` ->
//! `| version | attempt u32 | popped_at u64 | command_at u32 | visible_at i64 | changed_by u64, left out when 0 |`.

use super::{Fields, LoadError, VERSION, join};
use crate::ids::{ConsumerGroupUid, QueueId, QueueOffset, Timestamp, TopicUid};
use crate::machine::{ConsumedQueue, InFlight};

pub(in crate::machine) const PREFIX: u8 = 0x08;

pub(in crate::machine) fn key(consumed: ConsumedQueue, offset: QueueOffset) -> Vec<u8> {
    let ConsumedQueue { consumer_group, topic, queue } = consumed;
    let (consumer_group, topic) = (consumer_group.0.to_be_bytes(), topic.0.to_be_bytes());
    join(PREFIX, [&consumer_group, &topic, &queue.0.to_be_bytes(), &offset.0.to_be_bytes()])
}

pub(in crate::machine) fn value(record: &InFlight) -> Vec<u8> {
    let InFlight { attempt, popped_at, command_at, visible_at, changed_by } = record;
    let (attempt, popped_at, changed_by) = (attempt.to_be_bytes(), popped_at.to_be_bytes(), changed_by.to_be_bytes());
    let changed_by: &[u8] = if record.changed_by == 0 { &[] } else { &changed_by };
    join(VERSION, [&attempt, &popped_at, &command_at.to_be_bytes(), &visible_at.0.to_be_bytes(), changed_by])
}

pub(in crate::machine) fn decode(
    key: &[u8],
    value: &[u8],
) -> Result<(ConsumedQueue, QueueOffset, InFlight), LoadError> {
    let mut fields = Fields::of_key(key)?;
    let consumer_group = ConsumerGroupUid(fields.u64()?);
    let consumed = ConsumedQueue { consumer_group, topic: TopicUid(fields.u64()?), queue: QueueId(fields.u32()?) };
    let offset = QueueOffset(fields.u64()?);
    fields.end()?;
    let mut fields = Fields::of_value(value)?;
    let (attempt, popped_at) = (fields.u32()?, fields.u64()?);
    let (command_at, visible_at) = (fields.u32()?, Timestamp(fields.i64()?));
    let changed_by = if fields.is_empty() { 0 } else { fields.u64()? };
    let record = InFlight { attempt, popped_at, command_at, visible_at, changed_by };
    fields.end().map(|()| (consumed, offset, record))
}
