//! `AckMessage`, `ChangeInvisibleDuration`, `ForwardMessageToDeadLetterQueue`.

use super::*;
use crate::router::RouteError;
use raftmq_model::command::{Command, HandleKey, HandleOutcome};
use raftmq_model::ids::GroupId;
use raftmq_model::receipt::{ReceiptHandle, cluster_code};
use v2::Code;

fn key(offset: u64) -> HandleKey {
    HandleKey { consumer_group: fake::GROUP_UID, topic: fake::TOPIC_UID, queue: 0, offset, attempt: 1, popped_at: 100 }
}

fn handle_of(cluster: &str, group: u32, key: HandleKey) -> String {
    ReceiptHandle { cluster: cluster_code(cluster), group: GroupId(group), key }.encode()
}

fn handle(offset: u64) -> String {
    handle_of(fake::CLUSTER_ID, 1, key(offset))
}

fn ack(handles: Vec<String>) -> v2::AckMessageRequest {
    let entry = |receipt_handle| v2::AckMessageEntry { message_id: "m".to_owned(), receipt_handle, lite_topic: None };
    v2::AckMessageRequest {
        group: resource("billing"),
        topic: resource("orders"),
        entries: handles.into_iter().map(entry).collect(),
    }
}

async fn acked(harness: &Harness, handles: Vec<String>) -> (Code, Vec<Code>) {
    let answer = harness.client().ack_message(call(ack(handles))).await.unwrap().into_inner();
    (code(answer.status), answer.entries.into_iter().map(|entry| code(entry.status)).collect())
}

