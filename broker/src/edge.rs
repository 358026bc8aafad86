//! The public API of one node: any client, any call, whether this node leads anything or not.
//!
//! ```text
//!  grpc/      one file per RPC: metadata and protobuf in, status out
//!    └ service/   the use cases: checks, placement, what is proposed where
//!        └ router     the leader of a broker group, held for while there is none
//! ```
//! An edge keeps no state that a call depends on: telemetry streams are registered so that the server can speak to
//! clients, nothing more.

use crate::clients::Clients;
use crate::grpc::{Budget, Budgeted};
use crate::meta_client::{MetaClient, MetaError};
use crate::router::{RouteError, Router};
use crate::service::{Cluster, Service};
use bytes::Bytes;
use raftmq_model::clock::Clock;
use raftmq_model::command::{HandleKey, HandleOutcome, Outcome};
use raftmq_model::config::{ConsumerGroupConfig, TopicConfig};
use raftmq_model::ids::{ConsumerGroupUid, GroupId, NodeId, TopicUid};
use raftmq_model::limit::INVISIBLE_AUTO_RENEW_MS;
use raftmq_model::meta::{CreateTopic, MetaView};
use raftmq_proto::forward::{PopRequest, PoppedMessage};
use raftmq_proto::v2::messaging_service_server::MessagingServiceServer;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

const MIB: usize = 1024 * 1024;

/// What an edge is started with.
#[derive(Clone, Debug)]
pub struct EdgeOptions {
    /// This node; it counts itself as alive when it lays out routes.
    pub node: NodeId,
    /// Written into records as the host that took them.
    pub store_host: SocketAddr,
    /// Create a topic when a client asks for its route or sends to it.
    pub auto_create_topics: bool,
    /// Create a consumer group when it first receives.
    pub auto_create_consumer_groups: bool,
    /// Queues of a topic that is created so.
    pub topic_queue_count: u32,
    /// The long poll that push consumers are told to use. Their deadline is this and the request timeout, so it bounds
    /// how late they notice a node that went silent.
    pub push_poll_ms: u64,
    /// How long messages stay invisible that a push consumer takes (`auto_renew`).
    pub auto_renew_invisible_ms: u64,
    /// A broker group without a leader for longer than this gets no new messages while another one can take them. Longer
    /// than any SDK goes on trying a send: a retry that went to another group would be stored a second time.
    pub leaderless_skip_ms: u64,
    /// The largest request, decoded; past it gRPC RESOURCE_EXHAUSTED. Room for several messages of the largest size.
    pub request_bytes_max: usize,
    /// Bytes of all requests that are being received or served at a time; past it gRPC RESOURCE_EXHAUSTED.
    pub in_flight_bytes_max: usize,
    /// Telemetry streams at a time; past it gRPC RESOURCE_EXHAUSTED.
    pub telemetry_streams_count_max: usize,
}

impl EdgeOptions {
    /// Options with the defaults of `serve`: nothing is created at first use but consumer groups.
    #[must_use]
    pub fn new(node: NodeId, store_host: SocketAddr) -> EdgeOptions {
        EdgeOptions {
            node,
            store_host,
            auto_create_topics: false,
            auto_create_consumer_groups: true,
            topic_queue_count: 8,
            push_poll_ms: 10_000,
            auto_renew_invisible_ms: INVISIBLE_AUTO_RENEW_MS,
            leaderless_skip_ms: 30_000,
            request_bytes_max: 32 * MIB,
            in_flight_bytes_max: 256 * MIB,
            telemetry_streams_count_max: 20_000,
        }
    }
}

/// See the module.
pub struct Edge<C = NodeCluster> {
    pub(crate) service: Arc<Service<C>>,
    pub(crate) clients: Arc<Clients>,
    budget: Arc<Budget>,
}

/// The gRPC service of an edge, to be added to a tonic server or router.
pub type MessagingServer<C = NodeCluster> = Budgeted<MessagingServiceServer<Edge<C>>>;

impl Edge<NodeCluster> {
    /// The edge of a node.
    #[must_use]
    pub fn new(router: Router, meta: Arc<MetaClient>, clock: Arc<dyn Clock>, options: EdgeOptions) -> Arc<Edge> {
        Edge::over(NodeCluster { router, meta }, clock, options)
    }
}

impl<C: Cluster> Edge<C> {
    /// An edge over any view of a cluster.
    #[must_use]
    pub fn over(cluster: C, clock: Arc<dyn Clock>, options: EdgeOptions) -> Arc<Edge<C>> {
        let clients = Clients::new(options.telemetry_streams_count_max);
        let budget = Budget::new(options.in_flight_bytes_max);
        Arc::new(Edge { service: Arc::new(Service::new(cluster, clock, options)), clients, budget })
    }

    /// The service `apache.rocketmq.v2.MessagingService`.
    #[must_use]
    pub fn messaging_service(self: &Arc<Self>) -> MessagingServer<C> {
        let server = MessagingServiceServer::from_arc(Arc::clone(self))
            .max_decoding_message_size(self.service.options.request_bytes_max)
            .max_encoding_message_size(usize::MAX);
        Budgeted::new(server, Arc::clone(&self.budget))
    }

    /// The clients with a live telemetry stream on this node.
    #[must_use]
    pub fn clients(&self) -> &Arc<Clients> {
        &self.clients
    }

    /// Bytes of requests that are being received or served now.
    #[must_use]
    pub fn in_flight_bytes(&self) -> usize {
        self.budget.used_bytes()
    }
}

/// The cluster as a node reaches it.
pub struct NodeCluster {
    router: Router,
    meta: Arc<MetaClient>,
}

impl Cluster for NodeCluster {
    fn view(&self) -> Arc<MetaView> {
        self.meta.view()
    }

    async fn first_view(&self, deadline: Instant) -> Option<Arc<MetaView>> {
        let mut changed = self.meta.changed();
        let known = changed.wait_for(|revision| *revision > 0);
        tokio::time::timeout_at(deadline, known).await.ok()?.ok()?;
        Some(self.meta.view())
    }

    async fn topic_or_create(&self, create: CreateTopic, deadline: Instant) -> Result<Arc<TopicConfig>, MetaError> {
        self.meta.topic_or_create(create, deadline).await
    }

    async fn consumer_group_or_create(
        &self,
        create: ConsumerGroupConfig,
        deadline: Instant,
    ) -> Result<Arc<ConsumerGroupConfig>, MetaError> {
        self.meta.consumer_group_or_create(create, deadline).await
    }

    async fn propose(
        &self,
        group: GroupId,
        commands: Vec<Bytes>,
        deadline: Instant,
    ) -> Result<Vec<Outcome>, RouteError> {
        self.router.propose(group, commands, deadline).await
    }

    async fn pop(
        &self,
        group: GroupId,
        request: PopRequest,
        deadline: Instant,
    ) -> Result<Vec<PoppedMessage>, RouteError> {
        self.router.pop(group, request, deadline).await
    }

    async fn wait(
        &self,
        group: GroupId,
        topic: TopicUid,
        consumer_group: ConsumerGroupUid,
        attempt_id: &str,
        wait: Duration,
    ) -> Result<bool, RouteError> {
        self.router.wait(group, topic, consumer_group, attempt_id, wait).await
    }

    async fn dead_letter(
        &self,
        group: GroupId,
        handle: HandleKey,
        deadline: Instant,
    ) -> Result<HandleOutcome, RouteError> {
        self.router.dead_letter(group, handle, deadline).await
    }

    fn leaderless_for(&self, group: GroupId) -> Option<Duration> {
        self.router.leaderless_for(group)
    }
}
