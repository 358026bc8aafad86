//! Nodes that can be killed and started again.

use super::GROUP;
use super::meta::{CLUSTER_ID, ScriptedMeta};
use parking_lot::Mutex;
use raftmq_broker::leader::Replica;
use raftmq_broker::meta_client::{MetaClient, MetaClientOptions};
use raftmq_broker::options::{BrokerLimits, OpenState, open_rocks_state};
use raftmq_broker::{Broker, BrokerOptions, Router};
use raftmq_model::clock::Clock;
use raftmq_model::ids::{NodeId, Timestamp};
use raftmq_model::machine::Limits;
use raftmq_raft::{PeerAddresses, RaftNode, RaftNodeOptions};
use raftmq_store::state::StateStore;
use raftmq_store::testing::SizedIo;
use raftmq_store::{Durability, RealIo, Volume};
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tonic::service::Routes;

struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64)
    }
}

/// What the nodes of a cluster are told.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) segment_bytes_max: u64,
    pub(crate) retention_bytes_max: u64,
    pub(crate) checkpoint_interval_ms: u64,
    pub(crate) rules: Limits,
    /// How often logs and ConsumeQueues are read through, and how many bytes of them in a second.
    pub(crate) scrub_interval_ms: u64,
    pub(crate) scrub_bytes_per_second_max: u64,
}

impl Default for Shape {
    fn default() -> Shape {
        let limits = BrokerLimits::default();
        Shape {
            segment_bytes_max: 16 << 20,
            retention_bytes_max: 0,
            checkpoint_interval_ms: limits.checkpoint_interval_ms,
            rules: Limits::default(),
            scrub_interval_ms: limits.scrub_interval_ms,
            scrub_bytes_per_second_max: limits.scrub_bytes_per_second_max,
        }
    }
}

/// Three nodes, each with a replica of [`GROUP`].
pub(crate) struct Cluster {
    shape: Shape,
    pub(crate) meta: ScriptedMeta,
    addresses: BTreeMap<NodeId, SocketAddr>,
    nodes: BTreeMap<NodeId, Node>,
    /// The nodes' files, on volumes of their own.
    disks: BTreeMap<NodeId, SizedIo>,
    /// Behind the nodes, so that it goes when nothing is written any more.
    dir: tempfile::TempDir,
}

impl Drop for Cluster {
    /// Ends all nodes: their runtimes hold each other's parts, and a RocksDB that loses its folder delays those of
    /// other tests.
    fn drop(&mut self) {
        for node in self.nodes.values() {
            node.raft.kill();
        }
        let stores: Vec<_> = self.nodes.values().flat_map(|node| node.stores.lock().clone()).collect();
        let until = Instant::now() + Duration::from_secs(5);
        while stores.iter().any(|store| store.strong_count() > 0) && Instant::now() < until {
            std::thread::yield_now();
        }
    }
}

struct Node {
    raft: Arc<RaftNode>,
    broker: Arc<Broker>,
    stores: Stores,
}

/// The state stores that a node opened.
type Stores = Arc<Mutex<Vec<Weak<dyn StateStore>>>>;

/// Returns when all of them are closed.
async fn closed(stores: &Stores) {
    while stores.lock().iter().any(|store| store.strong_count() > 0) {
        tokio::task::yield_now().await;
    }
}

/// RocksDB, noting what was opened.
fn open_noted(stores: &Stores) -> OpenState {
    let (open, stores) = (open_rocks_state(), Arc::clone(stores));
    Arc::new(move |group, dir| {
        // A store of this node's last life is counted as gone a moment before it lets go of its lock.
        let until = Instant::now() + Duration::from_secs(5);
        let store = loop {
            match open(group, dir) {
                Err(error) if error.to_string().contains("LOCK") && Instant::now() < until => std::thread::yield_now(),
                opened => break opened?,
            }
        };
        stores.lock().push(Arc::downgrade(&store));
        Ok(store)
    })
}

/// A loopback address that no other cluster has: a port that is free there stays so while its node is down. On a shared
/// address another test, or any outgoing connection, can take it meanwhile.
fn own_address() -> std::net::Ipv4Addr {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let [_, _, high, low] = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed).to_be_bytes();
    let process = u8::try_from(std::process::id() % 250).unwrap();
    std::net::Ipv4Addr::new(127, process + 2, high, low.wrapping_add(1))
}

