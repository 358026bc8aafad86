//! `AckMessage`: finishes messages. An ack of a message that is finished already is OK.

use super::call::{Call, name_of};
use crate::edge::Edge;
use crate::service::Cluster;
use crate::status::{self, Refusal};
use raftmq_proto::v2::{AckMessageRequest, AckMessageResponse, AckMessageResultEntry, Code};
use tonic::Request;

/// Handles of one request.
const ACK_ENTRIES_COUNT_MAX: usize = 4_096;

pub(super) async fn serve<C: Cluster>(edge: &Edge<C>, request: Request<AckMessageRequest>) -> AckMessageResponse {
    let (call, request) = Call::of(request);
    match answer(edge, &call, request).await {
        Ok(entries) => AckMessageResponse {
            status: Some(status::common(entries.iter().filter_map(|e| e.status.as_ref()))),
            entries,
        },
        Err(refusal) => AckMessageResponse { status: Some(refusal.status(call.sdk)), entries: Vec::new() },
    }
}

async fn answer<C: Cluster>(
    edge: &Edge<C>,
    call: &Call,
    request: AckMessageRequest,
) -> Result<Vec<AckMessageResultEntry>, Refusal> {
    call.client_id()?;
    if request.entries.is_empty() {
        return Err(Refusal::new(Code::BadRequest, "The request has no entry."));
    }
    if request.entries.len() > ACK_ENTRIES_COUNT_MAX {
        return Err(Refusal::new(
            Code::PayloadTooLarge,
            format!("The request has {} entries, at most {ACK_ENTRIES_COUNT_MAX} are allowed.", request.entries.len()),
        ));
    }
    let topic = name_of(request.topic.as_ref());
    let group = name_of(request.group.as_ref());
    let handles: Vec<&str> = request.entries.iter().map(|entry| entry.receipt_handle.as_str()).collect();
    let answers = edge.service.ack(&topic, &group, &handles, call.answer_by()).await?;
    let entry = |(entry, answer): (raftmq_proto::v2::AckMessageEntry, _)| AckMessageResultEntry {
        message_id: entry.message_id,
        receipt_handle: entry.receipt_handle,
        status: Some(status::of(&answer, call.sdk)),
    };
    Ok(request.entries.into_iter().zip(answers).map(entry).collect())
}
