//! Records, commands, changes and the view of the meta group ("namesrv").
//!
//! The state machine itself is in the `namesrv` crate; what travels between nodes is here. A [`MetaView`] is the copy
//! that every node keeps by the watch stream: a full snapshot (one [`MetaChange`] with `reset`), then changes in order of
//! revision.

use crate::config::{ConsumerGroupConfig, TopicConfig};
use crate::ids::{GroupId, NodeId, ReplicaId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A node of the cluster.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct NodeRecord {
    /// [`crate::ids::NodeId`].
    #[prost(uint32, tag = "1")]
    pub id: u32,
    /// Incarnation of its replicas ([`crate::ids::ReplicaId`]).
    #[prost(uint32, tag = "2")]
    pub incarnation: u32,
    /// Takes part in the meta group.
    #[prost(bool, tag = "3")]
    pub namesrv: bool,
    /// Hosts broker groups.
    #[prost(bool, tag = "4")]
    pub broker: bool,
    /// `host:port` that clients are told to use.
    #[prost(string, tag = "5")]
    pub client_address: String,
    /// `host:port` of the peer port.
    #[prost(string, tag = "6")]
    pub peer_address: String,
    /// `host:port` of the admin port.
    #[prost(string, tag = "7")]
    pub admin_address: String,
    /// What the meta leader last decided about it.
    #[prost(bool, tag = "8")]
    pub alive: bool,
}

/// A broker group and where its replicas are.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct BrokerGroupRecord {
    /// [`crate::ids::GroupId`], from 1.
    #[prost(uint32, tag = "1")]
    pub id: u32,
    /// The name operators see, for example `broker-1`.
    #[prost(string, tag = "2")]
    pub name: String,
    /// [`crate::ids::ReplicaId::to_u64`] of each voter.
    #[prost(uint64, repeated, tag = "3")]
    pub replicas: Vec<u64>,
    /// Node that leads, 0 while none is known.
    #[prost(uint32, tag = "4")]
    pub leader_node: u32,
    /// The term of `leader_node`; a lower term never overwrites a higher one (law 7).
    #[prost(uint64, tag = "5")]
    pub leader_term: u64,
}

/// One record of the meta state.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum MetaRecord {
    /// A node.
    #[prost(message, tag = "1")]
    Node(NodeRecord),
    /// A broker group.
    #[prost(message, tag = "2")]
    BrokerGroup(BrokerGroupRecord),
    /// A topic.
    #[prost(message, tag = "3")]
    Topic(TopicConfig),
    /// A consumer group.
    #[prost(message, tag = "4")]
    ConsumerGroup(ConsumerGroupConfig),
    /// A topic that is gone, by uid.
    #[prost(uint64, tag = "5")]
    TopicRemoved(u64),
    /// A consumer group that is gone, by uid.
    #[prost(uint64, tag = "6")]
    ConsumerGroupRemoved(u64),
}

/// [`MetaRecord`] as a message of its own.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct MetaRecordBox {
    /// Always set.
    #[prost(oneof = "MetaRecord", tags = "1, 2, 3, 4, 5, 6")]
    pub record: Option<MetaRecord>,
}

/// What one applied command changed; or, with `reset`, the whole state at `revision`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct MetaChange {
    /// Raft index of the meta group's entry.
    #[prost(uint64, tag = "1")]
    pub revision: u64,
    /// Start over from an empty view.
    #[prost(bool, tag = "2")]
    pub reset: bool,
    /// The cluster's id; set with `reset`.
    #[prost(string, tag = "3")]
    pub cluster_id: String,
    /// New or changed records, and removals.
    #[prost(message, repeated, tag = "4")]
    pub records: Vec<MetaRecordBox>,
}

/// A node's current copy of the meta state. Cheap to clone behind an `Arc`; records are shared.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MetaView {
    /// The cluster's id, empty before the first snapshot.
    pub cluster_id: String,
    /// Revision of the last change; 0 before the first snapshot.
    pub revision: u64,
    /// By node id.
    pub nodes: BTreeMap<u32, Arc<NodeRecord>>,
    /// By group id.
    pub broker_groups: BTreeMap<u32, Arc<BrokerGroupRecord>>,
    /// By name.
    pub topics: BTreeMap<String, Arc<TopicConfig>>,
    /// Topic name by uid.
    pub topic_names: BTreeMap<u64, String>,
    /// By name.
    pub consumer_groups: BTreeMap<String, Arc<ConsumerGroupConfig>>,
    /// Consumer group name by uid.
    pub consumer_group_names: BTreeMap<u64, String>,
}

