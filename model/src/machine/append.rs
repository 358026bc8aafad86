//! `Append`: queue offsets are assigned here, and nowhere else.

use super::changes::{Changes, Enqueue};
use super::window::{MessageKey, Receipt};
use super::{GroupState, Queue};
use crate::command::{Append, AppendEntry, AppendOutcome, Outcome};
use crate::ids::{PhysicalOffset, Position, QueueId, QueueOffset, TopicUid};
use bytes::Bytes;

impl GroupState {
    pub(super) fn append(&mut self, at: Position, command_at: u32, append: &Append, changes: &mut Changes) -> Outcome {
        changes.enqueues.reserve(append.entries.len());
        let outcomes = append.entries.iter().map(|entry| self.append_entry(at, command_at, entry, changes));
        Outcome::Append(outcomes.collect())
    }

    fn append_entry(
        &mut self,
        at: Position,
        command_at: u32,
        entry: &AppendEntry,
        changes: &mut Changes,
    ) -> AppendOutcome {
        let Some(topic) = self.topics.get_mut(&entry.topic) else { return AppendOutcome::UnknownTopic };
        let key = MessageKey::new(entry.topic, &entry.message_id);
        if let Some(first) = key.as_ref().and_then(|key| self.window.get(key)) {
            let Receipt { queue, offset, physical } = first;
            return AppendOutcome::Stored { queue, offset, physical, repeated: true };
        }
        let Some(queue) = topic.queues.get_mut(&entry.queue) else { return AppendOutcome::UnknownQueue };
        let physical = record_at(at, command_at, entry.record_at);
        let place = (entry.topic, entry.queue);
        let offset = enqueue(queue, &mut self.dirty.queues, place, physical, &entry.record, entry.tags_code, changes);
        if let Some(key) = key {
            self.window.insert(&key, Receipt { queue: entry.queue, offset, physical }, at.index, self.now);
        }
        AppendOutcome::Stored { queue: entry.queue, offset, physical, repeated: false }
    }
}

/// CommitLog offset of a record that lies `in_command` bytes behind the start of a command.
pub(super) fn record_at(at: Position, command_at: u32, in_command: u32) -> PhysicalOffset {
    PhysicalOffset(at.payload_offset.0 + u64::from(command_at) + u64::from(in_command))
}

/// Gives a record the next offset of its queue.
pub(super) fn enqueue(
    queue: &mut Queue,
    dirty: &mut Vec<(TopicUid, QueueId)>,
    place: (TopicUid, QueueId),
    physical: PhysicalOffset,
    record: &Bytes,
    tags_code: i64,
    changes: &mut Changes,
) -> QueueOffset {
    assert!(record.len() <= i32::MAX as usize, "a record's size fits a ConsumeQueue unit");
    let offset = queue.next;
    queue.next = QueueOffset(offset.0 + 1);
    if !queue.dirty {
        queue.dirty = true;
        dirty.push(place);
    }
    let size = record.len() as u32;
    changes.enqueues.push(Enqueue { topic: place.0, queue: place.1, offset, physical, size, tags_code });
    offset
}
