//! Bad input: each has its code and a sentence, and none reaches a log.

use super::*;
use fake::{consumer_group, topic};
use raftmq_model::config::{Permission, TopicType};
use raftmq_model::meta::MetaRecord;
use v2::Code;
use v2::receive_message_response::Content;

async fn sent(harness: &Harness, language: &str, messages: Vec<v2::Message>) -> Code {
    let answer = harness.client().send_message(call_as(language, "5.0.0", send(messages))).await.unwrap().into_inner();
    code(answer.status)
}

async fn received(harness: &Harness, request: Request<v2::ReceiveMessageRequest>) -> Code {
    let mut frames = harness.client().receive_message(request).await.unwrap().into_inner();
    match frames.message().await.unwrap().unwrap().content.unwrap() {
        Content::Status(status) => code(Some(status)),
        other => panic!("{other:?}"),
    }
}

fn with_body(body: Vec<u8>) -> v2::Message {
    v2::Message { body: body.into(), ..message("m") }
}

fn with_topic(name: &str) -> v2::Message {
    v2::Message { topic: resource(name), ..message("m") }
}

fn with_property(key: &str, value: &str) -> v2::Message {
    v2::Message { user_properties: [(key.to_owned(), value.to_owned())].into(), ..message("m") }
}

fn in_the_future(seconds: i64) -> Option<prost_types::Timestamp> {
    Some(prost_types::Timestamp { seconds: fake::NOW_MS / 1_000 + seconds, nanos: 0 })
}

#[tokio::test]
async fn messages() {
    let text = |text: &str| Some(text.to_owned());
    let too_many = (0..129).map(|index| (index.to_string(), "v".to_owned())).collect();
    let cases = vec![
        ("no message", vec![], Code::MessageCorrupted),
        ("no topic", vec![v2::Message { topic: None, ..message("m") }], Code::IllegalTopic),
        ("blank topic", vec![with_topic(" ")], Code::IllegalTopic),
        ("topic character", vec![with_topic("a.b")], Code::IllegalTopic),
        ("long topic", vec![with_topic(&"t".repeat(128))], Code::IllegalTopic),
        ("system topic", vec![with_topic("rmq_sys_x")], Code::IllegalTopic),
        ("two topics", vec![message("m"), with_topic("other")], Code::MessageCorrupted),
        ("unknown topic", vec![with_topic("nowhere")], Code::TopicNotFound),
        ("empty body", vec![with_body(vec![])], Code::MessageBodyEmpty),
        ("large body", vec![with_body(vec![0; (4 << 20) + 1])], Code::MessageBodyTooLarge),
        ("system property", vec![with_property("TAGS", "v")], Code::IllegalMessagePropertyKey),
        ("blank property", vec![with_property("", "v")], Code::IllegalMessagePropertyKey),
        ("control in key", vec![with_property("a\u{1}", "v")], Code::IllegalMessagePropertyKey),
        ("control in value", vec![with_property("a", "\u{2}")], Code::IllegalMessagePropertyKey),
        (
            "many properties",
            vec![v2::Message { user_properties: too_many, ..message("m") }],
            Code::MessagePropertiesTooLarge,
        ),
        ("large properties", vec![with_property("a", &"v".repeat(16_384))], Code::MessagePropertiesTooLarge),
        ("tag", vec![message_with(|system| system.tag = text("a|b"))], Code::IllegalMessageTag),
        ("blank tag", vec![message_with(|system| system.tag = text(" "))], Code::IllegalMessageTag),
        ("blank key", vec![message_with(|system| system.keys = vec![" ".to_owned()])], Code::IllegalMessageKey),
        ("blank id", vec![message_with(|system| system.message_id = String::new())], Code::IllegalMessageId),
        ("long id", vec![message_with(|system| system.message_id = "i".repeat(256))], Code::IllegalMessageId),
        ("no system properties", vec![v2::Message { system_properties: None, ..message("m") }], Code::IllegalMessageId),
        ("born host", vec![message_with(|system| system.born_host = "\u{1}".to_owned())], Code::BadRequest),
        ("encoding", vec![message_with(|system| system.body_encoding = 99)], Code::BadRequest),
        ("late", vec![message_with(|s| s.delivery_timestamp = in_the_future(86_402))], Code::IllegalDeliveryTime),
        ("message group", vec![message_with(|s| s.message_group = text(&"g".repeat(64)))], Code::IllegalMessageGroup),
        ("blank group", vec![message_with(|system| system.message_group = text(" "))], Code::IllegalMessageGroup),
        ("priority", vec![message_with(|system| system.priority = Some(-1))], Code::BadRequest),
        ("lite topic", vec![message_with(|system| system.lite_topic = text("a%b"))], Code::IllegalLiteTopic),
        (
            "recovery",
            vec![message_with(|s| s.orphaned_transaction_recovery_duration = seconds(3_601))],
            Code::BadRequest,
        ),
        (
            "too many",
            vec![message("m"); super::super::send_message::SEND_MESSAGES_COUNT_MAX + 1],
            Code::PayloadTooLarge,
        ),
    ];
    let harness = Harness::new();
    for (what, messages, expected) in cases {
        assert_eq!(sent(&harness, "JAVA", messages).await, expected, "{what}");
    }
    assert!(harness.fake.state().appended.is_empty());
}

