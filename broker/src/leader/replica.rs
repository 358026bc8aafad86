//! One replica of a broker group as callers see it.

use super::attempts::Attempts;
use super::failure::{failure, of_propose};
use super::planner::Planner;
use super::query::QUERIES_COUNT_MAX;
use super::units::UnitIntegrity;
use super::wait_table::WaitTable;
use crate::machine::MachineView;
use crate::meta_client::MetaClient;
use crate::options::BrokerLimits;
use crate::units::UnitScrub;
use crate::volume::{Admission, Succession, Volumes};
use bytes::Bytes;
use parking_lot::Mutex;
use raftmq_model::clock::Clock;
use raftmq_model::command::stores_records;
use raftmq_model::ids::{GroupId, NodeId, QueueId, QueueOffset, TopicUid};
use raftmq_model::machine::{QueueProgress, SnapshotPoint};
use raftmq_model::retention::RetentionPolicy;
use raftmq_proto::forward::{Failure, failure::Kind};
use raftmq_raft::{Group, Leadership};
use raftmq_store::consume_queue::QueueRange;
use raftmq_store::index_file::{IndexStats, KeyIndex};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

/// What a replica is made of.
pub(crate) struct ReplicaOptions {
    pub(crate) node: NodeId,
    pub(crate) group: Group,
    pub(crate) view: Arc<MachineView>,
    /// What the state had applied before Raft applied anything.
    pub(crate) applied_at_open: u64,
    /// The IndexFiles, if this node keeps any.
    pub(crate) keys: Option<Arc<KeyIndex>>,
    pub(crate) waits: Arc<WaitTable>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) meta: Arc<MetaClient>,
    pub(crate) limits: BrokerLimits,
    pub(crate) retention: RetentionPolicy,
    /// Whether files may be worked on by threads beside the runtime's.
    pub(crate) threaded: bool,
    pub(crate) volumes: Volumes,
}

/// One replica of a broker group on this node. Calls answer NOT_LEADER where another replica leads.
pub struct Replica {
    pub(super) node: NodeId,
    pub(super) group: Group,
    pub(super) view: Arc<MachineView>,
    pub(super) applied_at_open: u64,
    pub(super) keys: Option<Arc<KeyIndex>>,
    /// Permits of queries.
    pub(super) queries: Arc<Semaphore>,
    pub(super) waits: Arc<WaitTable>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) meta: Arc<MetaClient>,
    pub(super) limits: BrokerLimits,
    pub(super) retention: RetentionPolicy,
    pub(super) threaded: bool,
    pub(super) planner: Planner,
    pub(super) attempts: Arc<Attempts>,
    /// Rotates over the queues that a pop starts with.
    pub(super) turn: AtomicUsize,
    /// Held by who repairs a ConsumeQueue unit.
    pub(super) unit_repairs: Arc<tokio::sync::Mutex<()>>,
    /// Held for a step, which may take long.
    pub(super) unit_scrub: Mutex<UnitScrub>,
    /// What the last step said.
    pub(super) unit_integrity: Mutex<UnitIntegrity>,
    leadership: watch::Receiver<Leadership>,
    leaderless_since: Mutex<Option<Instant>>,
    pub(super) volumes: Volumes,
    admission: watch::Sender<Admission>,
}

impl Replica {
    pub(crate) fn new(options: ReplicaOptions) -> Replica {
        let leadership = options.group.leadership();
        Replica {
            node: options.node,
            group: options.group,
            view: options.view,
            applied_at_open: options.applied_at_open,
            keys: options.keys,
            queries: Arc::new(Semaphore::new(QUERIES_COUNT_MAX)),
            waits: options.waits,
            clock: options.clock,
            meta: options.meta,
            limits: options.limits,
            retention: options.retention,
            threaded: options.threaded,
            planner: Planner::default(),
            attempts: Arc::default(),
            turn: AtomicUsize::new(0),
            unit_repairs: Arc::default(),
            unit_scrub: Mutex::default(),
            unit_integrity: Mutex::default(),
            leadership,
            leaderless_since: Mutex::new(Some(Instant::now())),
            volumes: options.volumes,
            admission: watch::Sender::new(Admission::Open),
        }
    }

    /// The group.
    #[must_use]
    pub fn id(&self) -> GroupId {
        self.group.id()
    }

