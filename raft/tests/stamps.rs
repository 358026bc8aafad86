//! A disk that is an older copy of itself is noticed, at the start and later, and nothing else is taken for one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use raftmq_model::ids::{NodeId, ReplicaId};
use raftmq_proto::raft::VoteRequest;
use raftmq_proto::raft::raft_client::RaftClient;
use raftmq_raft::{PeerAddresses, PeerPort, RaftNode, RaftNodeOptions, StampError, StampOptions};
use raftmq_store::testing::Fault;
use raftmq_store::{FaultyIo, Io, RealIo, Stamps};
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use support::cluster::options;
use tempfile::TempDir;
use tokio::time::{Instant, sleep, timeout};
use tonic::Code;
use tonic::service::Routes;

const PATIENCE: Duration = Duration::from_secs(20);
/// Longer than a node needs that does not wait.
const WAITS: Duration = Duration::from_millis(400);
const STAMP_MS: u64 = 20;

/// Folders and addresses of the nodes 1..=3.
struct Disks {
    dirs: BTreeMap<u32, TempDir>,
    listeners: BTreeMap<u32, TcpListener>,
    peers: PeerAddresses,
}

/// A process.
struct Node {
    raft: RaftNode,
    port: PeerPort,
}

fn replica(node: u32) -> ReplicaId {
    ReplicaId { node: NodeId(node), incarnation: 1 }
}

impl Disks {
    fn new(count: u32) -> Disks {
        let own = support::cluster::own_address();
        let listeners: BTreeMap<u32, TcpListener> =
            (1..=count).map(|node| (node, TcpListener::bind((own, 0)).unwrap())).collect();
        let address = |listener: &TcpListener| listener.local_addr().unwrap().to_string();
        let peers = listeners.iter().map(|(node, listener)| (NodeId(*node), address(listener))).collect();
        let dirs = (1..=count).map(|node| (node, tempfile::tempdir().unwrap())).collect();
        Disks { dirs, listeners, peers: PeerAddresses::new(peers) }
    }

    fn file(&self, node: u32) -> PathBuf {
        self.dirs[&node].path().join("stamps")
    }

    /// What the disk of `node` has heard of `of`.
    fn known(&self, node: u32, of: u32) -> u64 {
        Stamps::open(Arc::new(RealIo), self.dirs[&node].path(), replica(node)).unwrap().of(replica(of))
    }

