//! `ForwardMessageToDeadLetterQueue`: moves a message to `%DLQ%<group>` and finishes it, in one step. Idempotent.

use super::call::{Call, name_of};
use crate::edge::Edge;
use crate::service::Cluster;
use crate::status::{self, Refusal};
use raftmq_proto::v2::{ForwardMessageToDeadLetterQueueRequest, ForwardMessageToDeadLetterQueueResponse};
use tonic::Request;

pub(super) async fn serve<C: Cluster>(
    edge: &Edge<C>,
    request: Request<ForwardMessageToDeadLetterQueueRequest>,
) -> ForwardMessageToDeadLetterQueueResponse {
    let (call, request) = Call::of(request);
    let result = answer(edge, &call, &request).await;
    ForwardMessageToDeadLetterQueueResponse { status: Some(status::of(&result, call.sdk)) }
}

async fn answer<C: Cluster>(
    edge: &Edge<C>,
    call: &Call,
    request: &ForwardMessageToDeadLetterQueueRequest,
) -> Result<(), Refusal> {
    call.client_id()?;
    let topic = name_of(request.topic.as_ref());
    let group = name_of(request.group.as_ref());
    edge.service.dead_letter(&topic, &group, &request.receipt_handle, call.answer_by()).await
}
