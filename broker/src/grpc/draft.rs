//! From a client's message to a checked [`Draft`].
//!
//! The order of the checks is part of the contract: clients and tests see the first one that fails. What the request owns
//! moves into the draft.

use super::call::name_of;
use super::convert::{BODY_COMPRESSED, duration_ms, timestamp_ms};
use crate::service::{Draft, MessageKind};
use crate::status::Refusal;
use raftmq_model::filter::tags_code;
use raftmq_model::ids::Timestamp;
use raftmq_model::limit;
use raftmq_model::name;
use raftmq_model::record::Record;
use raftmq_model::record::property::{BORN_HOST, KEYS, TAGS, TRACE_CONTEXT, UNIQ_KEY};
use raftmq_proto::v2::{self, Code};
use std::net::SocketAddr;

/// What the node adds to a message.
pub(super) struct Stamp {
    /// Now.
    pub(super) now: Timestamp,
    /// Where the message came from.
    pub(super) born_host: SocketAddr,
    /// The node's own address.
    pub(super) store_host: SocketAddr,
}

/// Checks the messages of one request, which all belong to `topic`.
///
/// # Errors
///
/// The first message that is not in order, by the first thing that is wrong with it.
pub(super) fn drafts_of(messages: Vec<v2::Message>, topic: &str, stamp: &Stamp) -> Result<Vec<Draft>, Refusal> {
    messages.into_iter().map(|message| draft_of(message, topic, stamp)).collect()
}

fn draft_of(message: v2::Message, topic: &str, stamp: &Stamp) -> Result<Draft, Refusal> {
    if name_of(message.topic.as_ref()) != topic {
        return Err(Refusal::new(Code::MessageCorrupted, "The messages of one request must be of one topic."));
    }
    let system = message.system_properties.unwrap_or_default();
    limit::check_body(message.body.len())?;
    check_properties(&message.user_properties, &system)?;
    name::check_message_id(&system.message_id)?;
    let kind = kind_of(&system, stamp.now)?;
    let sys_flag = match v2::Encoding::try_from(system.body_encoding) {
        Ok(v2::Encoding::Gzip) => BODY_COMPRESSED,
        Ok(v2::Encoding::Identity | v2::Encoding::Unspecified) => 0,
        Err(_) => return Err(Refusal::new(Code::BadRequest, "The body encoding is not known.")),
    };
    let tags_code = system.tag.as_deref().map_or(0, tags_code);
    let born_timestamp = system.born_timestamp.as_ref().map_or(stamp.now.0, timestamp_ms);
    let message_id = system.message_id.clone();
    let record = Record {
        topic: topic.to_owned(),
        queue_id: 0,
        flag: 0,
        sys_flag,
        born_timestamp,
        born_host: stamp.born_host,
        store_timestamp: stamp.now.0,
        store_host: stamp.store_host,
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body: message.body,
        properties: properties_of(message.user_properties, system),
    };
    Ok(Draft { message_id, kind, tags_code, record })
}

/// The user's properties, the tag, the keys and all of them together.
fn check_properties(
    user: &std::collections::HashMap<String, String>,
    system: &v2::SystemProperties,
) -> Result<(), Refusal> {
    limit::check_properties(user.len(), 0)?;
    let mut bytes = 0;
    for (key, value) in user {
        name::check_property_key(key)?;
        name::check_property_value(value)?;
        bytes += key.len() + value.len();
    }
    if let Some(tag) = &system.tag {
        name::check_tag(tag)?;
        bytes += tag.len();
    }
    for key in &system.keys {
        name::check_key(key)?;
        bytes += key.len() + 1;
    }
    for text in [Some(&system.born_host), system.trace_context.as_ref()].into_iter().flatten() {
        let bad = |_| Refusal::new(Code::BadRequest, "The born host or the trace context holds a control character.");
        name::check_property_value(text).map_err(bad)?;
        bytes += text.len();
    }
    limit::check_properties(user.len(), bytes)?;
    Ok(())
}

/// Which kind of message the properties make, the strongest sign first, and whether its own properties are in order.
fn kind_of(system: &v2::SystemProperties, now: Timestamp) -> Result<MessageKind, Refusal> {
    if let Some(recovery) = &system.orphaned_transaction_recovery_duration {
        let negative = || Refusal::new(Code::BadRequest, "The recovery duration of the transaction is negative.");
        limit::check_orphan_recovery(duration_ms(recovery).ok_or_else(negative)?)?;
    }
    if let Some(delivery) = &system.delivery_timestamp {
        limit::check_delay(Timestamp(timestamp_ms(delivery)).ms_since(now))?;
    }
    if let Some(group) = &system.message_group {
        name::check_message_group(group)?;
    }
    if system.priority.is_some_and(|priority| priority < 0) {
        return Err(Refusal::new(Code::BadRequest, "The priority is negative."));
    }
    if let Some(lite_topic) = &system.lite_topic {
        name::check_lite_topic(lite_topic)?;
    }
    Ok(if system.message_type == v2::MessageType::Transaction as i32 {
        MessageKind::Transaction
    } else if system.delivery_timestamp.is_some() {
        MessageKind::Delay
    } else if system.message_group.is_some() {
        MessageKind::Fifo
    } else if system.priority.is_some() {
        MessageKind::Priority
    } else if system.lite_topic.is_some() {
        MessageKind::Lite
    } else {
        MessageKind::Normal
    })
}

/// The properties of the record: the system's first, so that tools find them without reading on.
fn properties_of(
    user: std::collections::HashMap<String, String>,
    system: v2::SystemProperties,
) -> Vec<(String, String)> {
    let mut properties = Vec::with_capacity(user.len() + 5);
    let mut put = |name: &str, value: String| {
        if !value.is_empty() {
            properties.push((name.to_owned(), value));
        }
    };
    put(UNIQ_KEY, system.message_id);
    put(TAGS, system.tag.unwrap_or_default());
    put(KEYS, system.keys.join(" "));
    put(BORN_HOST, system.born_host);
    put(TRACE_CONTEXT, system.trace_context.unwrap_or_default());
    properties.extend(user);
    properties
}
