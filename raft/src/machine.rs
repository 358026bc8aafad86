//! What a group's commands mean is the caller's business.

use bytes::Bytes;
use std::io;

/// One committed entry of the log, with the CommitLog offset of its payload.
pub use raftmq_store::commit_log::StoredEntry as Entry;

/// A snapshot that a machine kept on its own when it was behind some entry.
#[derive(Clone, Debug)]
pub struct KeptSnapshot {
    /// What came with [`Machine::apply_end`] of that entry.
    pub bookkeeping: Bytes,
    /// What [`Machine::install`] takes.
    pub data: Bytes,
}

/// A replicated state machine. Calls never overlap and come in log order.
///
/// The machine runs on the Raft runtime: a call that blocks for more than a few milliseconds delays other groups. An
/// error is final: the group stops and [`crate::RaftNode::fatal`] says why.
pub trait Machine: Send + 'static {
    /// The bookkeeping blob that came with the last [`Machine::apply_end`] or [`Machine::install`] that survived, `None`
    /// when nothing did. Called once, before anything else.
    ///
    /// # Errors
    /// When the state cannot be read.
    fn restored(&mut self) -> io::Result<Option<Bytes>>;

    /// Applies one committed entry that is durable on this replica.
    ///
    /// Answers one outcome per command of a batch, in order; nothing for blank and membership entries (whose payload is
    /// not the machine's business, but whose log id it may want to see).
    ///
    /// # Errors
    /// When an invariant of the state is violated or the state cannot be written.
    fn apply(&mut self, entry: &Entry) -> io::Result<Vec<Bytes>>;

    /// Ends a run of entries: all their changes and `bookkeeping` become one atomic write, readers may be woken after it.
    /// It need not be durable; what is lost is applied again.
    ///
    /// # Errors
    /// When the state cannot be written.
    fn apply_end(&mut self, bookkeeping: Bytes) -> io::Result<()>;

    /// Whether the run has to end with the entry that was applied last, before another one is applied.
    fn ends_run(&self) -> bool {
        false
    }

    /// The snapshot that the machine keeps of the state behind the entry at `index`; `None` when it keeps none.
    ///
    /// # Errors
    /// When it is damaged or cannot be read.
    fn kept_snapshot(&mut self, _index: u64) -> io::Result<Option<KeptSnapshot>> {
        Ok(None)
    }

    /// The whole state after the last applied entry, for a replica that has none. Makes this replica's own state durable
    /// up to there first: the log before it may be forgotten afterwards.
    ///
    /// # Errors
    /// When the state cannot be read or written. Only the caller of [`crate::Group::compact`] learns of it.
    fn snapshot(&mut self) -> io::Result<Bytes>;

    /// Replaces the state by a snapshot, together with `bookkeeping`, and makes both durable before it returns.
    ///
    /// # Errors
    /// When the snapshot is damaged or the state cannot be written.
    fn install(&mut self, snapshot: Bytes, bookkeeping: Bytes) -> io::Result<()>;
}
