//! Copies of the meta group's records: topics and consumer groups, by uid and version (architecture §7.3).

use super::attempts::Attempts;
use super::changes::Changes;
use super::consumption::ConsumedQueue;
use super::{ConsumerGroup, GroupState, Queue, Topic, attempts_max, key};
use crate::command::Outcome;
use crate::config::{ConsumerGroupConfig, TopicConfig};
use crate::ids::{ConsumerGroupUid, QueueId, TopicUid};
use std::collections::BTreeMap;
use std::sync::Arc;

impl GroupState {
    pub(super) fn put_topic(&mut self, config: &TopicConfig, changes: &mut Changes) -> Outcome {
        let uid = config.uid();
        if self.topics_removed.contains(&uid) {
            return Outcome::Done;
        }
        let hosted: Vec<QueueId> = config.queues_of(self.group).collect();
        let mut queues = BTreeMap::new();
        if let Some(known) = self.topics.get(&uid) {
            if config.version <= known.config.version {
                return Outcome::Done;
            }
            if !config.queue_groups.starts_with(&known.config.queue_groups) {
                return Outcome::Refused(format!("topic {uid}: version {} moves or drops queues", config.version));
            }
            queues.clone_from(&known.queues);
        }
        for queue in hosted {
            queues.entry(queue).or_insert_with(Queue::default);
        }
        changes.put(key::topic::key(uid), key::topic::value(config));
        self.topics.insert(uid, Topic { config: Arc::new(config.clone()), queues });
        Outcome::Done
    }

    pub(super) fn delete_topic(&mut self, uid: TopicUid, changes: &mut Changes) -> Outcome {
        if !self.topics_removed.insert(uid) {
            return Outcome::Done;
        }
        changes.put(key::topic_removed::key(uid), key::topic_removed::value());
        let Some(topic) = self.topics.remove(&uid) else { return Outcome::Done };
        changes.delete(key::topic::key(uid));
        for queue in topic.queues.keys() {
            changes.delete(key::queue::key(uid, *queue));
            changes.delete(key::queue_min::key(uid, *queue));
        }
        changes.topics_removed.push(uid);
        self.window.forget_topic(uid);
        let consumed: Vec<ConsumedQueue> = self.consumptions.keys().filter(|c| c.topic == uid).copied().collect();
        for consumed in consumed {
            self.forget_consumption(consumed, changes);
        }
        for (group, entry) in &mut self.consumer_groups {
            entry.attempts.forget_topic(*group, uid, changes);
        }
        Outcome::Done
    }

    pub(super) fn put_consumer_group(&mut self, config: &ConsumerGroupConfig, changes: &mut Changes) -> Outcome {
        let uid = config.uid();
        if self.consumer_groups_removed.contains(&uid) {
            return Outcome::Done;
        }
        let config = Arc::new(config.clone());
        let mut attempts_max_changed = false;
        if let Some(known) = self.consumer_groups.get_mut(&uid) {
            if config.version <= known.config.version {
                return Outcome::Done;
            }
            attempts_max_changed = attempts_max(&known.config) != attempts_max(&config);
            known.config = Arc::clone(&config);
        } else {
            let group = ConsumerGroup { config: Arc::clone(&config), attempts: Attempts::default() };
            self.consumer_groups.insert(uid, group);
        }
        if attempts_max_changed {
            self.reorder_in_flight(uid);
        }
        changes.put(key::consumer_group::key(uid), key::consumer_group::value(&config));
        Outcome::Done
    }

    pub(super) fn delete_consumer_group(&mut self, uid: ConsumerGroupUid, changes: &mut Changes) -> Outcome {
        if !self.consumer_groups_removed.insert(uid) {
            return Outcome::Done;
        }
        changes.put(key::consumer_group_removed::key(uid), key::consumer_group_removed::value());
        for consumed in self.consumed_by(uid) {
            self.forget_consumption(consumed, changes);
        }
        if let Some(group) = self.consumer_groups.remove(&uid) {
            for (attempt, _) in group.attempts.iter() {
                changes.delete(key::attempt::key(uid, attempt));
            }
            changes.delete(key::consumer_group::key(uid));
        }
        Outcome::Done
    }

    /// Sorts the in-flight messages of a consumer group anew by whether they have attempts left.
    fn reorder_in_flight(&mut self, uid: ConsumerGroupUid) {
        for consumed in self.consumed_by(uid) {
            let Some(mut flight) = self.flight(consumed) else { continue };
            let records: Vec<_> = flight.queue.in_flight.iter().map(|(offset, record)| (*offset, *record)).collect();
            for (offset, record) in records {
                flight.unindex(offset, &record);
                flight.index(offset, &record);
            }
        }
    }

    /// Drops the cursor and what is in flight. Attempt ids are dropped by the caller.
    fn forget_consumption(&mut self, consumed: ConsumedQueue, changes: &mut Changes) {
        let Some(consumption) = self.consumptions.remove(&consumed) else { return };
        changes.delete(key::cursor::key(consumed));
        for (offset, record) in consumption.in_flight {
            self.exhausted.remove(&(record.visible_at, consumed, offset));
            changes.delete(key::in_flight::key(consumed, offset));
        }
    }

    pub(super) fn consumed_by(&self, uid: ConsumerGroupUid) -> Vec<ConsumedQueue> {
        let first = ConsumedQueue { consumer_group: uid, topic: TopicUid(0), queue: QueueId(0) };
        let last = ConsumedQueue { consumer_group: uid, topic: TopicUid(u64::MAX), queue: QueueId(u32::MAX) };
        self.consumptions.range(first..=last).map(|(consumed, _)| *consumed).collect()
    }
}
