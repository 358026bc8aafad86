//! The disk side of raftmq: everything that is written to a file is written here.
//!
//! - [`io`]: the one door to the file system, so that tests and simulations can put a faulty one in its place.
//! - [`frame`] and [`segment`]: how a Raft entry lies in a file, and which file it lies in.
//! - [`commit_log`]: the log of one group: append, group commit, truncate, vote, purge, recovery.
//! - [`data_dir`]: the folder of a node: lock, format version, whose it is.
//! - [`consume_queue`], [`index_file`] and [`state`]: what a group derives from its committed log.
//! - [`stamps`]: how far the disk of each node has come, so that an older copy of one is noticed.
//! - [`snapshots`]: the states that a replica keeps for others that start without the log before.
//! - [`inspect`]: a look at all of these without changing them, for tools.
//! - [`testing`]: an in-memory file system that loses power.
//!
//! Nothing here knows of tokio, of the network or of what a message means. Numbers on disk are big-endian.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod commit_log;
pub mod consume_queue;
pub mod data_dir;
pub mod frame;
pub mod index_file;
pub mod inspect;
pub mod io;
pub mod segment;
pub mod snapshots;
pub mod stamps;
pub mod state;
pub mod testing;

pub use commit_log::{
    CommitLog, CommitLogOptions, Done, Durability, EntryKind, NewEntry, OpenError, Recovered, SegmentInfo, StoredEntry,
};
pub use data_dir::{DataDir, DataDirError, Identity};
pub use io::{Io, IoFile, OpenMode, RealIo, Volume};
pub use snapshots::Snapshots;
pub use stamps::{Stamp, Stamps, StampsError};
pub use testing::FaultyIo;
