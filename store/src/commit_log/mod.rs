//! The log of one group: the Raft log, which is the CommitLog.
//!
//! ```text
//! <dir>/manifest      segment size, where the log starts, what was purged          (manifest.rs)
//! <dir>/vote          two slots for the vote, one for the committed hint           (vote.rs)
//! <dir>/commitlog/    segments of frames, named by their first physical offset     (segment.rs, frame.rs)
//! <dir>/index/        where the entries of complete segments lie; derived          (segment_index.rs)
//! ```
//!
//! **Threads.** Calls change the state in memory at once, under one lock (`state.rs`), and queue the IO; one thread per
//! log does all IO in the order of the calls (`writer.rs`): it drains the queued appends up to `write_bytes_max`, writes
//! them with one `pwritev`, makes them durable with one `fdatasync`, and runs their callbacks in order.
//!
//! **Invariants.** purged ≤ durable ≤ last. At most `write_bytes_max` bytes are written and not synced. All segments but
//! the last are complete and durable before the next one is made. All bytes behind the last frame are zero. A truncation
//! is durable before anything later is written. A failed write or sync poisons the log: all later calls fail.

pub(crate) mod index;
pub(crate) mod manifest;
mod mend;
mod options;
mod queue;
mod read;
mod recovery;
mod repair;
pub(crate) mod scan;
mod scrub;
mod segment_index;
mod state;
pub(crate) mod vote;
mod writer;
mod zero_ahead;

use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread::JoinHandle;

use bytes::Bytes;
use parking_lot::Mutex;
use raftmq_model::ids::PhysicalOffset;

pub use crate::frame::EntryKind;
pub use mend::{Put, WantedFrame, put_frame, reach, start_over};
pub use options::{CommitLogOptions, Durability};
pub use repair::{DAMAGED_COUNT_MAX, Damage, Integrity, is_damage};
pub use scrub::Scrubbed;
pub use vote::VOTE_BYTES_MAX;

use crate::io::Io;
use manifest::Manifest;
use queue::Work;
use state::Shared;
use writer::Writer;

/// Runs when a call's IO is done, on the log's IO thread, in the order of the calls. It must be quick and must not wait
/// for the log.
pub type Done = Box<dyn FnOnce(Result<()>) + Send>;

/// A Raft log id: term and index.
pub type EntryId = (u64, u64);

/// An entry to append.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewEntry {
    /// Raft term, not lower than the one before.
    pub term: u64,
    /// Raft index, one above the one before.
    pub index: u64,
    /// What the payload is.
    pub kind: EntryKind,
    /// Opaque to the log.
    pub payload: Bytes,
}

/// An entry of the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredEntry {
    /// Raft term.
    pub term: u64,
    /// Raft index.
    pub index: u64,
    /// What the payload is.
    pub kind: EntryKind,
    /// As it was appended.
    pub payload: Bytes,
    /// Physical offset of the payload's first byte.
    pub payload_offset: PhysicalOffset,
}

/// What [`CommitLog::open`] found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Recovered {
    /// The last entry; the purged one when nothing comes after it.
    pub last: Option<EntryId>,
    /// The last entry that was purged.
    pub purged: Option<EntryId>,
    /// The last vote that was saved.
    pub vote: Option<Bytes>,
    /// A lower bound of what is committed, never beyond `last`.
    pub committed: Option<EntryId>,
    /// Bytes of a torn tail that were cut.
    pub torn_bytes: u64,
}

/// A segment as retention sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentInfo {
    /// Its first physical offset.
    pub base: PhysicalOffset,
    /// The first entry in it that is not purged.
    pub first_index: u64,
    /// The last entry in it.
    pub last_index: u64,
}

