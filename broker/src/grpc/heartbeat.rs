//! `Heartbeat`: the client lives. Answered from here, for clients never seen before too: SDKs lift their isolation of a
//! node by it, and take a late answer for a dead node.

use super::call::{Call, name_of};
use crate::status::{self, Refusal};
use raftmq_model::name;
use raftmq_proto::v2::{HeartbeatRequest, HeartbeatResponse};
use tonic::Request;

pub(super) fn serve(request: Request<HeartbeatRequest>) -> HeartbeatResponse {
    let (call, request) = Call::of(request);
    HeartbeatResponse { status: Some(status::of(&answer(&call, &request), call.sdk)) }
}

fn answer(call: &Call, request: &HeartbeatRequest) -> Result<(), Refusal> {
    call.client_id()?;
    // Producers of some SDKs send an empty group.
    let group = name_of(request.group.as_ref());
    if !group.is_empty() {
        name::check_consumer_group(&group)?;
    }
    Ok(())
}
