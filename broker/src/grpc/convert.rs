//! From a stored record to the message that a client gets, and the times in between.

use crate::service::Delivery;
use md5::{Digest, Md5};
use prost_types::{Duration, Timestamp};
use raftmq_model::record::property::{
    BORN_HOST, DEAD_LETTER_ORIGIN_MESSAGE_ID, DEAD_LETTER_ORIGIN_TOPIC, KEYS, TAGS, TRACE_CONTEXT, UNIQ_KEY, is_system,
};
use raftmq_model::record::{RecordError, RecordView};
use raftmq_proto::v2;
use std::collections::HashMap;

/// Bit of a record's system flags: the body is compressed.
pub(super) const BODY_COMPRESSED: i32 = 0x1;

/// The message for a client. `topic` is the resource that the client asked for, so that names come back as it knows them.
///
/// # Errors
///
/// The stored record is damaged.
pub(super) fn message_of(
    delivery: Delivery,
    topic: v2::Resource,
    invisible_ms: u64,
) -> Result<v2::Message, RecordError> {
    let Delivery { message: popped, receipt_handle } = delivery;
    let view = RecordView::parse(&popped.record)?;
    view.verify_body()?;
    let compressed = view.sys_flag() & BODY_COMPRESSED != 0;
    let mut system = v2::SystemProperties {
        body_digest: Some(v2::Digest { r#type: v2::DigestType::Md5 as i32, checksum: md5_hex(view.body()) }),
        body_encoding: if compressed { v2::Encoding::Gzip } else { v2::Encoding::Identity } as i32,
        message_type: v2::MessageType::Normal as i32,
        born_timestamp: Some(timestamp(view.born_timestamp())),
        store_timestamp: Some(timestamp(view.store_timestamp())),
        store_host: view.store_host().to_string(),
        receipt_handle: Some(receipt_handle),
        queue_id: i32::try_from(popped.queue_id).unwrap_or(i32::MAX),
        queue_offset: Some(i64::try_from(popped.queue_offset).unwrap_or(i64::MAX)),
        invisible_duration: Some(duration(invisible_ms)),
        delivery_attempt: Some(i32::try_from(popped.attempt.max(1)).unwrap_or(i32::MAX)),
        ..v2::SystemProperties::default()
    };
    let user_properties = take_properties(&view, &mut system);
    if system.born_host.is_empty() {
        system.born_host = view.born_host().to_string();
    }
    let body = popped.record.slice_ref(view.body());
    Ok(v2::Message { topic: Some(topic), user_properties, system_properties: Some(system), body })
}

/// Puts the system's properties into their fields and returns the user's.
fn take_properties(view: &RecordView<'_>, system: &mut v2::SystemProperties) -> HashMap<String, String> {
    let mut user = HashMap::new();
    let mut origin = v2::DeadLetterQueue::default();
    for (name, value) in view.properties() {
        match name {
            UNIQ_KEY => system.message_id = value.to_owned(),
            TAGS => system.tag = Some(value.to_owned()),
            KEYS => system.keys = value.split(' ').filter(|key| !key.is_empty()).map(str::to_owned).collect(),
            BORN_HOST => system.born_host = value.to_owned(),
            TRACE_CONTEXT => system.trace_context = Some(value.to_owned()),
            DEAD_LETTER_ORIGIN_TOPIC => origin.topic = value.to_owned(),
            DEAD_LETTER_ORIGIN_MESSAGE_ID => origin.message_id = value.to_owned(),
            name if is_system(name) => {}
            name => {
                user.insert(name.to_owned(), value.to_owned());
            }
        }
    }
    system.dead_letter_queue = (!origin.topic.is_empty()).then_some(origin);
    user
}

/// MD5 in upper-case hexadecimal digits: the one digest that all SDKs write alike.
pub(super) fn md5_hex(body: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let mut text = String::with_capacity(32);
    for byte in Md5::digest(body) {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 0xF)]));
    }
    text
}

/// Milliseconds since the Unix epoch as a timestamp.
pub(super) fn timestamp(ms: i64) -> Timestamp {
    Timestamp { seconds: ms.div_euclid(1_000), nanos: (ms.rem_euclid(1_000) * 1_000_000) as i32 }
}

/// A timestamp in milliseconds since the Unix epoch, saturating.
pub(super) fn timestamp_ms(timestamp: &Timestamp) -> i64 {
    timestamp.seconds.saturating_mul(1_000).saturating_add(i64::from(timestamp.nanos / 1_000_000))
}

/// Milliseconds as a duration.
pub(super) fn duration(ms: u64) -> Duration {
    Duration { seconds: i64::try_from(ms / 1_000).unwrap_or(i64::MAX), nanos: (ms % 1_000 * 1_000_000) as i32 }
}

/// A duration in milliseconds, saturating; `None` when it is negative.
pub(super) fn duration_ms(duration: &Duration) -> Option<u64> {
    let ms = duration.seconds.saturating_mul(1_000).saturating_add(i64::from(duration.nanos / 1_000_000));
    u64::try_from(ms).ok().filter(|_| duration.seconds >= 0 && duration.nanos >= 0)
}
