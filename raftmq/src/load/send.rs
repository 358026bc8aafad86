//! Sending.

use super::endpoints::{Client, ok, request, resource};
use bytes::Bytes;
use raftmq_proto::v2::{Encoding, Message, MessageType, SendMessageRequest, SystemProperties};
use std::time::{Duration, SystemTime};

/// How long one attempt may take: what SDKs use.
const ATTEMPT_MS: u64 = 3000;

/// A fresh message id, in the shape that SDKs use: version 01 and 32 hex digits.
pub(crate) fn message_id() -> String {
    format!("01{}", uuid::Uuid::new_v4().simple().to_string().to_ascii_uppercase())
}

/// An ordinary message.
pub(crate) fn message(topic: &str, id: String, body: Bytes) -> Message {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let properties = SystemProperties {
        message_id: id,
        message_type: MessageType::Normal as i32,
        body_encoding: Encoding::Identity as i32,
        born_host: "localhost".into(),
        born_timestamp: Some(prost_types::Timestamp {
            seconds: i64::try_from(now.as_secs()).unwrap_or(i64::MAX),
            nanos: i32::try_from(now.subsec_nanos()).unwrap_or(0),
        }),
        ..SystemProperties::default()
    };
    Message {
        topic: Some(resource(topic)),
        user_properties: std::collections::HashMap::new(),
        system_properties: Some(properties),
        body,
    }
}

/// One attempt to send messages through one endpoint: all are acknowledged, or an error says why not. After an error
/// they may be stored all the same; sending them again under the same ids is safe.
pub(crate) async fn attempt(client: &mut Client, messages: Vec<Message>) -> Result<(), String> {
    let sent = messages.len();
    let body = SendMessageRequest { messages };
    let reply = client
        .send_message(request(body, Duration::from_millis(ATTEMPT_MS)))
        .await
        .map_err(|status| format!("{:?}: {}", status.code(), status.message()))?
        .into_inner();
    ok(reply.status.as_ref())?;
    if reply.entries.len() != sent {
        return Err(format!("{sent} messages were sent and {} answered", reply.entries.len()));
    }
    reply.entries.iter().try_for_each(|entry| ok(entry.status.as_ref()))
}
