//! The node's copy of the meta group, and the way to propose to it.
//!
//! A [`MetaClient`] keeps one watch stream to a namesrv node (the own one, where this node has the role) and applies
//! what comes to a [`MetaView`]; proposals, heartbeats and leader reports go to any namesrv node, which passes them on
//! to the meta leader. The view lags a little and never runs backwards.

mod caught_up;
mod error;
mod heartbeat;
mod peers;
mod propose;
mod reports;
mod watch;

pub use error::MetaError;

use parking_lot::RwLock;
use peers::MetaPeers;
use raftmq_model::config::{ConsumerGroupConfig, TopicConfig};
use raftmq_model::ids::{GroupId, NodeId};
use raftmq_model::meta::{CreateTopic, MetaAnswer, MetaChange, MetaOp, MetaView};
use raftmq_raft::RaftNode;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::sync::watch as tokio_watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tonic::service::Routes;

/// Proposals of this node under way at a time; more wait their turn, within their deadline.
const PROPOSAL_COUNT_MAX: usize = 64;
/// After a decision, the wait for the own view to show it.
const CATCH_UP_MS_MAX: u64 = 2_000;

/// What a [`MetaClient`] is started with.
#[derive(Clone)]
pub struct MetaClientOptions {
    /// This node.
    pub node: NodeId,
    /// The nodes with the namesrv role. The own one may be among them and is left out.
    pub namesrv: Vec<NodeId>,
    /// The own node's service `raftmq.meta.v1.Meta` when it has the namesrv role: asked first, without a connection.
    pub own_service: Option<Routes>,
    /// Gives the connections to peers.
    pub raft: Arc<RaftNode>,
    /// How often this node says that it lives, in milliseconds.
    pub heartbeat_interval_ms: u64,
}

impl MetaClientOptions {
    /// Options with the default interval of heartbeats, 1000 ms.
    #[must_use]
    pub fn new(node: NodeId, namesrv: Vec<NodeId>, raft: Arc<RaftNode>) -> MetaClientOptions {
        MetaClientOptions { node, namesrv, own_service: None, raft, heartbeat_interval_ms: 1_000 }
    }
}

/// See the module. Its tasks end when it is dropped.
pub struct MetaClient {
    shared: Arc<Shared>,
    /// Aborts the tasks when dropped.
    _tasks: JoinSet<()>,
}

/// What the tasks and the callers share.
struct Shared {
    node: NodeId,
    peers: MetaPeers,
    view: RwLock<Arc<MetaView>>,
    revision: tokio_watch::Sender<u64>,
    proposals: Semaphore,
    reports: reports::LeaderReports,
}

impl MetaClient {
    /// Starts the tasks that follow the meta group, on the current tokio runtime. Needs no namesrv node to answer yet.
    #[must_use]
    pub fn start(options: MetaClientOptions) -> Arc<MetaClient> {
        let shared = Arc::new(Shared {
            node: options.node,
            peers: MetaPeers::new(options.node, options.namesrv, options.own_service, options.raft),
            view: RwLock::new(Arc::new(MetaView::default())),
            revision: tokio_watch::Sender::new(0),
            proposals: Semaphore::new(PROPOSAL_COUNT_MAX),
            reports: reports::LeaderReports::default(),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(watch::follow(Arc::clone(&shared)));
        tasks.spawn(reports::deliver(Arc::clone(&shared)));
        let interval = Duration::from_millis(options.heartbeat_interval_ms);
        tasks.spawn(heartbeat::beat(Arc::clone(&shared), interval));
        Arc::new(MetaClient { shared, _tasks: tasks })
    }

    /// The node's current copy. Empty (`revision` 0) before the first answer and before the birth of the cluster.
    #[must_use]
    pub fn view(&self) -> Arc<MetaView> {
        self.shared.view()
    }

    /// Tells of each new revision of [`MetaClient::view`]; the value is the revision.
    #[must_use]
    pub fn changed(&self) -> tokio_watch::Receiver<u64> {
        self.shared.revision.subscribe()
    }

    /// Has the meta group decide `op`, with retries over all namesrv nodes until `deadline` (every command is
    /// idempotent). When it returns an answer, the own view shows it already, unless the view is cut off from the group
    /// (waited for 2 s at most).
    ///
    /// # Errors
    /// See [`MetaError`].
    pub async fn propose(&self, op: MetaOp, deadline: Instant) -> Result<MetaAnswer, MetaError> {
        self.shared.propose(op, deadline).await
    }

    /// The topic of that name, created with these settings when there is none. One that exists keeps its settings.
    ///
    /// # Errors
    /// See [`MetaError`].
    pub async fn topic_or_create(&self, create: CreateTopic, deadline: Instant) -> Result<Arc<TopicConfig>, MetaError> {
        let name = create.name.clone();
        let known = |view: &MetaView| view.topics.get(&name).cloned();
        let answer = self.shared.get_or_propose(known, MetaOp::CreateTopic(create), deadline).await?;
        answer.or_else(|answer| match answer {
            MetaAnswer::Topic(topic) => Ok(Arc::new(topic)),
            _ => Err(MetaError::Refused("the meta group did not answer with a topic".to_owned())),
        })
    }

    /// The consumer group of that name, created with these settings when there is none (`uid` and `version` are chosen
    /// by the meta group). One that exists keeps its settings.
    ///
    /// # Errors
    /// See [`MetaError`].
    pub async fn consumer_group_or_create(
        &self,
        create: ConsumerGroupConfig,
        deadline: Instant,
    ) -> Result<Arc<ConsumerGroupConfig>, MetaError> {
        let name = create.name.clone();
        let known = |view: &MetaView| view.consumer_groups.get(&name).cloned();
        let answer = self.shared.get_or_propose(known, MetaOp::CreateConsumerGroup(create), deadline).await?;
        answer.or_else(|answer| match answer {
            MetaAnswer::ConsumerGroup(group) => Ok(Arc::new(group)),
            _ => Err(MetaError::Refused("the meta group did not answer with a consumer group".to_owned())),
        })
    }

    /// Says who leads a broker group. Returns at once; the newest report of each group is proposed in the background
    /// until the meta group has taken it, or knows a higher term.
    pub fn report_leader(&self, group: GroupId, term: u64, node: NodeId) {
        self.shared.reports.put(group, term, node);
    }
}

impl Shared {
    fn view(&self) -> Arc<MetaView> {
        Arc::clone(&self.view.read())
    }

    /// Takes one change over and wakes who waits. A reset to an older revision of the same cluster, from a namesrv node
    /// that lags, is left out: the changes that follow it are ignored by revision until they are news.
    fn take(&self, change: &MetaChange) {
        let revision = {
            let mut view = self.view.write();
            let stale = change.reset && change.cluster_id == view.cluster_id && change.revision < view.revision;
            let older = !change.reset && change.revision <= view.revision;
            if stale || older {
                return;
            }
            Arc::make_mut(&mut view).take(change);
            view.revision
        };
        self.revision.send_replace(revision);
    }

    /// Waits until the view satisfies `enough`, at most until `until`.
    async fn wait_for(&self, until: Instant, enough: impl Fn(&MetaView) -> bool) -> bool {
        let mut revision = self.revision.subscribe();
        loop {
            revision.mark_unchanged();
            if enough(&self.view()) {
                return true;
            }
            match tokio::time::timeout_at(until, revision.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return enough(&self.view()),
            }
        }
    }
}

#[cfg(test)]
mod tests;
