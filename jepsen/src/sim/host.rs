//! One node: the product's own raft, namesrv and broker code on a runtime, a disk, a network and clocks of the simulation.
//!
//! A node's runtime has one thread, the simulation's, and its own paused time. To end the process is to drop the runtime
//! with everything on it; what survives is the disk.

use super::interpose;
use super::net::{Host, Net};
use super::stream::SimStream;
use anyhow::{Context, Result};
use futures::StreamExt;
use futures::future::BoxFuture;
use raftmq_broker::edge::{Edge, EdgeOptions};
use raftmq_broker::meta_client::{MetaClient, MetaClientOptions};
use raftmq_broker::options::{BrokerLimits, OpenState};
use raftmq_broker::{Broker, BrokerOptions};
use raftmq_model::clock::Clock;
use raftmq_model::ids::{GroupId, NodeId, ReplicaId, Timestamp};
use raftmq_model::machine::Limits;
use raftmq_model::meta::{Birth, BrokerGroupRecord, NodeRecord};
use raftmq_namesrv::{Namesrv, NamesrvOptions};
use raftmq_raft::{PeerAddresses, PeerConnection, RaftNode, RaftNodeOptions, StampOptions, Transport};
use raftmq_store::state::{MemoryState, StateStore};
use raftmq_store::{Durability, FaultyIo, Io, Stamps};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::time::Instant;
use tonic::transport::Server;

/// Nodes of the simulated cluster.
pub(super) const NODES: std::ops::RangeInclusive<Host> = 1..=3;
/// The first broker group; faults that hit "the leader" hit this one's.
pub(super) const GROUP: GroupId = GroupId(1);
pub(super) const CLUSTER_ID: &str = "simulation";
const FIRST_INCARNATION: u32 = 1;
pub(super) const SEGMENT_BYTES: u64 = 1 << 20;
/// The stored-once window, in ids: more than are sent while any client tries, and so few that logs are purged within a run. Its
/// time is longer than any jump of a clock, which log time follows.
const STORED_ONCE_COUNT_MAX: usize = 640;
const STORED_ONCE_MS: u64 = 600_000;
pub(super) const WRITE_BYTES_MAX: u64 = 256 << 10;
/// Where bits flip, the scrubber reads so much in a second, and a log again after so long.
const SCRUB_BYTES_PER_SECOND_MAX: u64 = 8 << 20;
const SCRUB_INTERVAL_MS: u64 = 4_000;
const CACHE_BYTES_MAX: usize = 1 << 20;
/// The stamp of a disk grows this often.
const STAMP_MS: u64 = 2_000;
const DATA: &str = "/data";

/// What runs on a node.
pub(super) struct Running {
    _raft: Arc<RaftNode>,
    pub(super) namesrv: Arc<Namesrv>,
    pub(super) meta: Arc<MetaClient>,
    pub(super) broker: Arc<Broker>,
    _edge: Arc<Edge>,
}

/// What a node tells the simulation. Shared with the tasks on its runtime.
#[derive(Clone, Default)]
pub(super) struct Slot(Arc<Mutex<Told>>);

#[derive(Default)]
pub(super) struct Told {
    pub(super) running: Option<Running>,
    /// The process ended by itself, and why.
    pub(super) ended: Option<String>,
}

impl Slot {
    pub(super) fn lock(&self) -> MutexGuard<'_, Told> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A machine of the simulation.
pub(super) struct Machine {
    pub(super) id: Host,
    pub(super) net: Net,
    pub(super) disk: FaultyIo,
    /// Milliseconds that its wall clock is ahead.
    pub(super) skew_ms: Arc<AtomicI64>,
    pub(super) slot: Slot,
    /// Which life of the node this is.
    pub(super) incarnation: u32,
    groups: u32,
    /// Bits flip in this cluster.
    rots: bool,
    states: Arc<Mutex<BTreeMap<GroupId, Arc<MemoryState>>>>,
    process: Option<Process>,
}

struct Process {
    runtime: Runtime,
    /// The runtime's time at its start, and the simulation's.
    start: Instant,
    start_us: u64,
}

impl Machine {
    pub(super) fn new(id: Host, net: Net, groups: u32, rots: bool) -> Machine {
        Machine {
            id,
            incarnation: FIRST_INCARNATION,
            groups,
            rots,
            net,
            disk: FaultyIo::new(),
            skew_ms: Arc::default(),
            slot: Slot::default(),
            states: Arc::default(),
            process: None,
        }
    }

