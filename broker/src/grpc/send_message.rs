//! `SendMessage`: stores one or more messages of one topic.
//!
//! What is wrong with the request as a whole is the status, without entries; else each message has an entry, in the order
//! of the request, and the status is what they have in common.

use super::call::{Call, name_of};
use super::draft::{Stamp, drafts_of};
use crate::edge::Edge;
use crate::service::{Cluster, Produced};
use crate::status::{self, Refusal};
use raftmq_model::name;
use raftmq_proto::v2::{Code, SendMessageRequest, SendMessageResponse, SendResultEntry};
use std::net::{Ipv4Addr, SocketAddr};
use tonic::Request;

/// Messages of one request.
pub(super) const SEND_MESSAGES_COUNT_MAX: usize = 4_096;
/// Written as born host when the server does not know where a call comes from.
const UNKNOWN_HOST: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

pub(super) async fn serve<C: Cluster>(edge: &Edge<C>, request: Request<SendMessageRequest>) -> SendMessageResponse {
    let (call, request) = Call::of(request);
    match answer(edge, &call, request).await {
        Ok(entries) => SendMessageResponse {
            status: Some(status::common(entries.iter().filter_map(|e| e.status.as_ref()))),
            entries,
        },
        Err(refusal) => SendMessageResponse { status: Some(refusal.status(call.sdk)), entries: Vec::new() },
    }
}

async fn answer<C: Cluster>(
    edge: &Edge<C>,
    call: &Call,
    request: SendMessageRequest,
) -> Result<Vec<SendResultEntry>, Refusal> {
    call.client_id()?;
    let service = &edge.service;
    let Some(first) = request.messages.first() else {
        return Err(Refusal::new(Code::MessageCorrupted, "The request has no message."));
    };
    if request.messages.len() > SEND_MESSAGES_COUNT_MAX {
        return Err(Refusal::new(
            Code::PayloadTooLarge,
            format!(
                "The request has {} messages, at most {SEND_MESSAGES_COUNT_MAX} are allowed.",
                request.messages.len()
            ),
        ));
    }
    let topic = name_of(first.topic.as_ref()).into_owned();
    name::check_topic(&topic)?;
    let stamp = Stamp {
        now: service.clock.now(),
        born_host: call.remote.unwrap_or(UNKNOWN_HOST),
        store_host: service.options.store_host,
    };
    let drafts = drafts_of(request.messages, &topic, &stamp)?;
    let produced = service.produce(&topic, drafts, call.sdk, call.answer_by()).await?;
    Ok(produced.into_iter().map(|produced| entry(produced, call)).collect())
}

fn entry(produced: Produced, call: &Call) -> SendResultEntry {
    let Produced { message_id, result } = produced;
    SendResultEntry {
        status: Some(status::of(&result, call.sdk)),
        message_id,
        transaction_id: String::new(),
        offset: result.map_or(0, |stored| i64::try_from(stored.offset.0).unwrap_or(i64::MAX)),
        recall_handle: String::new(),
    }
}