/// Why a log does not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The options contradict each other or what is on the disk.
    #[error("the log in {} does not open: {reason}", dir.display())]
    Options {
        /// The log's folder.
        dir: PathBuf,
        /// Which option, and why.
        reason: String,
    },
    /// Bytes that were durable are not as they were written. Nothing was changed.
    #[error("{} is damaged at byte {offset}: {reason}; restore the replica from its peers", file.display())]
    Damaged {
        /// The damaged file.
        file: PathBuf,
        /// Where in the file.
        offset: u64,
        /// What was expected there.
        reason: String,
        /// The frame of another replica that would help, when it is one that is damaged.
        wanted: Option<Box<WantedFrame>>,
    },
    /// A newer program wrote it, or two bits of it rotted and one lies in its version. Nothing was changed.
    #[error(
        "{} has the format version {found} at byte {offset}, and this program knows up to {known}: use a newer one",
        file.display()
    )]
    Newer {
        /// The file.
        file: PathBuf,
        /// Where in the file the part with that version begins.
        offset: u64,
        /// Its version.
        found: u8,
        /// What this program reads.
        known: u8,
        /// When it is a frame: the frame of another replica. One that fits proves that this one is damaged.
        wanted: Option<Box<WantedFrame>>,
    },
    /// The vote file cannot be read, and a replica that forgot its vote must not run.
    #[error("the vote in {} cannot be read ({reason}), and a replica that forgot its vote must not run", file.display())]
    Vote {
        /// The vote file.
        file: PathBuf,
        /// What was found.
        reason: String,
    },
    /// A file operation failed.
    #[error("the log in {} does not open: {source}", dir.display())]
    Io {
        /// The log's folder.
        dir: PathBuf,
        /// What the system said.
        source: Error,
    },
}

impl OpenError {
    /// The frame of another replica with which the log opens, when it is one that is missing.
    #[must_use]
    pub fn wanted(&self) -> Option<&WantedFrame> {
        match self {
            OpenError::Damaged { wanted, .. } | OpenError::Newer { wanted, .. } => wanted.as_deref(),
            OpenError::Options { .. } | OpenError::Vote { .. } | OpenError::Io { .. } => None,
        }
    }
}

/// The log of one group. Clones are handles of one log; the last one to go ends the IO thread after what is queued.
#[derive(Clone)]
pub struct CommitLog(Arc<Handle>);

struct Handle {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// The writer, when there is no IO thread and the owner drives the log.
    driven: Option<Mutex<Writer>>,
}

/// What [`cut_damage`] did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cut {
    /// The last entry of the log as it is now; `None` when it is empty.
    pub last: Option<EntryId>,
    /// Bytes that were cut off its end.
    pub bytes: u64,
}

/// Cuts a log that has lost entries which were committed where the loss begins, so that it opens again. The replica then
/// has less than it has acknowledged: only for who knows that the other replicas have it all. Nothing is done to a log
/// that opens without it. `segment_bytes_max` of the options is that of the log.
///
/// # Errors
/// [`OpenError`], also for damage that is not at the end.
pub fn cut_damage(options: CommitLogOptions) -> std::result::Result<Cut, OpenError> {
    let cutting = CommitLogOptions { cut_damage: true, io_thread: false, ..options };
    let (_, _, recovered) = recovery::open(cutting)?;
    Ok(Cut { last: recovered.last, bytes: recovered.torn_bytes })
}

/// Bytes of the segments of the log in `dir`, and the last entry that was purged from it; `None` when there is no log.
///
/// # Errors
/// [`OpenError`] when its manifest is damaged or cannot be read.
pub fn segment_bytes_and_purged(
    io: &dyn Io,
    dir: &Path,
) -> std::result::Result<Option<(u64, Option<EntryId>)>, OpenError> {
    Ok(Manifest::load(io, dir)?.map(|manifest| (manifest.segment_bytes, manifest.purged)))
}

