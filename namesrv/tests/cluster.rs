//! Three namesrv nodes in one process, over loopback, with real files.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use bytes::Bytes;
use prost::Message;
use raftmq_model::clock::Clock;
use raftmq_model::ids::{NodeId, ReplicaId, Timestamp};
use raftmq_model::meta::{
    Birth, BrokerGroupRecord, CreateTopic, MetaAnswer, MetaChange, MetaCommand, MetaOp, MetaOutcome, MetaView,
    NodeRecord,
};
use raftmq_namesrv::{Namesrv, NamesrvOptions};
use raftmq_proto::meta::meta_client::MetaClient;
use raftmq_proto::meta::{HeartbeatRequest, ProposeRequest, ReadRequest, WatchEvent, WatchRequest};
use raftmq_raft::{PeerAddresses, RaftNode, RaftNodeOptions};
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;
use tonic::service::Routes;
use tonic::{Code, Status, Streaming};

/// Far above what any step takes; only a hang reaches it.
const STEP: Duration = Duration::from_secs(20);
const CLUSTER: &str = "c-test";

struct WallClock;

impl Clock for WallClock {
    fn now(&self) -> Timestamp {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        Timestamp(since.as_millis() as i64)
    }
}

struct Node {
    raft: Arc<RaftNode>,
    namesrv: Namesrv,
}

impl Node {
    fn meta(&self) -> MetaClient<Routes> {
        MetaClient::new(self.namesrv.local())
    }

    async fn propose(&self, op: MetaOp) -> Result<MetaAnswer, Status> {
        let command = Bytes::from(MetaCommand { op: Some(op) }.encode_to_vec());
        let request = ProposeRequest { command, timeout_ms: STEP.as_millis() as u32 };
        let outcome = self.meta().propose(request).await?.into_inner().outcome;
        Ok(MetaOutcome::decode(outcome).unwrap().answer.unwrap())
    }

    async fn create(&self, name: &str) -> MetaAnswer {
        let create = CreateTopic { name: name.to_owned(), topic_type: 1, permission: 6, queue_count: 4 };
        self.propose(MetaOp::CreateTopic(create)).await.unwrap()
    }

    async fn read(&self) -> MetaView {
        let mut view = MetaView::default();
        take(&mut view, self.meta().read(ReadRequest {}).await.unwrap().into_inner());
        view
    }
}

/// A copy that follows a watch stream.
struct Copy {
    view: MetaView,
    stream: Streaming<WatchEvent>,
}

impl Copy {
    async fn of(node: &Node) -> Copy {
        let stream = node.meta().watch(WatchRequest {}).await.unwrap().into_inner();
        Copy { view: MetaView::default(), stream }
    }

    async fn until(&mut self, what: &str, enough: impl Fn(&MetaView) -> bool) {
        let wait = async {
            while !enough(&self.view) {
                let event = self.stream.message().await.unwrap().expect("the stream goes on");
                take(&mut self.view, event);
            }
        };
        tokio::time::timeout(STEP, wait).await.unwrap_or_else(|_| panic!("never seen: {what}"));
    }
}

fn take(view: &mut MetaView, event: WatchEvent) {
    if !event.change.is_empty() {
        view.take(&MetaChange::decode(event.change).unwrap());
    }
}

async fn start(dir: &std::path::Path) -> BTreeMap<u32, Node> {
    let listeners: Vec<(u32, TcpListener)> =
        (1..=3).map(|id| (id, TcpListener::bind("127.0.0.1:0").unwrap())).collect();
    let address = |(id, listener): &(u32, TcpListener)| (NodeId(*id), listener.local_addr().unwrap().to_string());
    let addresses: BTreeMap<NodeId, String> = listeners.iter().map(address).collect();
    let mut nodes = BTreeMap::new();
    for (id, listener) in listeners {
        let clock: Arc<dyn Clock> = Arc::new(WallClock);
        let peers = PeerAddresses::new(addresses.clone());
        let raft = RaftNode::start(RaftNodeOptions::new(NodeId(id), 1, CLUSTER, Arc::clone(&clock), peers)).unwrap();
        let raft = Arc::new(raft);
        let options = NamesrvOptions::new(NodeId(id), Arc::clone(&raft), dir.join(id.to_string()), clock);
        let options = NamesrvOptions { segment_bytes_max: 1 << 20, node_silent_ms: 60_000, ..options };
        let namesrv = Namesrv::open(options).await.unwrap();
        raft.serve_peers(listener, Routes::new(namesrv.service())).await.unwrap();
        nodes.insert(id, Node { raft, namesrv });
    }
    nodes
}

