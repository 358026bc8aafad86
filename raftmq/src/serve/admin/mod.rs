//! The admin service: for operators, on any node, from the node's start on.

mod cluster;
mod consumer_groups;
mod digest;
mod messages;
mod topics;

use super::born::Born;
use super::node::Node;
use super::{birth, busy, replace};
use crate::exit::Failure;
use raftmq_broker::meta_client::MetaError;
use raftmq_proto::admin::admin_server::{Admin, AdminServer};
use raftmq_proto::admin::{
    AlterGroupRequest, AlterTopicRequest, ClusterInitReply, ClusterInitRequest, ClusterStatusReply,
    ClusterStatusRequest, CreateGroupRequest, CreateTopicRequest, Empty, Group, GroupLagReply, ListGroupsReply,
    ListTopicsReply, NameRequest, QueryMessagesReply, QueryMessagesRequest, RaftDigestReply, RaftDigestRequest,
    ReplaceReplicaReply, ReplaceReplicaRequest, Topic, TransferLeaderReply, TransferLeaderRequest,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

/// How long a change may take, with everything that has to apply it.
const CHANGE_MS: u64 = 15_000;
/// Calls at one time on one connection.
const CALLS_COUNT_MAX: u32 = 256;

/// Serves `raftmq.admin.v1.Admin`.
struct AdminService {
    node: Arc<Node>,
}

/// Serves the admin port on `listener` as long as the process lives.
pub(super) fn serve(node: Arc<Node>, listener: std::net::TcpListener) -> Result<(), Failure> {
    let address = node.config.admin_listen.clone();
    let listener = TcpListener::from_std(listener).map_err(|error| busy("admin_listen", &address, &error))?;
    tracing::info!(address, "admin port open");
    tokio::spawn(async move {
        let served = Server::builder()
            .max_concurrent_streams(CALLS_COUNT_MAX)
            .add_service(AdminServer::new(AdminService { node }))
            .serve_with_incoming(TcpListenerStream::new(listener))
            .await;
        if let Err(error) = served {
            tracing::error!(%error, "the admin port stopped");
        }
    });
    Ok(())
}

impl AdminService {
    fn born(&self) -> Result<Arc<Born>, Status> {
        self.node.born().ok_or_else(|| match self.node.placement() {
            Some(_) => Status::unavailable("the node is starting"),
            None => Status::failed_precondition(
                "the node does not belong to a cluster yet; run `raftmq cluster init` once all nodes are started",
            ),
        })
    }
}

fn change_deadline() -> Instant {
    Instant::now() + Duration::from_millis(CHANGE_MS)
}

/// What an error of the meta group means for an operator.
pub(super) fn meta_status(error: MetaError) -> Status {
    let sentence = error.to_string();
    match error {
        MetaError::NotFound(_) => Status::not_found(sentence),
        MetaError::Refused(_) => Status::failed_precondition(sentence),
        MetaError::Conflict(_) => Status::aborted(sentence),
        MetaError::Unavailable => Status::unavailable(sentence),
        MetaError::Unknown => Status::deadline_exceeded(sentence),
    }
}

#[tonic::async_trait]
impl Admin for AdminService {
    async fn cluster_init(&self, request: Request<ClusterInitRequest>) -> Result<Response<ClusterInitReply>, Status> {
        let cluster_id = birth::init(&self.node, request.into_inner().broker_groups).await?;
        Ok(Response::new(ClusterInitReply { cluster_id }))
    }

    async fn cluster_status(&self, _: Request<ClusterStatusRequest>) -> Result<Response<ClusterStatusReply>, Status> {
        Ok(Response::new(cluster::status(&self.node).await))
    }

    async fn transfer_leader(
        &self,
        request: Request<TransferLeaderRequest>,
    ) -> Result<Response<TransferLeaderReply>, Status> {
        self.born()?;
        let leader = cluster::transfer(&self.node, request.into_inner()).await?;
        Ok(Response::new(TransferLeaderReply { leader }))
    }

    async fn replace_replica(
        &self,
        request: Request<ReplaceReplicaRequest>,
    ) -> Result<Response<ReplaceReplicaReply>, Status> {
        let incarnation = replace::replace(&self.node, request.into_inner().node).await?;
        Ok(Response::new(ReplaceReplicaReply { incarnation }))
    }

    async fn raft_digest(&self, request: Request<RaftDigestRequest>) -> Result<Response<RaftDigestReply>, Status> {
        self.born()?;
        Ok(Response::new(digest::digest(&self.node, request.into_inner()).await?))
    }

    async fn create_topic(&self, request: Request<CreateTopicRequest>) -> Result<Response<Topic>, Status> {
        let default_queues = self.node.config.topic_queue_count;
        Ok(Response::new(topics::create(&*self.born()?, request.into_inner(), default_queues).await?))
    }

    async fn alter_topic(&self, request: Request<AlterTopicRequest>) -> Result<Response<Topic>, Status> {
        Ok(Response::new(topics::alter(&*self.born()?, request.into_inner()).await?))
    }

    async fn delete_topic(&self, request: Request<NameRequest>) -> Result<Response<Empty>, Status> {
        topics::delete(&*self.born()?, &request.into_inner().name).await?;
        Ok(Response::new(Empty {}))
    }

    async fn describe_topic(&self, request: Request<NameRequest>) -> Result<Response<Topic>, Status> {
        Ok(Response::new(topics::describe(&*self.born()?, &request.into_inner().name)?))
    }

    async fn list_topics(&self, _: Request<Empty>) -> Result<Response<ListTopicsReply>, Status> {
        Ok(Response::new(topics::list(&*self.born()?)))
    }

    async fn create_group(&self, request: Request<CreateGroupRequest>) -> Result<Response<Group>, Status> {
        Ok(Response::new(consumer_groups::create(&*self.born()?, request.into_inner()).await?))
    }

    async fn alter_group(&self, request: Request<AlterGroupRequest>) -> Result<Response<Group>, Status> {
        Ok(Response::new(consumer_groups::alter(&*self.born()?, request.into_inner()).await?))
    }

    async fn delete_group(&self, request: Request<NameRequest>) -> Result<Response<Empty>, Status> {
        consumer_groups::delete(&*self.born()?, &request.into_inner().name).await?;
        Ok(Response::new(Empty {}))
    }

    async fn describe_group(&self, request: Request<NameRequest>) -> Result<Response<Group>, Status> {
        Ok(Response::new(consumer_groups::describe(&*self.born()?, &request.into_inner().name)?))
    }

    async fn list_groups(&self, _: Request<Empty>) -> Result<Response<ListGroupsReply>, Status> {
        Ok(Response::new(consumer_groups::list(&*self.born()?)))
    }

    async fn group_lag(&self, request: Request<NameRequest>) -> Result<Response<GroupLagReply>, Status> {
        Ok(Response::new(consumer_groups::lag(&*self.born()?, &request.into_inner().name).await?))
    }

    async fn query_messages(
        &self,
        request: Request<QueryMessagesRequest>,
    ) -> Result<Response<QueryMessagesReply>, Status> {
        Ok(Response::new(messages::query(&*self.born()?, request.into_inner()).await?))
    }
}
