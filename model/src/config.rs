//! Configuration records that the meta group owns and broker groups copy into their own logs.
//!
//! They are protobuf messages (prost derive), so that fields can be added without breaking logs on disk. `0` of an
//! enum field means "not set" and never passes [`crate::name`] checks.

use crate::ids::{ConsumerGroupUid, GroupId, QueueId, TopicUid};

/// What a topic takes; the numbers are those of the public API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum TopicType {
    /// Not set: an invalid record.
    Unspecified = 0,
    /// Ordinary messages.
    Normal = 1,
    /// Messages with a message group.
    Fifo = 2,
    /// Messages with a delivery time.
    Delay = 3,
    /// Half messages with a later decision.
    Transaction = 4,
}

/// Who may use a topic; bits as in RocketMQ (read 4, write 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum Permission {
    /// Neither send nor receive.
    None = 0,
    /// Send only.
    Write = 2,
    /// Receive only.
    Read = 4,
    /// Both.
    ReadWrite = 6,
}

/// A topic: its queues and the broker group that hosts each (fixed when the queue is created; growth appends).
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct TopicConfig {
    /// See [`TopicUid`].
    #[prost(uint64, tag = "1")]
    pub uid: u64,
    /// Grows with each change of this record; a lower version never overwrites a higher one.
    #[prost(uint64, tag = "2")]
    pub version: u64,
    /// The name that clients use.
    #[prost(string, tag = "3")]
    pub name: String,
    /// What the topic takes.
    #[prost(enumeration = "TopicType", tag = "4")]
    pub topic_type: i32,
    /// Who may use it.
    #[prost(enumeration = "Permission", tag = "5")]
    pub permission: i32,
    /// `queue_groups[q]` is the [`GroupId`] of the broker group that hosts queue `q`.
    #[prost(uint32, repeated, tag = "6")]
    pub queue_groups: Vec<u32>,
}

impl TopicConfig {
    /// The topic's unique id.
    #[must_use]
    pub fn uid(&self) -> TopicUid {
        TopicUid(self.uid)
    }

    /// The queues that `group` hosts, ascending.
    pub fn queues_of(&self, group: GroupId) -> impl Iterator<Item = QueueId> + '_ {
        (0u32..).zip(&self.queue_groups).filter(move |(_, g)| **g == group.0).map(|(q, _)| QueueId(q))
    }

    /// The broker group that hosts `queue`, if the topic has such a queue.
    #[must_use]
    pub fn group_of(&self, queue: QueueId) -> Option<GroupId> {
        self.queue_groups.get(queue.0 as usize).copied().map(GroupId)
    }

    /// Whether clients may send.
    #[must_use]
    pub fn writable(&self) -> bool {
        self.permission & Permission::Write as i32 != 0
    }

    /// Whether clients may receive.
    #[must_use]
    pub fn readable(&self) -> bool {
        self.permission & Permission::Read as i32 != 0
    }
}

/// A consumer group: how it is served and how often a message is tried.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ConsumerGroupConfig {
    /// See [`ConsumerGroupUid`].
    #[prost(uint64, tag = "1")]
    pub uid: u64,
    /// Grows with each change of this record.
    #[prost(uint64, tag = "2")]
    pub version: u64,
    /// The name that clients use.
    #[prost(string, tag = "3")]
    pub name: String,
    /// Deliver in order per message group.
    #[prost(bool, tag = "4")]
    pub fifo: bool,
    /// Deliveries of one message before it goes to the dead-letter topic; at least 1.
    #[prost(uint32, tag = "5")]
    pub attempts_max: u32,
    /// Whether members may receive at all.
    #[prost(bool, tag = "6")]
    pub consume_enabled: bool,
}

impl ConsumerGroupConfig {
    /// The group's unique id.
    #[must_use]
    pub fn uid(&self) -> ConsumerGroupUid {
        ConsumerGroupUid(self.uid)
    }
}
