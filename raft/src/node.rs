//! A node: its runtime, its peer port, its replicas.

mod open;

use crate::early_election;
use crate::errors::{OpenError, ServeError, StartError};
use crate::fatal::{FatalError, FatalReport};
use crate::group::{Core, Group};
use crate::identity::PeerIdentity;
use crate::integrity::{self, FrameSource};
use crate::liveness::{DEATHS_MAX, Liveness};
use crate::machine::Machine;
use crate::network::{CONNECTION_WINDOW_BYTES, PeerChannel, PeerConnection, PeerLinks, STREAM_WINDOW_BYTES};
use crate::options::{GroupOptions, RaftNodeOptions};
use crate::peers::PeerState;
use crate::port::{Gate, PeerPort};
use crate::service::{RaftService, Replicas};
use crate::stamps::{Peers, SharedStamps, StampError, StampService};
use parking_lot::Mutex;
use raftmq_model::ids::{GroupId, NodeId, ReplicaId};
use raftmq_store::commit_log::CommitLogOptions;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::runtime::{Handle, Runtime};
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::TcpListenerStream;
use tokio_stream::{Stream, StreamExt};
use tonic::service::Routes;
use tonic::transport::Server;
use tonic::transport::server::Connected;

/// HTTP/2: calls of one connection that were reset before the server looked at them.
const PENDING_RESETS_COUNT_MAX: usize = 4096;
/// A peer connection that answers no pings is closed.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(2);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(4);
/// HTTP/2 frame size on the peer port.
const FRAME_BYTES_MAX: u32 = 1 << 20;

/// Hosts this node's replicas of any number of groups, on a runtime of its own.
pub struct RaftNode {
    shared: Arc<Shared>,
    runtime: Mutex<Option<Runtime>>,
    handle: Handle,
}

/// What tasks of the node share.
pub(crate) struct Shared {
    pub(crate) options: RaftNodeOptions,
    pub(crate) identity: PeerIdentity,
    pub(crate) links: Arc<PeerLinks>,
    pub(crate) replicas: Replicas,
    pub(crate) liveness: Liveness,
    pub(crate) groups: Mutex<BTreeMap<GroupId, Arc<Core>>>,
    pub(crate) fatal: FatalReport,
    pub(crate) closing: Arc<AtomicBool>,
    stamps: SharedStamps,
    /// Tells this process from the one before it.
    boot: u64,
    /// This node's volume is full; peers are told.
    volume_full: watch::Sender<bool>,
}

impl Shared {
    /// Where the frames of other replicas of a group come from.
    fn frames(&self, group: GroupId) -> FrameSource {
        let (node, peers) = (self.options.node, self.options.peers.clone());
        FrameSource { group, node, peers, links: Arc::clone(&self.links) }
    }

    fn peers(&self) -> Peers {
        let (own, addresses) = (self.options.node, self.options.peers.clone());
        Peers { own, addresses, links: Arc::clone(&self.links) }
    }

    fn port(&self) -> (PeerPort, Gate) {
        let stamps = StampService { stamps: self.stamps.clone(), identity: self.identity.clone() };
        PeerPort::new(stamps, RaftService::new(self.replicas.clone(), self.boot, self.volume_full.subscribe()))
    }
}

