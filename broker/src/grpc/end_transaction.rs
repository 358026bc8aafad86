//! `EndTransaction`: not served yet, since topics take no half messages yet.

use super::call::Call;
use crate::status::{self, Refusal};
use raftmq_proto::v2::{Code, EndTransactionRequest, EndTransactionResponse, TransactionResolution};
use tonic::Request;

pub(super) fn serve(request: Request<EndTransactionRequest>) -> EndTransactionResponse {
    let (call, request) = Call::of(request);
    EndTransactionResponse { status: Some(status::of(&answer(&call, &request), call.sdk)) }
}

fn answer(call: &Call, request: &EndTransactionRequest) -> Result<(), Refusal> {
    call.client_id()?;
    if request.transaction_id.trim().is_empty() {
        return Err(Refusal::new(Code::InvalidTransactionId, "The transaction id must not be blank."));
    }
    if request.resolution == TransactionResolution::Unspecified as i32 {
        return Ok(());
    }
    Err(Refusal::not_implemented("Transactions are not served yet."))
}