/// The first thing that is wrong is what the client is told.
#[tokio::test]
async fn the_order_of_the_checks() {
    let harness = Harness::new();
    let mut bad = message_with(|system| {
        system.message_id = String::new();
        system.tag = Some("|".to_owned());
        system.message_group = Some(" ".to_owned());
    });
    bad.body = bytes::Bytes::new();
    bad.topic = resource("other");
    bad.user_properties.insert("TAGS".to_owned(), String::new());
    let mut repaired = vec![bad.clone()];
    bad.topic = resource("orders");
    repaired.push(bad.clone());
    bad.body = bytes::Bytes::from_static(b"x");
    repaired.push(bad.clone());
    bad.user_properties.clear();
    repaired.push(bad.clone());
    bad.system_properties.as_mut().unwrap().tag = None;
    repaired.push(bad.clone());
    bad.system_properties.as_mut().unwrap().message_id = "m".to_owned();
    repaired.push(bad.clone());
    bad.system_properties.as_mut().unwrap().message_group = None;
    repaired.push(bad);
    let mut codes = Vec::new();
    for second in repaired {
        codes.push(sent(&harness, "JAVA", vec![message("first"), second]).await);
    }
    let expected = [
        Code::MessageCorrupted,
        Code::MessageBodyEmpty,
        Code::IllegalMessagePropertyKey,
        Code::IllegalMessageTag,
        Code::IllegalMessageId,
        Code::IllegalMessageGroup,
        Code::Ok,
    ];
    assert_eq!(codes, expected);
}

#[tokio::test]
async fn the_rust_sdk_gets_codes_that_it_knows() {
    let harness = Harness::new();
    assert_eq!(sent(&harness, "RUST", vec![with_body(vec![])]).await, Code::MessageCorrupted);
    let lite = message_with(|system| system.lite_topic = Some("a%b".to_owned()));
    assert_eq!(sent(&harness, "RUST", vec![lite]).await, Code::BadRequest);
}

#[tokio::test]
async fn types_that_the_topic_does_not_take() {
    let harness = Harness::new();
    let kinds = [
        message_with(|system| system.message_type = v2::MessageType::Transaction as i32),
        message_with(|system| system.delivery_timestamp = in_the_future(-60)),
        message_with(|system| system.message_group = Some("g".to_owned())),
        message_with(|system| system.priority = Some(1)),
        message_with(|system| system.lite_topic = Some("l".to_owned())),
    ];
    for message in kinds {
        let what = format!("{:?}", message.system_properties);
        assert_eq!(sent(&harness, "GO", vec![message]).await, Code::MessagePropertyConflictWithType, "{what}");
    }
    let fifo = raftmq_model::config::TopicConfig { topic_type: TopicType::Fifo as i32, ..topic("fifo", 8, 1) };
    harness.fake.change(vec![MetaRecord::Topic(fifo)]);
    assert_eq!(sent(&harness, "GO", vec![with_topic("fifo")]).await, Code::MessagePropertyConflictWithType);
    let mut grouped = message_with(|system| system.message_group = Some("g".to_owned()));
    grouped.topic = resource("fifo");
    assert_eq!(sent(&harness, "GO", vec![grouped]).await, Code::NotImplemented);
}

