//! What a broker is started with. Every bound has a unit in its name and a default that tests and products share.

use crate::meta_client::MetaClient;
use raftmq_model::clock::Clock;
use raftmq_model::ids::{GroupId, NodeId};
use raftmq_model::machine::Limits;
use raftmq_raft::RaftNode;
use raftmq_store::state::{RocksState, StateStore};
use raftmq_store::{Durability, Io};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A kibibyte, mebibyte.
const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// Opens the state store of one group in a folder of its own.
pub type OpenState = Arc<dyn Fn(GroupId, &Path) -> io::Result<Arc<dyn StateStore>> + Send + Sync>;

/// The [`OpenState`] of production.
#[must_use]
pub fn open_rocks_state() -> OpenState {
    Arc::new(|_, dir| Ok(Arc::new(RocksState::open(dir)?)))
}

/// Everything that [`crate::Broker::start`] needs.
#[derive(Clone)]
pub struct BrokerOptions {
    /// This node.
    pub node: NodeId,
    /// Its incarnation; a replica id is (node, incarnation).
    pub incarnation: u32,
    /// The cluster's id.
    pub cluster_id: String,
    /// Folder of this node's data; replicas live in `groups/<group id>` below it.
    pub data_dir: PathBuf,
    /// The node's Raft runtime.
    pub raft: Arc<RaftNode>,
    /// The node's copy of the meta group.
    pub meta: Arc<MetaClient>,
    /// The wall clock; its readings travel in commands.
    pub clock: Arc<dyn Clock>,
    /// File access.
    pub io: Arc<dyn Io>,
    /// Opens the state store of a group in a folder: RocksDB in production ([`open_rocks_state`]).
    pub open_state: OpenState,
    /// CommitLog segments are this big.
    pub segment_bytes_max: u64,
    /// Messages are kept this long, in milliseconds of log time; 0: for ever.
    pub retention_ms: u64,
    /// Bytes of a group's log that are kept, and up to a segment and a sixteenth more; 0: no bound.
    pub retention_bytes_max: u64,
    /// Forget the oldest messages while the disk of a replica has less room than twice its reserve; else sends are refused
    /// when the reserve begins.
    pub purge_when_disk_short: bool,
    /// Keep an index of keys and message ids, by which messages are found.
    pub key_index: bool,
    /// What an acknowledgement means for this node's disk.
    pub durability: Durability,
    /// Create a topic at the first send to it.
    pub auto_create_topics: bool,
    /// Create a consumer group at its first receive.
    pub auto_create_consumer_groups: bool,
    /// Queues of a topic that is created without a number.
    pub topic_queue_count: u32,
    /// Written into records as the host that stored them.
    pub store_host: SocketAddr,
    /// Bounds of the group's state. They are part of the replicated rules: the same on every node, always.
    pub rules: Limits,
    /// Bounds that operators rarely touch.
    pub limits: BrokerLimits,
}

/// Bounds of the leader side (law 10).
#[derive(Clone, Debug)]
pub struct BrokerLimits {
    /// CommitLog: most bytes written and not yet synced.
    pub write_bytes_max: u64,
    /// CommitLog: tail kept in memory, per group.
    pub cache_bytes_max: usize,
    /// CommitLog: blocks are zero-written this far ahead of the tail.
    pub zero_ahead_bytes: u64,
    /// Bytes of the data folder's volume (of a small one, an eighth) that messages never take: acks, positions, votes,
    /// checkpoints and replicated entries go on in them.
    pub disk_reserve_bytes: u64,
    /// Hundredths of that volume that may be used before messages are refused; 100: only the reserve counts.
    pub disk_used_percent_max: u8,
    /// How often it is looked how full the volume is. What is written within this time can go into the reserve.
    pub disk_check_ms: u64,
    /// Waits parked at one group's leader.
    pub waiters_count_max: usize,
    /// Messages that one `Pop` may take.
    pub pop_batch_count_max: u32,
    /// Bytes of records that one `Pop` takes; the message that reaches it is the last one.
    pub pop_bytes_max: usize,
    /// ConsumeQueue units that one plan looks at.
    pub scan_count_max: usize,
    /// A local checkpoint is made when this many bytes of changes wait for it ...
    pub checkpoint_bytes: usize,
    /// ... or this many entries ...
    pub checkpoint_entries: u64,
    /// ... or when something waited this long.
    pub checkpoint_interval_ms: u64,
    /// How often the key index goes on with what was applied.
    pub key_index_check_ms: u64,
    /// How often it is made durable; what a crash takes is indexed again.
    pub key_index_sync_ms: u64,
    /// Bytes of log that are read in a second, over all groups, to compare ConsumeQueues with it; 0: they are not.
    pub scrub_bytes_per_second_max: u64,
    /// A group's ConsumeQueues are compared at most this often.
    pub scrub_interval_ms: u64,
    /// How often a leader looks for what is to be forgotten.
    pub retention_check_ms: u64,
    /// Commands of this node that wait for, or travel to, one group's remote leader, in bytes.
    pub forward_bytes_max: usize,
    /// Bytes of commands in one forwarded request (one larger command goes alone).
    pub forward_request_bytes_max: usize,
    /// Forwarded requests under way to one group's remote leader.
    pub forward_requests_count_max: usize,
    /// Connections to each peer.
    pub peer_channels_count: usize,
}

impl Default for BrokerLimits {
    fn default() -> Self {
        BrokerLimits {
            write_bytes_max: 16 * MIB as u64,
            cache_bytes_max: 64 * MIB,
            zero_ahead_bytes: 16 * MIB as u64,
            disk_reserve_bytes: 512 * MIB as u64,
            disk_used_percent_max: 100,
            disk_check_ms: 200,
            waiters_count_max: 100_000,
            pop_batch_count_max: 32,
            pop_bytes_max: 32 * MIB,
            scan_count_max: 1024,
            checkpoint_bytes: 16 * MIB,
            checkpoint_entries: 200_000,
            checkpoint_interval_ms: 5_000,
            key_index_check_ms: 200,
            key_index_sync_ms: 10_000,
            scrub_bytes_per_second_max: 4 * MIB as u64,
            scrub_interval_ms: 3_600_000,
            retention_check_ms: 10_000,
            forward_bytes_max: 32 * MIB,
            forward_request_bytes_max: 256 * KIB,
            forward_requests_count_max: 8,
            peer_channels_count: 2,
        }
    }
}
