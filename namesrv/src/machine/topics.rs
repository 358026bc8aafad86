//! Topics: their names, settings and queues.

use super::MetaState;
use super::limits::{QUEUE_COUNT_MAX, QUEUE_TOTAL_COUNT_MAX, TOPIC_COUNT_MAX};
use super::plan::{Plan, Rejection, ensure};
use raftmq_model::config::{Permission, TopicConfig, TopicType};
use raftmq_model::meta::{AlterTopic, CreateTopic, MetaAnswer, MetaRecord};
use raftmq_model::name::{self, DEAD_LETTER_PREFIX};
use std::sync::Arc;

impl MetaState {
    pub(super) fn plan_create_topic(&self, number: u64, create: &CreateTopic) -> Result<Plan, Rejection> {
        name::check_topic(&create.name).map_err(Rejection::refused)?;
        ensure(!create.name.starts_with(DEAD_LETTER_PREFIX), || {
            format!("names that begin with {DEAD_LETTER_PREFIX} are made together with their consumer group")
        })?;
        if let Some(topic) = self.topic_by_name(&create.name) {
            check_same(topic, create)?;
            return Ok(Plan::change(MetaAnswer::Topic(topic.as_ref().clone()), Vec::new()));
        }
        let topic_type = TopicType::try_from(create.topic_type).unwrap_or(TopicType::Unspecified);
        ensure(topic_type != TopicType::Unspecified, || {
            format!("the type of topic {} is none of normal, fifo, delay, transaction", create.name)
        })?;
        // 0 is what a caller sends that forgot the field; who wants a closed topic alters it afterwards.
        ensure(create.permission != Permission::None as i32, || {
            format!("topic {} is created with a permission to read, to write or both", create.name)
        })?;
        check_permission(create.permission)?;
        let topic = self.new_topic(number, create)?;
        Ok(Plan::change(MetaAnswer::Topic(topic.clone()), vec![MetaRecord::Topic(topic)]))
    }

    /// The record of a topic that does not exist yet; its name, type and permission are checked by the caller.
    pub(super) fn new_topic(&self, number: u64, create: &CreateTopic) -> Result<TopicConfig, Rejection> {
        ensure(self.topics.len() < TOPIC_COUNT_MAX, || format!("a cluster has at most {TOPIC_COUNT_MAX} topics"))?;
        let mut topic = TopicConfig {
            uid: number,
            version: number,
            name: create.name.clone(),
            topic_type: create.topic_type,
            permission: create.permission,
            queue_groups: Vec::new(),
        };
        self.grow(&mut topic, create.queue_count)?;
        Ok(topic)
    }

    pub(super) fn plan_alter_topic(&self, number: u64, alter: &AlterTopic) -> Result<Plan, Rejection> {
        let Some(before) = self.topics.get(&alter.uid) else {
            return Err(Rejection::NotFound(format!("there is no topic of uid {}", alter.uid)));
        };
        let mut topic = before.as_ref().clone();
        if let Some(permission) = alter.permission {
            check_permission(permission)?;
            topic.permission = permission;
        }
        if let Some(queue_count) = alter.queue_count {
            let now = topic.queue_groups.len();
            ensure(queue_count as usize >= now, || {
                format!("topic {} has {now} queues and never gets fewer ({queue_count})", topic.name)
            })?;
            self.grow(&mut topic, queue_count)?;
        }
        if topic == **before {
            return Ok(Plan::change(MetaAnswer::Topic(topic), Vec::new()));
        }
        topic.version = number;
        Ok(Plan::change(MetaAnswer::Topic(topic.clone()), vec![MetaRecord::Topic(topic)]))
    }

    /// A uid that has been given out once and is gone counts as deleted: the answer to the same command again.
    pub(super) fn plan_delete_topic(&self, uid: u64) -> Result<Plan, Rejection> {
        let Some(topic) = self.topics.get(&uid) else {
            return self.deleted_before("topic", uid);
        };
        if let Some(group) = topic.name.strip_prefix(DEAD_LETTER_PREFIX) {
            ensure(!self.consumer_group_uids.contains_key(group), || {
                format!("{} holds the dead letters of consumer group {group}: delete the group first", topic.name)
            })?;
        }
        Ok(Plan::done(vec![MetaRecord::TopicRemoved(uid)]))
    }

    pub(super) fn deleted_before(&self, what: &str, uid: u64) -> Result<Plan, Rejection> {
        if uid > 0 && uid <= self.number_last {
            return Ok(Plan::done(Vec::new()));
        }
        Err(Rejection::NotFound(format!("there never was a {what} of uid {uid}")))
    }

    /// Appends queues up to `queue_count`: over the broker groups in the order of their ids, in turn, beginning with a
    /// group that the uid decides, so that topics of one queue spread too.
    fn grow(&self, topic: &mut TopicConfig, queue_count: u32) -> Result<(), Rejection> {
        ensure((1..=QUEUE_COUNT_MAX).contains(&queue_count), || {
            format!("topic {} can have 1 to {QUEUE_COUNT_MAX} queues, not {queue_count}", topic.name)
        })?;
        let before = topic.queue_groups.len();
        let total = self.queue_count + (queue_count as usize).saturating_sub(before);
        ensure(total <= QUEUE_TOTAL_COUNT_MAX, || {
            format!("the topics of a cluster have at most {QUEUE_TOTAL_COUNT_MAX} queues together")
        })?;
        let groups = self.broker_group_ids();
        ensure(!groups.is_empty(), || "the cluster has no broker group to host queues".to_owned())?;
        let start = first_group(topic.uid, groups.len());
        let rest = (before..queue_count as usize).map(|queue| groups[(start + queue) % groups.len()]);
        topic.queue_groups.extend(rest);
        Ok(())
    }

    /// A topic by name.
    #[must_use]
    pub fn topic_by_name(&self, name: &str) -> Option<&Arc<TopicConfig>> {
        self.topic_uids.get(name).and_then(|uid| self.topics.get(uid))
    }
}

/// Where the round over the groups begins. Uids are log indexes, which may come in even steps: mixed first
/// (multiplication by 2^64 over the golden ratio), so that no step meets the same group each time.
fn first_group(uid: u64, group_count: usize) -> usize {
    let mixed = uid.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    (mixed % group_count as u64) as usize
}

fn check_permission(permission: i32) -> Result<(), Rejection> {
    ensure(Permission::try_from(permission).is_ok(), || {
        format!("{permission} is no permission: 2 is write, 4 is read, 6 is both, 0 is neither")
    })
}

/// A topic that exists is created again only with the settings that it has.
fn check_same(topic: &TopicConfig, create: &CreateTopic) -> Result<(), Rejection> {
    let differs = |what: &str, is: i64, asked: i64| {
        ensure(is == asked, || format!("topic {} exists with {what} {is}, not {asked}", topic.name))
    };
    differs("type", topic.topic_type.into(), create.topic_type.into())?;
    differs("permission", topic.permission.into(), create.permission.into())?;
    differs("a queue count of", topic.queue_groups.len() as i64, create.queue_count.into())
}
