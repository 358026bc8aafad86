//! Options of a node and of a group, with their defaults.

use crate::network::{Tcp, Transport};
use crate::peers::PeerAddresses;
use crate::stamps::StampOptions;
use raftmq_model::clock::Clock;
use raftmq_model::ids::{GroupId, NodeId, ReplicaId};
use raftmq_store::commit_log::CommitLogOptions;
use std::sync::Arc;

/// Bytes of commands that may wait in front of one group's log.
pub const QUEUE_BYTES_MAX: usize = 32 << 20;
/// Proposals (not commands) that may wait in front of one group's log.
pub const QUEUE_COUNT_MAX: usize = 65_536;
/// Bytes of an entry's payload after which no further proposal is added to it.
pub const ENTRY_BYTES_MAX: usize = 256 << 10;
/// Bytes of an entry's payload that are never passed, not even by one proposal alone. Small segments lower it.
pub const ENTRY_BYTES_HARD_MAX: usize = 8 << 20;
/// Entries of one group that are proposed and not yet applied.
pub const PIPELINE_DEPTH: usize = 4;

/// Bytes that the scrubber reads in a second: 1 TiB takes three days.
pub const SCRUB_BYTES_PER_SECOND_MAX: u64 = 4 << 20;
/// A log that is read sooner is read again after an hour.
pub const SCRUB_INTERVAL_MS: u64 = 3_600_000;

/// How a node takes part in its cluster's groups.
#[derive(Clone)]
pub struct RaftNodeOptions {
    /// This node.
    pub node: NodeId,
    /// Which life of this node: grows when its disk is replaced.
    pub incarnation: u32,
    /// The cluster; empty before the node was adopted ([`crate::RaftNode::adopt`]), and then every peer call is refused.
    pub cluster_id: String,
    /// A leader shows itself this often.
    pub heartbeat_ms: u64,
    /// Shortest random wait before a campaign, on top of `election_max_ms` of silence.
    pub election_min_ms: u64,
    /// Longest random wait before a campaign; also how long a leader's lease lasts.
    pub election_max_ms: u64,
    /// Gives log time to batches.
    pub clock: Arc<dyn Clock>,
    /// Where the other nodes' peer ports are.
    pub peers: PeerAddresses,
    /// How to connect to them.
    pub transport: Arc<dyn Transport>,
    /// The scrubber reads at most this many bytes in a second, of all groups together; 0: there is none.
    pub scrub_bytes_per_second_max: u64,
    /// A group is read again this long after the last time was begun, at the earliest.
    pub scrub_interval_ms: u64,
    /// Where stamps are kept by which an older copy of the disk is noticed; none: it is not.
    pub stamps: Option<StampOptions>,
    /// Worker threads of the Raft runtime.
    pub threads_count: usize,
}

impl RaftNodeOptions {
    /// Options with the default timing: heartbeat 50 ms, election 250 to 450 ms, two threads.
    #[must_use]
    pub fn new(
        node: NodeId,
        incarnation: u32,
        cluster_id: impl Into<String>,
        clock: Arc<dyn Clock>,
        peers: PeerAddresses,
    ) -> RaftNodeOptions {
        RaftNodeOptions {
            node,
            incarnation,
            cluster_id: cluster_id.into(),
            heartbeat_ms: 50,
            election_min_ms: 250,
            election_max_ms: 450,
            clock,
            peers,
            transport: Arc::new(Tcp),
            scrub_bytes_per_second_max: SCRUB_BYTES_PER_SECOND_MAX,
            scrub_interval_ms: SCRUB_INTERVAL_MS,
            stamps: None,
            threads_count: 2,
        }
    }

    /// The id under which this node's replicas vote.
    #[must_use]
    pub fn replica(&self) -> ReplicaId {
        ReplicaId { node: self.node, incarnation: self.incarnation }
    }
}

/// One replica that this node hosts.
pub struct GroupOptions {
    /// The group.
    pub group: GroupId,
    /// Its log.
    pub log: CommitLogOptions,
    /// Gives log time to the group's batches; none: the node's clock.
    pub clock: Option<Arc<dyn Clock>>,
    /// Bytes of commands that may wait ([`QUEUE_BYTES_MAX`]).
    pub queue_bytes_max: usize,
    /// Bytes after which an entry is full ([`ENTRY_BYTES_MAX`]).
    pub entry_bytes_max: usize,
    /// Entries proposed and not yet applied ([`PIPELINE_DEPTH`]).
    pub pipeline_depth: usize,
}

impl GroupOptions {
    /// Options with the default bounds.
    #[must_use]
    pub fn new(group: GroupId, log: CommitLogOptions) -> GroupOptions {
        GroupOptions {
            group,
            log,
            clock: None,
            queue_bytes_max: QUEUE_BYTES_MAX,
            entry_bytes_max: ENTRY_BYTES_MAX,
            pipeline_depth: PIPELINE_DEPTH,
        }
    }
}
