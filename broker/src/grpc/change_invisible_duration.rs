//! `ChangeInvisibleDuration`: says when a message becomes visible again, and gives out its new handle.

use super::call::{Call, name_of};
use super::convert::duration_ms;
use crate::edge::Edge;
use crate::service::Cluster;
use crate::status::{self, Refusal};
use raftmq_model::limit;
use raftmq_proto::v2::{ChangeInvisibleDurationRequest, ChangeInvisibleDurationResponse, Code};
use tonic::Request;

pub(super) async fn serve<C: Cluster>(
    edge: &Edge<C>,
    request: Request<ChangeInvisibleDurationRequest>,
) -> ChangeInvisibleDurationResponse {
    let (call, request) = Call::of(request);
    let result = answer(edge, &call, &request).await;
    ChangeInvisibleDurationResponse {
        status: Some(status::of(&result, call.sdk)),
        // The Java SDK keeps the handle of the answer even when the answer is an error.
        receipt_handle: result.unwrap_or(request.receipt_handle),
    }
}

async fn answer<C: Cluster>(
    edge: &Edge<C>,
    call: &Call,
    request: &ChangeInvisibleDurationRequest,
) -> Result<String, Refusal> {
    call.client_id()?;
    let refuse = |sentence: &'static str| Refusal::new(Code::IllegalInvisibleTime, sentence);
    let duration = request.invisible_duration.as_ref().ok_or_else(|| refuse("The invisible duration is missing."))?;
    let ms = duration_ms(duration).ok_or_else(|| refuse("The invisible duration is negative."))?;
    limit::check_invisible_on_change(ms)?;
    let topic = name_of(request.topic.as_ref());
    let group = name_of(request.group.as_ref());
    edge.service.change_invisible(&topic, &group, &request.receipt_handle, ms, call.answer_by()).await
}
