//! What `apply` asks the runtime to write.

use crate::ids::{PhysicalOffset, QueueId, QueueOffset, TopicUid};

/// What a run of commands changed, in the order in which it has to be written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Writes to the state store, in order: of two writes of one key the later one stands.
    pub writes: Vec<Write>,
    /// Units to append to ConsumeQueues, in order; offsets of one queue are consecutive.
    pub enqueues: Vec<Enqueue>,
    /// Topics whose ConsumeQueues are to be dropped, after `enqueues` were appended.
    pub topics_removed: Vec<TopicUid>,
}

/// One write to the state store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Sets a key.
    Put {
        /// The key ([`super::key`]).
        key: Vec<u8>,
        /// Its versioned value.
        value: Vec<u8>,
    },
    /// Removes a key.
    Delete {
        /// The key ([`super::key`]).
        key: Vec<u8>,
    },
}

/// One unit for a ConsumeQueue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enqueue {
    /// The topic.
    pub topic: TopicUid,
    /// The queue, hosted by this group.
    pub queue: QueueId,
    /// The message's offset in the queue.
    pub offset: QueueOffset,
    /// Where its record lies in the CommitLog.
    pub physical: PhysicalOffset,
    /// Bytes of the record.
    pub size: u32,
    /// Tag hash.
    pub tags_code: i64,
}

impl Changes {
    /// Whether there is nothing to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty() && self.enqueues.is_empty() && self.topics_removed.is_empty()
    }

    /// Forgets everything and keeps the allocations for the next run.
    pub fn clear(&mut self) {
        self.writes.clear();
        self.enqueues.clear();
        self.topics_removed.clear();
    }

    pub(super) fn put(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.writes.push(Write::Put { key, value });
    }

    pub(super) fn delete(&mut self, key: Vec<u8>) {
        self.writes.push(Write::Delete { key });
    }
}