#[tokio::test]
async fn acks_are_grouped_by_broker_group() {
    let harness = Harness::with(Fake::groups(2), |_| {});
    let handles = vec![handle(1), handle_of(fake::CLUSTER_ID, 2, key(2)), handle(3)];
    assert_eq!(acked(&harness, handles).await, (Code::Ok, vec![Code::Ok; 3]));
    let state = harness.fake.state();
    let offsets: Vec<(u32, Vec<u64>)> = state
        .commands
        .iter()
        .map(|(group, command)| match command {
            Command::Ack(ack) => (group.0, ack.handles.iter().map(|handle| handle.offset).collect()),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(offsets, [(1, vec![1, 3]), (2, vec![2])]);
}

#[tokio::test]
async fn what_apply_says_about_handles() {
    let harness = Harness::new();
    harness.fake.state().handles = [(1, HandleOutcome::Gone), (2, HandleOutcome::Superseded)].into();
    assert_eq!(acked(&harness, vec![handle(1)]).await.0, Code::Ok, "an ack is repeated after a fail-over");
    assert_eq!(acked(&harness, vec![handle(2)]).await.0, Code::InvalidReceiptHandle);
    let expected = (Code::MultipleResults, vec![Code::Ok, Code::InvalidReceiptHandle, Code::Ok]);
    assert_eq!(acked(&harness, vec![handle(1), handle(2), handle(3)]).await, expected);
}

fn foreign_handles() -> Vec<String> {
    let mut damaged = handle(1);
    damaged.replace_range(..1, "B");
    vec![
        String::new(),
        "a b c".to_owned(),
        damaged,
        handle_of("another cluster", 1, key(1)),
        handle_of(fake::CLUSTER_ID, 77, key(1)),
        handle_of(fake::CLUSTER_ID, 1, HandleKey { topic: 1, ..key(1) }),
        handle_of(fake::CLUSTER_ID, 1, HandleKey { consumer_group: 1, ..key(1) }),
    ]
}

#[tokio::test]
async fn foreign_handles_are_invalid_and_proposed_nowhere() {
    let harness = Harness::new();
    for bad in foreign_handles() {
        assert_eq!(acked(&harness, vec![bad.clone()]).await.0, Code::InvalidReceiptHandle, "{bad}");
        let (status, returned) = changed(&harness, &bad, seconds(1)).await;
        assert_eq!((status, returned), (Code::InvalidReceiptHandle, bad.clone()));
        assert_eq!(lettered(&harness, &bad).await, Code::InvalidReceiptHandle, "{bad}");
    }
    assert!(harness.fake.state().commands.is_empty());
}

/// A node whose copy of the meta group lags must not refuse what another node gave out.
#[tokio::test]
async fn names_that_this_node_does_not_know_are_left_to_apply() {
    let harness = Harness::new();
    let mut request = ack(vec![handle_of(fake::CLUSTER_ID, 1, HandleKey { consumer_group: 55, ..key(1) })]);
    request.group = resource("fresh");
    let answer = harness.client().ack_message(call(request)).await.unwrap().into_inner();
    assert_eq!(code(answer.status), Code::Ok);
}

async fn changed(harness: &Harness, handle: &str, duration: Option<Duration>) -> (Code, String) {
    let request = v2::ChangeInvisibleDurationRequest {
        group: resource("billing"),
        topic: resource("orders"),
        receipt_handle: handle.to_owned(),
        invisible_duration: duration,
        message_id: "m".to_owned(),
        lite_topic: None,
        suspend: None,
    };
    let answer = harness.client().change_invisible_duration(call(request)).await.unwrap().into_inner();
    (code(answer.status), answer.receipt_handle)
}

#[tokio::test]
async fn a_change_gives_a_new_handle_and_an_error_the_old_one() {
    let harness = Harness::new();
    let (status, renewed) = changed(&harness, &handle(1), seconds(0)).await;
    assert_eq!(status, Code::Ok);
    assert_eq!(ReceiptHandle::decode(&renewed).unwrap().key, HandleKey { popped_at: 101, ..key(1) });

    harness.fake.state().handles = [(2, HandleOutcome::Gone), (3, HandleOutcome::Superseded)].into();
    for offset in [2, 3] {
        let expected = (Code::InvalidReceiptHandle, handle(offset));
        assert_eq!(changed(&harness, &handle(offset), seconds(5)).await, expected);
    }
    harness.fake.fail(1, RouteError::Unknown);
    assert_eq!(changed(&harness, &handle(1), seconds(5)).await, (Code::MasterPersistenceTimeout, handle(1)));
}

#[tokio::test]
async fn bounds_of_a_change() {
    let harness = Harness::new();
    for (duration, expected) in [
        (None, Code::IllegalInvisibleTime),
        (seconds(-1), Code::IllegalInvisibleTime),
        (seconds(43_200), Code::Ok),
        (seconds(43_201), Code::IllegalInvisibleTime),
        (seconds(i64::MAX), Code::IllegalInvisibleTime),
    ] {
        assert_eq!(changed(&harness, &handle(1), duration).await.0, expected, "{duration:?}");
    }
}

async fn lettered(harness: &Harness, handle: &str) -> Code {
    let request = v2::ForwardMessageToDeadLetterQueueRequest {
        group: resource("billing"),
        topic: resource("orders"),
        receipt_handle: handle.to_owned(),
        message_id: "m".to_owned(),
        delivery_attempt: 17,
        max_delivery_attempts: 17,
        lite_topic: None,
    };
    code(harness.client().forward_message_to_dead_letter_queue(call(request)).await.unwrap().into_inner().status)
}

#[tokio::test]
async fn dead_letters() {
    let harness = Harness::new();
    harness.fake.state().handles = [(2, HandleOutcome::Gone), (3, HandleOutcome::Superseded)].into();
    assert_eq!(lettered(&harness, &handle(1)).await, Code::Ok);
    assert_eq!(lettered(&harness, &handle(2)).await, Code::Ok, "SDKs repeat it until it is OK");
    assert_eq!(lettered(&harness, &handle(3)).await, Code::InvalidReceiptHandle);
    harness.fake.fail(1, RouteError::NoLeader);
    assert_eq!(lettered(&harness, &handle(1)).await, Code::HaNotAvailable);
}
