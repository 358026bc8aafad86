//! What other nodes ask of the groups that this node leads: `raftmq.forward.v1.Forward`, one file per call.
//!
//! The peer port runs on the Raft runtime; the calls run on the broker runtime, so that a slow plan never stands in the
//! way of a heartbeat. A failure is part of the reply, not a gRPC status: a status always means that the call did not
//! get through.

mod dead_letter;
mod lag;
mod pop;
mod propose;
mod query;
mod wait;

use crate::leader::{Replica, Replicas, failure};
use raftmq_model::ids::GroupId;
use raftmq_proto::forward::{
    self as api, Failure,
    failure::Kind,
    forward_server::{Forward, ForwardServer},
};
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tonic::{Request, Response, Status};

/// Largest call between nodes: above what one pop takes (`pop_bytes_max` and one message) and one proposal has.
pub(crate) const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// The service. See the module.
pub struct ForwardService {
    replicas: Arc<Replicas>,
    runtime: Handle,
}

impl ForwardService {
    /// The tonic service over these replicas; its calls run on `runtime`.
    pub(crate) fn server(replicas: Arc<Replicas>, runtime: Handle) -> ForwardServer<ForwardService> {
        ForwardServer::new(ForwardService { replicas, runtime })
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX)
    }

    fn replica(&self, group: u32) -> Result<Arc<Replica>, Failure> {
        // Not there (yet): another replica of the group may be.
        let replica = self.replicas.get(GroupId(group));
        replica.ok_or_else(|| failure(Kind::NotLeader, format!("broker group {group} has no replica on this node")))
    }

    /// Runs a call on the broker runtime. It goes on when the caller goes away: what it proposed is in the log.
    async fn run<T: Send + 'static>(
        &self,
        call: impl Future<Output = T> + Send + 'static,
    ) -> Result<Response<T>, Status> {
        match self.runtime.spawn(call).await {
            Ok(reply) => Ok(Response::new(reply)),
            Err(_) => Err(going_down()),
        }
    }
}

struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn going_down() -> Status {
    Status::unavailable("the node is shutting down")
}

#[tonic::async_trait]
impl Forward for ForwardService {
    async fn propose(&self, request: Request<api::ProposeRequest>) -> Result<Response<api::ProposeReply>, Status> {
        let request = request.into_inner();
        let replica = self.replica(request.group_id);
        self.run(propose::answer(replica, request)).await
    }

    async fn pop(&self, request: Request<api::PopRequest>) -> Result<Response<api::PopReply>, Status> {
        let request = request.into_inner();
        let replica = self.replica(request.group_id);
        self.run(pop::answer(replica, request)).await
    }

    async fn wait(&self, request: Request<api::WaitRequest>) -> Result<Response<api::WaitReply>, Status> {
        let request = request.into_inner();
        // A parked call leaves nothing behind: it ends with its caller.
        let parked = self.runtime.spawn(wait::answer(self.replica(request.group_id), request));
        let _abort = AbortOnDrop(parked.abort_handle());
        parked.await.map(Response::new).map_err(|_| going_down())
    }

    async fn lag(&self, request: Request<api::LagRequest>) -> Result<Response<api::LagReply>, Status> {
        let request = request.into_inner();
        let replica = self.replica(request.group_id);
        self.run(lag::answer(replica, request)).await
    }

    async fn query(&self, request: Request<api::QueryRequest>) -> Result<Response<api::QueryReply>, Status> {
        let request = request.into_inner();
        let replica = self.replica(request.group_id);
        self.run(query::answer(replica, request)).await
    }

    async fn dead_letter(
        &self,
        request: Request<api::DeadLetterRequest>,
    ) -> Result<Response<api::DeadLetterReply>, Status> {
        let request = request.into_inner();
        let replica = self.replica(request.group_id);
        self.run(dead_letter::answer(replica, request)).await
    }
}
