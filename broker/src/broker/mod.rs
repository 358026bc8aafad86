//! One node's broker: the replicas it hosts, the way to all leaders, and the service for other nodes.

mod hosting;
mod placement;
mod placement_file;

pub use placement_file::decode as decode_placement;

use crate::forward::ForwardService;
use crate::leader::{Drivers, Replica, Replicas, scrub_units};
use crate::options::BrokerOptions;
use crate::router::Router;
use crate::volume::{Admission, Succession, VolumeLimits, VolumeStatus, VolumeWatch};
use parking_lot::Mutex;
use raftmq_model::ids::{GroupId, ReplicaId};
use raftmq_model::meta::BrokerGroupRecord;
use raftmq_proto::forward::forward_server::ForwardServer;
use raftmq_raft::{Group, InitializeError, PeerServerInterceptor};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tonic::service::interceptor::InterceptedService;

/// A start waits this long for a replica; after that it is opened behind it.
const OPEN_WAIT_MS: u64 = 5_000;

/// Why a broker does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The folder with the replicas cannot be read.
    #[error("the replicas in the data folder cannot be listed: {0}")]
    Folder(#[source] io::Error),
    /// A replica that lives here cannot be opened.
    #[error(transparent)]
    Host(#[from] HostError),
}

/// Why a replica is not opened.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The placement does not name this node under its present incarnation.
    #[error("group {group} has no replica {replica}")]
    NotPlaced {
        /// The group.
        group: GroupId,
        /// This node's replica id.
        replica: ReplicaId,
    },
    /// Its state, queues or placement file cannot be read or written.
    #[error("the replica of group {group} cannot be opened: {source}")]
    Disk {
        /// The group.
        group: GroupId,
        /// What the system says.
        source: io::Error,
    },
    /// Raft refuses it.
    #[error(transparent)]
    Raft(#[from] raftmq_raft::OpenError),
    /// The broker was shut down.
    #[error("the broker is shut down")]
    Stopped,
}

/// See the module. Tasks end when it is dropped or shut down.
pub struct Broker {
    options: BrokerOptions,
    replicas: Arc<Replicas>,
    router: Router,
    volume: Arc<VolumeWatch>,
    /// `None` while it is opened, so that a group is never opened twice.
    hosted: Mutex<BTreeMap<GroupId, Option<Hosted>>>,
    /// Tells of each opening that ended.
    ended: watch::Sender<()>,
    tasks: Mutex<JoinSet<()>>,
}

/// A replica with what keeps it going.
struct Hosted {
    record: BrokerGroupRecord,
    _drivers: Drivers,
}

impl Broker {
    /// Opens the replicas that live in the data folder, and from then on every one that the meta group places here.
    /// Runs on the current tokio runtime, which is the one that calls of other nodes run on.
    ///
    /// # Errors
    /// When a replica that is in the data folder cannot be opened.
    pub async fn start(options: BrokerOptions) -> Result<Arc<Broker>, StartError> {
        let replicas = Arc::new(Replicas::default());
        let router = Router::new(
            options.node,
            Arc::clone(&replicas),
            Arc::clone(&options.raft),
            Arc::clone(&options.meta),
            &options.limits,
        );
        let volume = follow_volume(&options).await.map_err(StartError::Folder)?;
        let looks = Arc::clone(&volume).run(Duration::from_millis(options.limits.disk_check_ms));
        let hosted = Mutex::default();
        let broker = Arc::new(Broker {
            options,
            replicas,
            router,
            volume,
            hosted,
            ended: watch::Sender::new(()),
            tasks: Mutex::default(),
        });
        broker.tasks.lock().spawn(looks);
        let (rate, interval_ms) = {
            let limits = &broker.options.limits;
            (limits.scrub_bytes_per_second_max, limits.scrub_interval_ms)
        };
        let scrub = scrub_units(Arc::clone(&broker.replicas), rate, Duration::from_millis(interval_ms));
        broker.tasks.lock().spawn(scrub);
        for record in broker.placements().map_err(StartError::Folder)? {
            broker.host_group(record).await?;
        }
        broker.tasks.lock().spawn(placement::follow(Arc::downgrade(&broker)));
        Ok(broker)
    }

    /// Opens the replica of a group that the placement puts on this node; fine when it is open or being opened.
    ///
    /// One that takes long, since its log is damaged and waits for a peer, is opened behind the others: it keeps nobody from
    /// voting in other groups, nor from giving frames of theirs. If that fails, the process has to end (`RaftNode::fatal`).
    /// The placement is kept beside the replica, so that it is opened at the next start without the meta group.
    ///
    /// # Errors
    /// See [`HostError`].
    pub async fn host_group(self: &Arc<Self>, record: BrokerGroupRecord) -> Result<(), HostError> {
        let group = GroupId(record.id);
        let replica = ReplicaId { node: self.options.node, incarnation: self.options.incarnation };
        if !record.replicas.contains(&replica.to_u64()) {
            return Err(HostError::NotPlaced { group, replica });
        }
        let is_new = match self.hosted.lock().entry(group) {
            Entry::Occupied(_) => false,
            Entry::Vacant(place) => place.insert(None).is_none(),
        };
        let patience = Duration::from_millis(OPEN_WAIT_MS);
        if !is_new {
            // Who has begun it hears of an error.
            let mut ended = self.ended.subscribe();
            let opened = ended.wait_for(|()| self.hosted.lock().get(&group).is_none_or(Option::is_some));
            let _ = timeout(patience, opened).await;
            return Ok(());
        }
        let (sender, receiver) = oneshot::channel();
        let broker = Arc::clone(self);
        self.tasks.lock().spawn(async move {
            // Nobody waits any more: what is not told ends the process.
            let opened = broker.open_hosted(record).await;
            broker.ended.send_replace(());
            if let Err(Err(error)) = sender.send(opened) {
                broker.options.raft.report_fatal(group, error);
            }
        });
        match timeout(patience, receiver).await {
            Ok(opened) => opened.map_err(|_| HostError::Stopped)?,
            Err(_) => {
                tracing::warn!(%group, "the replica takes long to open: the node goes on without it until it is");
                Ok(())
            }
        }
    }

    async fn open_hosted(&self, record: BrokerGroupRecord) -> Result<(), HostError> {
        let group = GroupId(record.id);
        let opened = self.open_replica(&record).await.inspect_err(|_| drop(self.hosted.lock().remove(&group)))?;
        // Shut down meanwhile: the Raft node closes what was opened.
        if let Some(place) = self.hosted.lock().get_mut(&group) {
            let drivers = Drivers::start(&opened);
            self.replicas.add(opened);
            *place = Some(Hosted { record, _drivers: drivers });
        }
        Ok(())
    }

    /// Writes the first membership of a group that is hosted here and has no history, and campaigns. Once in the life
    /// of a group, by one of its replicas.
    ///
    /// # Errors
    /// [`InitializeError::NotAllowed`] when the group has a history; [`InitializeError::Stopped`] when it is not hosted.
    pub async fn initialize_group(&self, group: GroupId) -> Result<(), InitializeError> {
        let voters: Vec<ReplicaId> = match self.hosted.lock().get(&group).and_then(Option::as_ref) {
            Some(hosted) => hosted.record.replicas.iter().map(|id| ReplicaId::from_u64(*id)).collect(),
            None => return Err(InitializeError::Stopped),
        };
        let replica = self.replicas.get(group).ok_or(InitializeError::Stopped)?;
        replica.group().initialize(&voters).await
    }

    /// The way to the leader of any group.
    #[must_use]
    pub fn router(&self) -> &Router {
        &self.router
    }

    /// What it was started with.
    #[must_use]
    pub fn options(&self) -> &BrokerOptions {
        &self.options
    }

    /// How full the volume of the data folder is, as it was last seen.
    #[must_use]
    pub fn volume(&self) -> VolumeStatus {
        self.volume.status()
    }

    /// Has a group that something else hosts here leave this node when its disk is full, as the broker's own groups do.
    pub fn hand_over_when_full(&self, group: Group) {
        let admission = watch::Sender::new(Admission::Open);
        let succession = Succession { group, volumes: self.volume.volumes(), admission };
        self.tasks.lock().spawn(succession.run());
    }

    /// The Raft side of the replicas hosted here, by group id.
    #[must_use]
    pub fn groups(&self) -> Vec<(GroupId, Group)> {
        self.replicas.all().iter().map(|replica| (replica.id(), replica.group().clone())).collect()
    }

    /// One replica hosted here.
    #[must_use]
    pub fn replica(&self, group: GroupId) -> Option<Arc<Replica>> {
        self.replicas.get(group)
    }

    /// The service for other nodes, to be added to the peer port; it checks who calls. Its calls run on the current
    /// runtime.
    #[must_use]
    pub fn forward_service(&self) -> InterceptedService<ForwardServer<ForwardService>, PeerServerInterceptor> {
        let server = ForwardService::server(Arc::clone(&self.replicas), tokio::runtime::Handle::current());
        InterceptedService::new(server, self.options.raft.identity().server())
    }

    /// Ends the tasks and lets go of the replicas. The groups themselves are closed by the Raft node.
    pub async fn shutdown(&self) {
        self.tasks.lock().abort_all();
        self.hosted.lock().clear();
        self.replicas.clear();
    }
}

/// Looks for the first time, so that a node that starts on a full disk refuses from the start.
async fn follow_volume(options: &BrokerOptions) -> io::Result<Arc<VolumeWatch>> {
    options.io.create_dir_all(&options.data_dir)?;
    let limits = VolumeLimits {
        reserve_bytes: options.limits.disk_reserve_bytes,
        used_percent_max: options.limits.disk_used_percent_max,
    };
    let (raft, io, dir) = (Arc::clone(&options.raft), Arc::clone(&options.io), options.data_dir.clone());
    let volume = Arc::new(VolumeWatch::new(raft, options.node, io, dir, limits));
    volume.check().await;
    Ok(volume)
}
