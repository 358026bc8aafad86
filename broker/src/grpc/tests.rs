//! The service as a client sees it, over a cluster in memory. No socket: the generated client calls the service itself.

mod budget;
mod consume;
mod fake;
mod finish;
mod produce;
mod refused;
mod route;
mod telemetry;

use crate::edge::{Edge, EdgeOptions, MessagingServer};
use fake::{Fake, FixedClock};
use prost_types::Duration;
use raftmq_model::ids::NodeId;
use raftmq_proto::v2;
use raftmq_proto::v2::messaging_service_client::MessagingServiceClient;
use std::sync::Arc;
use tonic::Request;

const CLIENT: &str = "client-1";

/// One edge and a client of it.
struct Harness {
    fake: Arc<Fake>,
    edge: Arc<Edge<Arc<Fake>>>,
}

impl Harness {
    fn new() -> Harness {
        Harness::with(Fake::one_group(), |_| {})
    }

    fn with(fake: Fake, adapt: impl FnOnce(&mut EdgeOptions)) -> Harness {
        let fake = Arc::new(fake);
        let mut options = EdgeOptions::new(NodeId(1), "10.0.0.1:8081".parse().unwrap());
        adapt(&mut options);
        let edge = Edge::over(Arc::clone(&fake), Arc::new(FixedClock), options);
        Harness { fake, edge }
    }

    fn client(&self) -> MessagingServiceClient<MessagingServer<Arc<Fake>>> {
        MessagingServiceClient::new(self.edge.messaging_service())
    }
}

/// A call of a client of the Java SDK with the usual deadline.
fn call<T>(message: T) -> Request<T> {
    call_as("JAVA", "5.2.1", message)
}

fn call_as<T>(language: &str, version: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    let metadata = request.metadata_mut();
    metadata.insert("x-mq-client-id", CLIENT.parse().unwrap());
    metadata.insert("x-mq-language", language.parse().unwrap());
    metadata.insert("x-mq-client-version", version.parse().unwrap());
    metadata.insert("grpc-timeout", "3S".parse().unwrap());
    request
}

fn with_timeout<T>(mut request: Request<T>, timeout: &str) -> Request<T> {
    request.metadata_mut().insert("grpc-timeout", timeout.parse().unwrap());
    request
}

fn resource(name: &str) -> Option<v2::Resource> {
    Some(v2::Resource { resource_namespace: String::new(), name: name.to_owned() })
}

fn seconds(seconds: i64) -> Option<Duration> {
    Some(Duration { seconds, nanos: 0 })
}

fn millis(ms: i32) -> Option<Duration> {
    Some(Duration { seconds: 0, nanos: ms * 1_000_000 })
}

fn message(id: &str) -> v2::Message {
    v2::Message {
        topic: resource("orders"),
        user_properties: [("color".to_owned(), "red".to_owned())].into(),
        system_properties: Some(v2::SystemProperties {
            tag: Some("paid".to_owned()),
            keys: vec!["k1".to_owned(), "k2".to_owned()],
            message_id: id.to_owned(),
            body_encoding: v2::Encoding::Identity as i32,
            message_type: v2::MessageType::Normal as i32,
            born_timestamp: Some(prost_types::Timestamp { seconds: 1_700_000_000, nanos: 123_000_000 }),
            born_host: "producer-7".to_owned(),
            ..v2::SystemProperties::default()
        }),
        body: bytes::Bytes::from_static(b"hello"),
    }
}

/// A message whose system properties are changed.
fn message_with(change: impl FnOnce(&mut v2::SystemProperties)) -> v2::Message {
    let mut message = message("m");
    change(message.system_properties.as_mut().unwrap());
    message
}

fn send(messages: Vec<v2::Message>) -> v2::SendMessageRequest {
    v2::SendMessageRequest { messages }
}

fn receive() -> v2::ReceiveMessageRequest {
    v2::ReceiveMessageRequest {
        group: resource("billing"),
        message_queue: Some(v2::MessageQueue { topic: resource("orders"), ..v2::MessageQueue::default() }),
        filter_expression: Some(v2::FilterExpression {
            r#type: v2::FilterType::Tag as i32,
            expression: "*".to_owned(),
        }),
        batch_size: 16,
        invisible_duration: seconds(30),
        auto_renew: false,
        long_polling_timeout: millis(20),
        attempt_id: None,
    }
}

fn code(status: Option<v2::Status>) -> v2::Code {
    let status = status.expect("a status");
    assert!(!status.message.is_empty(), "every status has a sentence");
    v2::Code::try_from(status.code).expect("a known code")
}
