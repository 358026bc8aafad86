//! `NotifyClientTermination`: the client goes away. OK for clients never seen before too.

use super::call::Call;
use crate::edge::Edge;
use crate::service::Cluster;
use crate::status;
use raftmq_proto::v2::{NotifyClientTerminationRequest, NotifyClientTerminationResponse};
use tonic::Request;

pub(super) fn serve<C: Cluster>(
    edge: &Edge<C>,
    request: Request<NotifyClientTerminationRequest>,
) -> NotifyClientTerminationResponse {
    let (call, _) = Call::of(request);
    let result = call.client_id().map(|id| edge.clients.terminated(id));
    NotifyClientTerminationResponse { status: Some(status::of(&result, call.sdk)) }
}
