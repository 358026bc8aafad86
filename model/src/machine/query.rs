//! What the leader's planner and drivers ask. None of it changes the state; a plan is checked again by `apply`.

use super::GroupState;
use super::consumption::{ConsumedQueue, InFlight};
use crate::command::{HandleKey, PoppedMessage};
use crate::config::{ConsumerGroupConfig, TopicConfig};
use crate::ids::{ConsumerGroupUid, GroupId, QueueId, QueueOffset, Timestamp, TopicUid};
use std::sync::Arc;

/// How far a consumer group is in one queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueProgress {
    /// The consumer group and the queue.
    pub consumed: ConsumedQueue,
    /// Everything below was taken at least once or skipped.
    pub cursor: QueueOffset,
    /// Everything below was finished or skipped.
    pub finished_upto: QueueOffset,
    /// Messages that were taken and are not finished.
    pub in_flight_count: usize,
}

/// What an attempt id that was used before will get again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repeated {
    /// The queue of its batch: a `Pop` with the same attempt id is answered from there, whatever queue it names.
    pub queue: QueueId,
    /// Log index for the handles.
    pub popped_at: u64,
    /// What of the batch is still in flight under that handle; never empty.
    pub messages: Vec<PoppedMessage>,
}

impl GroupState {
    /// The broker group.
    #[must_use]
    pub fn group(&self) -> GroupId {
        self.group
    }

    /// The log clock.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// This group's copy of a topic's record.
    #[must_use]
    pub fn topic(&self, uid: TopicUid) -> Option<&Arc<TopicConfig>> {
        self.topics.get(&uid).map(|topic| &topic.config)
    }

    /// All topics, by uid.
    pub fn topics(&self) -> impl Iterator<Item = &Arc<TopicConfig>> {
        self.topics.values().map(|topic| &topic.config)
    }

    /// Whether the topic was deleted here (its uid stays refused).
    #[must_use]
    pub fn topic_removed(&self, uid: TopicUid) -> bool {
        self.topics_removed.contains(&uid)
    }

    /// This group's copy of a consumer group's record.
    #[must_use]
    pub fn consumer_group(&self, uid: ConsumerGroupUid) -> Option<&Arc<ConsumerGroupConfig>> {
        self.consumer_groups.get(&uid).map(|group| &group.config)
    }

    /// All consumer groups, by uid.
    pub fn consumer_groups(&self) -> impl Iterator<Item = &Arc<ConsumerGroupConfig>> {
        self.consumer_groups.values().map(|group| &group.config)
    }

    /// Whether the consumer group was deleted here (its uid stays refused).
    #[must_use]
    pub fn consumer_group_removed(&self, uid: ConsumerGroupUid) -> bool {
        self.consumer_groups_removed.contains(&uid)
    }

    /// The offset that the next message of a queue gets; `None` when this group does not host the queue.
    #[must_use]
    pub fn queue_max(&self, topic: TopicUid, queue: QueueId) -> Option<QueueOffset> {
        Some(self.topics.get(&topic)?.queues.get(&queue)?.next)
    }

    /// The queues that this group hosts with their next offsets, by topic uid and queue id.
    pub fn queues(&self) -> impl Iterator<Item = (TopicUid, QueueId, QueueOffset)> {
        self.topics.iter().flat_map(|(uid, topic)| topic.queues.iter().map(|(id, queue)| (*uid, *id, queue.next)))
    }

    /// The cursor of a consumer group in a queue: what it takes next for the first time. Before its first `Pop` the first
    /// message that was not purged.
    #[must_use]
    pub fn cursor(&self, group: ConsumerGroupUid, topic: TopicUid, queue: QueueId) -> QueueOffset {
        let consumed = ConsumedQueue { consumer_group: group, topic, queue };
        let known = self.consumptions.get(&consumed).map(|consumption| consumption.cursor);
        known.unwrap_or_else(|| self.queue_min(topic, queue))
    }

    /// Messages of a queue that may be taken again at `now`, the longest due first, as (offset, attempt that timed
    /// out). Those that had their last attempt are not among them: see [`GroupState::exhausted`].
    #[must_use]
    pub fn due(
        &self,
        group: ConsumerGroupUid,
        topic: TopicUid,
        queue: QueueId,
        now: Timestamp,
        limit: usize,
    ) -> Vec<(QueueOffset, u32)> {
        let now = now.max(self.now);
        let consumed = ConsumedQueue { consumer_group: group, topic, queue };
        let Some(consumption) = self.consumptions.get(&consumed) else { return Vec::new() };
        let due = consumption.due.iter().take_while(|(visible_at, _)| *visible_at <= now).take(limit);
        due.filter_map(|(_, offset)| Some((*offset, consumption.in_flight.get(offset)?.attempt))).collect()
    }

