//! `RecallMessage`: not served yet, since topics take no delayed messages yet.

use super::call::Call;
use crate::status::{self, Refusal};
use raftmq_proto::v2::{RecallMessageRequest, RecallMessageResponse};
use tonic::Request;

pub(super) fn serve(request: Request<RecallMessageRequest>) -> RecallMessageResponse {
    let (call, _) = Call::of(request);
    let result: Result<(), Refusal> =
        call.client_id().and(Err(Refusal::not_implemented("Delayed messages and their recall are not served yet.")));
    RecallMessageResponse { status: Some(status::of(&result, call.sdk)), message_id: String::new() }
}
