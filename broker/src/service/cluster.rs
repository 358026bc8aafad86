//! What the use cases ask of the rest of the cluster. The router and the node's copy of the meta group answer it in a
//! product; tests answer it from memory.

use crate::meta_client::MetaError;
use crate::router::RouteError;
use bytes::Bytes;
use raftmq_model::command::{HandleKey, HandleOutcome, Outcome};
use raftmq_model::config::{ConsumerGroupConfig, TopicConfig};
use raftmq_model::ids::{ConsumerGroupUid, GroupId, TopicUid};
use raftmq_model::meta::{CreateTopic, MetaView};
use raftmq_proto::forward::{PopRequest, PoppedMessage};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The cluster as an edge sees it. See [`crate::router::Router`] for what the calls to a group promise.
pub trait Cluster: Send + Sync + 'static {
    /// The node's copy of the meta group; revision 0 before the first one.
    fn view(&self) -> Arc<MetaView>;

    /// Waits until there is a copy of the meta group at all; `None` when `deadline` is over.
    fn first_view(&self, deadline: Instant) -> impl Future<Output = Option<Arc<MetaView>>> + Send;

    /// See [`crate::meta_client::MetaClient::topic_or_create`].
    fn topic_or_create(
        &self,
        create: CreateTopic,
        deadline: Instant,
    ) -> impl Future<Output = Result<Arc<TopicConfig>, MetaError>> + Send;

    /// See [`crate::meta_client::MetaClient::consumer_group_or_create`].
    fn consumer_group_or_create(
        &self,
        create: ConsumerGroupConfig,
        deadline: Instant,
    ) -> impl Future<Output = Result<Arc<ConsumerGroupConfig>, MetaError>> + Send;

    /// See [`crate::router::Router::propose`].
    fn propose(
        &self,
        group: GroupId,
        commands: Vec<Bytes>,
        deadline: Instant,
    ) -> impl Future<Output = Result<Vec<Outcome>, RouteError>> + Send;

    /// See [`crate::router::Router::pop`].
    fn pop(
        &self,
        group: GroupId,
        request: PopRequest,
        deadline: Instant,
    ) -> impl Future<Output = Result<Vec<PoppedMessage>, RouteError>> + Send;

    /// See [`crate::router::Router::wait`].
    fn wait(
        &self,
        group: GroupId,
        topic: TopicUid,
        consumer_group: ConsumerGroupUid,
        attempt_id: &str,
        wait: Duration,
    ) -> impl Future<Output = Result<bool, RouteError>> + Send;

    /// See [`crate::router::Router::dead_letter`].
    fn dead_letter(
        &self,
        group: GroupId,
        handle: HandleKey,
        deadline: Instant,
    ) -> impl Future<Output = Result<HandleOutcome, RouteError>> + Send;

    /// See [`crate::router::Router::leaderless_for`].
    fn leaderless_for(&self, group: GroupId) -> Option<Duration>;
}