    async fn until_known(&self, node: u32, of: u32, stamp: u64) {
        let until = Instant::now() + PATIENCE;
        while self.known(node, of) < stamp {
            assert!(Instant::now() < until, "node {node} does not hear of stamp {stamp} of node {of}");
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// A process that answers stamps and has not asked for any.
    async fn begin(&self, node: u32, interval_ms: u64) -> Node {
        let stamps = StampOptions { io: Arc::new(RealIo), dir: self.dirs[&node].path().into(), interval_ms };
        let options = RaftNodeOptions { stamps: Some(stamps), ..options(node, "test", &self.peers) };
        let raft = RaftNode::start(options).unwrap();
        let port = raft.listen(self.listeners[&node].try_clone().unwrap()).await.unwrap();
        Node { raft, port }
    }

    async fn start(&self, node: u32, interval_ms: u64) -> Result<Node, StampError> {
        let begun = self.begin(node, interval_ms).await;
        timeout(PATIENCE, begun.raft.check_stamps()).await.expect("it waits").map(|()| begun)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_start_together_do_not_wait_for_each_other_and_one_alone_waits_for_a_majority() {
    let disks = Disks::new(3);
    let third = disks.begin(3, STAMP_MS).await;
    let mut check = Box::pin(third.raft.check_stamps());
    assert!(timeout(WAITS, &mut check).await.is_err(), "the others have not answered");
    assert_eq!(disks.known(3, 3), 0);
    let (first, second) = tokio::join!(disks.start(1, STAMP_MS), disks.start(2, STAMP_MS));
    let (first, _second) = (first.unwrap(), second.unwrap());
    timeout(PATIENCE, check).await.expect("a majority answers").unwrap();
    for (node, of) in [(1, 2), (1, 3), (2, 1), (2, 3), (3, 1), (3, 2)] {
        disks.until_known(node, of, 3).await;
    }
    assert!(timeout(WAITS, first.raft.stamps_ended()).await.is_err(), "all is well");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_peers_does_not_wait() {
    let disks = Disks::new(1);
    for _ in 0..3 {
        drop(disks.start(1, 60_000).await.unwrap());
    }
    assert_eq!(disks.known(1, 1), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_copy_is_refused_at_the_start_and_so_is_none_where_there_was_one() {
    let disks = Disks::new(3);
    let (first, second, third) =
        tokio::join!(disks.start(1, STAMP_MS), disks.start(2, STAMP_MS), disks.start(3, 60_000));
    let (_first, _second) = (first.unwrap(), second.unwrap());
    drop(third.unwrap());
    let copy = std::fs::read(disks.file(3)).unwrap();
    let own = disks.known(3, 3);
    // It goes on as it was put down.
    let third = disks.start(3, 60_000).await.unwrap();
    disks.until_known(1, 3, own + 1).await;
    disks.until_known(2, 3, own + 1).await;
    drop(third);

    let newest = std::fs::read(disks.file(3)).unwrap();
    std::fs::write(disks.file(3), &copy).unwrap();
    let error = disks.start(3, 60_000).await.err().expect("it is older");
    let StampError::Older { node, own: said, known, .. } = &error else { panic!("{error}") };
    assert_eq!((*node, *said, *known), (NodeId(3), own, own + 1));
    assert!(error.to_string().contains("is an older copy of the disk of node 3: it has stamp"), "{error}");
    std::fs::remove_file(disks.file(3)).unwrap();
    assert!(matches!(disks.start(3, 60_000).await.err(), Some(StampError::Older { own: 0, .. })));
    std::fs::write(disks.file(3), &newest).unwrap();
    drop(disks.start(3, 60_000).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_copy_ends_when_it_meets_somebody_who_knows_better() {
    let disks = Disks::new(3);
    let (first, second) = tokio::join!(disks.start(1, 60_000), disks.start(2, 60_000));
    let (first, second) = (first.unwrap(), second.unwrap());
    let third = disks.start(3, 60_000).await.unwrap();
    let copy = std::fs::read(disks.file(3)).unwrap();
    disks.until_known(2, 3, 1).await;
    drop((second, third));
    // Node 2 is down while the disk goes on, and node 1 when the copy is put back.
    let third = disks.start(3, STAMP_MS).await.unwrap();
    // A silent peer is waited for, so this takes a while.
    disks.until_known(1, 3, 4).await;
    drop((first, third));
    std::fs::write(disks.file(3), &copy).unwrap();
    let (second, third) = tokio::join!(disks.start(2, 60_000), disks.start(3, 60_000));
    let (_second, third) = (second.unwrap(), third.expect("nobody knows yet"));
    let _first = disks.start(1, 60_000).await.unwrap();
    let error = timeout(PATIENCE, third.raft.stamps_ended()).await.expect("node 1 knows");
    assert!(matches!(error, StampError::Older { node: NodeId(3), .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_wait_until_the_port_is_opened() {
    let disks = Disks::new(2);
    let (first, second) = tokio::join!(disks.start(1, 60_000), disks.start(2, 60_000));
    let (first, second) = (first.unwrap(), second.unwrap());
    let mut client = RaftClient::new(first.raft.channel(NodeId(2)));
    let request = VoteRequest { to_replica: replica(2).to_u64(), group_id: 7, ..VoteRequest::default() };
    let mut call = Box::pin(client.vote(request));
    assert!(timeout(WAITS, &mut call).await.is_err(), "it waits");
    second.port.open(Routes::default());
    let status = timeout(PATIENCE, call).await.expect("it goes on").expect_err("there is no such group");
    assert_eq!(status.code(), Code::NotFound);
    drop(first.port);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_cannot_write_its_stamp_ends() {
    let dir = Path::new("/data");
    for fault in [Fault::NoSpace, Fault::Device] {
        let io = FaultyIo::new();
        io.create_dir_all(dir).unwrap();
        let peers = PeerAddresses::new(BTreeMap::new());
        let stamps = StampOptions { io: Arc::new(io.clone()), dir: dir.into(), interval_ms: STAMP_MS };
        let raft = RaftNode::start(RaftNodeOptions { stamps: Some(stamps), ..options(1, "test", &peers) }).unwrap();
        raft.check_stamps().await.unwrap();
        io.fail_at(io.operations() + 3, fault);
        let error = timeout(PATIENCE, raft.stamps_ended()).await.expect("it ends");
        assert!(error.to_string().starts_with("/data/stamps cannot be written: "), "{error}");
    }
}
