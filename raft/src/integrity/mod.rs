//! Rot in a replica's log: found by reads, at start and by a scrubber, and repaired from a peer, entry by entry.
//!
//! ```text
//!  start ──▶ mend: frames that the log does not open without          no vote, no answer before that
//!  reads ─┐
//!  scrub ─┴▶ repair: damaged entries, one at a time per group         meanwhile: guard
//!                └ source: own copy, then leader, then the other peers, over the peer port
//! ```
//! | file | holds |
//! |---|---|
//! | `source` | asks peers for the frame at a physical offset |
//! | `mend` | opens a log, and mends it first when it is damaged |
//! | `repair` | the task of an open log that has damage repaired, and lets its readers wait for that |
//! | `guard` | what a damaged replica does not do: campaign, and lead for long |
//! | `scrub` | reads what nobody reads, within a budget of bytes |
//!
//! The same log gives the same bytes on all replicas (law 6): a committed frame at one physical offset is the same everywhere.
//! A replica without peers cannot be repaired: it stops with the sentence that names the file (law 8).

mod guard;
mod mend;
mod repair;
mod scrub;
mod source;

pub(crate) use guard::guard;
pub(crate) use mend::open_log;
pub(crate) use repair::{RepairTask, Repairs};
pub(crate) use scrub::{Progress, run as scrub};
pub(crate) use source::FrameSource;

use raftmq_model::ids::Timestamp;

/// How whole a replica's log is. Counts are of the time since it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GroupIntegrity {
    /// Entries that are known to be damaged now.
    pub damaged_count: u64,
    /// Entries, fillers and index files that were found damaged.
    pub found_count: u64,
    /// Of these, what was repaired.
    pub repaired_count: u64,
    /// Times that the scrubber has read the whole log.
    pub scrub_passes_count: u64,
    /// When it did so last.
    pub scrub_ended_at: Option<Timestamp>,
    /// The entry that it comes to next.
    pub scrub_next: u64,
}
