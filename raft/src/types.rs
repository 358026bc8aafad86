//! The Raft library's types as this crate uses them: one configuration for all groups.

use bytes::Bytes;
use raftmq_model::ids::{NodeId, PhysicalOffset, ReplicaId};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What a normal entry carries. `payload_offset` is decided by the log store, so it is known on entries that were read
/// from it and unknown (0) on entries on their way to it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Payload {
    /// One encoded batch of commands.
    pub bytes: Bytes,
    /// CommitLog offset of the first byte of `bytes`.
    pub payload_offset: u64,
}

impl Payload {
    /// A payload that no log store has placed yet.
    #[must_use]
    pub fn unplaced(bytes: Bytes) -> Payload {
        Payload { bytes, payload_offset: 0 }
    }

    pub(crate) fn placed(bytes: Bytes, at: PhysicalOffset) -> Payload {
        Payload { bytes, payload_offset: at.0 }
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at {}", self.bytes.len(), self.payload_offset)
    }
}

// The test suite of the Raft library makes entries from numbers.
impl From<u64> for Payload {
    fn from(value: u64) -> Payload {
        Payload::unplaced(Bytes::copy_from_slice(&value.to_be_bytes()))
    }
}

openraft::declare_raft_types!(
    /// The one configuration of all groups, so that the Raft library is compiled once.
    pub TypeConfig:
        D = Payload,
        R = Vec<Bytes>,
        NodeId = u64,
        Node = (),
        LeaderId = openraft::impls::leader_id_std::LeaderId<u64, u64>,
        AsyncRuntime = openraft_rt_tokio::TokioRuntime,
);

pub(crate) type Raft = openraft::Raft<TypeConfig, crate::adaptor::Adaptor>;
pub(crate) type Vote = openraft::type_config::alias::VoteOf<TypeConfig>;
pub(crate) type LogId = openraft::type_config::alias::LogIdOf<TypeConfig>;
pub(crate) type CommittedLeaderId = openraft::type_config::alias::CommittedLeaderIdOf<TypeConfig>;
pub(crate) type LeaderId = openraft::type_config::alias::LeaderIdOf<TypeConfig>;
pub(crate) type RaftEntry = openraft::type_config::alias::EntryOf<TypeConfig>;
pub(crate) type Membership = openraft::Membership<u64, ()>;
pub(crate) type StoredMembership = openraft::type_config::alias::StoredMembershipOf<TypeConfig>;
pub(crate) type SnapshotMeta = openraft::type_config::alias::SnapshotMetaOf<TypeConfig>;
pub(crate) type Snapshot = openraft::type_config::alias::SnapshotOf<TypeConfig, Bytes>;

/// A log id from term and index.
pub(crate) fn log_id((term, index): (u64, u64)) -> LogId {
    LogId::new(CommittedLeaderId::from(term), index)
}

/// Term and index of a log id.
pub(crate) fn term_index(id: &LogId) -> (u64, u64) {
    (id.leader_id.term, id.index)
}

/// The node that hosts a replica.
pub(crate) fn node_of(replica: u64) -> NodeId {
    ReplicaId::from_u64(replica).node
}
