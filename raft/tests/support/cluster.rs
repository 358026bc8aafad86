//! Nodes in one process, each with its own runtime, over real loopback connections.

use super::log_options;
use super::machine::{Shared, TestMachine};
use bytes::Bytes;
use raftmq_model::clock::Clock;
use raftmq_model::ids::{GroupId, NodeId, ReplicaId, Timestamp};
use raftmq_raft::{
    CommitLogOptions, Group, GroupOptions, Leadership, PeerAddresses, ProposeError, RaftNode, RaftNodeOptions,
};
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tempfile::TempDir;
use tokio::time::{Instant, timeout};
use tonic::service::Routes;

pub const GROUP: GroupId = GroupId(1);
/// Anything that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(20);

struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        Timestamp(since.as_millis() as i64)
    }
}

pub fn options(node: u32, cluster: &str, peers: &PeerAddresses) -> RaftNodeOptions {
    RaftNodeOptions::new(NodeId(node), 1, cluster, Arc::new(SystemClock), peers.clone())
}

pub struct Node {
    pub raft: Option<RaftNode>,
    pub groups: BTreeMap<GroupId, Group>,
    pub states: BTreeMap<GroupId, Shared>,
    pub address: String,
    pub incarnation: u32,
    /// What it listens on in its first life: held from the choice of the port on, as else two nodes could get the same.
    listener: Option<TcpListener>,
    dir: TempDir,
}

impl Node {
    async fn listen(&mut self) -> TcpListener {
        if let Some(listener) = self.listener.take() {
            return listener;
        }
        // The last life's listener goes with its runtime, a moment after the node.
        let until = Instant::now() + PATIENCE;
        loop {
            match TcpListener::bind(&self.address) {
                Err(_) if Instant::now() < until => tokio::task::yield_now().await,
                bound => return bound.unwrap(),
            }
        }
    }
}

pub struct Cluster {
    pub nodes: BTreeMap<u32, Node>,
    pub peers: PeerAddresses,
    /// How logs are opened.
    pub log: fn(&Path) -> CommitLogOptions,
    pub scrub_interval_ms: u64,
}

pub fn replicas(nodes: u32) -> Vec<ReplicaId> {
    (1..=nodes).map(|node| ReplicaId { node: NodeId(node), incarnation: 1 }).collect()
}

/// A loopback address that no other cluster has: a port that is free there stays so while its node is down. On a shared
/// address another test, or any outgoing connection, can take it meanwhile.
pub fn own_address() -> std::net::Ipv4Addr {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let [_, _, high, low] = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed).to_be_bytes();
    let process = u8::try_from(std::process::id() % 250).unwrap();
    std::net::Ipv4Addr::new(127, process + 2, high, low.wrapping_add(1))
}

impl Cluster {
    /// Prepares nodes 1..=count without starting them.
    pub fn prepare(count: u32) -> Cluster {
        let (mut nodes, own) = (BTreeMap::new(), own_address());
        for node in 1..=count {
            let listener = TcpListener::bind((own, 0)).unwrap();
            let address = listener.local_addr().unwrap().to_string();
            let dir = tempfile::tempdir().unwrap();
            let (groups, states) = (BTreeMap::new(), BTreeMap::new());
            let listener = Some(listener);
            nodes.insert(node, Node { raft: None, groups, states, address, incarnation: 1, listener, dir });
        }
        let addresses = nodes.iter().map(|(node, of)| (NodeId(*node), of.address.clone())).collect();
        Cluster { nodes, peers: PeerAddresses::new(addresses), log: log_options, scrub_interval_ms: 3_600_000 }
    }

    /// Three nodes that host `groups`, initialized, with a ready leader each.
    pub async fn of_three(groups: &[GroupId]) -> Cluster {
        let mut cluster = Cluster::prepare(3);
        cluster.be_born(groups).await;
        cluster
    }

    /// Starts and initializes three prepared nodes.
    pub async fn be_born(&mut self, groups: &[GroupId]) {
        let cluster = self;
        for node in 1..=3 {
            cluster.start(node, groups).await;
        }
        for (at, group) in groups.iter().enumerate() {
            let node = 1 + (at as u32 % 3);
            cluster.nodes[&node].groups[group].initialize(&replicas(3)).await.unwrap();
            cluster.leader(*group).await;
        }
    }