impl CommitLog {
    /// Opens the log in `options.dir`, makes it when there is none, and repairs what a crash left: a torn tail is cut.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(options: CommitLogOptions) -> std::result::Result<(CommitLog, Recovered), OpenError> {
        let threaded = options.io_thread;
        let dir = options.dir.clone();
        let (shared, mut writer, recovered) = recovery::open(options)?;
        let handle = if threaded {
            let thread = std::thread::Builder::new().name("log-io".into()).spawn(move || writer.run());
            let thread = thread.map_err(|source| OpenError::Io { dir, source })?;
            Handle { shared, thread: Mutex::new(Some(thread)), driven: None }
        } else {
            Handle { shared, thread: Mutex::new(None), driven: Some(Mutex::new(writer)) }
        };
        Ok((CommitLog(Arc::new(handle)), recovered))
    }

    /// Appends entries. When it returns they have their offsets and can be read; `done` runs when they are durable.
    /// Waits while more than `queue_bytes_max` bytes are queued.
    ///
    /// # Errors
    /// `InvalidInput` when the entries do not follow the last one or one is too large, then nothing is appended and
    /// `done` is dropped; any error when the log is poisoned.
    pub fn append(&self, entries: Vec<NewEntry>, done: Done) -> Result<()> {
        self.0.shared.append(entries, done)
    }

    /// Removes all entries after `index`, all when it is `None`. Readers miss them at once; `done` runs when that is
    /// durable. Entries that are purged stay purged.
    pub fn truncate_after(&self, index: Option<u64>, done: Done) {
        self.0.shared.truncate_after(index, done);
    }

    /// Saves the vote; `done` runs when it is durable, before anything that is queued later is written.
    pub fn save_vote(&self, vote: Bytes, done: Done) {
        if vote.len() > VOTE_BYTES_MAX {
            return done(Err(Error::new(
                ErrorKind::InvalidInput,
                format!("a vote has at most {VOTE_BYTES_MAX} bytes"),
            )));
        }
        self.0.shared.save_vote(vote, done);
    }

    /// Notes what is committed, so that a restart can apply it at once. A hint: written now and then, never synced, and
    /// never beyond the durable end of the log, so that a log which ends before it has lost entries ([`OpenError::Damaged`]).
    pub fn save_committed(&self, committed: EntryId) {
        self.0.shared.save_committed(committed);
    }

    /// Forgets all entries up to and with `upto_index` and deletes the segments that hold no other. Readers miss them at
    /// once; `done` runs when the purged log id is durable and the files are gone. Fails without effect when the log does
    /// not reach that far: then see [`CommitLog::reset`].
    pub fn purge(&self, upto_index: u64, done: Done) {
        self.0.shared.purge(upto_index, done);
    }

    /// Drops all entries and goes on after `purged`, whose frame ends at `end` on the other replicas (see
    /// [`CommitLog::end_offset`]): what a replica does that installs a snapshot beyond its log. Fails without effect when
    /// the log reaches beyond `purged`.
    pub fn reset(&self, purged: EntryId, end: PhysicalOffset, done: Done) {
        self.0.shared.reset(purged, end.0, done);
    }

    /// The entries `from..to_exclusive` that the log has, in order, as many as fit into `bytes_max` payload bytes but at
    /// least one if there is one. Payloads come from the tail cache or are slices of the mapped file, CRC checked.
    ///
    /// # Errors
    /// [`Damage`] ([`is_damage`]) when an entry is damaged, which is noted ([`CommitLog::damaged`]); what the system says; any when the log is poisoned.
    pub fn read(&self, from: u64, to_exclusive: u64, bytes_max: usize) -> Result<Vec<StoredEntry>> {
        self.0.shared.read(from, to_exclusive, bytes_max)
    }

    /// `len` bytes at `at`, which must lie inside one entry's payload. No copy; the entry's CRC is checked when it was not a
    /// moment ago.
    ///
    /// # Errors
    /// [`Damage`] ([`is_damage`]) when the entry is damaged, which is noted; `NotFound` when no entry's payload holds the range;
    /// what the system says; any when the log is poisoned.
    pub fn record(&self, at: PhysicalOffset, len: u32) -> Result<Bytes> {
        self.0.shared.record(at.0, len)
    }

    /// Where the payload of the entry begins that lies at `at`; `None` when the log holds none there.
    #[must_use]
    pub fn payload_around(&self, at: PhysicalOffset) -> Option<PhysicalOffset> {
        self.0.shared.payload_around(at.0).map(PhysicalOffset)
    }

    /// The index of the last entry whose frame begins at or before `at`; `None` when the log holds none there any more.
    #[must_use]
    pub fn index_at(&self, at: PhysicalOffset) -> Option<u64> {
        let state = self.0.shared.state.lock();
        let index = state.index.first_at(at.0.saturating_add(1)).checked_sub(1)?;
        (index >= state.index.first() && !state.index.is_empty()).then_some(index)
    }

    /// The last entry; the purged one when nothing comes after it.
    #[must_use]
    pub fn last(&self) -> Option<EntryId> {
        self.0.shared.state.lock().last()
    }

    /// The last purged entry.
    #[must_use]
    pub fn purged(&self) -> Option<EntryId> {
        self.0.shared.state.lock().purged
    }

    /// The index of the first entry that can be read, or that the next one appended will have.
    #[must_use]
    pub fn first_index(&self) -> u64 {
        self.0.shared.state.lock().index.first()
    }

    /// The log id at an index; the purged one's too, nothing before it.
    #[must_use]
    pub fn entry_id(&self, index: u64) -> Option<EntryId> {
        self.0.shared.state.lock().entry_id(index)
    }

    /// The last index that is durable here, `None` while nothing is.
    #[must_use]
    pub fn durable_index(&self) -> Option<u64> {
        self.0.shared.state.lock().durable_end.checked_sub(1)
    }

    /// The vote saved last (durable or not yet).
    #[must_use]
    pub fn vote(&self) -> Option<Bytes> {
        self.0.shared.state.lock().vote.clone()
    }

    /// What [`CommitLog::save_committed`] noted last, or what was found at open.
    #[must_use]
    pub fn committed(&self) -> Option<EntryId> {
        self.0.shared.state.lock().committed
    }

    /// The last entry that is known to be committed and is durable here.
    #[must_use]
    pub fn committed_and_durable(&self) -> Option<EntryId> {
        self.0.shared.state.lock().committed_and_durable()
    }

    /// Where the frame of the entry at `index` ends, the last purged one's too. Equal on all replicas; a snapshot at
    /// `index` carries it for [`CommitLog::reset`].
    #[must_use]
    pub fn end_offset(&self, index: u64) -> Option<PhysicalOffset> {
        self.0.shared.state.lock().end_offset(index).map(PhysicalOffset)
    }

    /// The segments that hold entries, oldest first.
    #[must_use]
    pub fn segments(&self) -> Vec<SegmentInfo> {
        self.0.shared.state.lock().segment_infos(self.0.shared.options.segment_bytes_max)
    }

    /// Whether there is IO to do; else `context` is woken when there is. Only for a log opened without an IO thread, for the
    /// one task that drives it.
    pub fn poll_work(&self, context: &mut Context<'_>) -> Poll<()> {
        *self.0.shared.driver.lock() = Some(context.waker().clone());
        // Looked at after the waker is in place, so that work that comes in between is not missed.
        if self.0.shared.state.lock().queue.is_empty() { Poll::Pending } else { Poll::Ready(()) }
    }

    /// Does the IO that is queued up to now or one group of it, and runs its callbacks; false when there was nothing to
    /// do. Only for a log opened without an IO thread; callbacks must not call it.
    pub fn drive(&self) -> bool {
        match self.0.driven.as_ref().and_then(Mutex::try_lock) {
            Some(mut writer) => writer.step(),
            None => false,
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.close();
        if let Some(writer) = &self.driven {
            writer.lock().abandon();
        }
        if let Some(thread) = self.thread.lock().take()
            // A callback may hold the last handle.
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

impl std::fmt::Debug for CommitLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CommitLog").field("dir", &self.0.shared.options.dir).finish_non_exhaustive()
    }
}

impl Work {
    /// Tells the caller that nothing was done because the log is poisoned or closed.
    fn fail(self, error: Error) {
        match self {
            Work::Append { done, .. }
            | Work::Truncate { done, .. }
            | Work::Vote { done, .. }
            | Work::Repair { done, .. }
            | Work::Purge { done, .. } => done(Err(error)),
        }
    }
}
