//! A meta group of one: a table in memory behind the real service interface.

use super::{AUDIT, BILLING, LETTERS, TOPIC};
use parking_lot::Mutex;
use prost::Message;
use raftmq_model::config::{ConsumerGroupConfig, Permission, TopicConfig, TopicType};
use raftmq_model::ids::{NodeId, ReplicaId};
use raftmq_model::meta::{
    BrokerGroupRecord, MetaAnswer, MetaChange, MetaCommand, MetaOp, MetaOutcome, MetaRecord, MetaRecordBox, NodeRecord,
};
use raftmq_proto::meta::meta_server::{Meta, MetaServer};
use raftmq_proto::meta::{
    HeartbeatReply, HeartbeatRequest, ProposeReply, ProposeRequest, ReadRequest, WatchEvent, WatchRequest,
};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_stream::{Stream, StreamExt, wrappers::IntervalStream, wrappers::WatchStream};
use tonic::{Request, Response, Status, service::Routes};

pub(crate) const CLUSTER_ID: &str = "test-cluster";

/// Shared by all nodes of a test.
#[derive(Clone)]
pub(crate) struct ScriptedMeta(Arc<Inner>);

struct Inner {
    table: Mutex<Table>,
    revision: watch::Sender<u64>,
}

struct Table {
    nodes: Vec<NodeRecord>,
    group: BrokerGroupRecord,
    topics: BTreeMap<u64, TopicConfig>,
    consumer_groups: Vec<ConsumerGroupConfig>,
}

impl ScriptedMeta {
    pub(crate) fn new(nodes: &[NodeId]) -> ScriptedMeta {
        let replicas = nodes.iter().map(|node| ReplicaId { node: *node, incarnation: 1 }.to_u64()).collect();
        let group = BrokerGroupRecord { id: 1, name: "broker-1".to_owned(), replicas, leader_node: 0, leader_term: 0 };
        let topics = [topic(TOPIC.0, "orders", 4), topic(LETTERS.0, "%DLQ%billing", 1)];
        let table = Table {
            nodes: nodes.iter().map(|node| node_record(*node)).collect(),
            group,
            topics: topics.into_iter().map(|topic| (topic.uid, topic)).collect(),
            consumer_groups: vec![consumer_group(BILLING.0, "billing", 2), consumer_group(AUDIT.0, "audit", 16)],
        };
        ScriptedMeta(Arc::new(Inner { table: Mutex::new(table), revision: watch::Sender::new(100) }))
    }

    /// What a node asks as its own namesrv.
    pub(crate) fn routes(&self) -> Routes {
        Routes::new(MetaServer::new(self.clone()))
    }

    pub(crate) fn group(&self) -> BrokerGroupRecord {
        self.0.table.lock().group.clone()
    }

    pub(crate) fn topic(&self, uid: u64) -> Option<TopicConfig> {
        self.0.table.lock().topics.get(&uid).cloned()
    }

    pub(crate) fn delete_topic(&self, uid: u64) {
        self.0.table.lock().topics.remove(&uid);
        self.0.revision.send_modify(|revision| *revision += 1);
    }

    /// The whole table; nodes start over from it each time.
    fn event(&self) -> WatchEvent {
        let table = self.0.table.lock();
        let nodes = table.nodes.iter().cloned().map(MetaRecord::Node);
        let topics = table.topics.values().cloned().map(MetaRecord::Topic);
        let groups = table.consumer_groups.iter().cloned().map(MetaRecord::ConsumerGroup);
        let records = nodes.chain([MetaRecord::BrokerGroup(table.group.clone())]).chain(topics).chain(groups);
        let records = records.map(|record| MetaRecordBox { record: Some(record) }).collect();
        let revision = *self.0.revision.borrow();
        let change = MetaChange { revision, reset: true, cluster_id: CLUSTER_ID.to_owned(), records };
        WatchEvent { change: change.encode_to_vec().into() }
    }

    fn decide(&self, op: MetaOp) -> MetaAnswer {
        let mut table = self.0.table.lock();
        let MetaOp::ReportLeader(report) = op else {
            return MetaAnswer::Refused("the scripted meta group only takes leader reports".to_owned());
        };
        if report.term > table.group.leader_term {
            (table.group.leader_node, table.group.leader_term) = (report.node, report.term);
        }
        drop(table);
        self.0.revision.send_modify(|revision| *revision += 1);
        MetaAnswer::Done(true)
    }
}

fn topic(uid: u64, name: &str, queues: usize) -> TopicConfig {
    TopicConfig {
        uid,
        version: uid,
        name: name.to_owned(),
        topic_type: TopicType::Normal as i32,
        permission: Permission::ReadWrite as i32,
        queue_groups: vec![1; queues],
    }
}

fn consumer_group(uid: u64, name: &str, attempts_max: u32) -> ConsumerGroupConfig {
    ConsumerGroupConfig { uid, version: uid, name: name.to_owned(), fifo: false, attempts_max, consume_enabled: true }
}

fn node_record(node: NodeId) -> NodeRecord {
    let client_address = format!("127.0.0.{node}:8081");
    NodeRecord {
        id: node.0,
        incarnation: 1,
        namesrv: true,
        broker: true,
        client_address,
        alive: true,
        ..NodeRecord::default()
    }
}

#[tonic::async_trait]
impl Meta for ScriptedMeta {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<WatchEvent, Status>> + Send>>;

    async fn watch(&self, _request: Request<WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let meta = self.clone();
        let changes = WatchStream::new(self.0.revision.subscribe()).map(|_| ());
        let signs_of_life = IntervalStream::new(tokio::time::interval(Duration::from_secs(1))).map(|_| ());
        Ok(Response::new(Box::pin(changes.merge(signs_of_life).map(move |()| Ok(meta.event())))))
    }

    async fn propose(&self, request: Request<ProposeRequest>) -> Result<Response<ProposeReply>, Status> {
        let command = MetaCommand::decode(request.into_inner().command);
        let command = command.map_err(|error| Status::invalid_argument(error.to_string()))?;
        let answer = command.op.map(|op| self.decide(op));
        Ok(Response::new(ProposeReply { outcome: MetaOutcome { answer }.encode_to_vec().into() }))
    }

    async fn heartbeat(&self, _request: Request<HeartbeatRequest>) -> Result<Response<HeartbeatReply>, Status> {
        Ok(Response::new(HeartbeatReply {}))
    }

    async fn read(&self, _request: Request<ReadRequest>) -> Result<Response<WatchEvent>, Status> {
        Ok(Response::new(self.event()))
    }
}
