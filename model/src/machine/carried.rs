//! The records that a command carries into the log, for whoever reads a log without applying it.

use super::append::record_at;
use super::dead_letter::letter_at;
use crate::command::Command;
use crate::ids::{PhysicalOffset, Position, QueueId, TopicUid};
use bytes::Bytes;

/// A record in the log and where it asks to be enqueued. Whether it was is up to the rules: a repeated message, one of
/// an unknown topic or a refused dead letter lies in the log and in no queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Carried<'a> {
    /// The topic.
    pub topic: TopicUid,
    /// The queue.
    pub queue: QueueId,
    /// Tag hash for the ConsumeQueue unit.
    pub tags_code: i64,
    /// The client's message id; `None` for a dead letter, whose record has it.
    pub message_id: Option<&'a Bytes>,
    /// CommitLog offset of the record.
    pub physical: PhysicalOffset,
    /// The record in RocketMQ's layout.
    pub record: &'a Bytes,
}

/// The records of a command, in order. `at` and `command_at` as for [`super::GroupState::apply`].
#[must_use]
pub fn carried(at: Position, command_at: u32, command: &Command) -> Vec<Carried<'_>> {
    match command {
        Command::Append(append) => append
            .entries
            .iter()
            .map(|entry| Carried {
                topic: entry.topic,
                queue: entry.queue,
                tags_code: entry.tags_code,
                message_id: Some(&entry.message_id),
                physical: record_at(at, command_at, entry.record_at),
                record: &entry.record,
            })
            .collect(),
        Command::DeadLetter(letter) => vec![Carried {
            topic: TopicUid(letter.letter_topic),
            queue: QueueId(letter.letter_queue),
            tags_code: letter.letter_tags_code,
            message_id: None,
            physical: record_at(at, command_at, letter_at(letter)),
            record: &letter.letter,
        }],
        _ => Vec::new(),
    }
}
