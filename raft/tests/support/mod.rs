//! What the tests share.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod cluster;
pub mod machine;

use raftmq_store::commit_log::CommitLogOptions;
use std::path::Path;

/// A small real log that is synced.
pub fn log_options(dir: &Path) -> CommitLogOptions {
    CommitLogOptions { segment_bytes_max: 16 << 20, zero_ahead_bytes: 1 << 20, ..CommitLogOptions::new(dir) }
}
