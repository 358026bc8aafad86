//! The state as key-value pairs: rebuilding it from them, and all of them for a snapshot.

use super::attempts::Attempts;
use super::consumption::Consumption;
use super::key::window_from::WindowFrom;
use super::window::{MessageKey, Receipt, Remembered, Replay};
use super::{ConsumerGroup, GroupState, Limits, Purged, Queue, Topic, key};
use crate::command::Command;
use crate::ids::{GroupId, PhysicalOffset, Position, QueueId, QueueOffset, Timestamp, TopicUid};
use std::sync::Arc;

/// Why pairs do not make a state. Any of these means that the store was written by a newer version or is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// A key prefix that this version does not know.
    #[error("a key with the unknown prefix {0:#04x}, as a newer program may write: use that one")]
    Prefix(u8),
    /// A value version that this version does not know.
    #[error("a value of the unknown format version {0}, as a newer program may write: use that one")]
    Version(u8),
    /// A key or value ends early.
    #[error("state key or value is too short")]
    Short,
    /// A key or value goes on behind its fields.
    #[error("state key or value is too long")]
    Long,
    /// A record inside a value cannot be right.
    #[error("state value holds a damaged record")]
    Record,
    /// A record names a topic, queue or consumer group that is not there (pairs must come in key order).
    #[error("state record without its parent: pairs out of order?")]
    Orphan,
}

/// Takes pairs in key order and makes a state of them.
#[derive(Debug)]
pub struct Loader {
    state: GroupState,
}

impl Loader {
    /// A loader that has seen no pair yet.
    #[must_use]
    pub fn new(group: GroupId) -> Loader {
        Loader::with_limits(group, Limits::default())
    }

    /// As [`Loader::new`] with other limits than the default ones.
    #[must_use]
    pub fn with_limits(group: GroupId, limits: Limits) -> Loader {
        Loader { state: GroupState::with_limits(group, limits) }
    }

    /// Takes one pair. Pairs come in ascending order of their keys, as a scan of the store yields them; those of the
    /// runtime ([`key::RUNTIME_PREFIX_MIN`]) are passed over.
    ///
    /// # Errors
    /// The pair cannot be one of this state.
    pub fn add(&mut self, key: &[u8], value: &[u8]) -> Result<(), LoadError> {
        let prefix = *key.first().ok_or(LoadError::Short)?;
        let state = &mut self.state;
        match prefix {
            key::clock::PREFIX => state.now = key::clock::decode(value)?,
            key::topic::PREFIX => state.load_topic(key, value)?,
            key::topic_removed::PREFIX => {
                state.topics_removed.insert(key::topic_removed::decode(key, value)?);
            }
            key::queue::PREFIX => state.load_queue(key, value)?,
            key::consumer_group::PREFIX => {
                let config = Arc::new(key::consumer_group::decode(key, value)?);
                let group = ConsumerGroup { config: Arc::clone(&config), attempts: Attempts::default() };
                state.consumer_groups.insert(config.uid(), group);
            }
            key::consumer_group_removed::PREFIX => {
                state.consumer_groups_removed.insert(key::consumer_group_removed::decode(key, value)?);
            }
            key::cursor::PREFIX => {
                let (consumed, cursor) = key::cursor::decode(key, value)?;
                state.consumptions.insert(consumed, Consumption { cursor, ..Consumption::default() });
            }
            key::in_flight::PREFIX => state.load_in_flight(key, value)?,
            key::attempt::PREFIX => state.load_attempt(key, value)?,
            key::window_from::PREFIX => state.load_window_from(key::window_from::decode(value)?),
            key::window_chunk::PREFIX => {
                let (index, mut entries) = key::window_chunk::decode(value)?;
                // A topic that was deleted since the snapshot left the window then.
                entries.retain(|entry| state.topics.contains_key(&entry.key.topic()));
                state.window.load_chunk(key, index, &entries, state.now);
            }
            key::snapshot_point::PREFIX => state.retention.points.push(key::snapshot_point::decode(key, value)?),
            key::queue_min::PREFIX => state.load_queue_min(key, value)?,
            key::purged::PREFIX => state.retention.purged = key::purged::decode(value)?,
            key::RUNTIME_PREFIX_MIN.. => {}
            unknown => return Err(LoadError::Prefix(unknown)),
        }
        Ok(())
    }

