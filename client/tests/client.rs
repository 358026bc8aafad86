//! The client against a server that answers what a test tells it to.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod fake;

use fake::{Answer, Fake, lane};
use raftmq_client::{Client, ClientError, ClientOptions, Code, ErrorKind, FilterExpression, Message, SimpleConsumer};
use raftmq_proto::v2;
use std::time::Duration;
use tonic::Status;

const LONG: Duration = Duration::from_secs(30);

fn options() -> ClientOptions {
    ClientOptions {
        direct: true,
        backoff_initial: Duration::from_millis(1),
        telemetry: false,
        ..ClientOptions::default()
    }
}

async fn client(fakes: &[&Fake], options: ClientOptions) -> Client {
    Client::connect(fakes.iter().map(|fake| fake.address.clone()).collect(), options).await.unwrap()
}

/// An address where nobody listens.
async fn dead_address() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap().to_string()
}

#[tokio::test]
async fn a_call_has_all_headers() {
    let fake = Fake::start().await;
    let options = ClientOptions { namespace: "tenant".to_owned(), ..options() };
    let producer = client(&[&fake], options).await.producer();
    let receipt = producer.send(Message::new("orders", "body").tag("a").key("k").property("p", "v")).await.unwrap();
    assert_eq!((receipt.offset, receipt.attempts, receipt.endpoint.as_str()), (7, 1, fake.address.as_str()));
    let headers = fake.with(|state| state.headers.remove(0));
    let header = |name: &str| headers.get(name).unwrap().to_str().unwrap().to_owned();
    assert_eq!(header("x-mq-client-id"), producer.client_id());
    assert_eq!(header("x-mq-language"), "RUST");
    assert_eq!(header("x-mq-client-version"), env!("CARGO_PKG_VERSION"));
    assert_eq!(header("x-mq-protocol"), "v2");
    assert_eq!(header("x-mq-namespace"), "tenant");
    assert_eq!(header("x-mq-request-id").len(), 36);
    assert_eq!(header("x-mq-date-time").len(), "20260101T000000Z".len());
    assert!(headers.get("grpc-timeout").is_some());
    let message = fake.with(|state| state.sends[0].messages[0].clone());
    assert_eq!(message.topic.unwrap(), v2::Resource { resource_namespace: "tenant".into(), name: "orders".into() });
    assert_eq!(message.user_properties["p"], "v");
    let system = message.system_properties.unwrap();
    assert_eq!((system.tag.as_deref(), system.keys.as_slice()), (Some("a"), &["k".to_owned()][..]));
    assert_eq!(system.message_type(), v2::MessageType::Normal);
    assert_eq!(system.body_encoding(), v2::Encoding::Identity);
    assert!(system.born_timestamp.is_some());
    assert_eq!((system.message_id.len(), &system.message_id), (34, &receipt.message_id));
}

#[tokio::test]
async fn a_send_is_retried_with_the_same_id_at_another_endpoint() {
    let codes = [
        Code::InternalServerError,
        Code::HaNotAvailable,
        Code::SlavePersistenceTimeout,
        Code::MasterPersistenceTimeout,
        Code::ProxyTimeout,
        Code::TooManyRequests,
    ];
    for code in codes {
        let (a, b) = (Fake::start().await, Fake::start().await);
        a.script([Answer::Code(code)]);
        b.script([Answer::Code(code)]);
        let producer = client(&[&a, &b], options()).await.producer();
        let receipt = producer.send(Message::new("orders", "body")).await.unwrap();
        assert_eq!(receipt.attempts, 3, "{code:?}");
        let mut ids = [a.sent_ids(), b.sent_ids()].concat().concat();
        assert_eq!(ids.len(), 3);
        ids.dedup();
        assert_eq!(ids, [receipt.message_id]);
        assert!(!a.sent_ids().is_empty() && !b.sent_ids().is_empty());
    }
}

#[tokio::test]
async fn a_broken_call_is_retried_and_may_have_stored() {
    let fake = Fake::start().await;
    fake.script((0..2).map(|_| Answer::Broken(Status::unavailable("gone"))));
    let options = ClientOptions { attempts_max: 2, ..options() };
    let producer = client(&[&fake], options).await.producer();
    let error = producer.send(Message::new("orders", "body").with_message_id("mine")).await.unwrap_err();
    assert!(error.maybe_stored && error.attempts == 2, "{error}");
    assert!(matches!(error.cause, ClientError::Transport { code: tonic::Code::Unavailable, .. }));
    assert_eq!(fake.sent_ids(), [["mine"], ["mine"]]);
    producer.send(Message::new("orders", "body")).await.unwrap();
}

#[tokio::test]
async fn an_endpoint_that_is_down_is_passed_over() {
    let fake = Fake::start().await;
    let endpoints = vec![dead_address().await, fake.address.clone()];
    let producer = Client::connect(endpoints, options()).await.unwrap().producer();
    for _ in 0..8 {
        let receipt = producer.send(Message::new("orders", "body")).await.unwrap();
        assert_eq!(receipt.endpoint, fake.address);
    }
}

