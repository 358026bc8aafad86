//! `ReceiveMessage`.

use super::*;
use crate::router::RouteError;
use raftmq_model::command::Command;
use raftmq_model::ids::GroupId;
use std::time::{Duration as StdDuration, Instant};
use v2::Code;
use v2::receive_message_response::Content;

struct Received {
    code: Code,
    messages: Vec<v2::Message>,
}

/// Reads all frames and checks their order.
async fn receive_from(harness: &Harness, request: Request<v2::ReceiveMessageRequest>) -> Received {
    let mut frames = harness.client().receive_message(request).await.unwrap().into_inner();
    let Some(Content::Status(status)) = frames.message().await.unwrap().unwrap().content else {
        panic!("status first")
    };
    let mut messages = Vec::new();
    loop {
        match frames.message().await.unwrap().expect("the delivery timestamp comes last").content.unwrap() {
            Content::Message(message) => messages.push(message),
            Content::DeliveryTimestamp(time) => {
                assert_eq!((time.seconds, time.nanos), (1_750_000_000, 456_000_000));
                assert!(frames.message().await.unwrap().is_none());
                return Received { code: code(Some(status)), messages };
            }
            Content::Status(_) => panic!("one status"),
        }
    }
}

async fn stored(harness: &Harness, messages: Vec<v2::Message>) {
    let answer = harness.client().send_message(call(send(messages))).await.unwrap().into_inner();
    assert_eq!(code(answer.status), Code::Ok);
}

