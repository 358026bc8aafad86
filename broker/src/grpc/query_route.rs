//! `QueryRoute`: the lanes over which a client reaches a topic, one queue 0 in each.
//!
//! The server ignores which lane and queue a message or a receive comes in by, so one queue per lane says it all; it is
//! queue 0 since the Node SDK sends to no other, and the list of lanes is interleaved by itself.

use super::call::{Call, name_of};
use super::route::{lanes_for, queue_of};
use crate::edge::Edge;
use crate::service::Cluster;
use crate::status::{self, Refusal};
use raftmq_proto::v2::{MessageQueue, QueryRouteRequest, QueryRouteResponse};
use tonic::Request;

pub(super) async fn serve<C: Cluster>(edge: &Edge<C>, request: Request<QueryRouteRequest>) -> QueryRouteResponse {
    let (call, request) = Call::of(request);
    let result = answer(edge, &call, request).await;
    QueryRouteResponse { status: Some(status::of(&result, call.sdk)), message_queues: result.unwrap_or_default() }
}

async fn answer<C: Cluster>(
    edge: &Edge<C>,
    call: &Call,
    request: QueryRouteRequest,
) -> Result<Vec<MessageQueue>, Refusal> {
    call.client_id()?;
    let resource = request.topic.unwrap_or_default();
    let topic = edge.service.topic_or_create(&name_of(Some(&resource)), call.answer_by()).await?;
    let view = edge.service.cluster.view();
    let lanes = lanes_for(&view, &edge.service.options, &topic, call.sdk)?;
    Ok(lanes.into_iter().map(|lane| queue_of(lane, 0, &resource, &topic)).collect())
}
