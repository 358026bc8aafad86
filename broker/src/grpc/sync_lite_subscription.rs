//! `SyncLiteSubscription`: not served.

use super::call::Call;
use crate::status::{self, Refusal};
use raftmq_proto::v2::{SyncLiteSubscriptionRequest, SyncLiteSubscriptionResponse};
use tonic::Request;

pub(super) fn serve(request: Request<SyncLiteSubscriptionRequest>) -> SyncLiteSubscriptionResponse {
    let (call, _) = Call::of(request);
    let result: Result<(), Refusal> =
        call.client_id().and(Err(Refusal::not_implemented("Lite topics are not served.")));
    SyncLiteSubscriptionResponse { status: Some(status::of(&result, call.sdk)) }
}