#[tokio::test]
async fn nothing_is_stored_where_nobody_listens() {
    let producer = Client::connect(vec![dead_address().await], options()).await.unwrap().producer();
    let error = producer.send(Message::new("orders", "body")).await.unwrap_err();
    assert!(matches!(error.cause, ClientError::Unreachable { .. }), "{error}");
    assert!(!error.maybe_stored);
    assert_eq!(error.attempts, options().attempts_max);
}

#[tokio::test]
async fn a_final_answer_is_not_retried() {
    let fake = Fake::start().await;
    fake.script([Answer::Code(Code::TopicNotFound)]);
    let producer = client(&[&fake], options()).await.producer();
    let error = producer.send(Message::new("orders", "body")).await.unwrap_err();
    assert_eq!((error.cause.kind(), error.attempts, error.maybe_stored), (ErrorKind::NotFound, 1, false));
    assert_eq!(error.cause.code(), Some(Code::TopicNotFound));
    assert_eq!(error.to_string(), "after 1 attempt(s): the server says 40402 TOPIC_NOT_FOUND: says TOPIC_NOT_FOUND");
}

#[tokio::test]
async fn only_entries_that_can_be_retried_are() {
    let fake = Fake::start().await;
    fake.script([Answer::Codes(vec![Code::Ok, Code::TooManyRequests, Code::IllegalMessageTag])]);
    let producer = client(&[&fake], options()).await.producer();
    let message = |id: &str| Message::new("orders", "body").with_message_id(id);
    let answers = producer.send_many(vec![message("a"), message("b"), message("c")]).await.unwrap();
    assert_eq!(fake.sent_ids(), [vec!["a", "b", "c"], vec!["b"]]);
    assert_eq!(answers[0].as_ref().unwrap().attempts, 1);
    assert_eq!(answers[1].as_ref().unwrap().message_id, "b");
    assert_eq!(answers[2].as_ref().unwrap_err().cause.code(), Some(Code::IllegalMessageTag));
}

#[tokio::test]
async fn a_request_has_one_topic() {
    let fake = Fake::start().await;
    let producer = client(&[&fake], options()).await.producer();
    let mixed = vec![Message::new("a", "1"), Message::new("b", "2")];
    assert_eq!(producer.send_many(mixed).await.unwrap_err().cause, ClientError::MixedTopics);
    assert_eq!(producer.send_many(Vec::new()).await.unwrap_err().cause, ClientError::MixedTopics);
    assert!(fake.sent_ids().is_empty());
}

#[tokio::test]
async fn sends_follow_the_route() {
    let (access, a, b) = (Fake::start().await, Fake::start().await, Fake::start().await);
    access.with(|state| state.routes = vec![lane(0, "lane-a", &a.address), lane(0, "lane-b", &b.address)]);
    let options = ClientOptions { direct: false, ..options() };
    let producer = client(&[&access], options).await.producer();
    for _ in 0..4 {
        producer.send(Message::new("orders", "body")).await.unwrap();
    }
    assert_eq!((access.sent_ids().len(), a.sent_ids().len(), b.sent_ids().len()), (0, 2, 2));
    assert_eq!(access.with(|state| state.route_queries), 1, "the route is remembered");
    for _ in 0..4 {
        producer.send(Message::new("orders", "body").message_group("g")).await.unwrap();
    }
    let (a, b) = (a.sent_ids().len(), b.sent_ids().len());
    assert!((a, b) == (6, 2) || (a, b) == (2, 6), "a message group has one lane");
}

#[tokio::test]
async fn a_route_without_queues_is_an_error() {
    let fake = Fake::start().await;
    let options = ClientOptions { direct: false, ..options() };
    let producer = client(&[&fake], options).await.producer();
    let error = producer.send(Message::new("orders", "body")).await.unwrap_err();
    assert_eq!(error.cause, ClientError::NoQueue("orders".to_owned()));
}

#[tokio::test]
async fn connections_are_used_in_turn() {
    let fake = Fake::start().await;
    let options = ClientOptions { connections_per_endpoint: 4, ..options() };
    let producer = client(&[&fake], options).await.producer();
    let sends = (0..16).map(|_| producer.send(Message::new("orders", "body")));
    assert!(futures::future::join_all(sends).await.iter().all(Result::is_ok));
    assert_eq!(fake.sent_ids().len(), 16);
}

fn stored(id: &str, handle: &str) -> v2::Message {
    let system = v2::SystemProperties {
        message_id: id.to_owned(),
        receipt_handle: Some(handle.to_owned()),
        queue_id: 3,
        queue_offset: Some(9),
        delivery_attempt: Some(2),
        ..v2::SystemProperties::default()
    };
    let topic = v2::Resource { resource_namespace: String::new(), name: "orders".to_owned() };
    v2::Message { topic: Some(topic), system_properties: Some(system), body: "body".into(), ..v2::Message::default() }
}