impl Cluster {
    /// Three nodes with a leader that is ready.
    pub(crate) async fn start() -> Cluster {
        Cluster::start_as(Shape::default()).await
    }

    pub(crate) async fn start_as(shape: Shape) -> Cluster {
        let ids = [NodeId(1), NodeId(2), NodeId(3)];
        let own = own_address();
        let listeners = ids.map(|id| (id, TcpListener::bind((own, 0)).unwrap()));
        let addresses = listeners.iter().map(|(id, listener)| (*id, listener.local_addr().unwrap())).collect();
        let dir = tempfile::tempdir().unwrap();
        let disks = ids.map(|id| (id, SizedIo::new(Arc::new(RealIo)))).into();
        let meta = ScriptedMeta::new(&ids);
        let mut cluster = Cluster { shape, meta, addresses, nodes: BTreeMap::new(), disks, dir };
        ids.iter().for_each(|id| cluster.set_full(*id, false));
        for (id, listener) in listeners {
            cluster.start_on(id, listener).await.unwrap();
        }
        cluster.nodes[&NodeId(1)].broker.initialize_group(GROUP).await.unwrap();
        cluster.leader().await;
        cluster
    }

    /// Starts a node that was killed.
    pub(crate) async fn restart(&mut self, id: NodeId) {
        self.try_restart(id).await.unwrap();
    }

    /// As [`Cluster::restart`]; the sentence with which the node does not start.
    pub(crate) async fn try_restart(&mut self, id: NodeId) -> Result<(), String> {
        // The last life's listener goes with its runtime, a moment after the node.
        let until = Instant::now() + Duration::from_secs(5);
        let listener = loop {
            match TcpListener::bind(self.addresses[&id]) {
                Err(_) if Instant::now() < until => tokio::task::yield_now().await,
                bound => break bound.unwrap(),
            }
        };
        self.start_on(id, listener).await
    }

    async fn start_on(&mut self, id: NodeId, listener: TcpListener) -> Result<(), String> {
        let peers = self.addresses.iter().map(|(id, address)| (*id, address.to_string())).collect();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let options = RaftNodeOptions {
            scrub_interval_ms: self.shape.scrub_interval_ms,
            scrub_bytes_per_second_max: self.shape.scrub_bytes_per_second_max,
            ..RaftNodeOptions::new(id, 1, CLUSTER_ID, Arc::clone(&clock), PeerAddresses::new(peers))
        };
        let raft = Arc::new(RaftNode::start(options).unwrap());
        let mut meta = MetaClientOptions::new(id, Vec::new(), Arc::clone(&raft));
        meta.own_service = Some(self.meta.routes());
        let stores = Stores::default();
        let broker = Broker::start(BrokerOptions {
            node: id,
            incarnation: 1,
            cluster_id: CLUSTER_ID.to_owned(),
            data_dir: self.dir.path().join(id.to_string()),
            raft: Arc::clone(&raft),
            meta: MetaClient::start(meta),
            clock,
            io: Arc::new(self.disks[&id].clone()),
            open_state: open_noted(&stores),
            segment_bytes_max: self.shape.segment_bytes_max,
            retention_ms: 0,
            retention_bytes_max: self.shape.retention_bytes_max,
            purge_when_disk_short: true,
            key_index: true,
            durability: Durability::Fsync,
            auto_create_topics: false,
            auto_create_consumer_groups: false,
            topic_queue_count: 4,
            store_host: self.addresses[&id],
            rules: self.shape.rules,
            limits: BrokerLimits {
                zero_ahead_bytes: 1 << 20,
                write_bytes_max: self.shape.segment_bytes_max.min(16 << 20),
                retention_check_ms: 50,
                key_index_check_ms: 20,
                key_index_sync_ms: 100,
                disk_check_ms: 10,
                checkpoint_interval_ms: self.shape.checkpoint_interval_ms,
                scrub_interval_ms: self.shape.scrub_interval_ms,
                scrub_bytes_per_second_max: self.shape.scrub_bytes_per_second_max,
                ..BrokerLimits::default()
            },
        });
        let started = match broker.await {
            Ok(broker) => match broker.host_group(self.meta.group()).await {
                Ok(()) => Ok(broker),
                Err(error) => {
                    broker.shutdown().await;
                    Err(error.to_string())
                }
            },
            Err(error) => Err(error.to_string()),
        };
        let broker = match started {
            Ok(broker) => broker,
            Err(sentence) => {
                raft.kill();
                closed(&stores).await;
                return Err(sentence);
            }
        };
        raft.serve_peers(listener, Routes::new(broker.forward_service())).await.unwrap();
        self.nodes.insert(id, Node { raft, broker, stores });
        Ok(())
    }

