//! The pure state machine of the meta group: what a cluster is made of, decided by the meta group's log.
//!
//! `apply(state, index, command) -> (outcome, change)` reads only its arguments (law 2). Each command is first *planned*
//! on the unchanged state, which gives an answer and the records that change; the records are then absorbed into the
//! state and handed out as the change. So a copy that follows the changes is equal to the state by construction.
//!
//! Every command is idempotent: the same one again changes nothing and gets an answer that says that things are as asked.

mod cluster;
mod consumer_groups;
#[cfg(test)]
mod golden;
pub mod limits;
mod plan;
#[cfg(test)]
mod property;
mod snapshot;
#[cfg(test)]
mod tests;
mod topics;

pub use snapshot::{SNAPSHOT_VERSION, SnapshotError};

use plan::{Plan, Rejection};
use raftmq_model::config::{ConsumerGroupConfig, TopicConfig};
use raftmq_model::meta::{
    BrokerGroupRecord, MetaAnswer, MetaChange, MetaCommand, MetaOp, MetaOutcome, MetaRecord, MetaRecordBox, MetaView,
    NodeRecord,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The state of the meta group after some entry of its log.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MetaState {
    /// Empty before the birth of the cluster.
    cluster_id: String,
    /// Raft index of the last entry that changed something.
    revision: u64,
    /// The highest uid or version ever given out. Kept apart from the records, since a deleted uid is never given again.
    number_last: u64,
    nodes: BTreeMap<u32, Arc<NodeRecord>>,
    broker_groups: BTreeMap<u32, Arc<BrokerGroupRecord>>,
    /// By uid.
    topics: BTreeMap<u64, Arc<TopicConfig>>,
    topic_uids: BTreeMap<String, u64>,
    /// Sum of the queues of all topics.
    queue_count: usize,
    /// By uid.
    consumer_groups: BTreeMap<u64, Arc<ConsumerGroupConfig>>,
    consumer_group_uids: BTreeMap<String, u64>,
}

impl MetaState {
    /// Applies one command of the entry at `index`. Several commands may share one index; they are applied in order.
    /// A change without records (and without `reset`) means that nothing changed.
    pub fn apply(&mut self, index: u64, command: &MetaCommand) -> (MetaOutcome, MetaChange) {
        let number = index.max(self.number_last.saturating_add(1));
        let plan = match &command.op {
            Some(op) => self.plan(number, op),
            None => Err(Rejection::Refused("the command is empty or of a newer version".to_owned())),
        };
        let (answer, change) = match plan {
            Ok(plan) => self.carry_out(index, plan),
            Err(rejection) => (rejection.into(), MetaChange { revision: index, ..MetaChange::default() }),
        };
        (MetaOutcome { answer: Some(answer) }, change)
    }

    /// Decides what `op` does, without doing it. `number` is the uid or version for what it creates or changes.
    fn plan(&self, number: u64, op: &MetaOp) -> Result<Plan, Rejection> {
        if let MetaOp::Birth(birth) = op {
            return self.plan_birth(birth);
        }
        if self.cluster_id.is_empty() {
            return Err(Rejection::Refused("there is no cluster yet: run `raftmq cluster init` once".to_owned()));
        }
        match op {
            MetaOp::Birth(birth) => self.plan_birth(birth),
            MetaOp::PutNode(node) => self.plan_put_node(node),
            MetaOp::SetAlive(set) => self.plan_set_alive(set),
            MetaOp::ReportLeader(report) => self.plan_report_leader(report),
            MetaOp::CreateTopic(create) => self.plan_create_topic(number, create),
            MetaOp::AlterTopic(alter) => self.plan_alter_topic(number, alter),
            MetaOp::DeleteTopic(uid) => self.plan_delete_topic(*uid),
            MetaOp::CreateConsumerGroup(create) => self.plan_create_consumer_group(number, create),
            MetaOp::AlterConsumerGroup(alter) => self.plan_alter_consumer_group(number, alter),
            MetaOp::DeleteConsumerGroup(uid) => self.plan_delete_consumer_group(*uid),
            MetaOp::ReplaceNode(replace) => self.plan_replace_node(replace),
        }
    }

    fn carry_out(&mut self, index: u64, plan: Plan) -> (MetaAnswer, MetaChange) {
        if plan.records.is_empty() {
            return (plan.answer, MetaChange { revision: index, ..MetaChange::default() });
        }
        assert!(index >= self.revision, "the log runs backwards: entry {index} after {}", self.revision);
        self.revision = index;
        for record in &plan.records {
            self.absorb(record);
        }
        if let Some(cluster_id) = plan.birth_of {
            self.cluster_id = cluster_id;
            return (plan.answer, self.full_change());
        }
        let records = plan.records.into_iter().map(boxed).collect();
        (plan.answer, MetaChange { revision: index, records, ..MetaChange::default() })
    }

    /// Takes one record over. The only way in which the state changes.
    fn absorb(&mut self, record: &MetaRecord) {
        match record {
            MetaRecord::Node(node) => {
                self.nodes.insert(node.id, Arc::new(node.clone()));
            }
            MetaRecord::BrokerGroup(group) => {
                self.broker_groups.insert(group.id, Arc::new(group.clone()));
            }
            MetaRecord::Topic(topic) => self.absorb_topic(topic),
            MetaRecord::ConsumerGroup(group) => self.absorb_consumer_group(group),
            MetaRecord::TopicRemoved(uid) => {
                if let Some(topic) = self.topics.remove(uid) {
                    self.queue_count -= topic.queue_groups.len();
                    self.topic_uids.remove(&topic.name);
                }
            }
            MetaRecord::ConsumerGroupRemoved(uid) => {
                if let Some(group) = self.consumer_groups.remove(uid) {
                    self.consumer_group_uids.remove(&group.name);
                }
            }
        }
    }

    fn absorb_topic(&mut self, topic: &TopicConfig) {
        let of_name = self.topic_uids.insert(topic.name.clone(), topic.uid);
        assert!(of_name.is_none_or(|uid| uid == topic.uid), "two topics of one name: {}", topic.name);
        self.number_last = self.number_last.max(topic.version).max(topic.uid);
        self.queue_count += topic.queue_groups.len();
        if let Some(before) = self.topics.insert(topic.uid, Arc::new(topic.clone())) {
            self.queue_count -= before.queue_groups.len();
        }
    }

    fn absorb_consumer_group(&mut self, group: &ConsumerGroupConfig) {
        let of_name = self.consumer_group_uids.insert(group.name.clone(), group.uid);
        assert!(of_name.is_none_or(|uid| uid == group.uid), "two consumer groups of one name: {}", group.name);
        self.number_last = self.number_last.max(group.version).max(group.uid);
        self.consumer_groups.insert(group.uid, Arc::new(group.clone()));
    }

    /// The whole state as one change with `reset`: what a copy starts from. Its revision is that of the last change.
    #[must_use]
    pub fn full_change(&self) -> MetaChange {
        MetaChange {
            revision: self.revision,
            reset: true,
            cluster_id: self.cluster_id.clone(),
            records: self.records().map(boxed).collect(),
        }
    }

    /// The state as the copy that other nodes keep. Records are shared, not copied.
    #[must_use]
    pub fn view(&self) -> MetaView {
        let by_name = |topic: &Arc<TopicConfig>| (topic.name.clone(), Arc::clone(topic));
        let group_by_name = |group: &Arc<ConsumerGroupConfig>| (group.name.clone(), Arc::clone(group));
        MetaView {
            cluster_id: self.cluster_id.clone(),
            revision: self.revision,
            nodes: self.nodes.clone(),
            broker_groups: self.broker_groups.clone(),
            topics: self.topics.values().map(by_name).collect(),
            topic_names: self.topics.values().map(|topic| (topic.uid, topic.name.clone())).collect(),
            consumer_groups: self.consumer_groups.values().map(group_by_name).collect(),
            consumer_group_names: self.consumer_groups.values().map(|group| (group.uid, group.name.clone())).collect(),
        }
    }

    /// The cluster's id, empty before its birth.
    #[must_use]
    pub fn cluster_id(&self) -> &str {
        &self.cluster_id
    }

    /// Raft index of the last entry that changed something, 0 before the first.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The highest uid or version ever given out.
    #[must_use]
    pub fn number_last(&self) -> u64 {
        self.number_last
    }

    /// All records, in a fixed order.
    fn records(&self) -> impl Iterator<Item = MetaRecord> + '_ {
        let nodes = self.nodes.values().map(|node| MetaRecord::Node(node.as_ref().clone()));
        let broker_groups = self.broker_groups.values().map(|group| MetaRecord::BrokerGroup(group.as_ref().clone()));
        let topics = self.topics.values().map(|topic| MetaRecord::Topic(topic.as_ref().clone()));
        let groups = self.consumer_groups.values().map(|group| MetaRecord::ConsumerGroup(group.as_ref().clone()));
        nodes.chain(broker_groups).chain(topics).chain(groups)
    }
}

fn boxed(record: MetaRecord) -> MetaRecordBox {
    MetaRecordBox { record: Some(record) }
}
