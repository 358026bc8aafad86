//! The Raft library's settings: made from the node's options, with everything automatic that we decide ourselves off.

use crate::errors::OpenError;
use crate::options::RaftNodeOptions;
use openraft::{Config, SnapshotPolicy};
use raftmq_model::ids::GroupId;
use std::sync::Arc;

/// Entries in one append to a follower; bytes are bounded by the log store.
const APPEND_ENTRIES_MAX: u64 = 64;
/// Queued proposals and appends that become one write.
const MERGED_ENTRIES_MAX: u64 = 256;
/// A snapshot may take this long to reach a follower.
const SNAPSHOT_TIMEOUT_MS: u64 = 60_000;
/// Never because of lag alone: a snapshot goes out only when the log that a follower needs is purged.
const NEVER: u64 = u64::MAX / 4;

pub(crate) fn config(options: &RaftNodeOptions, group: GroupId) -> Result<Arc<Config>, OpenError> {
    let config = Config {
        cluster_name: format!("group-{group}"),
        heartbeat_interval: options.heartbeat_ms,
        heartbeat_min_interval: Some(0),
        election_timeout_min: options.election_min_ms,
        election_timeout_max: options.election_max_ms,
        enable_pre_vote: Some(true),
        // A leader sends entries before its own disk has them. One that restarts may have lost them, so it must not go
        // on in the same term: two different entries could then carry one log id.
        enable_leader_restore: Some(false),
        // A follower whose damaged log was cut by an operator gets again what it had acknowledged before.
        allow_log_reversion: Some(true),
        snapshot_policy: SnapshotPolicy::Never,
        install_snapshot_timeout: SNAPSHOT_TIMEOUT_MS,
        max_in_snapshot_log_to_keep: NEVER,
        replication_lag_threshold: NEVER,
        max_payload_entries: APPEND_ENTRIES_MAX,
        max_append_entries: Some(MERGED_ENTRIES_MAX),
        broadcast_submitted_on_append: Some(false),
        ..Config::default()
    };
    let config = config.validate().map_err(|error| OpenError::Config(error.to_string()))?;
    Ok(Arc::new(config))
}
