//! `SendMessage`.

use super::*;
use crate::router::RouteError;
use raftmq_model::filter::tags_code;
use raftmq_model::ids::GroupId;
use raftmq_model::record::Record;
use v2::Code;

#[tokio::test]
async fn a_message_is_stored_and_its_id_comes_back() {
    let harness = Harness::new();
    let answer = harness.client().send_message(call(send(vec![message("m-1")]))).await.unwrap().into_inner();
    assert_eq!(code(answer.status), Code::Ok);
    let [entry] = answer.entries.as_slice() else { panic!("one entry") };
    assert_eq!(code(entry.status.clone()), Code::Ok);
    assert_eq!((entry.message_id.as_str(), entry.offset), ("m-1", 0));
    assert_eq!((entry.transaction_id.as_str(), entry.recall_handle.as_str()), ("", ""));

    let state = harness.fake.state();
    let [(group, appended)] = state.appended.as_slice() else { panic!("one message") };
    assert_eq!(*group, GroupId(1));
    assert_eq!((appended.topic.0, appended.message_id.as_ref()), (fake::TOPIC_UID, b"m-1".as_slice()));
    assert_eq!(appended.tags_code, tags_code("paid"));
    let record = Record::decode(appended.record.clone()).unwrap();
    assert_eq!((record.topic.as_str(), record.queue_id), ("orders", appended.queue.0));
    assert_eq!((record.born_timestamp, record.store_timestamp), (1_700_000_000_123, fake::NOW_MS));
    assert_eq!(record.property("UNIQ_KEY"), Some("m-1"));
    assert_eq!(record.property("KEYS"), Some("k1 k2"));
    assert_eq!(record.property("color"), Some("red"));
}

#[tokio::test]
async fn a_retry_meets_the_same_queue() {
    let harness = Harness::with(Fake::groups(3), |_| {});
    for id in ["a", "b", "c", "d", "e"] {
        for _ in 0..2 {
            harness.client().send_message(call(send(vec![message(id)]))).await.unwrap();
        }
    }
    let state = harness.fake.state();
    for pair in state.appended.chunks(2) {
        assert_eq!((pair[0].0, pair[0].1.queue), (pair[1].0, pair[1].1.queue));
    }
    let groups: std::collections::BTreeSet<GroupId> = state.appended.iter().map(|(group, _)| *group).collect();
    assert!(groups.len() > 1, "five ids spread over three groups");
}

fn many(count: usize) -> Vec<v2::Message> {
    (0..count).map(|index| message(&format!("m-{index}"))).collect()
}

#[tokio::test]
async fn entries_answer_in_the_order_of_the_request() {
    let harness = Harness::with(Fake::groups(3), |_| {});
    let answer = harness.client().send_message(call(send(many(40)))).await.unwrap().into_inner();
    assert_eq!(code(answer.status), Code::Ok);
    let ids: Vec<String> = answer.entries.iter().map(|entry| entry.message_id.clone()).collect();
    assert_eq!(ids, (0..40).map(|index| format!("m-{index}")).collect::<Vec<_>>());
    assert_eq!(harness.fake.state().appended.len(), 40);
}

#[tokio::test]
async fn entries_of_a_group_without_leader_fail_alone() {
    let harness = Harness::with(Fake::groups(3), |_| {});
    harness.fake.fail(2, RouteError::NoLeader);
    let answer = harness.client().send_message(call(send(many(40)))).await.unwrap().into_inner();
    assert_eq!(code(answer.status), Code::MultipleResults);
    let failed = answer.entries.iter().filter(|entry| code(entry.status.clone()) == Code::HaNotAvailable).count();
    assert!(failed > 0);
    assert_eq!(failed + harness.fake.state().appended.len(), 40);
    for entry in &answer.entries {
        let stored = harness.fake.state().appended.iter().any(|(_, e)| e.message_id == entry.message_id.as_bytes());
        assert_eq!(stored, code(entry.status.clone()) == Code::Ok, "{}", entry.message_id);
    }
}

#[tokio::test]
async fn a_group_that_was_leaderless_for_long_is_passed_over() {
    let harness = Harness::with(Fake::groups(3), |_| {});
    harness.fake.fail(2, RouteError::NoLeader);
    harness.fake.state().leaderless.insert(GroupId(2), std::time::Duration::from_millis(30_001));
    let answer = harness.client().send_message(call(send(many(40)))).await.unwrap().into_inner();
    assert_eq!(code(answer.status), Code::Ok);
    harness.fake.state().leaderless.insert(GroupId(2), std::time::Duration::from_millis(29_999));
    let answer = harness.client().send_message(call(send(many(40)))).await.unwrap().into_inner();
    assert_eq!(code(answer.status), Code::MultipleResults, "its messages wait for it at first");
}

