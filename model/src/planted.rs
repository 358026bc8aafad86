//! Faults that are planted on purpose, to see that the harness finds them.
//!
//! Only a build with the feature `planted-faults` has them, and the `raftmq` program refuses to be built with it. There, one
//! of them at a time is switched on when the process starts. Without the feature every question is answered `false` at
//! compile time.

/// What is done wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Planted {
    /// An append counts as durable before it is (law 4).
    AckBeforeSync = 1,
    /// A vote is written and not synced.
    VoteNotSynced = 2,
    /// A leader serves before it has applied what earlier leaders committed (law 7).
    ReadyTooEarly = 3,
    /// A restart leaves in the ConsumeQueues what lies behind the checkpoint, and adds it again.
    QueueNotTruncated = 4,
    /// A receipt handle stays good when a newer one was given out.
    StaleHandleAccepted = 5,
    /// After a restart the whole log counts as committed.
    CommittedTooEarly = 6,
}

impl Planted {
    /// All of them.
    pub const ALL: [Planted; 6] = [
        Planted::AckBeforeSync,
        Planted::VoteNotSynced,
        Planted::ReadyTooEarly,
        Planted::QueueNotTruncated,
        Planted::StaleHandleAccepted,
        Planted::CommittedTooEarly,
    ];

    /// Its name in commands and tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Planted::AckBeforeSync => "ack-before-sync",
            Planted::VoteNotSynced => "vote-not-synced",
            Planted::ReadyTooEarly => "ready-too-early",
            Planted::QueueNotTruncated => "queue-not-truncated",
            Planted::StaleHandleAccepted => "stale-handle-accepted",
            Planted::CommittedTooEarly => "committed-too-early",
        }
    }
}

/// Whether this build has planted faults at all.
pub const POSSIBLE: bool = cfg!(feature = "planted-faults");

/// Whether this fault is switched on.
#[cfg(not(feature = "planted-faults"))]
#[inline(always)]
#[must_use]
pub const fn is(_: Planted) -> bool {
    false
}

#[cfg(feature = "planted-faults")]
mod switch {
    use super::Planted;
    use std::sync::atomic::{AtomicU8, Ordering};

    static ON: AtomicU8 = AtomicU8::new(0);

    /// Whether this fault is switched on.
    #[must_use]
    pub fn is(fault: Planted) -> bool {
        ON.load(Ordering::Relaxed) == fault as u8
    }

    /// Switches one fault on, for the rest of the process's life.
    pub fn switch_on(fault: Planted) {
        ON.store(fault as u8, Ordering::Relaxed);
    }
}

#[cfg(feature = "planted-faults")]
pub use switch::{is, switch_on};
