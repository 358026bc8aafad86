//! How far a consumer group is in one queue, and what of it is in flight.

use super::attempts::{AttemptKey, Attempts};
use super::changes::Changes;
use super::key;
use crate::ids::{ConsumerGroupUid, QueueId, QueueOffset, Timestamp, TopicUid};
use std::collections::{BTreeMap, BTreeSet};

/// A queue as one consumer group consumes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConsumedQueue {
    /// The consumer group.
    pub consumer_group: ConsumerGroupUid,
    /// The topic.
    pub topic: TopicUid,
    /// The queue.
    pub queue: QueueId,
}

/// A message that was taken and is not finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InFlight {
    /// Delivery attempt, from 1.
    pub attempt: u32,
    /// Log index of the entry that gave the newest handle out.
    pub popped_at: u64,
    /// Offset of the `Pop` in that entry when it named an attempt id, else [`InFlight::NO_ATTEMPT_ID`].
    pub command_at: u32,
    /// When it may be taken again.
    pub visible_at: Timestamp,
    /// The `ChangeInvisible` request that gave the newest handle out; 0 when a `Pop` did.
    pub changed_by: u64,
}

impl InFlight {
    /// `command_at` of a message whose newest handle was not given out under an attempt id. No command begins there:
    /// a payload is far smaller.
    pub const NO_ATTEMPT_ID: u32 = u32::MAX;

    pub(super) fn attempt_key(&self) -> Option<AttemptKey> {
        (self.command_at != InFlight::NO_ATTEMPT_ID)
            .then_some(AttemptKey { popped_at: self.popped_at, command_at: self.command_at })
    }
}

/// Cursor and in-flight records of one [`ConsumedQueue`].
///
/// Invariants: each in-flight offset is below the cursor; each in-flight record is either in `due` or, when it had its
/// last attempt, in [`super::GroupState`]'s `exhausted`.
#[derive(Clone, Debug, Default)]
pub(super) struct Consumption {
    /// Everything below was taken at least once or skipped by a filter.
    pub(super) cursor: QueueOffset,
    pub(super) in_flight: BTreeMap<QueueOffset, InFlight>,
    /// In-flight messages with attempts left, by the time when they may be taken again.
    pub(super) due: BTreeSet<(Timestamp, QueueOffset)>,
    pub(super) dirty: bool,
}

/// The in-flight records of one [`ConsumedQueue`] together with everything that follows them.
pub(super) struct Flight<'a> {
    pub(super) consumed: ConsumedQueue,
    pub(super) attempts_max: u32,
    pub(super) queue: &'a mut Consumption,
    pub(super) attempts: &'a mut Attempts,
    pub(super) exhausted: &'a mut BTreeSet<(Timestamp, ConsumedQueue, QueueOffset)>,
}

impl Flight<'_> {
    /// Puts a message in flight or changes its record.
    pub(super) fn set(&mut self, offset: QueueOffset, record: InFlight, changes: &mut Changes) {
        if let Some(old) = self.queue.in_flight.insert(offset, record) {
            assert!(record.attempt == old.attempt || record.attempt == old.attempt + 1, "attempts grow by one");
            self.unindex(offset, &old);
            if old.attempt_key() != record.attempt_key() {
                self.release(&old, changes);
            }
        }
        self.index(offset, &record);
        changes.put(key::in_flight::key(self.consumed, offset), key::in_flight::value(&record));
    }

    /// Finishes a message that is in flight.
    pub(super) fn finish(&mut self, offset: QueueOffset, changes: &mut Changes) {
        if let Some(old) = self.queue.in_flight.remove(&offset) {
            self.unindex(offset, &old);
            self.release(&old, changes);
            changes.delete(key::in_flight::key(self.consumed, offset));
        }
    }

    /// Orders a record by the time when something can be done about it.
    pub(super) fn index(&mut self, offset: QueueOffset, record: &InFlight) {
        if record.attempt >= self.attempts_max {
            self.exhausted.insert((record.visible_at, self.consumed, offset));
        } else {
            self.queue.due.insert((record.visible_at, offset));
        }
    }

    /// The inverse of [`Flight::index`]; right as well when `attempts_max` is another than it was then.
    pub(super) fn unindex(&mut self, offset: QueueOffset, record: &InFlight) {
        if !self.queue.due.remove(&(record.visible_at, offset)) {
            let known = self.exhausted.remove(&(record.visible_at, self.consumed, offset));
            assert!(known, "an in-flight message is in the due order");
        }
    }

    /// Tells the attempt id under which `old` was given out that it has one message less.
    fn release(&mut self, old: &InFlight, changes: &mut Changes) {
        if let Some(attempt) = old.attempt_key() {
            self.attempts.release(self.consumed.consumer_group, attempt, changes);
        }
    }
}