    /// Starts a node on its disk; its machines go on from what they wrote.
    pub async fn start(&mut self, node: u32, groups: &[GroupId]) {
        let at = self.nodes.get_mut(&node).unwrap();
        let options = RaftNodeOptions {
            incarnation: at.incarnation,
            scrub_interval_ms: self.scrub_interval_ms,
            ..options(node, "test", &self.peers)
        };
        let raft = RaftNode::start(options).unwrap();
        for group in groups {
            let shared = at.states.entry(*group).or_insert_with(Shared::new).clone();
            let log = (self.log)(&at.dir.path().join(group.to_string()));
            let machine = Box::new(TestMachine::over(&shared));
            let opened = raft.open_group(GroupOptions::new(*group, log), machine).await.unwrap();
            at.groups.insert(*group, opened);
        }
        let listener = at.listen().await;
        raft.serve_peers(listener, Routes::default()).await.unwrap();
        at.raft = Some(raft);
    }

    /// What `kill -9` does, as far as peers can see.
    pub fn kill(&mut self, node: u32) {
        let at = self.nodes.get_mut(&node).unwrap();
        at.raft.take().unwrap().kill();
        at.groups.clear();
    }

    /// The disk of a node that is down is replaced by an empty one, for the node's next life.
    pub fn wipe(&mut self, node: u32) {
        let at = self.nodes.get_mut(&node).unwrap();
        assert!(at.raft.is_none());
        at.states.clear();
        at.incarnation += 1;
        at.dir = tempfile::tempdir().unwrap();
    }

    pub fn log_dir(&self, node: u32, group: GroupId) -> PathBuf {
        self.nodes[&node].dir.path().join(group.to_string())
    }

    pub fn forget_state(&mut self, node: u32) {
        self.nodes.get_mut(&node).unwrap().states.clear();
    }

    pub fn raft(&self, node: u32) -> &RaftNode {
        self.nodes[&node].raft.as_ref().unwrap()
    }

    pub fn group(&self, node: u32, group: GroupId) -> &Group {
        &self.nodes[&node].groups[&group]
    }

    pub fn state(&self, node: u32, group: GroupId) -> &Shared {
        &self.nodes[&node].states[&group]
    }

    pub fn living(&self) -> Vec<u32> {
        self.nodes.iter().filter(|(_, node)| node.raft.is_some()).map(|(id, _)| *id).collect()
    }

    /// The node that leads `group` and is ready.
    pub async fn leader(&self, group: GroupId) -> u32 {
        let waits = self.living().into_iter().map(|node| {
            let mut leadership = self.group(node, group).leadership();
            Box::pin(async move {
                leadership.wait_for(|now| now.ready).await.unwrap();
                node
            })
        });
        timeout(PATIENCE, futures::future::select_all(waits)).await.expect("no leader").0
    }

    /// Waits until all living nodes agree on the leader, and answers it.
    pub async fn agreed_leader(&self, group: GroupId) -> u32 {
        let leader = self.leader(group).await;
        for node in self.living() {
            let mut leadership = self.group(node, group).leadership();
            let agrees = |now: &Leadership| now.leader == Some(NodeId(leader));
            timeout(PATIENCE, leadership.wait_for(agrees)).await.expect("no agreement").unwrap();
        }
        leader
    }

    pub async fn wait_for_commands(&self, node: u32, group: GroupId, count: usize) {
        let wait = self.state(node, group).wait_for_commands(count);
        timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("node {node} does not apply {count} commands"));
    }
}

/// What a caller sees that follows hints, as the broker's router does.
#[derive(Default, Debug)]
pub struct Tally {
    pub not_leader: u32,
    pub not_ready: u32,
    pub unknown: u32,
}

/// Proposes through whichever node leads, following hints; gives up on everything but `NotLeader`, `NotReady` and, when
/// `retry_unknown`, a lost answer.
pub async fn propose(groups: &BTreeMap<u32, Group>, command: Bytes, retry_unknown: bool, tally: &mut Tally) -> Bytes {
    let started = Instant::now();
    let mut at = *groups.keys().next().unwrap();
    loop {
        assert!(started.elapsed() < PATIENCE, "no node takes the command: {tally:?}");
        let call = timeout(Duration::from_secs(2), groups[&at].propose(command.clone()));
        match call.await.unwrap_or(Err(ProposeError::Unknown)) {
            Ok(outcome) => return outcome,
            Err(ProposeError::NotLeader { leader }) => {
                tally.not_leader += 1;
                at = leader
                    .map(|node| node.0)
                    .filter(|node| groups.contains_key(node))
                    .unwrap_or_else(|| next(groups, at));
            }
            Err(ProposeError::NotReady) => tally.not_ready += 1,
            Err(ProposeError::Unknown | ProposeError::Stopped) if retry_unknown => {
                tally.unknown += 1;
                at = next(groups, at);
            }
            Err(error) => panic!("a call failed: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn next(groups: &BTreeMap<u32, Group>, at: u32) -> u32 {
    let mut after = groups.range(at + 1..).chain(groups.iter());
    *after.next().unwrap().0
}