    /// Its Raft side.
    #[must_use]
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// Digest of the applied state, for replicas to be compared at the same applied index.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.view.state().digest()
    }

    /// The entry up to which everything is forgotten; 0: nothing is.
    #[must_use]
    pub fn purged_upto(&self) -> u64 {
        self.view.state().purged().index
    }

    /// The queues of this group with the messages that are kept, by the applied state.
    #[must_use]
    pub fn queue_ranges(&self) -> Vec<QueueRange> {
        let state = self.view.state();
        let range = |(topic, queue, max)| QueueRange { topic, queue, min: state.queue_min(topic, queue), max };
        state.queues().map(range).collect()
    }

    /// The kept snapshots behind the purge point, oldest first, by the applied state.
    #[must_use]
    pub fn snapshot_points(&self) -> Vec<SnapshotPoint> {
        self.view.state().snapshot_points().to_vec()
    }

    /// How far consumer groups are, by the applied state, which may be behind.
    #[must_use]
    pub fn progress(&self) -> Vec<QueueProgress> {
        self.view.state().progress(None).collect()
    }

    /// Snapshots of other replicas that this one started over from since it was opened.
    #[must_use]
    pub fn snapshots_installed_count(&self) -> u64 {
        self.view.installed_count()
    }

    /// The stored record of a message on this replica.
    ///
    /// # Errors
    /// When there is no such message here or it cannot be read.
    pub fn stored_record(&self, topic: TopicUid, queue: QueueId, offset: QueueOffset) -> io::Result<Bytes> {
        self.view.record(self.group.log(), topic, queue, offset, None).map(|(_, record)| record)
    }

    /// What the key index of this replica has; `None` when it keeps none.
    #[must_use]
    pub fn key_index(&self) -> Option<IndexStats> {
        self.keys.as_ref().map(|keys| keys.stats())
    }

    /// The first ConsumeQueue that does not end where the state says, as a sentence; they never differ.
    #[must_use]
    pub fn queue_out_of_step(&self) -> Option<String> {
        self.view.queue_out_of_step()
    }

    /// Who leads, as this replica knows.
    #[must_use]
    pub fn leader(&self) -> Option<NodeId> {
        self.leadership.borrow().leader
    }

    /// Follows who leads and whether this replica is ready to.
    #[must_use]
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.leadership.clone()
    }

    /// Follows whether this replica, when it leads, takes commands that store messages.
    #[must_use]
    pub fn admission(&self) -> watch::Receiver<Admission> {
        self.admission.subscribe()
    }

    /// What keeps [`Replica::admission`], and leads the group away from a full disk.
    pub(super) fn succession(&self) -> Succession {
        let (group, volumes) = (self.group.clone(), self.volumes.clone());
        Succession { group, volumes, admission: self.admission.clone() }
    }

    /// For how long this replica has known no leader; `None` while it knows one. Itself only counts when it is ready.
    #[must_use]
    pub fn leaderless_for(&self) -> Option<Duration> {
        self.leaderless_since.lock().map(|since| since.elapsed())
    }

    /// Keeps [`Replica::leaderless_for`] and drops the plans of a past leadership, until the group closes.
    pub(super) async fn follow_leadership(self: Arc<Self>) {
        let mut leadership = self.leadership();
        loop {
            let now = *leadership.borrow_and_update();
            self.note(now);
            if leadership.changed().await.is_err() {
                return;
            }
        }
    }

    fn note(&self, now: Leadership) {
        let mut since = self.leaderless_since.lock();
        let led = now.leader.is_some_and(|leader| leader != self.node || now.ready);
        *since = if led { None } else { since.or_else(|| Some(Instant::now())) };
        self.planner.enter_term(now.term);
    }

    /// That this replica leads and is ready (law 7).
    ///
    /// # Errors
    /// NOT_LEADER or NOT_READY.
    pub(super) fn leading(&self) -> Result<u64, Failure> {
        let now = *self.leadership.borrow();
        match now.leader {
            Some(leader) if leader == self.node && now.ready => Ok(now.term),
            Some(leader) if leader == self.node => Err(failure(Kind::NotReady, "the leader is not ready yet")),
            leader => {
                let mut failure = failure(Kind::NotLeader, "another node leads the group");
                failure.leader_node = leader.map_or(0, |leader| leader.0);
                Err(failure)
            }
        }
    }

    /// Proposes commands and waits until they are applied; one encoded outcome for each.
    ///
    /// # Errors
    /// See [`Failure`]; only UNKNOWN leaves it open whether something was stored. On a full disk, commands that store
    /// messages are DISK_FULL, or NOT_READY while another replica takes over; then so are those that came with them.
    pub async fn propose(&self, commands: Vec<Bytes>) -> Result<Vec<Bytes>, Failure> {
        if commands.iter().any(|command| stores_records(command)) {
            self.admit()?;
        }
        self.group.propose_many(commands).await.map_err(of_propose)
    }

    /// Whether messages may be stored. A replica that does not lead leaves it to the proposal to say so.
    fn admit(&self) -> Result<(), Failure> {
        match &*self.admission.borrow() {
            Admission::Open => Ok(()),
            _ if self.leading().is_err() => Ok(()),
            Admission::Leaving => Err(failure(Kind::NotReady, "the leader hands over: its disk is full")),
            Admission::Refused(sentence) => Err(failure(Kind::DiskFull, sentence.as_ref())),
        }
    }
}
