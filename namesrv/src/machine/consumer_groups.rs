//! Consumer groups and their dead-letter topics.

use super::MetaState;
use super::limits::{ATTEMPT_COUNT_MAX, CONSUMER_GROUP_COUNT_MAX};
use super::plan::{Plan, Rejection, ensure};
use raftmq_model::config::{ConsumerGroupConfig, Permission, TopicConfig, TopicType};
use raftmq_model::meta::{CreateTopic, MetaAnswer, MetaRecord};
use raftmq_model::name;
use std::sync::Arc;

impl MetaState {
    pub(super) fn plan_create_consumer_group(
        &self,
        number: u64,
        create: &ConsumerGroupConfig,
    ) -> Result<Plan, Rejection> {
        name::check_consumer_group(&create.name).map_err(Rejection::refused)?;
        check_attempts(create)?;
        if let Some(group) = self.consumer_group_by_name(&create.name) {
            let asked = ConsumerGroupConfig { uid: group.uid, version: group.version, ..create.clone() };
            ensure(asked == **group, || {
                format!("consumer group {} exists with other settings: alter it", create.name)
            })?;
            return Ok(Plan::change(MetaAnswer::ConsumerGroup(asked), Vec::new()));
        }
        ensure(self.consumer_groups.len() < CONSUMER_GROUP_COUNT_MAX, || {
            format!("a cluster has at most {CONSUMER_GROUP_COUNT_MAX} consumer groups")
        })?;
        let group = ConsumerGroupConfig { uid: number, version: number, ..create.clone() };
        // The topic first: who sees the group also sees where its dead letters go.
        let letters = self.new_dead_letter_topic(number, &create.name)?;
        let records = letters.map(MetaRecord::Topic).into_iter().chain([MetaRecord::ConsumerGroup(group.clone())]);
        Ok(Plan::change(MetaAnswer::ConsumerGroup(group), records.collect()))
    }

    /// One queue in each broker group, so that a dead letter never leaves its group. `None`: the topic is there, left
    /// by an earlier consumer group of this name.
    fn new_dead_letter_topic(&self, number: u64, consumer_group: &str) -> Result<Option<TopicConfig>, Rejection> {
        let name = name::dead_letter_topic(consumer_group);
        if self.topic_by_name(&name).is_some() {
            return Ok(None);
        }
        let create = CreateTopic {
            name,
            topic_type: TopicType::Normal as i32,
            permission: Permission::ReadWrite as i32,
            queue_count: u32::try_from(self.broker_groups.len()).unwrap_or(u32::MAX).max(1),
        };
        self.new_topic(number, &create).map(Some)
    }

    /// The version of the command is its premise: who read an older record must not undo what came after it, and a command that
    /// comes again late must not either. A record that is as asked already is fine with any premise: the command may have come
    /// before.
    pub(super) fn plan_alter_consumer_group(
        &self,
        number: u64,
        alter: &ConsumerGroupConfig,
    ) -> Result<Plan, Rejection> {
        let Some(before) = self.consumer_groups.get(&alter.uid) else {
            return Err(Rejection::NotFound(format!("there is no consumer group of uid {}", alter.uid)));
        };
        ensure(alter.name.is_empty() || alter.name == before.name, || {
            format!("consumer group {} keeps its name", before.name)
        })?;
        check_attempts(alter)?;
        let mut group = ConsumerGroupConfig { version: before.version, name: before.name.clone(), ..alter.clone() };
        if group == **before {
            return Ok(Plan::change(MetaAnswer::ConsumerGroup(group), Vec::new()));
        }
        if alter.version != before.version {
            return Err(Rejection::Conflict(before.as_ref().clone()));
        }
        group.version = number;
        Ok(Plan::change(MetaAnswer::ConsumerGroup(group.clone()), vec![MetaRecord::ConsumerGroup(group)]))
    }

    /// The dead-letter topic stays. A uid that is gone counts as deleted, as for topics.
    pub(super) fn plan_delete_consumer_group(&self, uid: u64) -> Result<Plan, Rejection> {
        if !self.consumer_groups.contains_key(&uid) {
            return self.deleted_before("consumer group", uid);
        }
        Ok(Plan::done(vec![MetaRecord::ConsumerGroupRemoved(uid)]))
    }

    /// A consumer group by name.
    #[must_use]
    pub fn consumer_group_by_name(&self, name: &str) -> Option<&Arc<ConsumerGroupConfig>> {
        self.consumer_group_uids.get(name).and_then(|uid| self.consumer_groups.get(uid))
    }
}

fn check_attempts(group: &ConsumerGroupConfig) -> Result<(), Rejection> {
    ensure((1..=ATTEMPT_COUNT_MAX).contains(&group.attempts_max), || {
        format!("a message is tried 1 to {ATTEMPT_COUNT_MAX} times, not {}", group.attempts_max)
    })
}
