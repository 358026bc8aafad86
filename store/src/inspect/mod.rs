//! Looking at the files of a group without a node and without changing a byte.
//!
//! | file | holds |
//! |---|---|
//! | `read_only` | the file system in which nothing can be changed |
//! | `log`, `log_files` | a walk over a log that goes on behind damage |
//! | `queues`, `keys` | ConsumeQueues and IndexFiles against the log |
//! | `verify`, `stats` | what a whole group is checked for; counts and a digest |
//! | `messages`, `finding` | what a payload holds; what is wrong and where |
//!
//! The rules by which frames, segments and votes are read are those of `commit_log`; nothing is decoded a second way.
//! Damage is a [`Finding`], never a panic and never an early end: whoever looks at a broken folder wants to see all of
//! it. One thread; memory does not grow with the log.

mod finding;
mod keys;
mod log;
mod log_files;
mod messages;
mod queues;
mod read_only;
mod stats;
mod verify;

pub use finding::{FINDINGS_COUNT_MAX, Finding, Findings, Severity};
pub use keys::{KeysCheck, KeysReport, key_stats};
pub use log::{Gap, LogWalk, WalkedEntry};
pub use log_files::LogFacts;
pub use messages::{Commands, Contents, commands, position};
pub use queues::{QueuesCheck, QueuesReport};
pub use read_only::ReadOnlyIo;
pub use stats::{LogStats, TermRun, TopicStats, command_name, kind_name};
pub use verify::{Checkpoint, GroupFolder, GroupReport, open_queues, verify};
