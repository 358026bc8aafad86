//! Rules for names and texts that clients choose. Each check answers with one sentence that can be shown to the client.

use crate::command::append::MESSAGE_ID_BYTES_MAX;
use crate::record::property;
use std::fmt;
use thiserror::Error;

/// Longest topic name, in bytes.
pub const TOPIC_BYTES_MAX: usize = 127;
/// Longest consumer group name, in bytes.
pub const CONSUMER_GROUP_BYTES_MAX: usize = 120;
/// Longest message group, in bytes.
pub const MESSAGE_GROUP_BYTES_MAX: usize = 63;
/// Longest lite topic, in bytes.
pub const LITE_TOPIC_BYTES_MAX: usize = 64;
/// Prefix of a consumer group's dead-letter topic.
pub const DEAD_LETTER_PREFIX: &str = "%DLQ%";
/// Prefix of a consumer group's retry topic.
pub const RETRY_PREFIX: &str = "%RETRY%";

const SYSTEM_TOPIC_PREFIX: &str = "rmq_sys_";
const SYSTEM_TOPICS: [&str; 10] = [
    "TBW102",
    "SCHEDULE_TOPIC_XXXX",
    "BenchmarkTest",
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "RMQ_SYS_TRACE_TOPIC",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    "TRANS_CHECK_MAX_TIME_TOPIC",
    "SELF_TEST_TOPIC",
    "OFFSET_MOVED_EVENT",
    "CHECKPOINT_TOPIC",
];
const SYSTEM_GROUP_PREFIX: &str = "CID_RMQ_SYS_";
const SYSTEM_GROUPS: [&str; 13] = [
    "DEFAULT_PRODUCER",
    "DEFAULT_CONSUMER",
    "TOOLS_CONSUMER",
    "SCHEDULE_CONSUMER",
    "FILTERSRV_CONSUMER",
    "__MONITOR_CONSUMER",
    "CLIENT_INNER_PRODUCER",
    "SELF_TEST_P_GROUP",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    "CID_ONSAPI_PULL",
];

/// What a text is for; its name begins the sentence of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameKind {
    /// A topic.
    Topic,
    /// A consumer group.
    ConsumerGroup,
    /// A tag.
    Tag,
    /// One key of a message.
    Key,
    /// A message group.
    MessageGroup,
    /// A message id.
    MessageId,
    /// The name of a user property.
    PropertyKey,
    /// The value of a user property.
    PropertyValue,
    /// A lite topic.
    LiteTopic,
}

impl fmt::Display for NameKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NameKind::Topic => "topic",
            NameKind::ConsumerGroup => "consumer group",
            NameKind::Tag => "tag",
            NameKind::Key => "message key",
            NameKind::MessageGroup => "message group",
            NameKind::MessageId => "message id",
            NameKind::PropertyKey => "property name",
            NameKind::PropertyValue => "property value",
            NameKind::LiteTopic => "lite topic",
        })
    }
}

/// Why a name is refused. Displays as one sentence.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NameError {
    /// Empty, or only white space.
    #[error("The {0} must not be blank.")]
    Blank(NameKind),
    /// Too long.
    #[error("The {kind} has {bytes} bytes, which is more than {bytes_max}.")]
    TooLong {
        /// What it is for.
        kind: NameKind,
        /// Its length.
        bytes: usize,
        /// The bound.
        bytes_max: usize,
    },
    /// A character that is not allowed.
    #[error("The {kind} holds the character {character:?}, which is not allowed.")]
    Character {
        /// What it is for.
        kind: NameKind,
        /// The first such character.
        character: char,
    },
    /// Belongs to the system.
    #[error("The {kind} {name:?} is reserved for the system.")]
    Reserved {
        /// What it is for.
        kind: NameKind,
        /// The name.
        name: String,
    },
}

/// A topic that clients may name: 1 to 127 of `%|a-zA-Z0-9_-`, not the system's. Retry and dead-letter topics are fine.
///
/// # Errors
/// See [`NameError`].
pub fn check_topic(name: &str) -> Result<(), NameError> {
    check_resource(NameKind::Topic, name, TOPIC_BYTES_MAX)?;
    if SYSTEM_TOPICS.contains(&name) || name.starts_with(SYSTEM_TOPIC_PREFIX) {
        return Err(NameError::Reserved { kind: NameKind::Topic, name: name.to_owned() });
    }
    Ok(())
}

/// A consumer group that clients may name: 1 to 120 of `%|a-zA-Z0-9_-`, not the system's.
///
/// # Errors
/// See [`NameError`].
pub fn check_consumer_group(name: &str) -> Result<(), NameError> {
    check_resource(NameKind::ConsumerGroup, name, CONSUMER_GROUP_BYTES_MAX)?;
    if SYSTEM_GROUPS.contains(&name) || name.starts_with(SYSTEM_GROUP_PREFIX) {
        return Err(NameError::Reserved { kind: NameKind::ConsumerGroup, name: name.to_owned() });
    }
    Ok(())
}

/// The topic that takes the dead letters of a consumer group.
#[must_use]
pub fn dead_letter_topic(consumer_group: &str) -> String {
    format!("{DEAD_LETTER_PREFIX}{consumer_group}")
}

/// A message's tag: not blank, no `|`, no control characters.
///
/// # Errors
/// See [`NameError`].
pub fn check_tag(tag: &str) -> Result<(), NameError> {
    check_text(NameKind::Tag, tag)?;
    refuse(NameKind::Tag, tag, |c| c == '|')
}