impl MetaView {
    /// Takes one change over. Changes at or below the current revision are ignored, but for a reset.
    pub fn take(&mut self, change: &MetaChange) {
        if change.reset {
            *self = MetaView { cluster_id: change.cluster_id.clone(), ..MetaView::default() };
        } else if change.revision <= self.revision {
            return;
        }
        for boxed in &change.records {
            if let Some(record) = &boxed.record {
                self.put(record);
            }
        }
        self.revision = change.revision;
    }

    fn put(&mut self, record: &MetaRecord) {
        match record {
            MetaRecord::Node(node) => {
                self.nodes.insert(node.id, Arc::new(node.clone()));
            }
            MetaRecord::BrokerGroup(group) => {
                self.broker_groups.insert(group.id, Arc::new(group.clone()));
            }
            MetaRecord::Topic(topic) => {
                self.topic_names.insert(topic.uid, topic.name.clone());
                self.topics.insert(topic.name.clone(), Arc::new(topic.clone()));
            }
            MetaRecord::ConsumerGroup(group) => {
                self.consumer_group_names.insert(group.uid, group.name.clone());
                self.consumer_groups.insert(group.name.clone(), Arc::new(group.clone()));
            }
            MetaRecord::TopicRemoved(uid) => {
                if let Some(name) = self.topic_names.remove(uid)
                    && self.topics.get(&name).is_some_and(|topic| topic.uid == *uid)
                {
                    self.topics.remove(&name);
                }
            }
            MetaRecord::ConsumerGroupRemoved(uid) => {
                if let Some(name) = self.consumer_group_names.remove(uid)
                    && self.consumer_groups.get(&name).is_some_and(|group| group.uid == *uid)
                {
                    self.consumer_groups.remove(&name);
                }
            }
        }
    }

    /// Where the voters of a group are placed: of the meta group on each node with that role, of a broker group as its record
    /// says. Empty when the view knows no such group.
    #[must_use]
    pub fn placed(&self, group: GroupId) -> BTreeSet<ReplicaId> {
        if group == GroupId::META {
            let namesrvs = self.nodes.values().filter(|node| node.namesrv);
            return namesrvs.map(|node| ReplicaId { node: NodeId(node.id), incarnation: node.incarnation }).collect();
        }
        let record = self.broker_groups.get(&group.0);
        record.map(|record| record.replicas.iter().map(|id| ReplicaId::from_u64(*id)).collect()).unwrap_or_default()
    }

    /// A topic by uid.
    #[must_use]
    pub fn topic_by_uid(&self, uid: u64) -> Option<&Arc<TopicConfig>> {
        self.topic_names.get(&uid).and_then(|name| self.topics.get(name))
    }
}

/// A command of the meta group's log.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct MetaCommand {
    /// Always set.
    #[prost(oneof = "MetaOp", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11")]
    pub op: Option<MetaOp>,
}

/// What a [`MetaCommand`] does.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum MetaOp {
    /// The first command of a cluster: its id, nodes and broker groups. Refused when there is an id already.
    #[prost(message, tag = "1")]
    Birth(Birth),
    /// A node's addresses and roles changed, or a node is new. A known node's incarnation stays: see [`MetaOp::ReplaceNode`].
    #[prost(message, tag = "2")]
    PutNode(NodeRecord),
    /// The meta leader's decision about a node's liveness.
    #[prost(message, tag = "3")]
    SetAlive(SetAlive),
    /// A broker group's leader says so; fenced by term.
    #[prost(message, tag = "4")]
    ReportLeader(ReportLeader),
    /// Create a topic. `uid`, `version` and `queue_groups` are chosen by apply; see `queue_count`.
    #[prost(message, tag = "5")]
    CreateTopic(CreateTopic),
    /// Change a topic's permission or grow its queues (never shrink).
    #[prost(message, tag = "6")]
    AlterTopic(AlterTopic),
    /// Delete a topic by uid.
    #[prost(uint64, tag = "7")]
    DeleteTopic(u64),
    /// Create a consumer group, and its dead-letter topic `%DLQ%<name>` with one queue in each broker group.
    #[prost(message, tag = "8")]
    CreateConsumerGroup(ConsumerGroupConfig),
    /// Change a consumer group by uid; its name stays.
    #[prost(message, tag = "9")]
    AlterConsumerGroup(ConsumerGroupConfig),
    /// Delete a consumer group by uid (its dead-letter topic stays).
    #[prost(uint64, tag = "10")]
    DeleteConsumerGroup(u64),
    /// A node lost its disk and goes on with an empty one: its replicas are placed anew, under a later incarnation.
    #[prost(message, tag = "11")]
    ReplaceNode(ReplaceNode),
}

