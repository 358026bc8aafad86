//! Receiving and acking.

use super::endpoints::{Client, ok, request, resource};
use raftmq_proto::v2::{
    AckMessageEntry, AckMessageRequest, Code, FilterExpression, FilterType, Message, MessageQueue,
    ReceiveMessageRequest, receive_message_response::Content,
};
use std::time::Duration;

/// How long a receive waits at the server while there is nothing.
pub(crate) const POLLING_MS: u64 = 5000;
/// What a call may take beyond that.
const CALL_MS: u64 = 3000;
/// How long a message that was received stays invisible to others.
const INVISIBLE_MS: u64 = 10_000;

/// What to receive.
pub(crate) struct Subscription {
    pub(crate) topic: String,
    pub(crate) group: String,
    pub(crate) batch_count: u32,
    /// Of the topic's route.
    pub(crate) queue: MessageQueue,
}

/// A fresh attempt id. A receive that failed is repeated under its id, through any endpoint: what the first one took comes
/// again at once instead of after its invisible time.
pub(crate) fn attempt_id() -> String {
    uuid::Uuid::new_v4().to_string()
}

/// One receive through one endpoint: messages, possibly none.
pub(crate) async fn receive(
    client: &mut Client,
    from: &Subscription,
    attempt_id: &str,
) -> Result<Vec<Message>, String> {
    let body = ReceiveMessageRequest {
        group: Some(resource(&from.group)),
        message_queue: Some(from.queue.clone()),
        filter_expression: Some(FilterExpression { r#type: FilterType::Tag as i32, expression: "*".into() }),
        batch_size: i32::try_from(from.batch_count).unwrap_or(i32::MAX),
        invisible_duration: Some(duration(INVISIBLE_MS)),
        auto_renew: false,
        long_polling_timeout: Some(duration(POLLING_MS)),
        attempt_id: Some(attempt_id.to_string()),
    };
    let failed = |status: tonic::Status| format!("{:?}: {}", status.code(), status.message());
    let call = request(body, Duration::from_millis(POLLING_MS + CALL_MS));
    let mut stream = client.receive_message(call).await.map_err(failed)?.into_inner();
    let mut messages = Vec::new();
    while let Some(part) = stream.message().await.map_err(failed)? {
        match part.content {
            Some(Content::Message(message)) => messages.push(message),
            Some(Content::Status(status)) if status.code != Code::MessageNotFound as i32 => ok(Some(&status))?,
            _ => {}
        }
    }
    Ok(messages)
}

/// Acks all messages of one batch in one call.
pub(crate) async fn ack(client: &mut Client, from: &Subscription, messages: &[Message]) -> Result<(), String> {
    let entries = messages.iter().filter_map(|message| {
        let properties = message.system_properties.as_ref()?;
        let receipt_handle = properties.receipt_handle.clone()?;
        Some(AckMessageEntry { message_id: properties.message_id.clone(), receipt_handle, lite_topic: None })
    });
    let body = AckMessageRequest {
        group: Some(resource(&from.group)),
        topic: Some(resource(&from.topic)),
        entries: entries.collect(),
    };
    let reply = client
        .ack_message(request(body, Duration::from_millis(CALL_MS)))
        .await
        .map_err(|status| format!("{:?}: {}", status.code(), status.message()))?
        .into_inner();
    ok(reply.status.as_ref())
}

fn duration(ms: u64) -> prost_types::Duration {
    prost_types::Duration {
        seconds: i64::try_from(ms / 1000).unwrap_or(i64::MAX),
        nanos: i32::try_from(ms % 1000).unwrap_or(0) * 1_000_000,
    }
}
