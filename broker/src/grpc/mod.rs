//! `apache.rocketmq.v2.MessagingService`: one file per RPC.
//!
//! A file reads the call's metadata and message, asks [`crate::service`], and writes the answer. Application results go
//! into `status` with gRPC OK, since SDKs take gRPC errors for faults of the connection; gRPC errors are left for RPCs
//! that this build does not have and for bounds of the node (RESOURCE_EXHAUSTED).

mod ack_message;
mod budget;
mod call;
mod change_invisible_duration;
mod convert;
mod draft;
mod end_transaction;
mod forward_message_to_dead_letter_queue;
mod get_offset;
mod heartbeat;
mod notify_client_termination;
mod pull_message;
mod query_assignment;
mod query_offset;
mod query_route;
mod recall_message;
mod receive_message;
mod route;
mod send_message;
mod sync_lite_subscription;
mod telemetry;
mod update_offset;

pub use budget::{Budget, Budgeted};

use crate::edge::Edge;
use crate::service::Cluster;
use futures::stream::BoxStream;
use raftmq_proto::v2::messaging_service_server::MessagingService;
use raftmq_proto::v2::*;
use tonic::{Request, Response, Status, Streaming};

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl<C: Cluster> MessagingService for Edge<C> {
    type ReceiveMessageStream = receive_message::Frames<C>;
    type PullMessageStream = BoxStream<'static, Result<PullMessageResponse, Status>>;
    type TelemetryStream = BoxStream<'static, Result<TelemetryCommand, Status>>;

    async fn query_route(&self, request: Request<QueryRouteRequest>) -> Answer<QueryRouteResponse> {
        Ok(Response::new(query_route::serve(self, request).await))
    }

    async fn heartbeat(&self, request: Request<HeartbeatRequest>) -> Answer<HeartbeatResponse> {
        Ok(Response::new(heartbeat::serve(request)))
    }

    async fn send_message(&self, request: Request<SendMessageRequest>) -> Answer<SendMessageResponse> {
        Ok(Response::new(send_message::serve(self, request).await))
    }

    async fn query_assignment(&self, request: Request<QueryAssignmentRequest>) -> Answer<QueryAssignmentResponse> {
        Ok(Response::new(query_assignment::serve(self, request).await))
    }

    async fn receive_message(&self, request: Request<ReceiveMessageRequest>) -> Answer<Self::ReceiveMessageStream> {
        Ok(Response::new(receive_message::serve(self, request).await))
    }

    async fn ack_message(&self, request: Request<AckMessageRequest>) -> Answer<AckMessageResponse> {
        Ok(Response::new(ack_message::serve(self, request).await))
    }

    async fn forward_message_to_dead_letter_queue(
        &self,
        request: Request<ForwardMessageToDeadLetterQueueRequest>,
    ) -> Answer<ForwardMessageToDeadLetterQueueResponse> {
        Ok(Response::new(forward_message_to_dead_letter_queue::serve(self, request).await))
    }

    async fn pull_message(&self, _: Request<PullMessageRequest>) -> Answer<Self::PullMessageStream> {
        Err(pull_message::refuse())
    }

    async fn update_offset(&self, _: Request<UpdateOffsetRequest>) -> Answer<UpdateOffsetResponse> {
        Err(update_offset::refuse())
    }

    async fn get_offset(&self, _: Request<GetOffsetRequest>) -> Answer<GetOffsetResponse> {
        Err(get_offset::refuse())
    }

    async fn query_offset(&self, _: Request<QueryOffsetRequest>) -> Answer<QueryOffsetResponse> {
        Err(query_offset::refuse())
    }

    async fn end_transaction(&self, request: Request<EndTransactionRequest>) -> Answer<EndTransactionResponse> {
        Ok(Response::new(end_transaction::serve(request)))
    }

    async fn telemetry(&self, request: Request<Streaming<TelemetryCommand>>) -> Answer<Self::TelemetryStream> {
        telemetry::serve(self, request).map(Response::new)
    }

    async fn notify_client_termination(
        &self,
        request: Request<NotifyClientTerminationRequest>,
    ) -> Answer<NotifyClientTerminationResponse> {
        Ok(Response::new(notify_client_termination::serve(self, request)))
    }

    async fn change_invisible_duration(
        &self,
        request: Request<ChangeInvisibleDurationRequest>,
    ) -> Answer<ChangeInvisibleDurationResponse> {
        Ok(Response::new(change_invisible_duration::serve(self, request).await))
    }

    async fn recall_message(&self, request: Request<RecallMessageRequest>) -> Answer<RecallMessageResponse> {
        Ok(Response::new(recall_message::serve(request)))
    }

    async fn sync_lite_subscription(
        &self,
        request: Request<SyncLiteSubscriptionRequest>,
    ) -> Answer<SyncLiteSubscriptionResponse> {
        Ok(Response::new(sync_lite_subscription::serve(request)))
    }
}

#[cfg(test)]
mod tests;