fn birth() -> MetaOp {
    let address = |port: &str, id: u32| format!("127.0.0.1:{port}{id}");
    let node = |id| NodeRecord {
        id,
        incarnation: 1,
        namesrv: true,
        broker: true,
        client_address: address("808", id),
        peer_address: address("708", id),
        admin_address: address("908", id),
        alive: true,
    };
    let replicas = (1..=3).map(|id| ReplicaId { node: NodeId(id), incarnation: 1 }.to_u64()).collect();
    let group = BrokerGroupRecord { id: 1, name: "broker-1".to_owned(), replicas, ..Default::default() };
    MetaOp::Birth(Birth {
        cluster_id: CLUSTER.to_owned(),
        nodes: (1..=3).map(node).collect(),
        broker_groups: vec![group],
    })
}

/// The id of the node that leads and is ready, as `node` and that node see it.
async fn leader(nodes: &BTreeMap<u32, Node>, node: u32) -> u32 {
    let mut leadership = nodes[&node].namesrv.group().leadership();
    let seen = tokio::time::timeout(STEP, leadership.wait_for(|now| now.leader.is_some())).await;
    let id = seen.expect("a leader").unwrap().leader.unwrap().0;
    let mut own = nodes[&id].namesrv.group().leadership();
    tokio::time::timeout(STEP, own.wait_for(|now| now.ready)).await.expect("a ready leader").unwrap();
    id
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn topics_survive_the_leader_and_watchers_see_them() {
    let dir = tempfile::tempdir().unwrap();
    let mut nodes = start(dir.path()).await;
    let voters: Vec<ReplicaId> = (1..=3).map(|id| ReplicaId { node: NodeId(id), incarnation: 1 }).collect();
    nodes[&1].namesrv.group().initialize(&voters).await.unwrap();
    let first = leader(&nodes, 1).await;
    let followers: Vec<u32> = nodes.keys().copied().filter(|id| *id != first).collect();
    let (via, watched) = (&nodes[&followers[0]], &nodes[&followers[1]]);

    // Through a follower, before and after the birth of the cluster.
    assert!(matches!(via.create("orders").await, MetaAnswer::Refused(_)));
    assert_eq!(via.propose(birth()).await.unwrap(), MetaAnswer::Done(true));
    let mut copy = Copy::of(watched).await;
    copy.until("the birth", |view| view.cluster_id == CLUSTER).await;
    let MetaAnswer::Topic(orders) = via.create("orders").await else { panic!("not created") };
    copy.until("the topic", |view| view.topics.contains_key("orders")).await;

    // What is no command never gets into the log.
    let garbage = ProposeRequest { command: Bytes::from_static(b"\xff\xff"), timeout_ms: 1_000 };
    assert_eq!(via.meta().propose(garbage).await.unwrap_err().code(), Code::InvalidArgument);

    // All nodes live as far as the leader hears, until its own process is gone.
    for id in followers.iter().copied() {
        nodes[&id].meta().heartbeat(HeartbeatRequest { node_id: id }).await.unwrap();
    }
    let mut alive = nodes[&followers[0]].raft.peers_alive();
    let seen = alive.wait_for(|peers| peers.get(&NodeId(first)) == Some(&raftmq_raft::PeerState::Alive));
    drop(tokio::time::timeout(STEP, seen).await.expect("the leader's process answers").unwrap());
    let mut alive = nodes[&followers[1]].raft.peers_alive();
    let seen = alive.wait_for(|peers| peers.get(&NodeId(first)) == Some(&raftmq_raft::PeerState::Alive));
    drop(tokio::time::timeout(STEP, seen).await.expect("the leader's process answers").unwrap());
    nodes[&first].raft.kill();
    let killed = nodes.remove(&first).unwrap();

    // The call is held over the election; reads are linearizable through any node; the watcher's stream goes on.
    let via = &nodes[&followers[0]];
    let MetaAnswer::Topic(billing) = via.create("billing").await else { panic!("not created") };
    assert!(billing.uid > orders.uid);
    for id in &followers {
        let view = nodes[id].read().await;
        assert_eq!(view.topics["orders"].as_ref(), &orders);
        assert_eq!(view.topics["billing"].as_ref(), &billing);
    }
    copy.until("the topic made under the new leader", |view| view.topics.contains_key("billing")).await;
    copy.until("the death of the old leader", |view| !view.nodes[&first].alive).await;
    assert!(nodes.keys().all(|id| copy.view.nodes[id].alive));
    let second = leader(&nodes, followers[0]).await;
    assert_eq!(*nodes[&second].namesrv.view(), nodes[&second].read().await);
    drop(killed);

    // Without a majority nothing is decided, and the caller learns it.
    let last = followers.iter().copied().find(|id| *id != second).unwrap();
    nodes[&second].raft.kill();
    let command = Bytes::from(MetaCommand { op: Some(birth()) }.encode_to_vec());
    let status = nodes[&last].meta().propose(ProposeRequest { command, timeout_ms: 700 }).await.unwrap_err();
    assert!(matches!(status.code(), Code::Unavailable | Code::DeadlineExceeded), "{status:?}");
    for node in nodes.values() {
        node.raft.kill();
    }
}