    /// When the next message of a topic may be taken again by a consumer group, in any queue of this group; possibly
    /// in the past. `None` when nothing with attempts left is in flight.
    #[must_use]
    pub fn next_due(&self, group: ConsumerGroupUid, topic: TopicUid) -> Option<Timestamp> {
        let consumed = |queue| ConsumedQueue { consumer_group: group, topic, queue };
        let queues = self.consumptions.range(consumed(QueueId(0))..=consumed(QueueId(u32::MAX)));
        queues.filter_map(|(_, consumption)| consumption.due.first()).map(|(visible_at, _)| *visible_at).min()
    }

    /// Messages whose last attempt is over at `now`, the longest first, at most `limit`: what the dead-letter driver
    /// moves. Each as the handle for [`crate::command::DeadLetter`], with `popped_at` 0.
    #[must_use]
    pub fn exhausted(&self, now: Timestamp, limit: usize) -> Vec<HandleKey> {
        let now = now.max(self.now);
        let over = self.exhausted.iter().take_while(|(visible_at, ..)| *visible_at <= now).take(limit);
        over.filter_map(|(_, consumed, offset)| {
            let attempt = self.consumptions.get(consumed)?.in_flight.get(offset)?.attempt;
            Some(HandleKey {
                consumer_group: consumed.consumer_group.0,
                topic: consumed.topic.0,
                queue: consumed.queue.0,
                offset: offset.0,
                attempt,
                popped_at: 0,
            })
        })
        .collect()
    }

    /// When the next last attempt is over; possibly in the past.
    #[must_use]
    pub fn next_exhausted(&self) -> Option<Timestamp> {
        self.exhausted.first().map(|(visible_at, ..)| *visible_at)
    }

    /// What a consumer group has in flight of a queue, by offset.
    pub fn in_flight(
        &self,
        group: ConsumerGroupUid,
        topic: TopicUid,
        queue: QueueId,
    ) -> impl Iterator<Item = (QueueOffset, InFlight)> + '_ {
        let consumed = ConsumedQueue { consumer_group: group, topic, queue };
        let records = self.consumptions.get(&consumed).map(|consumption| consumption.in_flight.iter());
        records.into_iter().flatten().map(|(offset, record)| (*offset, *record))
    }

    /// How many messages a consumer group has in flight of a queue.
    #[must_use]
    pub fn in_flight_count(&self, group: ConsumerGroupUid, topic: TopicUid, queue: QueueId) -> usize {
        let consumed = ConsumedQueue { consumer_group: group, topic, queue };
        self.consumptions.get(&consumed).map_or(0, |consumption| consumption.in_flight.len())
    }

    /// How many fresh messages of a queue a consumer group may still take before the bound on what is in flight.
    #[must_use]
    pub fn in_flight_room(&self, group: ConsumerGroupUid, topic: TopicUid, queue: QueueId) -> usize {
        self.limits.in_flight_count_max.saturating_sub(self.in_flight_count(group, topic, queue))
    }

    /// How far consumer groups are, in the queues where they took something; of one group, or of all.
    pub fn progress(&self, group: Option<ConsumerGroupUid>) -> impl Iterator<Item = QueueProgress> + '_ {
        let entries = self.consumptions.iter().filter(move |(c, _)| group.is_none_or(|g| g == c.consumer_group));
        entries.map(|(consumed, consumption)| QueueProgress {
            consumed: *consumed,
            cursor: consumption.cursor,
            finished_upto: consumption.in_flight.first_key_value().map_or(consumption.cursor, |(offset, _)| *offset),
            in_flight_count: consumption.in_flight.len(),
        })
    }

    /// What a `Pop` with this attempt id would be given again, if the id was used before and something of its batch is
    /// still in flight under the same handle.
    #[must_use]
    pub fn repeated(&self, group: ConsumerGroupUid, topic: TopicUid, attempt_id: &str) -> Option<Repeated> {
        let (key, attempt) = self.consumer_groups.get(&group)?.attempts.find(topic, attempt_id)?;
        if self.now.ms_since(attempt.at) >= self.limits.attempt_ids_ms {
            return None;
        }
        let queue = attempt.queue;
        let consumption = self.consumptions.get(&ConsumedQueue { consumer_group: group, topic, queue })?;
        let held = attempt.offsets.iter().filter_map(|offset| Some((*offset, consumption.in_flight.get(offset)?)));
        let messages = held
            .filter(|(_, record)| record.attempt_key() == Some(key))
            .map(|(offset, record)| PoppedMessage { offset, attempt: record.attempt })
            .collect();
        Some(Repeated { queue, popped_at: key.popped_at, messages })
    }

    /// Message ids that the stored-once window remembers now.
    #[must_use]
    pub fn stored_once_count(&self) -> usize {
        self.window.len()
    }

    /// Bytes of memory that the stored-once window takes.
    #[must_use]
    pub fn stored_once_memory_bytes(&self) -> usize {
        self.window.memory_bytes()
    }
}
