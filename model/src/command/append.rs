//! `Append`: the one hot command, with a hand-made layout so that each record is encoded once and its CommitLog offset
//! is known from where it lies.
//!
//! ```text
//! body:  | count u32 | count × entry |                                    (all integers big-endian)
//! entry: | topic u64 | queue u32 | tags_code i64 | id_len u8 | message id | record_len u32 | record |
//! ```

use crate::ids::{QueueId, TopicUid};
use bytes::Bytes;

/// Messages to store, in order. Entries may belong to different topics and queues of the group.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Append {
    /// The messages.
    pub entries: Vec<AppendEntry>,
}

/// One message to store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppendEntry {
    /// The topic.
    pub topic: TopicUid,
    /// A queue of it that this group hosts.
    pub queue: QueueId,
    /// Tag hash of the ConsumeQueue unit ([`crate::filter::tags_code`]).
    pub tags_code: i64,
    /// The client's message id, the stored-once key within the topic. At most 255 bytes; empty: never deduplicated.
    pub message_id: Bytes,
    /// The record in RocketMQ's layout ([`crate::record`]).
    pub record: Bytes,
    /// Offset of the first byte of `record` within the encoded command; filled in by `decode`, 0 in a command that was
    /// never encoded.
    pub record_at: u32,
}
