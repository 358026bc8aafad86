//! The meta group on one node, put together.

use crate::liveness::{Driver, Liveness};
use crate::members;
use crate::runtime::{CheckpointOptions, Hub, MetaMachine};
use crate::service::{MetaService, Route};
use raftmq_model::clock::Clock;
use raftmq_model::ids::{GroupId, NodeId};
use raftmq_model::meta::MetaView;
use raftmq_proto::meta::meta_server::MetaServer;
use raftmq_raft::{CommitLogOptions, Group, GroupOptions, OpenError, PeerIdentity, PeerServerInterceptor, RaftNode};
use raftmq_store::state::{RocksState, StateStore};
use raftmq_store::{Durability, Io, RealIo};
use std::path::PathBuf;
use std::sync::Arc;
use thiserror::Error;
use tokio::task::JoinSet;
use tonic::codegen::InterceptedService;
use tonic::service::Routes;

/// Segment files of the meta log; small, since commands are few.
const SEGMENT_BYTES_MAX: u64 = 64 << 20;
/// The meta log's tail in memory.
const CACHE_BYTES_MAX: usize = 8 << 20;
/// The meta log is zero-written this far ahead.
const ZERO_AHEAD_BYTES: u64 = 1 << 20;
/// After this long without a heartbeat, a node is recorded as not alive.
const NODE_SILENT_MS: u64 = 3_000;

/// What a [`Namesrv`] is opened with.
#[derive(Clone)]
pub struct NamesrvOptions {
    /// This node.
    pub node: NodeId,
    /// Hosts the meta group's replica.
    pub raft: Arc<RaftNode>,
    /// Folder of the replica: its log, and its state in `state/`.
    pub dir: PathBuf,
    /// Paces checkpoints.
    pub clock: Arc<dyn Clock>,
    /// File access of the log.
    pub io: Arc<dyn Io>,
    /// What an acknowledgement means for this node's disk.
    pub durability: Durability,
    /// Bytes of a segment file; equal on all replicas, for ever.
    pub segment_bytes_max: u64,
    /// When the state is flushed.
    pub checkpoint: CheckpointOptions,
    /// After this many milliseconds without a heartbeat, a node is recorded as not alive.
    pub node_silent_ms: u64,
}

impl NamesrvOptions {
    /// Options with the defaults: real files, fsync, 64 MiB segments, 3 s of silence.
    #[must_use]
    pub fn new(node: NodeId, raft: Arc<RaftNode>, dir: impl Into<PathBuf>, clock: Arc<dyn Clock>) -> NamesrvOptions {
        NamesrvOptions {
            node,
            raft,
            dir: dir.into(),
            clock,
            io: Arc::new(RealIo),
            durability: Durability::Fsync,
            segment_bytes_max: SEGMENT_BYTES_MAX,
            checkpoint: CheckpointOptions::default(),
            node_silent_ms: NODE_SILENT_MS,
        }
    }
}

/// Why the meta group's replica cannot be opened.
#[derive(Debug, Error)]
pub enum NamesrvError {
    /// Its state store cannot be opened.
    #[error("the state of the meta group cannot be opened in {dir}: {source}")]
    State {
        /// The store's folder.
        dir: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Its log cannot be opened, or Raft does not start.
    #[error(transparent)]
    Raft(#[from] OpenError),
}

/// The meta group's replica on this node, with its service. Liveness is judged until it is dropped; the replica itself
/// lives as long as the [`RaftNode`].
pub struct Namesrv {
    group: Group,
    hub: Arc<Hub>,
    service: MetaService,
    identity: PeerIdentity,
    /// Aborts the drivers when dropped.
    _tasks: JoinSet<()>,
}

impl Namesrv {
    /// Opens the replica. It is on nobody's side before [`Group::initialize`] or before a leader finds it. Call it inside
    /// a tokio runtime: the liveness driver runs there.
    ///
    /// # Errors
    /// See [`NamesrvError`].
    pub async fn open(options: NamesrvOptions) -> Result<Namesrv, NamesrvError> {
        let state_dir = options.dir.join("state");
        let state = RocksState::open(&state_dir).map_err(|source| NamesrvError::State { dir: state_dir, source })?;
        Namesrv::open_with(options, Arc::new(state)).await
    }

    /// Like [`Namesrv::open`], with a state store of the caller's.
    ///
    /// # Errors
    /// See [`NamesrvError`].
    pub async fn open_with(options: NamesrvOptions, state: Arc<dyn StateStore>) -> Result<Namesrv, NamesrvError> {
        let machine = MetaMachine::new(state, Arc::clone(&options.clock), options.checkpoint);
        let hub = machine.hub();
        let log = CommitLogOptions {
            segment_bytes_max: options.segment_bytes_max,
            cache_bytes_max: CACHE_BYTES_MAX,
            zero_ahead_bytes: ZERO_AHEAD_BYTES,
            durability: options.durability,
            io_thread: options.io.allows_threads(),
            io: Arc::clone(&options.io),
            ..CommitLogOptions::new(&options.dir)
        };
        let NamesrvOptions { node, raft, .. } = options;
        let group = raft.open_group(GroupOptions::new(GroupId::META, log), Box::new(machine)).await?;
        let liveness = Liveness::new(node, options.node_silent_ms);
        let route = Route::new(node, group.clone(), Arc::clone(&raft), Arc::clone(&hub), Arc::clone(&liveness));
        let service = MetaService::new(Arc::new(route), Arc::clone(&hub));
        let driver = Driver { node, group: group.clone(), hub: Arc::clone(&hub), liveness, peers: raft.peers_alive() };
        let mut tasks = JoinSet::new();
        tasks.spawn(driver.run());
        tasks.spawn(members::keep(group.clone(), Arc::clone(&hub)));
        Ok(Namesrv { group, hub, service, identity: raft.identity().clone(), _tasks: tasks })
    }

    /// The meta group's replica.
    #[must_use]
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// The state that this replica has applied; may lag behind the group.
    #[must_use]
    pub fn view(&self) -> Arc<MetaView> {
        self.hub.view()
    }

    /// What has been applied, and its changes.
    #[must_use]
    pub fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    /// The service for the peer port: refuses calls that are not meant for this node.
    #[must_use]
    pub fn service(&self) -> InterceptedService<MetaServer<MetaService>, PeerServerInterceptor> {
        InterceptedService::new(self.service.clone().into_server(), self.identity.server())
    }

    /// The service for callers in this process.
    #[must_use]
    pub fn local(&self) -> Routes {
        Routes::new(self.service.clone().into_server())
    }
}
