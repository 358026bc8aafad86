//! `QueryAssignment`: the lanes that a push consumer polls. All members of a group get all lanes; they compete for
//! messages. Asked every 5 s, so a lane without a living node leaves it at once; it is never empty.

use super::call::{Call, name_of};
use super::route::{lanes_for, queue_of};
use crate::edge::Edge;
use crate::service::Cluster;
use crate::status::{self, Refusal};
use raftmq_model::name;
use raftmq_proto::v2::{Assignment, Code, QueryAssignmentRequest, QueryAssignmentResponse};
use tonic::Request;

/// Stands for all queues of a broker name.
const ALL_QUEUES: i32 = -1;

pub(super) async fn serve<C: Cluster>(
    edge: &Edge<C>,
    request: Request<QueryAssignmentRequest>,
) -> QueryAssignmentResponse {
    let (call, request) = Call::of(request);
    let result = answer(edge, &call, request).await;
    QueryAssignmentResponse { status: Some(status::of(&result, call.sdk)), assignments: result.unwrap_or_default() }
}

async fn answer<C: Cluster>(
    edge: &Edge<C>,
    call: &Call,
    request: QueryAssignmentRequest,
) -> Result<Vec<Assignment>, Refusal> {
    call.client_id()?;
    let resource = request.topic.unwrap_or_default();
    let topic = edge.service.topic(&name_of(Some(&resource)), call.answer_by()).await?;
    name::check_consumer_group(&name_of(request.group.as_ref()))?;
    if !topic.readable() {
        return Err(Refusal::new(Code::Forbidden, format!("The topic {:?} cannot be read at present.", topic.name)));
    }
    let view = edge.service.cluster.view();
    let mut lanes = lanes_for(&view, &edge.service.options, &topic, call.sdk)?;
    if lanes.iter().any(|lane| lane.alive) {
        lanes.retain(|lane| lane.alive);
    }
    let assignment = |lane| Assignment { message_queue: Some(queue_of(lane, ALL_QUEUES, &resource, &topic)) };
    Ok(lanes.into_iter().map(assignment).collect())
}
