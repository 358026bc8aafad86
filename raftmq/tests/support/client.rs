//! The public API through the generated client, as little as a test needs.

use raftmq_proto::metadata::{CLIENT_ID, LANGUAGE};
use raftmq_proto::v2::messaging_service_client::MessagingServiceClient;
use raftmq_proto::v2::receive_message_response::Content;
use raftmq_proto::v2::{
    AckMessageEntry, AckMessageRequest, Code, Encoding, FilterExpression, FilterType, Message, MessageQueue,
    MessageType, ReceiveMessageRequest, Resource, SendMessageRequest, SystemProperties,
};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use tonic::transport::{Channel, Endpoint};

/// How long an operation may take, with every repetition.
const SOON: Duration = Duration::from_secs(30);

/// Ids of acknowledged messages.
#[derive(Default)]
pub(crate) struct Sent {
    pub(crate) ids: BTreeSet<String>,
}

fn resource(name: &str) -> Option<Resource> {
    Some(Resource { resource_namespace: String::new(), name: name.into() })
}

fn request<T>(body: T, timeout: Duration) -> tonic::Request<T> {
    let mut request = tonic::Request::new(body);
    request.set_timeout(timeout);
    request.metadata_mut().insert(CLIENT_ID, "test".parse().expect("id"));
    request.metadata_mut().insert(LANGUAGE, "RUST".parse().expect("language"));
    request
}

async fn connect(address: &str) -> Result<MessagingServiceClient<Channel>, String> {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("address");
    endpoint.connect().await.map(MessagingServiceClient::new).map_err(|error| error.to_string())
}

async fn send_one(address: &str, topic: &str, id: &str, keys: &[String], body: Vec<u8>) -> Result<(), String> {
    let properties = SystemProperties {
        message_id: id.into(),
        keys: keys.to_vec(),
        message_type: MessageType::Normal as i32,
        body_encoding: Encoding::Identity as i32,
        born_host: "test".into(),
        ..SystemProperties::default()
    };
    let message = Message {
        topic: resource(topic),
        system_properties: Some(properties),
        body: body.into(),
        ..Message::default()
    };
    let body = SendMessageRequest { messages: vec![message] };
    let mut client = connect(address).await?;
    let reply =
        client.send_message(request(body, Duration::from_secs(3))).await.map_err(|status| status.to_string())?;
    match reply.into_inner().status {
        Some(status) if status.code == Code::Ok as i32 => Ok(()),
        status => Err(format!("{status:?}")),
    }
}

/// Sends `count` messages with their ids as bodies; one that fails is sent again under its id through the next address.
pub(crate) async fn send(addresses: &[String], topic: &str, count: usize, sent: &mut Sent) {
    send_bodies(addresses, topic, count, |id| id.as_bytes().to_vec(), sent).await;
}

/// As [`send`] with other bodies.
pub(crate) async fn send_bodies(
    addresses: &[String],
    topic: &str,
    count: usize,
    body: impl Fn(&str) -> Vec<u8>,
    sent: &mut Sent,
) {
    for _ in 0..count {
        sent.ids.insert(send_keyed(addresses, topic, &[], &body).await);
    }
}

/// Sends one message with these keys, as [`send`] does; its id.
pub(crate) async fn send_keyed(
    addresses: &[String],
    topic: &str,
    keys: &[String],
    body: impl Fn(&str) -> Vec<u8>,
) -> String {
    let id = format!("01{}", uuid::Uuid::new_v4().simple().to_string().to_uppercase());
    let deadline = Instant::now() + SOON;
    for address in addresses.iter().cycle() {
        match send_one(address, topic, &id, keys, body(&id)).await {
            Ok(()) => break,
            Err(error) => assert!(Instant::now() < deadline, "not sent through {address}: {error}"),
        }
    }
    id
}

/// Receives and acks until `count` different messages came, through the addresses in turn.
pub(crate) async fn receive_all(addresses: &[String], topic: &str, group: &str, count: usize) -> BTreeSet<String> {
    let mut ids = BTreeSet::new();
    let deadline = Instant::now() + SOON;
    for address in addresses.iter().cycle() {
        if ids.len() >= count {
            break;
        }
        match receive(address, topic, group).await {
            Ok(received) => ids.extend(received),
            Err(error) => assert!(Instant::now() < deadline, "{} of {count} came: {error}", ids.len()),
        }
        assert!(Instant::now() < deadline, "{} of {count} came", ids.len());
    }
    ids
}

async fn receive(address: &str, topic: &str, group: &str) -> Result<Vec<String>, String> {
    let messages = take(address, topic, group, 16).await?;
    ack(address, topic, group, &messages).await?;
    Ok(messages.into_iter().map(|properties| properties.message_id).collect())
}

/// Receives at most `count` messages, which stay in flight for 30 seconds.
pub(crate) async fn take(address: &str, topic: &str, group: &str, count: i32) -> Result<Vec<SystemProperties>, String> {
    let body = ReceiveMessageRequest {
        group: resource(group),
        message_queue: Some(MessageQueue { topic: resource(topic), ..MessageQueue::default() }),
        filter_expression: Some(FilterExpression { r#type: FilterType::Tag as i32, expression: "*".into() }),
        batch_size: count,
        invisible_duration: Some(prost_types::Duration { seconds: 30, nanos: 0 }),
        long_polling_timeout: Some(prost_types::Duration { seconds: 2, nanos: 0 }),
        attempt_id: Some(uuid::Uuid::new_v4().to_string()),
        ..ReceiveMessageRequest::default()
    };
    let mut client = connect(address).await?;
    let failed = |status: tonic::Status| status.to_string();
    let mut stream = client.receive_message(request(body, Duration::from_secs(6))).await.map_err(failed)?.into_inner();
    let mut messages = Vec::new();
    while let Some(part) = stream.message().await.map_err(failed)? {
        match part.content {
            Some(Content::Message(message)) => messages.push(message.system_properties.expect("properties")),
            Some(Content::Status(status))
                if ![Code::Ok as i32, Code::MessageNotFound as i32].contains(&status.code) =>
            {
                return Err(format!("{status:?}"));
            }
            _ => {}
        }
    }
    Ok(messages)
}

async fn ack(address: &str, topic: &str, group: &str, messages: &[SystemProperties]) -> Result<(), String> {
    let entries = messages.iter().map(|properties| AckMessageEntry {
        message_id: properties.message_id.clone(),
        receipt_handle: properties.receipt_handle.clone().expect("handle"),
        lite_topic: None,
    });
    let entries: Vec<_> = entries.collect();
    if !entries.is_empty() {
        let mut client = connect(address).await?;
        let failed = |status: tonic::Status| status.to_string();
        let body = AckMessageRequest { group: resource(group), topic: resource(topic), entries };
        let reply = client.ack_message(request(body, Duration::from_secs(3))).await.map_err(failed)?.into_inner();
        assert_eq!(reply.status.map(|status| status.code), Some(Code::Ok as i32));
    }
    Ok(())
}