#[tokio::test]
async fn when_no_group_has_a_leader_none_is_passed_over() {
    let harness = Harness::with(Fake::groups(2), |_| {});
    for group in 1..=2 {
        harness.fake.fail(group, RouteError::NoLeader);
        harness.fake.state().leaderless.insert(GroupId(group), std::time::Duration::from_secs(90));
    }
    let answer = harness.client().send_message(call(send(many(4)))).await.unwrap().into_inner();
    assert_eq!(code(answer.status), Code::HaNotAvailable);
    assert_eq!(answer.entries.len(), 4);
}

#[tokio::test]
async fn fates() {
    for (error, expected) in [
        (RouteError::NoLeader, Code::HaNotAvailable),
        (RouteError::Unknown, Code::MasterPersistenceTimeout),
        (RouteError::Overloaded, Code::TooManyRequests),
        (RouteError::DiskFull("full".to_owned()), Code::TooManyRequests),
        (RouteError::Invalid("no".to_owned()), Code::InternalServerError),
    ] {
        let harness = Harness::new();
        harness.fake.fail(1, error);
        let answer = harness.client().send_message(call(send(vec![message("m")]))).await.unwrap().into_inner();
        assert_eq!(code(answer.status), expected);
        assert_eq!(code(answer.entries[0].status.clone()), expected);
    }
}

/// The Python SDK gives up at "too many requests", so the node holds its call.
#[tokio::test]
async fn python_is_queued_for_while_a_group_is_overloaded_or_full() {
    for error in [RouteError::Overloaded, RouteError::DiskFull("full".to_owned())] {
        python_is_queued_for(error).await;
    }
}

async fn python_is_queued_for(error: RouteError) {
    let harness = Harness::new();
    harness.fake.fail(1, error);
    let mut client = harness.client();
    let request = with_timeout(call_as("PYTHON", "5.1.2", send(vec![message("m")])), "800m");
    let sending = client.send_message(request);
    tokio::pin!(sending);
    let early = std::time::Duration::from_millis(60);
    assert!(tokio::time::timeout(early, &mut sending).await.is_err(), "it is held");
    harness.fake.state().failures.clear();
    assert_eq!(code(sending.await.unwrap().into_inner().status), Code::Ok);
}

#[tokio::test]
async fn large_messages_travel_in_commands_of_their_own() {
    let harness = Harness::new();
    let mut messages = many(3);
    for message in &mut messages {
        message.body = vec![7u8; 4 << 20].into();
    }
    let answer = harness.client().send_message(call(send(messages))).await.unwrap().into_inner();
    assert_eq!(code(answer.status), Code::Ok);
    assert_eq!(harness.fake.state().appended.len(), 3);
}

#[tokio::test]
async fn topics_are_created_where_that_is_configured() {
    let mut unknown = message("m");
    unknown.topic = resource("new");
    let off = Harness::new();
    let answer = off.client().send_message(call(send(vec![unknown.clone()]))).await.unwrap().into_inner();
    assert_eq!(code(answer.status), Code::TopicNotFound);
    let on = Harness::with(Fake::one_group(), |options| options.auto_create_topics = true);
    let answer = on.client().send_message(call(send(vec![unknown.clone()]))).await.unwrap().into_inner();
    assert_eq!(code(answer.status), Code::Ok);
    unknown.topic = resource("%DLQ%nobody");
    let answer = on.client().send_message(call(send(vec![unknown]))).await.unwrap().into_inner();
    assert_eq!(code(answer.status), Code::TopicNotFound);
}

#[tokio::test]
async fn a_namespace_is_part_of_the_name() {
    let harness = Harness::with(Fake::one_group(), |options| options.auto_create_topics = true);
    let mut message = message("m");
    message.topic = Some(v2::Resource { resource_namespace: "shop".to_owned(), name: "orders".to_owned() });
    let answer = harness.client().send_message(call(send(vec![message]))).await.unwrap().into_inner();
    assert_eq!(code(answer.status), Code::Ok);
    let record = Record::decode(harness.fake.state().appended[0].1.record.clone()).unwrap();
    assert_eq!(record.topic, "shop%orders");
}
