//! What `apply` answers, one per command. Encoded so that a forwarded proposal gets the same answer as a local one.

use crate::ids::{PhysicalOffset, QueueId, QueueOffset, Timestamp};

/// The answer to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// To `Append`: one for each entry, in order.
    Append(Vec<AppendOutcome>),
    /// To `PutTopic`, `DeleteTopic`, `PutConsumerGroup` and `DeleteConsumerGroup`: the record stands as asked, or a
    /// newer one does. To `Snapshot` and `Purge`: as asked, now or before.
    Done,
    /// To `Pop`.
    Pop(PopOutcome),
    /// To `Ack`: one for each handle, in order. To `ChangeInvisible` and `DeadLetter`: exactly one.
    Handles(Vec<HandleOutcome>),
    /// The command names a topic that this group does not know (yet, or any more).
    UnknownTopic,
    /// The command names a consumer group that this group does not know (yet, or any more).
    UnknownConsumerGroup,
    /// The command could not be decoded or asks for something impossible; a bug or a newer writer.
    Refused(String),
}

/// The answer to one entry of an `Append`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendOutcome {
    /// Stored, now or by an earlier command with the same message id (`repeated`).
    Stored {
        /// The queue that has it (the first one's, when repeated).
        queue: QueueId,
        /// Its offset there.
        offset: QueueOffset,
        /// Where its record lies.
        physical: PhysicalOffset,
        /// Whether an earlier command stored it.
        repeated: bool,
    },
    /// No such topic here.
    UnknownTopic,
    /// The topic has no such queue in this group.
    UnknownQueue,
}

/// The answer to a `Pop`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PopOutcome {
    /// The messages are in flight for the asking consumer, possibly none (the cursor has moved all the same).
    Taken {
        /// Log index for the handles. For a repeated attempt id: that of the first time.
        popped_at: u64,
        /// When they become visible again.
        visible_at: Timestamp,
        /// The queue they are of (the first attempt's, when repeated).
        queue: QueueId,
        /// The messages.
        messages: Vec<PoppedMessage>,
    },
    /// The premise no longer holds: plan again from `cursor`.
    Stale {
        /// The group's cursor in this queue.
        cursor: QueueOffset,
    },
}

/// One message taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoppedMessage {
    /// Its offset in the queue.
    pub offset: QueueOffset,
    /// Delivery attempt, from 1.
    pub attempt: u32,
}

/// The answer to one handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandleOutcome {
    /// Done, or done before.
    Done,
    /// Done; the message has a new handle given out at this log index (`ChangeInvisible`).
    Renewed {
        /// `popped_at` of the new handle.
        popped_at: u64,
    },
    /// The message is in flight under a newer handle.
    Superseded,
    /// The message of the handle is gone (acked, dead-lettered, or its topic or group deleted).
    Gone,
}