/// See [`MetaOp::Birth`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Birth {
    /// The new cluster's id.
    #[prost(string, tag = "1")]
    pub cluster_id: String,
    /// Its nodes.
    #[prost(message, repeated, tag = "2")]
    pub nodes: Vec<NodeRecord>,
    /// Its broker groups.
    #[prost(message, repeated, tag = "3")]
    pub broker_groups: Vec<BrokerGroupRecord>,
}

/// See [`MetaOp::SetAlive`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SetAlive {
    /// Node id.
    #[prost(uint32, tag = "1")]
    pub node: u32,
    /// The decision.
    #[prost(bool, tag = "2")]
    pub alive: bool,
}

/// See [`MetaOp::ReportLeader`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ReportLeader {
    /// Group id.
    #[prost(uint32, tag = "1")]
    pub group: u32,
    /// Raft term.
    #[prost(uint64, tag = "2")]
    pub term: u64,
    /// Node that leads in that term.
    #[prost(uint32, tag = "3")]
    pub node: u32,
}

/// See [`MetaOp::CreateTopic`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CreateTopic {
    /// Topic name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// [`crate::config::TopicType`].
    #[prost(int32, tag = "2")]
    pub topic_type: i32,
    /// [`crate::config::Permission`].
    #[prost(int32, tag = "3")]
    pub permission: i32,
    /// Queues, spread over all broker groups in turn.
    #[prost(uint32, tag = "4")]
    pub queue_count: u32,
}

/// See [`MetaOp::AlterTopic`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct AlterTopic {
    /// Topic uid.
    #[prost(uint64, tag = "1")]
    pub uid: u64,
    /// New [`crate::config::Permission`], 0.. ; absent: as it is.
    #[prost(int32, optional, tag = "2")]
    pub permission: Option<i32>,
    /// New number of queues; absent: as it is.
    #[prost(uint32, optional, tag = "3")]
    pub queue_count: Option<u32>,
}

/// See [`MetaOp::ReplaceNode`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ReplaceNode {
    /// Node id.
    #[prost(uint32, tag = "1")]
    pub node: u32,
    /// Its next incarnation, higher than the one it is known by; the same one again changes nothing.
    #[prost(uint32, tag = "2")]
    pub incarnation: u32,
}

/// The answer to a [`MetaCommand`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct MetaOutcome {
    /// Always set.
    #[prost(oneof = "MetaAnswer", tags = "1, 2, 3, 4, 5, 6")]
    pub answer: Option<MetaAnswer>,
}

/// What a [`MetaOutcome`] says.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum MetaAnswer {
    /// Done; nothing to tell.
    #[prost(bool, tag = "1")]
    Done(bool),
    /// The topic as it stands now (also when it existed with the same settings).
    #[prost(message, tag = "2")]
    Topic(TopicConfig),
    /// The consumer group as it stands now.
    #[prost(message, tag = "3")]
    ConsumerGroup(ConsumerGroupConfig),
    /// No such topic, group or node; a sentence.
    #[prost(string, tag = "4")]
    NotFound(String),
    /// Refused; a sentence that names the reason.
    #[prost(string, tag = "5")]
    Refused(String),
    /// Not altered: it has another version than the command names. The consumer group as it stands now.
    #[prost(message, tag = "6")]
    Conflict(ConsumerGroupConfig),
}
