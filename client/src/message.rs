//! Messages as applications write and read them.

use bytes::Bytes;
use raftmq_proto::v2::{self, Encoding, MessageType};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A message to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    topic: String,
    body: Bytes,
    tag: Option<String>,
    keys: Vec<String>,
    message_group: Option<String>,
    deliver_at: Option<SystemTime>,
    properties: BTreeMap<String, String>,
    message_id: Option<String>,
}

impl Message {
    /// A message with nothing but a body.
    pub fn new(topic: impl Into<String>, body: impl Into<Bytes>) -> Message {
        Message {
            topic: topic.into(),
            body: body.into(),
            tag: None,
            keys: Vec::new(),
            message_group: None,
            deliver_at: None,
            properties: BTreeMap::new(),
            message_id: None,
        }
    }

    /// With a tag, by which consumers can filter.
    #[must_use]
    pub fn tag(mut self, tag: impl Into<String>) -> Message {
        self.tag = Some(tag.into());
        self
    }

    /// With one more key, by which it can be searched.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Message {
        self.keys.push(key.into());
        self
    }

    /// In order with the other messages of this group (FIFO topics).
    #[must_use]
    pub fn message_group(mut self, group: impl Into<String>) -> Message {
        self.message_group = Some(group.into());
        self
    }

    /// Not delivered before this time (delay topics).
    #[must_use]
    pub fn deliver_at(mut self, time: SystemTime) -> Message {
        self.deliver_at = Some(time);
        self
    }

    /// With a property of the user's own.
    #[must_use]
    pub fn property(mut self, name: impl Into<String>, value: impl Into<String>) -> Message {
        self.properties.insert(name.into(), value.into());
        self
    }

    /// Under an id of the caller's own instead of a fresh one: for a retry across processes.
    #[must_use]
    pub fn with_message_id(mut self, id: impl Into<String>) -> Message {
        self.message_id = Some(id.into());
        self
    }

    /// The topic.
    #[must_use]
    pub fn topic(&self) -> &str {
        &self.topic
    }

    pub(crate) fn group(&self) -> Option<&str> {
        self.message_group.as_deref()
    }

    pub(crate) fn message_id(&self) -> Option<&str> {
        self.message_id.as_deref()
    }

    pub(crate) fn into_wire(self, topic: v2::Resource, message_id: String, now: SystemTime) -> v2::Message {
        let message_type = match (&self.deliver_at, &self.message_group) {
            (Some(_), _) => MessageType::Delay,
            (None, Some(_)) => MessageType::Fifo,
            (None, None) => MessageType::Normal,
        };
        let system = v2::SystemProperties {
            tag: self.tag,
            keys: self.keys,
            message_id,
            body_encoding: Encoding::Identity as i32,
            message_type: message_type as i32,
            born_timestamp: Some(now.into()),
            message_group: self.message_group,
            delivery_timestamp: self.deliver_at.map(Into::into),
            ..v2::SystemProperties::default()
        };
        v2::Message {
            topic: Some(topic),
            user_properties: self.properties.into_iter().collect(),
            system_properties: Some(system),
            body: self.body,
        }
    }
}

/// A message that was received and is to be acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedMessage {
    /// The topic.
    pub topic: String,
    /// The producer's id of the message.
    pub message_id: String,
    /// The body as it travelled; see `body_encoding`.
    pub body: Bytes,
    /// How the body is encoded; some old producers send gzip.
    pub body_encoding: Encoding,
    /// The tag.
    pub tag: Option<String>,
    /// The keys.
    pub keys: Vec<String>,
    /// The message group (FIFO).
    pub message_group: Option<String>,
    /// The user's properties.
    pub properties: BTreeMap<String, String>,
    /// The queue that holds it.
    pub queue_id: i32,
    /// Its offset there.
    pub queue_offset: i64,
    /// Delivery attempt, from 1.
    pub delivery_attempt: i32,
    /// When the producer made it.
    pub born_at: Option<SystemTime>,
    /// When it was stored.
    pub stored_at: Option<SystemTime>,
    /// For how long it is invisible to others, when the server says so.
    pub invisible_duration: Option<Duration>,
    /// What an ack needs.
    pub receipt_handle: String,
    /// Where it came from, which is where an ack goes first.
    pub(crate) endpoint: String,
}

impl ReceivedMessage {
    pub(crate) fn from_wire(message: v2::Message, endpoint: &str) -> Option<ReceivedMessage> {
        let system = message.system_properties?;
        Some(ReceivedMessage {
            topic: message.topic?.name,
            message_id: system.message_id,
            body: message.body,
            body_encoding: Encoding::try_from(system.body_encoding).unwrap_or(Encoding::Unspecified),
            tag: system.tag,
            keys: system.keys,
            message_group: system.message_group,
            properties: message.user_properties.into_iter().collect(),
            queue_id: system.queue_id,
            queue_offset: system.queue_offset.unwrap_or(0),
            delivery_attempt: system.delivery_attempt.unwrap_or(1),
            born_at: system.born_timestamp.and_then(to_time),
            stored_at: system.store_timestamp.and_then(to_time),
            invisible_duration: system.invisible_duration.and_then(|duration| duration.try_into().ok()),
            receipt_handle: system.receipt_handle.unwrap_or_default(),
            endpoint: endpoint.to_owned(),
        })
    }
}

fn to_time(timestamp: prost_types::Timestamp) -> Option<SystemTime> {
    let seconds = u64::try_from(timestamp.seconds).ok()?;
    let nanos = u32::try_from(timestamp.nanos).ok()?;
    UNIX_EPOCH.checked_add(Duration::new(seconds, nanos.min(999_999_999)))
}

/// Which messages a consumer wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterExpression {
    kind: v2::FilterType,
    expression: String,
}

impl FilterExpression {
    /// All messages.
    #[must_use]
    pub fn all() -> FilterExpression {
        FilterExpression::tags("*")
    }

    /// Messages with one of these tags: `a || b`.
    pub fn tags(expression: impl Into<String>) -> FilterExpression {
        FilterExpression { kind: v2::FilterType::Tag, expression: expression.into() }
    }

    /// Messages whose properties satisfy an SQL92 condition.
    pub fn sql(expression: impl Into<String>) -> FilterExpression {
        FilterExpression { kind: v2::FilterType::Sql, expression: expression.into() }
    }

    pub(crate) fn to_wire(&self) -> v2::FilterExpression {
        v2::FilterExpression { r#type: self.kind as i32, expression: self.expression.clone() }
    }
}
