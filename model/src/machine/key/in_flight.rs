//! A message in flight: `0x08 | consumer group u64 | topic u64 | queue u32 | offset u64` ->
//! `| version | attempt u32 | popped_at u64 | command_at u32 | visible_at i64 | given by |`, where the last
//! field is nothing for a `Pop` without a client, `1 | client u64 | taken_at i64 |` for one of a client, the same with 2 when the
//! time is renewed, and `3 | request u64 |` for a `ChangeInvisible`.

use super::{Fields, LoadError, VERSION, join};
use crate::ids::{ConsumerGroupUid, QueueId, QueueOffset, Timestamp, TopicUid};
use crate::machine::{ConsumedQueue, GivenBy, InFlight};

pub(in crate::machine) const PREFIX: u8 = 0x08;

const CLIENT: u8 = 1;
const RENEWED_CLIENT: u8 = 2;
const CHANGE: u8 = 3;

pub(in crate::machine) fn key(consumed: ConsumedQueue, offset: QueueOffset) -> Vec<u8> {
    let ConsumedQueue { consumer_group, topic, queue } = consumed;
    let (consumer_group, topic) = (consumer_group.0.to_be_bytes(), topic.0.to_be_bytes());
    join(PREFIX, [&consumer_group, &topic, &queue.0.to_be_bytes(), &offset.0.to_be_bytes()])
}

pub(in crate::machine) fn value(record: &InFlight) -> Vec<u8> {
    let InFlight { attempt, popped_at, command_at, visible_at, given_by } = record;
    let (attempt, popped_at) = (attempt.to_be_bytes(), popped_at.to_be_bytes());
    let mut value = join(VERSION, [&attempt, &popped_at, &command_at.to_be_bytes(), &visible_at.0.to_be_bytes()]);
    match given_by {
        GivenBy::Pop => {}
        GivenBy::Client { client, taken_at, renewed } => {
            value.push(if *renewed { RENEWED_CLIENT } else { CLIENT });
            value.extend_from_slice(&client.to_be_bytes());
            value.extend_from_slice(&taken_at.0.to_be_bytes());
        }
        GivenBy::Change { request } => {
            value.push(CHANGE);
            value.extend_from_slice(&request.to_be_bytes());
        }
    }
    value
}

fn given_by(fields: &mut Fields<'_>) -> Result<GivenBy, LoadError> {
    if fields.is_empty() {
        return Ok(GivenBy::Pop);
    }
    match fields.u8()? {
        kind @ (CLIENT | RENEWED_CLIENT) => {
            let (client, taken_at) = (fields.u64()?, Timestamp(fields.i64()?));
            Ok(GivenBy::Client { client, taken_at, renewed: kind == RENEWED_CLIENT })
        }
        CHANGE => Ok(GivenBy::Change { request: fields.u64()? }),
        _ => Err(LoadError::Long),
    }
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
    let given_by = given_by(&mut fields)?;
    let record = InFlight { attempt, popped_at, command_at, visible_at, given_by };
    fields.end().map(|()| (consumed, offset, record))
}