    pub(super) fn is_up(&self) -> bool {
        self.process.is_some()
    }

    /// Starts the process.
    pub(super) fn start(&mut self) -> Result<()> {
        let (runtime, start) = runtime()?;
        let start_us = interpose::now_ns() / 1_000;
        self.net.power_up(self.id);
        let setup = Setup {
            id: self.id,
            net: self.net.clone(),
            disk: self.disk.clone(),
            clock: Arc::new(NodeClock(Arc::clone(&self.skew_ms))),
            states: Arc::clone(&self.states),
            slot: self.slot.clone(),
            incarnation: self.incarnation,
            groups: self.groups,
            rots: self.rots,
        };
        let slot = self.slot.clone();
        runtime.spawn(async move {
            let ended = match setup.boot().await {
                Ok(raft) => why_it_ends(&raft).await,
                Err(error) => Some(format!("{error:#}")),
            };
            slot.lock().ended = ended;
        });
        self.process = Some(Process { runtime, start, start_us });
        Ok(())
    }

    /// Ends the process at once. `dark`: the power fails, and what was not synced is in the hands of `seed`.
    pub(super) fn crash(&mut self, dark: Option<u64>) {
        let Some(process) = self.process.take() else { return };
        if dark.is_some() {
            self.disk.cut_power();
        }
        self.net.crash(self.id, dark.is_some());
        drop(process);
        let told = std::mem::take(&mut *self.slot.lock());
        drop(told);
        for state in self.states().values() {
            state.crash();
        }
        if let Some(seed) = dark {
            self.disk.restart(seed);
        }
    }

    /// The disk of a machine that is down is lost; there is an empty one for the node's next life.
    pub(super) fn wipe(&mut self) {
        assert!(!self.is_up(), "a disk is not pulled out of a running machine");
        self.disk = FaultyIo::new();
        self.states = Arc::default();
        self.incarnation += 1;
    }

    /// What a copy of the disk holds that is made now.
    pub(super) fn image(&self, seed: u64) -> Image {
        let states = self.states().iter().map(|(group, state)| (*group, Arc::new(state.image()))).collect();
        Image { disk: self.disk.image(seed), states }
    }

    /// A copy takes the place of the disk of a machine that is down.
    pub(super) fn put_back(&mut self, image: Image) {
        assert!(!self.is_up(), "a disk is not pulled out of a running machine");
        self.disk = image.disk;
        self.states = Arc::new(Mutex::new(image.states));
    }

    /// The life of the node that this machine is.
    pub(super) fn replica(&self) -> ReplicaId {
        ReplicaId { node: NodeId(self.id), incarnation: self.incarnation }
    }

    /// The stamp that this machine's disk has of a node; 0: none, or the disk cannot be read now.
    pub(super) fn stamp_of(&self, replica: ReplicaId) -> u64 {
        stamp_on(&self.disk, replica)
    }

    /// Lets the process run up to `now_us`.
    pub(super) fn step(&self, now_us: u64) {
        if let Some(process) = &self.process {
            let until = process.start + Duration::from_micros(now_us - process.start_us);
            process.runtime.block_on(async { tokio::time::sleep_until(until).await });
        }
    }

    /// After a pause, in which the process did not run: its clock jumps.
    pub(super) fn jump(&self, now_us: u64) {
        if let Some(process) = &self.process {
            let until = process.start + Duration::from_micros(now_us - process.start_us);
            process.runtime.block_on(async {
                let behind = until.saturating_duration_since(Instant::now());
                tokio::time::advance(behind).await;
            });
        }
    }

    /// Runs something on the node's runtime.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(process) = &self.process {
            process.runtime.spawn(task);
        }
    }

    fn states(&self) -> MutexGuard<'_, BTreeMap<GroupId, Arc<MemoryState>>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A copy of a machine's disk.
pub(super) struct Image {
    disk: FaultyIo,
    states: BTreeMap<GroupId, Arc<MemoryState>>,
}

impl Image {
    /// The stamp that it has of a node.
    pub(super) fn stamp_of(&self, replica: ReplicaId) -> u64 {
        stamp_on(&self.disk, replica)
    }
}

fn stamp_on(disk: &FaultyIo, replica: ReplicaId) -> u64 {
    let stamps = Stamps::open(Arc::new(disk.clone()), Path::new(DATA), replica);
    stamps.map_or(0, |stamps| stamps.of(replica))
}