#[tokio::test]
async fn what_was_sent_comes_back() {
    let harness = Harness::new();
    let mut sent = message_with(|system| {
        system.body_encoding = v2::Encoding::Gzip as i32;
        system.trace_context = Some("00-trace".to_owned());
    });
    sent.user_properties.insert("empty".to_owned(), String::new());
    stored(&harness, vec![sent.clone(), message("second")]).await;
    let received = receive_from(&harness, call(receive())).await;
    assert_eq!((received.code, received.messages.len()), (Code::Ok, 2));
    let got = &received.messages[0];
    assert_eq!((&got.topic, &got.body), (&sent.topic, &sent.body));
    assert_eq!(got.user_properties, sent.user_properties);
    let (got, sent) = (got.system_properties.clone().unwrap(), sent.system_properties.unwrap());
    assert_eq!((got.tag, got.keys, got.message_id), (sent.tag, sent.keys, sent.message_id));
    assert_eq!((got.body_encoding, got.message_type), (sent.body_encoding, sent.message_type));
    assert_eq!((got.born_timestamp, got.born_host), (sent.born_timestamp, sent.born_host));
    assert_eq!(got.trace_context, sent.trace_context);
    let digest = got.body_digest.unwrap();
    assert_eq!(digest.r#type, v2::DigestType::Md5 as i32);
    assert_eq!(digest.checksum, "5D41402ABC4B2A76B9719D911017C592");
    assert_eq!(got.store_host, "10.0.0.1:8081");
    assert_eq!((got.queue_offset, got.delivery_attempt), (Some(0), Some(1)));
    assert!(got.receipt_handle.is_some() && got.store_timestamp.is_some());
    assert_eq!(got.dead_letter_queue, None);
    let second = received.messages[1].system_properties.clone().unwrap();
    assert_eq!(second.body_encoding, v2::Encoding::Identity as i32);
}

#[tokio::test]
async fn an_empty_poll_ends_in_time() {
    let harness = Harness::new();
    let before = Instant::now();
    let received = receive_from(&harness, call(receive())).await;
    assert_eq!((received.code, received.messages.len()), (Code::MessageNotFound, 0));
    assert!(before.elapsed() >= StdDuration::from_millis(20));
}

#[tokio::test]
async fn the_answer_comes_before_the_deadline() {
    let harness = Harness::with(Fake::groups(2), |_| {});
    let request = v2::ReceiveMessageRequest { long_polling_timeout: millis(900), ..receive() };
    let before = Instant::now();
    let received = receive_from(&harness, with_timeout(call(request), "1S")).await;
    assert_eq!(received.code, Code::MessageNotFound);
    assert!(before.elapsed() < StdDuration::from_millis(950), "{:?}", before.elapsed());
}

/// A message in any of the hosting groups ends the poll.
#[tokio::test]
async fn a_parked_poll_wakes_for_any_group() {
    for id in ["a", "b", "c", "d"] {
        let harness = Harness::with(Fake::groups(3), |_| {});
        let request = v2::ReceiveMessageRequest { long_polling_timeout: seconds(2), ..receive() };
        let polled = receive_from(&harness, call(request));
        tokio::pin!(polled);
        assert!(futures::poll!(&mut polled).is_pending());
        stored(&harness, vec![message(id)]).await;
        let received = polled.await;
        assert_eq!((received.code, received.messages.len()), (Code::Ok, 1), "{id}");
    }
}

#[tokio::test]
async fn groups_take_turns() {
    let harness = Harness::with(Fake::groups(3), |_| {});
    let many = (0..60).map(|index| message(&format!("m-{index}"))).collect();
    stored(&harness, many).await;
    let request = v2::ReceiveMessageRequest { batch_size: 1, ..receive() };
    for _ in 0..3 {
        receive_from(&harness, call(request.clone())).await;
    }
    let asked: std::collections::BTreeSet<GroupId> =
        harness.fake.state().pops.iter().map(|(group, _)| *group).collect();
    assert_eq!(asked.len(), 3);
}

#[tokio::test]
async fn a_group_that_fails_does_not_hide_the_others() {
    let harness = Harness::with(Fake::groups(3), |_| {});
    let many = (0..20).map(|index| message(&format!("m-{index}"))).collect();
    stored(&harness, many).await;
    harness.fake.fail(1, RouteError::NoLeader);
    for _ in 0..3 {
        let received = receive_from(&harness, call(v2::ReceiveMessageRequest { batch_size: 1, ..receive() })).await;
        assert_eq!(received.code, Code::Ok);
    }
    harness.fake.fail(2, RouteError::NoLeader);
    harness.fake.fail(3, RouteError::NoLeader);
    assert_eq!(receive_from(&harness, call(receive())).await.code, Code::HaNotAvailable);
}

#[tokio::test]
async fn an_attempt_id_is_passed_on_or_made() {
    let harness = Harness::new();
    stored(&harness, vec![message("a"), message("b")]).await;
    let named = v2::ReceiveMessageRequest { attempt_id: Some("try-1".to_owned()), batch_size: 1, ..receive() };
    receive_from(&harness, call(named)).await;
    receive_from(&harness, call(v2::ReceiveMessageRequest { batch_size: 0, ..receive() })).await;
    let state = harness.fake.state();
    assert_eq!(state.pops[0].1.attempt_id, "try-1");
    assert!(!state.pops[1].1.attempt_id.is_empty());
    assert_eq!((state.pops[0].1.invisible_ms, state.pops[1].1.batch_count), (30_000, 1));
}

#[tokio::test]
async fn auto_renew_takes_the_servers_time_and_large_batches_are_cut() {
    let harness = Harness::new();
    stored(&harness, vec![message("a")]).await;
    let request =
        v2::ReceiveMessageRequest { auto_renew: true, invisible_duration: None, batch_size: 1_000, ..receive() };
    receive_from(&harness, call(request)).await;
    let state = harness.fake.state();
    assert_eq!((state.pops[0].1.invisible_ms, state.pops[0].1.batch_count), (60_000, 32));
}

#[tokio::test]
async fn tags_go_to_the_leader() {
    let harness = Harness::new();
    stored(&harness, vec![message("a")]).await;
    let filter_expression =
        Some(v2::FilterExpression { r#type: v2::FilterType::Tag as i32, expression: "paid || sent".to_owned() });
    receive_from(&harness, call(v2::ReceiveMessageRequest { filter_expression, ..receive() })).await;
    assert_eq!(harness.fake.state().pops[0].1.tags, ["paid", "sent"]);
}

#[tokio::test]
async fn an_unknown_client_and_group_are_served() {
    let harness = Harness::new();
    stored(&harness, vec![message("a")]).await;
    let request = v2::ReceiveMessageRequest { group: resource("fresh"), ..receive() };
    assert_eq!(receive_from(&harness, call(request)).await.code, Code::Ok);
}

#[tokio::test]
async fn a_damaged_record_does_not_hide_the_others() {
    let harness = Harness::new();
    stored(&harness, vec![message("a"), message("b")]).await;
    harness.fake.state().stored.get_mut(&GroupId(1)).unwrap()[0].record = bytes::Bytes::from_static(b"rot");
    let received = receive_from(&harness, call(receive())).await;
    assert_eq!((received.code, received.messages.len()), (Code::Ok, 1));
}

/// Queue offsets and delay of a release.
fn release_of(command: &Command) -> Option<(Vec<u64>, u64)> {
    let Command::Release(release) = command else { return None };
    let entries = release.messages.iter();
    assert!(entries.clone().all(|entry| entry.visible_at_ms == super::fake::NOW_MS + 30_000));
    Some((entries.map(|entry| entry.handle.unwrap().offset).collect(), release.after_ms))
}

#[tokio::test]
async fn what_was_not_handed_over_is_released() {
    let harness = Harness::new();
    stored(&harness, (0..3).map(|index| message(&format!("m-{index}"))).collect()).await;
    let offsets: Vec<u64> =
        harness.fake.state().stored[&GroupId(1)].iter().map(|message| message.queue_offset).collect();
    let mut frames = harness.client().receive_message(call(receive())).await.unwrap().into_inner();
    assert!(matches!(frames.message().await.unwrap().unwrap().content, Some(Content::Status(_))));
    drop(frames);
    assert_eq!(harness.fake.proposed(release_of).await, (offsets, 1_000));
}

#[tokio::test]
async fn what_was_handed_over_is_not_released() {
    let harness = Harness::new();
    stored(&harness, vec![message("a")]).await;
    receive_from(&harness, call(receive())).await;
    // Whatever a release would have been is spawned by now, and this runtime has one thread.
    tokio::task::yield_now().await;
    assert!(harness.fake.state().commands.is_empty());
}

/// The messages are in flight already when the caller goes away: the pop goes on without it.
#[tokio::test]
async fn a_caller_that_goes_away_in_mid_pop_leaves_nothing_in_flight() {
    let harness = Harness::new();
    stored(&harness, vec![message("a")]).await;
    let gate = Arc::new(tokio::sync::Notify::new());
    harness.fake.state().pop_gate = Some(Arc::clone(&gate));
    {
        let received = receive_from(&harness, call(receive()));
        tokio::pin!(received);
        while harness.fake.state().pops.is_empty() {
            assert!(futures::poll!(&mut received).is_pending());
            tokio::task::yield_now().await;
        }
    }
    gate.notify_one();
    assert_eq!(harness.fake.proposed(release_of).await, (vec![0], 1_000));
}

/// An earlier call was given them under the same attempt id, and may have them.
#[tokio::test]
async fn what_an_earlier_call_may_have_is_not_released() {
    let harness = Harness::new();
    stored(&harness, vec![message("a")]).await;
    harness.fake.state().stored.get_mut(&GroupId(1)).unwrap()[0].visible_at_ms = 0;
    drop(harness.client().receive_message(call(receive())).await.unwrap());
    tokio::task::yield_now().await;
    assert!(harness.fake.state().commands.is_empty());
}
