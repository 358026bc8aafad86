//! From any node to the leader of a broker group: finds it, follows it, holds calls while there is none.
//!
//! A call goes straight into the local replica when this node leads, else over gRPC to the node that does. It is tried
//! again after NOT_LEADER, NOT_READY and lost connections until its deadline: every command is idempotent by a message
//! id, an attempt id or a handle, so a second try is answered from what the first one did. Waiting is by watch where
//! there is one (a hosted replica's leadership, the node's copy of the meta group), else by a small bounded backoff.
//!
//! Files: `leaders` who leads, `retry` the loop, `local` and `remote` one try each, `lane` packs concurrent proposals
//! for one remote leader into few requests, `channels` connections, `copies` brings topics and groups to a leader that
//! does not know them yet.

mod channels;
mod copies;
mod lane;
mod leaders;
mod remote;
mod retry;

use crate::leader::Replicas;
use crate::meta_client::MetaClient;
use crate::options::BrokerLimits;
use bytes::Bytes;
use channels::PeerChannels;
use copies::Repair;
use lane::Lanes;
use leaders::{LeaderTable, Target};
use prost::Message;
use raftmq_model::command::{HandleKey, HandleOutcome, Outcome};
use raftmq_model::ids::{ConsumerGroupUid, GroupId, NodeId, TopicUid};
use raftmq_proto::forward;
use raftmq_raft::RaftNode;
use retry::Miss;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Why a call found no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    /// No leader took the call before the deadline; surely nothing was stored.
    #[error("the broker group has no leader")]
    NoLeader,
    /// A bound was reached; surely nothing was stored.
    #[error("the broker group is overloaded")]
    Overloaded,
    /// The disk of the leader, or of a majority, is full, as the sentence says; surely nothing was stored.
    #[error("{0}")]
    DiskFull(String),
    /// The call was given to a leader and its fate is not known.
    #[error("the fate of the call is not known")]
    Unknown,
    /// The call makes no sense to the leader; a sentence.
    #[error("{0}")]
    Invalid(String),
}

/// The way from this node to the leader of any broker group. Cheap to clone.
#[derive(Clone)]
pub struct Router {
    inner: Arc<Inner>,
}

struct Inner {
    leaders: LeaderTable,
    lanes: Lanes,
    channels: Arc<PeerChannels>,
    meta: Arc<MetaClient>,
}

impl Router {
    pub(crate) fn new(
        node: NodeId,
        replicas: Arc<Replicas>,
        raft: Arc<RaftNode>,
        meta: Arc<MetaClient>,
        limits: &BrokerLimits,
    ) -> Router {
        let leaders = LeaderTable::new(node, replicas, Arc::clone(&meta), raft.peers_alive());
        let channels = Arc::new(PeerChannels::new(raft, limits.peer_channels_count));
        let lanes = Lanes::new(Arc::clone(&channels), limits);
        Router { inner: Arc::new(Inner { leaders, lanes, channels, meta }) }
    }

    /// Proposes encoded commands to `group` and waits until they are applied; one outcome for each, in order.
    ///
    /// Topics that the leader does not know yet are brought to it on the way. After a try of unknown fate the same
    /// commands are proposed again: each must be idempotent, by message ids, an attempt id or handles.
    ///
    /// # Errors
    /// See [`RouteError`]; after [`RouteError::Unknown`] the caller may call again with the same commands.
    pub async fn propose(
        &self,
        group: GroupId,
        commands: Vec<Bytes>,
        deadline: Instant,
    ) -> Result<Vec<Outcome>, RouteError> {
        let mut outcomes = self.propose_once(group, &commands, deadline).await?;
        let repair = Repair::of(&self.inner.meta.view(), &commands, &outcomes);
        if let Some(repair) = repair {
            let answers = self.propose_once(group, &repair.commands(), deadline).await?;
            repair.merge(&answers, &mut outcomes);
        }
        Ok(outcomes)
    }

    async fn propose_once(
        &self,
        group: GroupId,
        commands: &[Bytes],
        deadline: Instant,
    ) -> Result<Vec<Outcome>, RouteError> {
        let encoded = retry::run(&self.inner.leaders, group, deadline, |target| async move {
            match target {
                Target::Local(replica) => replica.propose(commands.to_vec()).await.map_err(Miss::from),
                Target::Remote(node) => self.inner.lanes.propose(node, group, commands, deadline).await,
            }
        })
        .await?;
        // A count that differs would pair outcomes with the wrong commands.
        if encoded.len() != commands.len() {
            return Err(RouteError::Unknown);
        }
        encoded.into_iter().map(|bytes| Outcome::decode(bytes).map_err(|_| RouteError::Unknown)).collect()
    }

    /// Takes messages of one topic for one consumer group from the queues that `group` hosts. Answers at once, with
    /// nothing when there is nothing.
    ///
    /// Fills in `group_id`, the time that is left, the copies of the configurations and, where the caller gave none, an attempt
    /// id, so that a repeated try gets the same batch.
    ///
    /// # Errors
    /// See [`RouteError`]; after [`RouteError::Unknown`] messages may be in flight until their invisible time is over.
    pub async fn pop(
        &self,
        group: GroupId,
        mut request: forward::PopRequest,
        deadline: Instant,
    ) -> Result<Vec<forward::PoppedMessage>, RouteError> {
        request.group_id = group.0;
        self.complete(&mut request);
        let request = &request;
        retry::run(&self.inner.leaders, group, deadline, |target| async move {
            match target {
                Target::Local(replica) => replica.pop(request, deadline).await.map_err(Miss::from),
                Target::Remote(node) => remote::pop(&self.inner.channels, node, request.clone(), deadline).await,
            }
        })
        .await
    }