impl RaftNode {
    /// Starts the runtime and the death detector. Nothing is served before [`RaftNode::serve_peers`].
    ///
    /// # Errors
    /// When threads cannot be made, or the node's stamps cannot be read.
    pub fn start(options: RaftNodeOptions) -> Result<RaftNode, StartError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(options.threads_count.max(1))
            .thread_name_fn(thread_name)
            .enable_all()
            .build()?;
        let node = RaftNode::start_on(options, runtime.handle().clone())?;
        *node.runtime.lock() = Some(runtime);
        Ok(node)
    }

    /// Like [`RaftNode::start`], on a runtime that the caller owns, and ends.
    ///
    /// # Errors
    /// When the node's stamps cannot be read.
    pub fn start_on(options: RaftNodeOptions, handle: Handle) -> Result<RaftNode, StampError> {
        let stamps = SharedStamps::open(options.replica(), options.stamps.as_ref())?;
        let identity = PeerIdentity::new(options.node, &options.cluster_id);
        let (deaths, died) = mpsc::channel(DEATHS_MAX);
        let shared = Arc::new(Shared {
            links: PeerLinks::new(options.peers.clone(), identity.clone(), Arc::clone(&options.transport)),
            replicas: Replicas::new(options.replica()),
            liveness: Liveness::new(deaths),
            groups: Mutex::default(),
            fatal: FatalReport::default(),
            closing: Arc::new(AtomicBool::new(false)),
            boot: rand::random(),
            volume_full: watch::Sender::new(false),
            stamps,
            identity,
            options,
        });
        handle.spawn(follow_peers(Arc::clone(&shared)));
        handle.spawn(handle_deaths(Arc::clone(&shared), died));
        handle.spawn(integrity::scrub(Arc::clone(&shared)));
        Ok(RaftNode { shared, runtime: Mutex::new(None), handle })
    }

    /// Asks the peers whether this node's disk is an older copy of itself; to be called behind [`RaftNode::listen`] and before
    /// groups are opened. Returns when a majority of the nodes, this one counted, has answered, perhaps never; a node that is
    /// told its peers' addresses and has none needs no answer.
    ///
    /// # Errors
    /// When it is one, or stamps cannot be written: the process has to exit without opening a group.
    pub async fn check_stamps(&self) -> Result<(), StampError> {
        let (stamps, peers) = (self.shared.stamps.clone(), self.shared.peers());
        let check = async move {
            stamps.check(&peers).await?;
            tokio::spawn(stamps.keep(peers));
            Ok(())
        };
        let stopped = || StampError::Failed(Arc::from("the Raft runtime is gone"));
        self.handle.spawn(check).await.unwrap_or_else(|_| Err(stopped()))
    }

    /// Returns when it turns out later that this node's disk is an older copy of itself, or stamps cannot be written: the
    /// process has to exit.
    pub fn stamps_ended(&self) -> impl Future<Output = StampError> + Send + 'static + use<> {
        self.shared.stamps.clone().ended()
    }

    /// Opens this node's replica of a group: recovers its log, restores its machine and joins the group.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub async fn open_group(&self, options: GroupOptions, machine: Box<dyn Machine>) -> Result<Group, OpenError> {
        let open = open::open(Arc::clone(&self.shared), options, machine);
        self.handle.spawn(Box::pin(open)).await.map_err(|_| OpenError::Stopped)?
    }

    /// Opens a group's log and closes it again, so that what is damaged in it is repaired from peers before something else reads
    /// it: what keeps it from opening, or with `thorough` every entry.
    ///
    /// # Errors
    /// [`OpenError::Log`] when it does not open, [`OpenError::Stopped`].
    pub async fn mend_log(&self, group: GroupId, log: CommitLogOptions, thorough: bool) -> Result<(), OpenError> {
        let shared = Arc::clone(&self.shared);
        let log = CommitLogOptions { verify_all: thorough, ..log };
        let mend = async move { integrity::open_log(&shared.frames(group), &log, &shared.closing).await.map(drop) };
        self.handle.spawn(mend).await.map_err(|_| OpenError::Stopped)?
    }

    /// The open replica of a group.
    #[must_use]
    pub fn group(&self, group: GroupId) -> Option<Group> {
        self.shared.groups.lock().get(&group).cloned().map(Group::new)
    }

    /// Serves the peer port on `listener`: see [`RaftNode::listen`] and [`PeerPort::open`].
    ///
    /// # Errors
    /// When the listener cannot be used.
    pub async fn serve_peers(&self, listener: std::net::TcpListener, extra: Routes) -> Result<(), ServeError> {
        self.listen(listener).await.map(|port| port.open(extra))
    }

    /// Serves stamps on the peer port, and holds all other calls until it is opened.
    ///
    /// # Errors
    /// When the listener cannot be used.
    pub async fn listen(&self, listener: std::net::TcpListener) -> Result<PeerPort, ServeError> {
        let address = listener.local_addr().map_or_else(|_| "an unknown address".to_owned(), |at| at.to_string());
        let failed = |source| ServeError::Listen { address, source };
        let (port, gate) = self.shared.port();
        let serve = self.handle.spawn(async move {
            listener.set_nonblocking(true)?;
            let listener = TcpListener::from_std(listener)?;
            let connections = TcpListenerStream::new(listener)
                .map(|connection| connection.and_then(|stream| stream.set_nodelay(true).map(|()| stream)));
            tokio::spawn(serve(gate, connections));
            Ok(())
        });
        serve.await.map_err(|_| ServeError::Stopped)?.map_err(failed).map(|()| port)
    }

    /// Like [`RaftNode::listen`], for connections that something else accepts, until `connections` ends.
    pub fn listen_on(&self, connections: impl Stream<Item = io::Result<PeerConnection>> + Send + 'static) -> PeerPort {
        let (port, gate) = self.shared.port();
        self.handle.spawn(serve(gate, connections));
        port
    }

    /// This node's name among its peers, for services on the peer port and calls to them.
    #[must_use]
    pub fn identity(&self) -> &PeerIdentity {
        &self.shared.identity
    }

    /// A connection of its own to a peer, for other services. It connects when first used and again after it broke.
    #[must_use]
    pub fn channel(&self, node: NodeId) -> PeerChannel {
        let _runtime = self.handle.enter();
        self.shared.links.to(node).channel()
    }

    /// Follows which peers' processes answer.
    #[must_use]
    pub fn peers_alive(&self) -> watch::Receiver<BTreeMap<NodeId, PeerState>> {
        self.shared.liveness.watch()
    }

    /// Has this node tell its peers, at once where they are connected, whether its volume is full, so that they do not hand leadership
    /// over to it.
    pub fn set_volume_full(&self, full: bool) {
        self.shared.volume_full.send_if_modified(|known| std::mem::replace(known, full) != full);
    }

    /// Follows which peers said last that their volume is full.
    #[must_use]
    pub fn peers_full(&self) -> watch::Receiver<BTreeSet<NodeId>> {
        self.shared.liveness.watch_full()
    }

    /// Becomes `Some` when a peer calls for a later life of this node: then that one is a member, and this one's disk counts as
    /// lost. A node whose copy of the meta group is its own replica hears of it only so.
    #[must_use]
    pub fn outlived(&self) -> watch::Receiver<Option<ReplicaId>> {
        self.shared.replicas.outlived()
    }

    /// Connects to a peer that were tried since the start, successful or not.
    #[must_use]
    pub fn peer_connects_count(&self, node: NodeId) -> u64 {
        self.shared.links.to(node).attempts_count()
    }

    /// Says that a group cannot go on, for who opens it behind the start of the node.
    pub fn report_fatal(&self, group: GroupId, reason: impl std::fmt::Display) {
        self.shared.fatal.report(group, reason.to_string());
    }

    /// Becomes `Some` when a group cannot go on: the process has to exit and leave the rest to its peers.
    #[must_use]
    pub fn fatal(&self) -> watch::Receiver<Option<FatalError>> {
        self.shared.fatal.watch()
    }

    /// The Raft runtime, for tasks that belong on it.
    #[must_use]
    pub fn runtime(&self) -> &Handle {
        &self.handle
    }

    /// Stops all replicas in order, then the runtime. Leadership is not handed over: see [`Group::transfer_leader`].
    pub async fn shutdown(&self) {
        self.shared.closing.store(true, Ordering::Relaxed);
        self.shared.replicas.clear();
        let groups = std::mem::take(&mut *self.shared.groups.lock());
        // Who waits for a repair must not keep its group from ending.
        groups.values().for_each(|core| core.repair_task.stop());
        for core in groups.into_values() {
            if core.raft.shutdown().await.is_err() {
                tracing::warn!(group = core.group.0, "the Raft task had failed before it was stopped");
            }
        }
        self.kill();
    }

    /// Stops everything at once, as a crash would: peers see closed connections. What the log was told to write is
    /// still written.
    pub fn kill(&self) {
        self.shared.closing.store(true, Ordering::Relaxed);
        if let Some(runtime) = self.runtime.lock().take() {
            runtime.shutdown_background();
        }
        self.shared.replicas.clear();
        self.shared.groups.lock().clear();
    }
}

