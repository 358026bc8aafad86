//! Attempt ids: a receive that is asked again under the same id gets the same batch.

use super::changes::Changes;
use super::key;
use super::limits::Limits;
use crate::ids::{ConsumerGroupUid, QueueId, QueueOffset, Timestamp, TopicUid};
use std::collections::BTreeMap;

/// The `Pop` that an attempt id was first used by: unique in the log, and ordered by age.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct AttemptKey {
    /// Log index of the entry.
    pub(super) popped_at: u64,
    /// Offset of the command in the entry's payload.
    pub(super) command_at: u32,
}

/// The batch that an attempt id was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Attempt {
    pub(super) topic: TopicUid,
    pub(super) queue: QueueId,
    pub(super) id: Box<str>,
    /// Log time of the `Pop`.
    pub(super) at: Timestamp,
    /// The messages, in the order in which they were handed out.
    pub(super) offsets: Vec<QueueOffset>,
    /// How many of them are still in flight under the handle of this attempt. Not stored: counted when loaded.
    pub(super) left: usize,
}

/// The attempt ids of one consumer group that still have a message in flight.
#[derive(Clone, Debug, Default)]
pub(super) struct Attempts {
    by_age: BTreeMap<AttemptKey, Attempt>,
    by_id: BTreeMap<(TopicUid, Box<str>), AttemptKey>,
}

impl Attempts {
    pub(super) fn find(&self, topic: TopicUid, id: &str) -> Option<(AttemptKey, &Attempt)> {
        // A box for the look-up: the id is short, and receives are batched.
        let key = *self.by_id.get(&(topic, Box::from(id)))?;
        Some((key, self.by_age.get(&key)?))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (AttemptKey, &Attempt)> {
        self.by_age.iter().map(|(key, attempt)| (*key, attempt))
    }

    /// Adds an attempt without a word to the state store (it comes from there).
    pub(super) fn load(&mut self, key: AttemptKey, attempt: Attempt) {
        self.by_id.insert((attempt.topic, attempt.id.clone()), key);
        self.by_age.insert(key, attempt);
    }

    pub(super) fn insert(
        &mut self,
        group: ConsumerGroupUid,
        key: AttemptKey,
        attempt: Attempt,
        limits: &Limits,
        changes: &mut Changes,
    ) {
        assert!(attempt.left > 0, "an attempt without messages is not remembered");
        changes.put(key::attempt::key(group, key), key::attempt::value(&attempt));
        self.load(key, attempt);
        while self.by_age.len() > limits.attempt_ids_count_max {
            self.forget_oldest(group, changes);
        }
    }

    /// Forgets what is older than the limit.
    pub(super) fn evict(&mut self, group: ConsumerGroupUid, now: Timestamp, limits: &Limits, changes: &mut Changes) {
        while self.by_age.first_key_value().is_some_and(|(_, a)| now.ms_since(a.at) >= limits.attempt_ids_ms) {
            self.forget_oldest(group, changes);
        }
    }

    /// One message of the attempt is no longer in flight under its handle.
    pub(super) fn release(&mut self, group: ConsumerGroupUid, key: AttemptKey, changes: &mut Changes) {
        // Not there: forgotten by count or time before its messages were finished.
        let Some(attempt) = self.by_age.get_mut(&key) else { return };
        attempt.left -= 1;
        if attempt.left == 0 {
            self.forget(group, key, changes);
        }
    }

    /// Forgets the attempts on a topic that is deleted.
    pub(super) fn forget_topic(&mut self, group: ConsumerGroupUid, topic: TopicUid, changes: &mut Changes) {
        let keys: Vec<AttemptKey> = self.by_age.iter().filter(|(_, a)| a.topic == topic).map(|(k, _)| *k).collect();
        for key in keys {
            self.forget(group, key, changes);
        }
    }

    fn forget_oldest(&mut self, group: ConsumerGroupUid, changes: &mut Changes) {
        if let Some(key) = self.by_age.first_key_value().map(|(key, _)| *key) {
            self.forget(group, key, changes);
        }
    }

    fn forget(&mut self, group: ConsumerGroupUid, key: AttemptKey, changes: &mut Changes) {
        if let Some(attempt) = self.by_age.remove(&key) {
            self.by_id.remove(&(attempt.topic, attempt.id));
            changes.delete(key::attempt::key(group, key));
        }
    }
}