    /// Waits until a [`Router::pop`] of the same topic, consumer group and attempt id may yield a message (a hint: `true`),
    /// or for `wait` (`false`). An attempt id that was used before finds its batch again at once.
    ///
    /// # Errors
    /// [`RouteError::Overloaded`] when too many calls wait there; [`RouteError::NoLeader`] when there was none until
    /// `wait` was over.
    pub async fn wait(
        &self,
        group: GroupId,
        topic: TopicUid,
        consumer_group: ConsumerGroupUid,
        attempt_id: &str,
        wait: Duration,
    ) -> Result<bool, RouteError> {
        let deadline = Instant::now() + wait;
        // A try ends by itself when the wait is over; the outer deadline only cuts a leader that went silent.
        let cut = deadline + WAIT_GRACE;
        let result = retry::run(&self.inner.leaders, group, cut, |target| async move {
            let request = forward::WaitRequest {
                group_id: group.0,
                topic_uid: topic.0,
                consumer_group_uid: consumer_group.0,
                wait_ms: remaining_ms(deadline),
                attempt_id: attempt_id.to_owned(),
            };
            match target {
                Target::Local(replica) => replica.wait(&request).await.map_err(Miss::from),
                Target::Remote(node) => remote::wait(&self.inner.channels, node, request, cut).await,
            }
        })
        .await;
        match result {
            // The leader went silent: nothing was heard of a message.
            Err(RouteError::Unknown) => Ok(false),
            other => other,
        }
    }

    /// How far consumer groups are behind in `group`; uid 0 asks for all of them.
    ///
    /// # Errors
    /// See [`RouteError`].
    pub async fn lag(
        &self,
        group: GroupId,
        consumer_group: ConsumerGroupUid,
        deadline: Instant,
    ) -> Result<Vec<forward::QueueLag>, RouteError> {
        let request = forward::LagRequest { group_id: group.0, consumer_group_uid: consumer_group.0 };
        retry::run(&self.inner.leaders, group, deadline, |target| async move {
            match target {
                Target::Local(replica) => replica.lag(&request).await.map_err(Miss::from),
                Target::Remote(node) => remote::lag(&self.inner.channels, node, request, deadline).await,
            }
        })
        .await
    }

    /// The messages of a topic with a key or an id, or of a span of time, that `group` stores; see [`forward::QueryReply`] for their
    /// order and whether there are more. Fills in `group_id`.
    ///
    /// # Errors
    /// See [`RouteError`].
    pub async fn query(
        &self,
        group: GroupId,
        mut request: forward::QueryRequest,
        deadline: Instant,
    ) -> Result<forward::QueryReply, RouteError> {
        request.group_id = group.0;
        let request = &request;
        retry::run(&self.inner.leaders, group, deadline, |target| async move {
            match target {
                Target::Local(replica) => replica.query(request.clone()).await.map_err(Miss::from),
                Target::Remote(node) => remote::query(&self.inner.channels, node, request.clone(), deadline).await,
            }
        })
        .await
    }

    /// Moves the message that `handle` names to the dead-letter topic of its consumer group, in one step. Idempotent.
    ///
    /// # Errors
    /// See [`RouteError`].
    pub async fn dead_letter(
        &self,
        group: GroupId,
        handle: HandleKey,
        deadline: Instant,
    ) -> Result<HandleOutcome, RouteError> {
        retry::run(&self.inner.leaders, group, deadline, |target| async move {
            match target {
                Target::Local(replica) => replica.dead_letter(handle).await.map_err(Miss::from),
                Target::Remote(node) => {
                    let request = forward::DeadLetterRequest {
                        group_id: group.0,
                        handle: handle.encode_to_vec().into(),
                        timeout_ms: remaining_ms(deadline),
                    };
                    remote::dead_letter(&self.inner.channels, node, request, deadline).await
                }
            }
        })
        .await
    }

    /// For how long this node has known no leader of `group`; `None` while it knows one.
    #[must_use]
    pub fn leaderless_for(&self, group: GroupId) -> Option<Duration> {
        self.inner.leaders.leaderless_for(group)
    }

    /// The node that leads `group` as far as this node knows.
    #[must_use]
    pub fn leader(&self, group: GroupId) -> Option<NodeId> {
        self.inner.leaders.leader(group)
    }

    fn complete(&self, request: &mut forward::PopRequest) {
        let view = self.inner.meta.view();
        if request.topic_config.is_empty()
            && let Some(topic) = view.topic_by_uid(request.topic_uid)
        {
            request.topic_config = topic.encode_to_vec().into();
        }
        if request.consumer_group_config.is_empty()
            && let Some(name) = view.consumer_group_names.get(&request.consumer_group_uid)
            && let Some(consumer_group) = view.consumer_groups.get(name)
        {
            request.consumer_group_config = consumer_group.encode_to_vec().into();
        }
        if request.attempt_id.is_empty() {
            request.attempt_id = uuid::Uuid::new_v4().to_string();
        }
    }
}

/// How much longer than its wait a wait may take before its leader counts as silent.
const WAIT_GRACE: Duration = Duration::from_millis(200);

/// Milliseconds until `deadline`, 0 when it is over.
pub(crate) fn remaining_ms(deadline: Instant) -> u32 {
    u32::try_from(deadline.saturating_duration_since(Instant::now()).as_millis()).unwrap_or(u32::MAX)
}