impl Drop for RaftNode {
    fn drop(&mut self) {
        self.kill();
    }
}

fn thread_name() -> String {
    static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    format!("raft-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

async fn serve<C>(gate: Gate, connections: impl Stream<Item = io::Result<C>>)
where
    C: AsyncRead + AsyncWrite + Connected<ConnectInfo: Clone + Send + Sync + 'static> + Send + Unpin + 'static,
{
    let server = Server::builder()
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES_MAX)
        // Deadlines of many calls that pass at one time, as after a pause of this process, are no attack.
        .http2_max_pending_accept_reset_streams(Some(PENDING_RESETS_COUNT_MAX))
        .http2_keepalive_interval(Some(KEEP_ALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEP_ALIVE_TIMEOUT))
        .layer(tower::layer::layer_fn(move |_: Routes| gate.clone()))
        .add_routes(Routes::default())
        .serve_with_incoming(connections);
    if let Err(error) = server.await {
        tracing::error!("the peer port is not served any more: {error}");
    }
}

/// Starts a death detector for each peer that has an address.
async fn follow_peers(shared: Arc<Shared>) {
    let mut addresses = shared.options.peers.watch();
    let mut tasks = BTreeMap::new();
    loop {
        let peers: Vec<NodeId> = addresses.borrow_and_update().keys().copied().collect();
        tasks.retain(|node, task: &mut tokio::task::AbortHandle| {
            let stays = peers.contains(node);
            if !stays {
                task.abort();
            }
            stays
        });
        for node in peers.into_iter().filter(|node| *node != shared.options.node) {
            let (liveness, link) = (shared.liveness.clone(), shared.links.to(node));
            tasks.entry(node).or_insert_with(|| tokio::spawn(liveness.follow(link)).abort_handle());
        }
        if addresses.changed().await.is_err() {
            return;
        }
    }
}

async fn handle_deaths(shared: Arc<Shared>, mut died: mpsc::Receiver<NodeId>) {
    while let Some(node) = died.recv().await {
        let groups: Vec<Arc<Core>> = shared.groups.lock().values().cloned().collect();
        for core in groups {
            let (links, liveness) = (Arc::clone(&shared.links), shared.liveness.clone());
            tokio::spawn(early_election::run(core, links, node, move |peer| liveness.state(peer)));
        }
    }
}