    /// The state. Its stored-once window is still to be refilled with [`GroupState::remember_append`].
    #[must_use]
    pub fn finish(self) -> GroupState {
        self.state
    }
}

impl GroupState {
    /// Rebuilds a state from its pairs, in key order; see [`Loader`].
    ///
    /// # Errors
    /// A pair cannot be one of this state.
    pub fn load<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        group: GroupId,
        pairs: impl IntoIterator<Item = (K, V)>,
    ) -> Result<GroupState, LoadError> {
        let mut loader = Loader::new(group);
        for (key, value) in pairs {
            loader.add(key.as_ref(), value.as_ref())?;
        }
        Ok(loader.finish())
    }

    /// The first log index whose entries have to go through [`GroupState::remember_append`] after a load; `None`: no
    /// entry has to. The last one is the checkpoint's.
    #[must_use]
    pub fn window_replay_from(&self) -> Option<u64> {
        let from = self.dirty.window_from?;
        (from != WindowFrom::NOTHING).then_some(from.index)
    }

    /// Refills the stored-once window from a command that was applied before the checkpoint. `now` is the time of its
    /// batch. `offset_of` tells which queue offset the record at a physical offset was given: none when the command
    /// was a repeat and stored nothing (the ConsumeQueue has no unit for it). To be called with every command of the
    /// replayed entries in log order; of those that are no `Append` only the time counts.
    ///
    /// # Errors
    /// What `offset_of` answered.
    pub fn remember_append<E>(
        &mut self,
        at: Position,
        command_at: u32,
        now: Timestamp,
        command: &Command,
        mut offset_of: impl FnMut(TopicUid, QueueId, PhysicalOffset) -> Result<Option<QueueOffset>, E>,
    ) -> Result<(), E> {
        self.window.replay.clock = self.window.replay.clock.max(now);
        let Command::Append(append) = command else { return Ok(()) };
        for entry in &append.entries {
            let physical = super::append::record_at(at, command_at, entry.record_at);
            if self.queue_max(entry.topic, entry.queue).is_some()
                && !entry.message_id.is_empty()
                && let Some(offset) = offset_of(entry.topic, entry.queue, physical)?
            {
                self.remember(entry.topic, &entry.message_id, entry.queue, offset, physical, at.index, now);
            }
        }
        Ok(())
    }

    /// Puts one message that was stored before the checkpoint into the stored-once window. `index` is the log index of
    /// its entry, `now` the time of its batch. Calls come in log order.
    #[expect(clippy::too_many_arguments, reason = "one receipt, spelled out")]
    pub fn remember(
        &mut self,
        topic: TopicUid,
        message_id: &[u8],
        queue: QueueId,
        offset: QueueOffset,
        physical: PhysicalOffset,
        index: u64,
        now: Timestamp,
    ) {
        let Some(key) = MessageKey::new(topic, message_id) else { return };
        // The log clock as it was then. It had not passed the checkpoint's.
        self.window.replay.clock = self.window.replay.clock.max(now);
        let at = self.window.replay.clock.min(self.now);
        let entry = Remembered { key, receipt: Receipt { queue, offset, physical }, at };
        self.window.remember(&entry, index, self.now);
    }

    /// All pairs of the state in key order, with the whole stored-once window: what a snapshot is made of. Loading
    /// them needs no replay. To be called when nothing is dirty, that is behind [`GroupState::flush_dirty`].
    pub fn export(&self, mut put: impl FnMut(Vec<u8>, Vec<u8>)) {
        self.export_records(&mut put);
        put(key::window_from::key(), key::window_from::value(self.window.replay_from()));
        self.window.export(&mut put);
        self.export_retention(&mut put);
    }

    /// The pairs of snapshots and the purge point.
    pub(super) fn export_retention(&self, put: &mut dyn FnMut(Vec<u8>, Vec<u8>)) {
        for point in &self.retention.points {
            put(key::snapshot_point::key(point.index), key::snapshot_point::value(point));
        }
        for (uid, topic) in &self.topics {
            for (id, queue) in topic.queues.iter().filter(|(_, queue)| queue.min > QueueOffset(0)) {
                put(key::queue_min::key(*uid, *id), key::queue_min::value(queue.min));
            }
        }
        if self.retention.purged != Purged::default() {
            put(key::purged::key(), key::purged::value(self.retention.purged));
        }
    }

    /// The pairs of everything but the window.
    pub(super) fn export_records(&self, put: &mut dyn FnMut(Vec<u8>, Vec<u8>)) {
        put(key::clock::key(), key::clock::value(self.now));
        for (uid, topic) in &self.topics {
            put(key::topic::key(*uid), key::topic::value(&topic.config));
        }
        for uid in &self.topics_removed {
            put(key::topic_removed::key(*uid), key::topic_removed::value());
        }
        for (topic, queue, next) in self.queues() {
            put(key::queue::key(topic, queue), key::queue::value(next));
        }
        for (uid, group) in &self.consumer_groups {
            put(key::consumer_group::key(*uid), key::consumer_group::value(&group.config));
        }
        for uid in &self.consumer_groups_removed {
            put(key::consumer_group_removed::key(*uid), key::consumer_group_removed::value());
        }
        for (consumed, consumption) in &self.consumptions {
            put(key::cursor::key(*consumed), key::cursor::value(consumption.cursor));
        }
        for (consumed, consumption) in &self.consumptions {
            for (offset, record) in &consumption.in_flight {
                put(key::in_flight::key(*consumed, *offset), key::in_flight::value(record));
            }
        }
        for (uid, group) in &self.consumer_groups {
            for (attempt_key, attempt) in group.attempts.iter() {
                put(key::attempt::key(*uid, attempt_key), key::attempt::value(attempt));
            }
        }
    }

    fn load_topic(&mut self, key: &[u8], value: &[u8]) -> Result<(), LoadError> {
        let config = key::topic::decode(key, value)?;
        let queues = config.queues_of(self.group).map(|queue| (queue, Queue::default())).collect();
        self.topics.insert(config.uid(), Topic { config: Arc::new(config), queues });
        Ok(())
    }

    fn load_queue(&mut self, key: &[u8], value: &[u8]) -> Result<(), LoadError> {
        let (topic, queue, next) = key::queue::decode(key, value)?;
        let entry = self.topics.get_mut(&topic).and_then(|topic| topic.queues.get_mut(&queue));
        entry.ok_or(LoadError::Orphan)?.next = next;
        Ok(())
    }

    fn load_queue_min(&mut self, key: &[u8], value: &[u8]) -> Result<(), LoadError> {
        let (topic, queue, min) = key::queue_min::decode(key, value)?;
        let entry = self.topics.get_mut(&topic).and_then(|topic| topic.queues.get_mut(&queue));
        entry.ok_or(LoadError::Orphan)?.min = min;
        Ok(())
    }

    fn load_in_flight(&mut self, key: &[u8], value: &[u8]) -> Result<(), LoadError> {
        let (consumed, offset, record) = key::in_flight::decode(key, value)?;
        let mut flight = self.flight(consumed).ok_or(LoadError::Orphan)?;
        flight.queue.in_flight.insert(offset, record);
        flight.index(offset, &record);
        Ok(())
    }

    fn load_attempt(&mut self, key: &[u8], value: &[u8]) -> Result<(), LoadError> {
        let (group, attempt_key, mut attempt) = key::attempt::decode(key, value)?;
        let consumed = super::ConsumedQueue { consumer_group: group, topic: attempt.topic, queue: attempt.queue };
        let flight = self.flight(consumed).ok_or(LoadError::Orphan)?;
        let held = |offset| flight.queue.in_flight.get(offset).and_then(super::InFlight::attempt_key);
        attempt.left = attempt.offsets.iter().filter(|offset| held(offset) == Some(attempt_key)).count();
        flight.attempts.load(attempt_key, attempt);
        Ok(())
    }

    fn load_window_from(&mut self, from: WindowFrom) {
        self.dirty.window_from = Some(from);
        self.window.replay = Replay { clock: from.clock, floor: from.floor };
    }
}
