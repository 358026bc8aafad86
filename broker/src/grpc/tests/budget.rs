//! Bounds of the node: gRPC RESOURCE_EXHAUSTED.

use super::*;
use crate::router::RouteError;

fn large(bytes: usize) -> v2::SendMessageRequest {
    send(vec![v2::Message { body: vec![0; bytes].into(), ..message("m") }])
}

#[tokio::test]
async fn requests_past_the_nodes_budget_are_shed() {
    let harness = Harness::with(Fake::one_group(), |options| options.in_flight_bytes_max = 100_000);
    // Python's calls are held while the group is overloaded, so this one keeps its bytes.
    harness.fake.fail(1, RouteError::Overloaded);
    let mut client = harness.client();
    let held = client.send_message(call_as("PYTHON", "5.1.2", large(60_000)));
    tokio::pin!(held);
    assert!(futures::poll!(&mut held).is_pending());
    assert!(harness.edge.in_flight_bytes() > 60_000);
    let shed = harness.client().send_message(call(large(60_000))).await.unwrap_err();
    assert_eq!(shed.code(), tonic::Code::ResourceExhausted);
    harness.fake.state().failures.clear();
    held.await.unwrap();
    assert_eq!(harness.edge.in_flight_bytes(), 0);
    harness.client().send_message(call(large(60_000))).await.unwrap();
}

#[tokio::test]
async fn one_request_past_its_bound_is_refused() {
    let harness = Harness::with(Fake::one_group(), |options| options.request_bytes_max = 10_000);
    let refused = harness.client().send_message(call(large(20_000))).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
    assert_eq!(harness.edge.in_flight_bytes(), 0);
    harness.client().send_message(call(large(5_000))).await.unwrap();
}