/// What ends a process by itself, when it does.
async fn why_it_ends(raft: &RaftNode) -> Option<String> {
    let mut fatal = raft.fatal();
    tokio::select! {
        error = fatal.wait_for(Option::is_some) => error.ok().and_then(|error| error.as_ref().map(ToString::to_string)),
        error = raft.stamps_ended() => Some(error.to_string()),
    }
}

/// A runtime of one thread whose time stands but for timers, and its time now.
pub(super) fn runtime() -> Result<(Runtime, Instant)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    let start = runtime.block_on(async { Instant::now() });
    Ok((runtime, start))
}

/// A node's wall clock.
struct NodeClock(Arc<AtomicI64>);

impl Clock for NodeClock {
    fn now(&self) -> Timestamp {
        Timestamp(interpose::wall_ms() + self.0.load(Ordering::Relaxed))
    }
}

/// Connects from one host.
struct From {
    host: Host,
    net: Net,
}

impl Transport for From {
    fn connect(&self, address: String) -> BoxFuture<'static, io::Result<PeerConnection>> {
        let (net, host) = (self.net.clone(), self.host);
        Box::pin(async move { net.connect(host, address).await.map(PeerConnection::new) })
    }
}

/// Everything that a process is started with.
struct Setup {
    id: Host,
    net: Net,
    disk: FaultyIo,
    clock: Arc<dyn Clock>,
    states: Arc<Mutex<BTreeMap<GroupId, Arc<MemoryState>>>>,
    slot: Slot,
    incarnation: u32,
    groups: u32,
    rots: bool,
}

impl Setup {
    async fn boot(self) -> Result<Arc<RaftNode>> {
        let node = NodeId(self.id);
        let raft = Arc::new(self.raft()?);
        let peers = self.net.listen(self.id, &peer_address(self.id));
        let port = raft.listen_on(peers.map(|stream| stream.map(PeerConnection::new)));
        raft.check_stamps().await?;
        let namesrv = self.namesrv(node, &raft).await?;
        let namesrvs = NODES.map(NodeId).collect();
        let meta = MetaClient::start(MetaClientOptions {
            own_service: Some(namesrv.local()),
            ..MetaClientOptions::new(node, namesrvs, Arc::clone(&raft))
        });
        let broker = Broker::start(self.broker_options(node, &raft, &meta)).await.context("the broker")?;
        for record in self.broker_groups() {
            broker.host_group(record).await.context("a broker group")?;
        }
        let options = EdgeOptions::new(node, store_host(self.id));
        let edge = Edge::new(broker.router().clone(), Arc::clone(&meta), Arc::clone(&self.clock), options);
        let mut routes = tonic::service::Routes::builder();
        routes.add_service(broker.forward_service());
        routes.add_service(namesrv.service());
        port.open(routes.routes());
        let clients = self.net.listen(self.id, &client_address(self.id));
        let service = edge.messaging_service();
        tokio::spawn(async move {
            let clients = clients.map(|stream: io::Result<SimStream>| stream.map(PeerConnection::new));
            let _ = Server::builder().add_service(service).serve_with_incoming(clients).await;
        });
        let running = Running { _raft: Arc::clone(&raft), namesrv, meta, broker, _edge: edge };
        self.slot.lock().running = Some(running);
        Ok(raft)
    }

    fn raft(&self) -> Result<RaftNode> {
        let io: Arc<dyn Io> = Arc::new(self.disk.clone());
        io.create_dir_all(Path::new(DATA))?;
        let peers = PeerAddresses::new(NODES.map(|id| (NodeId(id), peer_address(id))).collect());
        let options = RaftNodeOptions {
            transport: Arc::new(From { host: self.id, net: self.net.clone() }),
            scrub_bytes_per_second_max: if self.rots { SCRUB_BYTES_PER_SECOND_MAX } else { 0 },
            scrub_interval_ms: SCRUB_INTERVAL_MS,
            stamps: Some(StampOptions { io, dir: PathBuf::from(DATA), interval_ms: STAMP_MS }),
            ..RaftNodeOptions::new(NodeId(self.id), self.incarnation, CLUSTER_ID, Arc::clone(&self.clock), peers)
        };
        Ok(RaftNode::start_on(options, tokio::runtime::Handle::current())?)
    }