    /// Stops a node without a word to its peers, and returns when nothing of it holds a file any more.
    pub(crate) async fn kill(&mut self, id: NodeId) {
        let Node { raft, broker, stores } = self.nodes.remove(&id).unwrap();
        raft.kill();
        let replica = broker.replica(GROUP).map(|replica| Arc::downgrade(&replica));
        broker.shutdown().await;
        while replica.as_ref().is_some_and(|replica| replica.strong_count() > 0) {
            tokio::task::yield_now().await;
        }
        closed(&stores).await;
    }

    /// Says that the node's volume has hardly any room, or much.
    pub(crate) fn set_full(&self, id: NodeId, full: bool) {
        let available_bytes = if full { 100 << 20 } else { 50 << 30 };
        self.disks[&id].set_volume(Volume { total_bytes: 100 << 30, available_bytes });
    }

    /// Returns when the node knows which of its peers have full volumes.
    pub(crate) async fn knows_full(&self, id: NodeId, full: &[NodeId]) {
        let full = full.iter().copied().collect();
        self.nodes[&id].raft.peers_full().wait_for(|known| *known == full).await.unwrap();
    }

    /// The folder of a node's data.
    pub(crate) fn folder(&self, id: NodeId) -> std::path::PathBuf {
        self.dir.path().join(id.to_string())
    }

    /// Why a node that runs would end its process, if it would.
    pub(crate) fn fatal(&self, id: NodeId) -> Option<String> {
        self.nodes[&id].raft.fatal().borrow().as_ref().map(ToString::to_string)
    }

    /// The nodes that run.
    pub(crate) fn ids(&self) -> Vec<NodeId> {
        self.nodes.keys().copied().collect()
    }

    pub(crate) fn broker(&self, id: NodeId) -> &Arc<Broker> {
        &self.nodes[&id].broker
    }

    pub(crate) fn router(&self, id: NodeId) -> Router {
        self.nodes[&id].broker.router().clone()
    }

    pub(crate) fn replica(&self, id: NodeId) -> Arc<Replica> {
        self.nodes[&id].broker.replica(GROUP).unwrap()
    }

    /// The node that leads and is ready, once there is one.
    pub(crate) async fn leader(&self) -> NodeId {
        let ready = self.nodes.keys().map(|id| {
            let (id, broker) = (*id, self.broker(*id));
            Box::pin(async move {
                // A node that takes long to open a group hosts it behind its start.
                let mut leadership = loop {
                    match broker.replica(GROUP) {
                        Some(replica) => break replica.leadership(),
                        None => tokio::task::yield_now().await,
                    }
                };
                leadership.wait_for(|now| now.leader == Some(id) && now.ready).await.map(|_| id).unwrap()
            })
        });
        futures::future::select_all(ready).await.0
    }

    /// A running node that does not lead.
    pub(crate) async fn follower(&self) -> NodeId {
        let leader = self.leader().await;
        self.ids().into_iter().find(|id| *id != leader).unwrap()
    }

    /// The digest of a replica's state once it has applied all that the leader has; for a cluster at rest.
    pub(crate) async fn settled_digest(&self, id: NodeId) -> u64 {
        let last = self.replica(self.leader().await).group().status().last;
        let replica = self.replica(id);
        while replica.group().status().applied.map(|(_, index)| index) < last {
            tokio::task::yield_now().await;
        }
        replica.digest()
    }
}