#[tokio::test]
async fn permissions() {
    let harness = Harness::new();
    let with = |permission: Permission| raftmq_model::config::TopicConfig {
        permission: permission as i32,
        version: 2,
        ..topic("orders", fake::TOPIC_UID, 1)
    };
    harness.fake.change(vec![MetaRecord::Topic(with(Permission::Read))]);
    assert_eq!(sent(&harness, "GO", vec![message("m")]).await, Code::Forbidden);
    harness.fake.change(vec![MetaRecord::Topic(with(Permission::Write))]);
    assert_eq!(sent(&harness, "GO", vec![message("m")]).await, Code::Ok);
    assert_eq!(received(&harness, call(receive())).await, Code::Forbidden);
    harness.fake.change(vec![
        MetaRecord::Topic(with(Permission::ReadWrite)),
        MetaRecord::ConsumerGroup(raftmq_model::config::ConsumerGroupConfig {
            consume_enabled: false,
            version: 2,
            ..consumer_group("billing", fake::GROUP_UID)
        }),
    ]);
    assert_eq!(received(&harness, call(receive())).await, Code::Forbidden);
}

#[tokio::test]
async fn receives() {
    let filter =
        |r#type: i32, expression: &str| Some(v2::FilterExpression { r#type, expression: expression.to_owned() });
    let base = receive();
    let cases = [
        ("no group", v2::ReceiveMessageRequest { group: None, ..base.clone() }, Code::IllegalConsumerGroup),
        ("group", v2::ReceiveMessageRequest { group: resource("a b"), ..base.clone() }, Code::IllegalConsumerGroup),
        (
            "system group",
            v2::ReceiveMessageRequest { group: resource("CID_RMQ_SYS_X"), ..base.clone() },
            Code::IllegalConsumerGroup,
        ),
        ("no queue", v2::ReceiveMessageRequest { message_queue: None, ..base.clone() }, Code::IllegalTopic),
        (
            "too short",
            v2::ReceiveMessageRequest { invisible_duration: seconds(9), ..base.clone() },
            Code::IllegalInvisibleTime,
        ),
        (
            "too long",
            v2::ReceiveMessageRequest { invisible_duration: seconds(43_201), ..base.clone() },
            Code::IllegalInvisibleTime,
        ),
        (
            "negative",
            v2::ReceiveMessageRequest { invisible_duration: seconds(-9), ..base.clone() },
            Code::IllegalInvisibleTime,
        ),
        ("none", v2::ReceiveMessageRequest { invisible_duration: None, ..base.clone() }, Code::IllegalInvisibleTime),
        (
            "poll",
            v2::ReceiveMessageRequest { long_polling_timeout: seconds(-1), ..base.clone() },
            Code::IllegalPollingTime,
        ),
        (
            "long poll",
            v2::ReceiveMessageRequest { long_polling_timeout: seconds(5), ..base.clone() },
            Code::IllegalPollingTime,
        ),
        (
            "expression",
            v2::ReceiveMessageRequest { filter_expression: filter(1, "a|b"), ..base.clone() },
            Code::IllegalFilterExpression,
        ),
        (
            "separators",
            v2::ReceiveMessageRequest { filter_expression: filter(1, "||"), ..base.clone() },
            Code::IllegalFilterExpression,
        ),
        (
            "filter type",
            v2::ReceiveMessageRequest { filter_expression: filter(9, "*"), ..base.clone() },
            Code::IllegalFilterExpression,
        ),
        (
            "sql",
            v2::ReceiveMessageRequest { filter_expression: filter(2, "a > 1"), ..base.clone() },
            Code::NotImplemented,
        ),
    ];
    let harness = Harness::with(Fake::one_group(), |options| options.auto_create_consumer_groups = false);
    for (what, request, expected) in cases {
        assert_eq!(received(&harness, call(request)).await, expected, "{what}");
    }
    let long = v2::ReceiveMessageRequest { long_polling_timeout: seconds(5), ..base.clone() };
    assert_eq!(received(&harness, call_as("JAVA", "5.0.2", long)).await, Code::BadRequest);
    let unknown = v2::ReceiveMessageRequest { group: resource("fresh"), ..base.clone() };
    assert_eq!(received(&harness, call(unknown)).await, Code::ConsumerGroupNotFound);
    let queue = v2::MessageQueue { topic: resource("nowhere"), ..v2::MessageQueue::default() };
    let unknown = v2::ReceiveMessageRequest { message_queue: Some(queue), ..base };
    assert_eq!(received(&harness, call(unknown)).await, Code::TopicNotFound);
    assert!(harness.fake.state().pops.is_empty());
}