fn consumer(client: &Client) -> SimpleConsumer {
    client.simple_consumer("billing", "orders", FilterExpression::tags("a || b"))
}

#[tokio::test]
async fn messages_are_received_and_acked() {
    let fake = Fake::start().await;
    fake.with(|state| state.messages = vec![stored("m1", "h1"), stored("m2", "h2")]);
    let consumer = consumer(&client(&[&fake], options()).await);
    let mut messages = consumer.receive(16, LONG).await.unwrap();
    assert_eq!(messages.len(), 2);
    assert_eq!((messages[0].queue_id, messages[0].queue_offset, messages[0].delivery_attempt), (3, 9, 2));
    assert_eq!((messages[0].message_id.as_str(), &messages[0].body[..]), ("m1", &b"body"[..]));
    let request = fake.with(|state| state.receives[0].clone());
    assert_eq!((request.batch_size, request.invisible_duration.unwrap().seconds), (16, 30));
    assert_eq!(request.filter_expression.unwrap().expression, "a || b");
    consumer.change_invisible_duration(&mut messages[1], Duration::ZERO).await.unwrap();
    assert_eq!(messages[1].receipt_handle, "h2+");
    fake.script([Answer::Codes(vec![Code::Ok, Code::InvalidReceiptHandle])]);
    let answers = consumer.ack_many(&messages).await.unwrap();
    assert_eq!(answers[0], Ok(()));
    assert_eq!(answers[1].as_ref().unwrap_err().code(), Some(Code::InvalidReceiptHandle));
    let handles = fake.with(|state| state.acks[0].entries.iter().map(|e| e.receipt_handle.clone()).collect::<Vec<_>>());
    assert_eq!(handles, ["h1", "h2+"]);
    assert_eq!(consumer.ack_many(&[]).await, Ok(Vec::new()));
}

#[tokio::test]
async fn no_message_is_no_error() {
    let fake = Fake::start().await;
    fake.script([Answer::Code(Code::MessageNotFound)]);
    assert_eq!(consumer(&client(&[&fake], options()).await).receive(1, LONG).await, Ok(Vec::new()));
}

#[tokio::test]
async fn a_receive_is_repeated_under_its_attempt_id() {
    let (a, b) = (Fake::start().await, Fake::start().await);
    for fake in [&a, &b] {
        fake.script([Answer::Broken(Status::unavailable("gone"))]);
        fake.with(|state| state.messages = vec![stored("m1", "h1")]);
    }
    let consumer = consumer(&client(&[&a, &b], options()).await);
    assert_eq!(consumer.receive(1, LONG).await.unwrap().len(), 1);
    let attempts = |fake: &Fake| {
        fake.with(|state| state.receives.iter().map(|r| r.attempt_id.clone().unwrap()).collect::<Vec<_>>())
    };
    let mut ids = [attempts(&a), attempts(&b)].concat();
    assert_eq!(ids.len(), 3);
    ids.dedup();
    assert_eq!(ids.len(), 1);
}

#[tokio::test]
async fn an_ack_goes_where_the_message_came_from_and_then_elsewhere() {
    let (a, b) = (Fake::start().await, Fake::start().await);
    a.with(|state| state.messages = vec![stored("m1", "h1")]);
    b.with(|state| state.messages = vec![stored("m1", "h1")]);
    let consumer = consumer(&client(&[&a, &b], options()).await);
    let message = consumer.receive(1, LONG).await.unwrap().remove(0);
    let (from, other) = if a.with(|state| state.receives.len()) == 1 { (&a, &b) } else { (&b, &a) };
    from.script([Answer::Code(Code::HaNotAvailable)]);
    consumer.ack(&message).await.unwrap();
    assert_eq!((from.with(|state| state.acks.len()), other.with(|state| state.acks.len())), (1, 1));
}

#[tokio::test]
async fn telemetry_tells_settings_and_says_goodbye() {
    let fake = Fake::start().await;
    let client = client(&[&fake], ClientOptions { telemetry: true, ..options() }).await;
    let (producer, consumer) = (client.producer(), consumer(&client));
    producer.send(Message::new("orders", "body")).await.unwrap();
    consumer.receive(1, LONG).await.unwrap();
    fake.until(|state| state.settings.len() == 2 && state.heartbeats >= 2).await;
    let kinds =
        fake.with(|state| state.settings.iter().map(|settings| settings.client_type.unwrap()).collect::<Vec<_>>());
    assert!(kinds.contains(&(v2::ClientType::Producer as i32)));
    assert!(kinds.contains(&(v2::ClientType::SimpleConsumer as i32)));
    drop((producer, consumer));
    fake.until(|state| state.goodbyes == 2).await;
}
