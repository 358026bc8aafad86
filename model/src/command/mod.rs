//! Commands of a broker group's log and their outcomes, with versioned encodings.
//!
//! ```text
//! command: | kind u8 | version u8 | body |       body: protobuf, but for Append (append.rs)
//! outcome: | kind u8 | version u8 | body |
//! ```
//! Kind numbers are never reused. `decode` refuses what it does not know with an error, never a panic.

pub mod append;
mod codec;
pub mod outcome;
mod outcome_codec;
#[cfg(test)]
mod tests;

pub use append::{Append, AppendEntry, AppendWriter};
pub use codec::{DecodeError, stores_records};
pub use outcome::{AppendOutcome, HandleOutcome, Outcome, PopOutcome, PoppedMessage};

use crate::config::{ConsumerGroupConfig, TopicConfig};
use bytes::Bytes;

/// One decision for the log of a broker group.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Store messages.
    Append(Append),
    /// Copy a topic's record into this group (idempotent by uid and version).
    PutTopic(TopicConfig),
    /// Forget a topic: its queues, cursors and what is in flight. The uid stays refused for ever.
    DeleteTopic {
        /// The topic's uid.
        uid: u64,
    },
    /// Copy a consumer group's record into this group (idempotent by uid and version).
    PutConsumerGroup(ConsumerGroupConfig),
    /// Forget a consumer group: its cursors and what is in flight. The uid stays refused for ever.
    DeleteConsumerGroup {
        /// The consumer group's uid.
        uid: u64,
    },
    /// Take messages of one queue for a consumer group.
    Pop(Pop),
    /// Finish messages.
    Ack(Ack),
    /// Change when one message becomes visible again.
    ChangeInvisible(ChangeInvisible),
    /// Move one message to the dead-letter topic and finish it, in one step.
    DeadLetter(DeadLetter),
    /// Make messages visible again soon whose taker never got them.
    Release(Release),
    /// Keep the state as it is behind this entry as a snapshot, from which a replica without the log before can start.
    Snapshot,
    /// Forget all messages up to and with the entry of a snapshot, which is the purge point.
    Purge {
        /// Log index of the snapshot's entry.
        upto_index: u64,
    },
}

/// A plan to take messages of one queue (law 3: the leader plans, apply checks `from` and the premises again).
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Pop {
    /// Consumer group uid.
    #[prost(uint64, tag = "1")]
    pub consumer_group: u64,
    /// Topic uid.
    #[prost(uint64, tag = "2")]
    pub topic: u64,
    /// Queue id.
    #[prost(uint32, tag = "3")]
    pub queue: u32,
    /// Premise: the group's cursor in this queue.
    #[prost(uint64, tag = "4")]
    pub from: u64,
    /// The cursor afterwards; offsets in `from..next` that are not in `fresh` were skipped by the filter.
    #[prost(uint64, tag = "5")]
    pub next: u64,
    /// Offsets taken for the first time, ascending, within `from..next`.
    #[prost(uint64, repeated, tag = "6")]
    pub fresh: Vec<u64>,
    /// In-flight messages whose time is over, to be taken again.
    #[prost(message, repeated, tag = "7")]
    pub again: Vec<PopAgain>,
    /// How long the messages stay invisible, in milliseconds.
    #[prost(uint64, tag = "8")]
    pub invisible_ms: u64,
    /// Names this attempt: the same id again gets the same batch while it is in flight. Empty: none.
    #[prost(string, tag = "9")]
    pub attempt_id: String,
}

/// One message to take again, with the premise that it is still at `attempt` and its time is over.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct PopAgain {
    /// Queue offset.
    #[prost(uint64, tag = "1")]
    pub offset: u64,
    /// The attempt that timed out.
    #[prost(uint32, tag = "2")]
    pub attempt: u32,
}

/// What a receipt handle says, inside a command. `popped_at` is the log index of the entry that gave the handle out.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct HandleKey {
    /// Consumer group uid.
    #[prost(uint64, tag = "1")]
    pub consumer_group: u64,
    /// Topic uid.
    #[prost(uint64, tag = "2")]
    pub topic: u64,
    /// Queue id.
    #[prost(uint32, tag = "3")]
    pub queue: u32,
    /// Queue offset.
    #[prost(uint64, tag = "4")]
    pub offset: u64,
    /// Delivery attempt, from 1.
    #[prost(uint32, tag = "5")]
    pub attempt: u32,
    /// Log index of the entry that gave the handle out.
    #[prost(uint64, tag = "6")]
    pub popped_at: u64,
}

/// Finish messages; each handle is judged on its own.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Ack {
    /// The handles.
    #[prost(message, repeated, tag = "1")]
    pub handles: Vec<HandleKey>,
}

/// Make one message visible again `invisible_ms` after the log time of the command.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ChangeInvisible {
    /// The handle; always set.
    #[prost(message, optional, tag = "1")]
    pub handle: Option<HandleKey>,
    /// Milliseconds from now; 0 is at once.
    #[prost(uint64, tag = "2")]
    pub invisible_ms: u64,
    /// Tells this request from all others, the same each time it is proposed: proposed again after an unknown outcome, it
    /// is answered with the handle that it gave out before. 0: never answered like that.
    #[prost(uint64, tag = "3")]
    pub request: u64,
}

/// Make messages visible again `after_ms` after the log time of the command, if that is sooner than they would be: whoever
/// took them went away before they were handed over. Handles and attempt ids stay good: a taker who has them after all may
/// finish them, and one who asks again under the same attempt id gets the batch again.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Release {
    /// The messages; each is judged on its own.
    #[prost(message, repeated, tag = "1")]
    pub messages: Vec<ReleaseEntry>,
    /// Milliseconds from now; 0 is at once.
    #[prost(uint64, tag = "2")]
    pub after_ms: u64,
}

/// One message to release, with the premise that nobody was given it, or more time for it, since.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ReleaseEntry {
    /// The handle; always set.
    #[prost(message, optional, tag = "1")]
    pub handle: Option<HandleKey>,
    /// When the message becomes visible again as its taker was told, in log milliseconds.
    #[prost(int64, tag = "2")]
    pub visible_at_ms: i64,
}

/// Append `letter` to the dead-letter topic and finish the message that `handle` names, if it still is in flight at
/// that attempt (a message that is gone is OK: the command is idempotent).
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct DeadLetter {
    /// The message; `popped_at` 0 means "whatever handle is newest, provided that its time is over" (the driver's own).
    #[prost(message, optional, tag = "1")]
    pub handle: Option<HandleKey>,
    /// Dead-letter topic uid.
    #[prost(uint64, tag = "2")]
    pub letter_topic: u64,
    /// Queue of the dead-letter topic, hosted by this group.
    #[prost(uint32, tag = "3")]
    pub letter_queue: u32,
    /// Tag hash for the ConsumeQueue unit.
    #[prost(sint64, tag = "4")]
    pub letter_tags_code: i64,
    /// The whole record, already under the dead-letter topic's name (§7.4: apply never reads the log).
    #[prost(bytes = "bytes", tag = "5")]
    pub letter: Bytes,
}