/// Every RPC with a status, called without a client id.
#[tokio::test]
async fn a_client_id_is_required() {
    let harness = Harness::new();
    let mut client = harness.client();
    let mut codes = Vec::new();
    macro_rules! status_of {
        ($rpc:ident, $request:expr) => {
            codes
                .push((stringify!($rpc), code(client.$rpc(Request::new($request)).await.unwrap().into_inner().status)));
        };
    }
    status_of!(query_route, v2::QueryRouteRequest::default());
    status_of!(heartbeat, v2::HeartbeatRequest::default());
    status_of!(send_message, send(vec![message("m")]));
    status_of!(query_assignment, v2::QueryAssignmentRequest::default());
    status_of!(ack_message, v2::AckMessageRequest::default());
    status_of!(forward_message_to_dead_letter_queue, v2::ForwardMessageToDeadLetterQueueRequest::default());
    status_of!(end_transaction, v2::EndTransactionRequest::default());
    status_of!(notify_client_termination, v2::NotifyClientTerminationRequest::default());
    status_of!(change_invisible_duration, v2::ChangeInvisibleDurationRequest::default());
    status_of!(recall_message, v2::RecallMessageRequest::default());
    status_of!(sync_lite_subscription, v2::SyncLiteSubscriptionRequest::default());
    codes.push(("receive_message", received(&harness, Request::new(receive())).await));
    let mut blank = Request::new(receive());
    blank.metadata_mut().insert("x-mq-client-id", " ".parse().unwrap());
    codes.push(("blank", received(&harness, blank).await));
    for (rpc, code) in codes {
        assert_eq!(code, Code::ClientIdRequired, "{rpc}");
    }
}

/// Empty requests with a client id: an answer, never a fault.
#[tokio::test]
async fn empty_requests() {
    let harness = Harness::new();
    let mut client = harness.client();
    macro_rules! code_of {
        ($rpc:ident, $request:expr) => {
            code(client.$rpc(call($request)).await.unwrap().into_inner().status)
        };
    }
    assert_eq!(code_of!(query_route, v2::QueryRouteRequest::default()), Code::IllegalTopic);
    assert_eq!(code_of!(heartbeat, v2::HeartbeatRequest::default()), Code::Ok);
    let group = v2::HeartbeatRequest { group: resource("a b"), client_type: 99 };
    assert_eq!(code_of!(heartbeat, group), Code::IllegalConsumerGroup);
    assert_eq!(code_of!(query_assignment, v2::QueryAssignmentRequest::default()), Code::IllegalTopic);
    assert_eq!(code_of!(ack_message, v2::AckMessageRequest::default()), Code::BadRequest);
    let letter = v2::ForwardMessageToDeadLetterQueueRequest::default();
    assert_eq!(code_of!(forward_message_to_dead_letter_queue, letter), Code::IllegalTopic);
    assert_eq!(code_of!(notify_client_termination, v2::NotifyClientTerminationRequest::default()), Code::Ok);
    let change = v2::ChangeInvisibleDurationRequest::default();
    assert_eq!(code_of!(change_invisible_duration, change), Code::IllegalInvisibleTime);
}

#[tokio::test]
async fn what_is_not_there_yet() {
    let harness = Harness::new();
    let mut client = harness.client();
    let end = |id: &str, resolution| v2::EndTransactionRequest {
        transaction_id: id.to_owned(),
        resolution,
        ..v2::EndTransactionRequest::default()
    };
    for (request, expected) in
        [(end("", 1), Code::InvalidTransactionId), (end("t", 0), Code::Ok), (end("t", 1), Code::NotImplemented)]
    {
        assert_eq!(code(client.end_transaction(call(request)).await.unwrap().into_inner().status), expected);
    }
    let recall = client.recall_message(call(v2::RecallMessageRequest::default())).await.unwrap().into_inner();
    assert_eq!(code(recall.status), Code::NotImplemented);
    let lite = client.sync_lite_subscription(call(v2::SyncLiteSubscriptionRequest::default())).await.unwrap();
    assert_eq!(code(lite.into_inner().status), Code::NotImplemented);

    let unimplemented = [
        client.pull_message(call(v2::PullMessageRequest::default())).await.err(),
        client.update_offset(call(v2::UpdateOffsetRequest::default())).await.err(),
        client.get_offset(call(v2::GetOffsetRequest::default())).await.err(),
        client.query_offset(call(v2::QueryOffsetRequest::default())).await.err(),
    ];
    for status in unimplemented {
        assert_eq!(status.unwrap().code(), tonic::Code::Unimplemented);
    }
}
