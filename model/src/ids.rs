//! Identifiers and positions as newtypes, so that an offset is never taken for an index.
//!
//! All of them are plain values: `Copy`, ordered, without behaviour beyond conversion and formatting.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id!(
    /// A node of the cluster: one process with one data folder, named by its operator. Never reused.
    NodeId(u32)
);
id!(
    /// A Raft group. 0 is the meta group, broker groups count from 1.
    GroupId(u32)
);
id!(
    /// A topic's unique id, given by the meta group and never reused, so that a topic that is deleted and created
    /// again under one name is another topic.
    TopicUid(u64)
);
id!(
    /// A consumer group's unique id, given by the meta group and never reused.
    ConsumerGroupUid(u64)
);
id!(
    /// A queue of a topic, topic-wide from 0.
    QueueId(u32)
);
id!(
    /// A position in a queue: the number of messages before it.
    QueueOffset(u64)
);
id!(
    /// A byte position in a broker group's CommitLog, counted from the group's birth.
    PhysicalOffset(u64)
);
id!(
    /// Milliseconds since the Unix epoch.
    Timestamp(i64)
);

impl GroupId {
    /// The meta group ("namesrv").
    pub const META: GroupId = GroupId(0);
}

impl Timestamp {
    /// This time plus `ms` milliseconds, saturating.
    #[must_use]
    pub fn plus_ms(self, ms: u64) -> Timestamp {
        Timestamp(self.0.saturating_add(i64::try_from(ms).unwrap_or(i64::MAX)))
    }

    /// Milliseconds from `earlier` to this time, 0 when it is not later.
    #[must_use]
    pub fn ms_since(self, earlier: Timestamp) -> u64 {
        u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0)
    }
}

/// A replica of a group: a node's n-th life. Voting rights belong to a replica id, so a node that lost its disk comes
/// back under a higher incarnation and never votes as its former self (law 9).
///
/// ```text
/// u64: | node u32 | incarnation u32 |
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ReplicaId {
    /// The node that hosts the replica.
    pub node: NodeId,
    /// Counts from 1; grows when the node's disk is replaced.
    pub incarnation: u32,
}

impl ReplicaId {
    /// The id as the number that Raft uses.
    #[must_use]
    pub fn to_u64(self) -> u64 {
        (u64::from(self.node.0) << 32) | u64::from(self.incarnation)
    }

    /// The inverse of [`ReplicaId::to_u64`].
    #[must_use]
    pub fn from_u64(value: u64) -> ReplicaId {
        ReplicaId { node: NodeId((value >> 32) as u32), incarnation: value as u32 }
    }
}

impl fmt::Display for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.node, self.incarnation)
    }
}

/// Where a Raft entry stands: its log id and the CommitLog offset of the first byte of its payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Position {
    /// Raft term of the entry.
    pub term: u64,
    /// Raft index of the entry.
    pub index: u64,
    /// CommitLog offset of the entry's payload (behind the frame header).
    pub payload_offset: PhysicalOffset,
}