    /// The broker groups as this node was told when it was adopted: its own replicas are of its present life.
    fn broker_groups(&self) -> Vec<BrokerGroupRecord> {
        let own = ReplicaId { node: NodeId(self.id), incarnation: self.incarnation }.to_u64();
        let mut records = broker_groups(self.groups);
        let replicas = records.iter_mut().flat_map(|record| &mut record.replicas);
        replicas.filter(|id| ReplicaId::from_u64(**id).node.0 == self.id).for_each(|id| *id = own);
        records
    }

    async fn namesrv(&self, node: NodeId, raft: &Arc<RaftNode>) -> Result<Arc<Namesrv>> {
        let options = NamesrvOptions {
            io: Arc::new(self.disk.clone()),
            segment_bytes_max: SEGMENT_BYTES,
            ..NamesrvOptions::new(node, Arc::clone(raft), "/data/meta", Arc::clone(&self.clock))
        };
        let state = state_of(&self.states, GroupId::META);
        Ok(Arc::new(Namesrv::open_with(options, state).await.context("the meta group")?))
    }

    fn broker_options(&self, node: NodeId, raft: &Arc<RaftNode>, meta: &Arc<MetaClient>) -> BrokerOptions {
        let states = Arc::clone(&self.states);
        let open_state: OpenState = Arc::new(move |group, _| Ok(state_of(&states, group)));
        BrokerOptions {
            node,
            incarnation: self.incarnation,
            cluster_id: CLUSTER_ID.to_owned(),
            data_dir: PathBuf::from(DATA),
            raft: Arc::clone(raft),
            meta: Arc::clone(meta),
            clock: Arc::clone(&self.clock),
            io: Arc::new(self.disk.clone()),
            open_state,
            segment_bytes_max: SEGMENT_BYTES,
            retention_ms: 0,
            retention_bytes_max: 0,
            purge_when_disk_short: true,
            key_index: true,
            durability: Durability::Fsync,
            auto_create_topics: false,
            auto_create_consumer_groups: true,
            topic_queue_count: 4,
            store_host: store_host(self.id),
            rules: Limits {
                stored_once_count_max: STORED_ONCE_COUNT_MAX,
                stored_once_ms: STORED_ONCE_MS,
                ..Limits::default()
            },
            limits: BrokerLimits {
                write_bytes_max: WRITE_BYTES_MAX,
                cache_bytes_max: CACHE_BYTES_MAX,
                zero_ahead_bytes: 64 << 10,
                // Often, so that restarts begin in the middle of the log.
                checkpoint_entries: 64,
                ..BrokerLimits::default()
            },
        }
    }
}

fn state_of(states: &Mutex<BTreeMap<GroupId, Arc<MemoryState>>>, group: GroupId) -> Arc<dyn StateStore> {
    let mut states = states.lock().unwrap_or_else(PoisonError::into_inner);
    Arc::clone(states.entry(group).or_default()) as Arc<dyn StateStore>
}

pub(super) fn voters() -> Vec<ReplicaId> {
    NODES.map(|id| ReplicaId { node: NodeId(id), incarnation: FIRST_INCARNATION }).collect()
}

fn broker_groups(count: u32) -> Vec<BrokerGroupRecord> {
    let group = |id| BrokerGroupRecord {
        id,
        name: format!("broker-{id}"),
        replicas: voters().into_iter().map(ReplicaId::to_u64).collect(),
        leader_node: 0,
        leader_term: 0,
    };
    (GROUP.0..GROUP.0 + count).map(group).collect()
}

/// The first command of the meta group.
pub(super) fn birth(groups: u32) -> Birth {
    let node = |id| NodeRecord {
        id,
        incarnation: FIRST_INCARNATION,
        namesrv: true,
        broker: true,
        client_address: client_address(id),
        peer_address: peer_address(id),
        admin_address: String::new(),
        alive: true,
    };
    Birth { cluster_id: CLUSTER_ID.to_owned(), nodes: NODES.map(node).collect(), broker_groups: broker_groups(groups) }
}

/// Where clients reach a node.
pub(super) fn client_address(id: Host) -> String {
    format!("10.0.0.{id}:8081")
}

fn peer_address(id: Host) -> String {
    format!("10.0.0.{id}:8082")
}

fn store_host(id: Host) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, u8::try_from(id).unwrap_or(0)], 8081))
}