/// One key of a message: not blank, no control characters.
///
/// # Errors
/// See [`NameError`].
pub fn check_key(key: &str) -> Result<(), NameError> {
    check_text(NameKind::Key, key)
}

/// A message group: not blank, less than 64 bytes, no control characters.
///
/// # Errors
/// See [`NameError`].
pub fn check_message_group(group: &str) -> Result<(), NameError> {
    check_text(NameKind::MessageGroup, group)?;
    check_length(NameKind::MessageGroup, group, MESSAGE_GROUP_BYTES_MAX)
}

/// A message id: not blank, at most 255 bytes, no control characters. Its form is the client's own.
///
/// # Errors
/// See [`NameError`].
pub fn check_message_id(id: &str) -> Result<(), NameError> {
    check_text(NameKind::MessageId, id)?;
    check_length(NameKind::MessageId, id, MESSAGE_ID_BYTES_MAX)
}

/// The name of a user property: not blank, no control characters, not the system's.
///
/// # Errors
/// See [`NameError`].
pub fn check_property_key(key: &str) -> Result<(), NameError> {
    check_text(NameKind::PropertyKey, key)?;
    if property::is_system(key) {
        return Err(NameError::Reserved { kind: NameKind::PropertyKey, name: key.to_owned() });
    }
    Ok(())
}

/// The value of a user property: no control characters; may be empty.
///
/// # Errors
/// See [`NameError`].
pub fn check_property_value(value: &str) -> Result<(), NameError> {
    refuse(NameKind::PropertyValue, value, char::is_control)
}

/// A lite topic: 1 to 64 of `a-zA-Z0-9_-`.
///
/// # Errors
/// See [`NameError`].
pub fn check_lite_topic(name: &str) -> Result<(), NameError> {
    check_resource(NameKind::LiteTopic, name, LITE_TOPIC_BYTES_MAX)?;
    refuse(NameKind::LiteTopic, name, |c| matches!(c, '%' | '|'))
}

fn check_resource(kind: NameKind, name: &str, bytes_max: usize) -> Result<(), NameError> {
    if name.trim().is_empty() {
        return Err(NameError::Blank(kind));
    }
    check_length(kind, name, bytes_max)?;
    refuse(kind, name, |c| !(c.is_ascii_alphanumeric() || matches!(c, '%' | '|' | '_' | '-')))
}

fn check_text(kind: NameKind, text: &str) -> Result<(), NameError> {
    if text.trim().is_empty() {
        return Err(NameError::Blank(kind));
    }
    refuse(kind, text, char::is_control)
}

fn check_length(kind: NameKind, name: &str, bytes_max: usize) -> Result<(), NameError> {
    if name.len() > bytes_max {
        return Err(NameError::TooLong { kind, bytes: name.len(), bytes_max });
    }
    Ok(())
}

fn refuse(kind: NameKind, text: &str, bad: impl Fn(char) -> bool) -> Result<(), NameError> {
    match text.chars().find(|c| bad(*c)) {
        Some(character) => Err(NameError::Character { kind, character }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sentence(result: Result<(), NameError>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn topics() {
        for good in ["orders", "%RETRY%group", "%DLQ%group", "a|b", "A-b_9", &"t".repeat(127)] {
            assert_eq!(check_topic(good), Ok(()), "{good}");
        }
        assert_eq!(sentence(check_topic(" ")), "The topic must not be blank.");
        assert_eq!(sentence(check_topic(&"t".repeat(128))), "The topic has 128 bytes, which is more than 127.");
        assert_eq!(sentence(check_topic("a b")), "The topic holds the character ' ', which is not allowed.");
        assert_eq!(sentence(check_topic("TBW102")), "The topic \"TBW102\" is reserved for the system.");
        for bad in ["rmq_sys_x", "SCHEDULE_TOPIC_XXXX", "ü", "a.b", "a/b"] {
            assert!(check_topic(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn consumer_groups() {
        assert_eq!(check_consumer_group("billing"), Ok(()));
        assert_eq!(check_consumer_group(&"g".repeat(120)), Ok(()));
        assert_eq!(check_topic(&dead_letter_topic(&"g".repeat(120))), Ok(()), "its dead-letter topic is a topic");
        for bad in ["", "a b", "CID_RMQ_SYS_TRANS", "TOOLS_CONSUMER", &"g".repeat(121)] {
            assert!(check_consumer_group(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn parts_of_a_message() {
        assert!(check_tag("TagA").is_ok() && check_tag("a|b").is_err() && check_tag("\t").is_err());
        assert!(check_tag("a\u{7f}").is_err() && check_tag("").is_err() && check_tag("ä ö").is_ok());
        assert!(check_key("order 7").is_ok() && check_key(" ").is_err() && check_key("a\nb").is_err());
        assert!(check_message_group(&"g".repeat(63)).is_ok() && check_message_group(&"g".repeat(64)).is_err());
        assert!(check_message_id("any form").is_ok() && check_message_id("").is_err());
        assert!(check_message_id(&"i".repeat(255)).is_ok() && check_message_id(&"i".repeat(256)).is_err());
        assert!(check_property_key("color").is_ok() && check_property_key("TAGS").is_err());
        assert!(check_property_key("a\u{1}").is_err() && check_property_value("a\u{2}").is_err());
        assert!(check_property_value("").is_ok() && check_property_value("any thing").is_ok());
        assert!(check_lite_topic("lite-1").is_ok() && check_lite_topic("a%b").is_err());
    }
}
