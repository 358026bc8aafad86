//! The local checkpoint: applied changes become durable, off the apply path.
//!
//! ```text
//! apply_end ──▶ pending (in memory, last write of a key wins) ──▶ checkpoint thread:
//!                                                                  1 sync ConsumeQueues   (≥ what pending says)
//!                                                                  2 write pending + bookkeeping as one batch
//!                                                                  3 flush the state store (atomic, durable)
//! ```
//! Snapshots that a run asked for are written before its changes, so that a state which knows a snapshot has it; those that
//! the state no longer knows are dropped behind it.
//!
//! Invariant: the state store never says more than the synced ConsumeQueues have. What is lost in a crash is applied
//! again from the log. A failed sync or write is kept and answered to every later `take`: the group stops, and with it
//! the process (law 8).

use bytes::{Buf, Bytes};
use parking_lot::{Condvar, Mutex};
use raftmq_model::ids::TopicUid;
use raftmq_model::machine::{Changes, GroupState, Write};
use raftmq_store::Snapshots;
use raftmq_store::consume_queue::ConsumeQueues;
use raftmq_store::state::{StateStore, WriteBatch};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Where Raft's bookkeeping lies in the state store: in the range that the rules leave to the runtime.
pub(super) const BOOKKEEPING_KEY: &[u8] = &[0xF0];
/// There while the state is an installed snapshot's and the ConsumeQueues may still be those of the state before.
pub(super) const INSTALLED_KEY: &[u8] = &[0xF1];
/// What each change costs beside its bytes.
const CHANGE_OVERHEAD_BYTES: usize = 64;
/// Apply waits for the checkpoint thread when it is this many checkpoints behind.
const BEHIND_COUNT_MAX: usize = 4;

/// Raft's bookkeeping and the index it stands for.
///
/// ```text
/// | version u8 1 | applied u64 | bookkeeping |      (big-endian)
/// ```
pub(super) struct Kept {
    pub(super) applied: u64,
    pub(super) bookkeeping: Bytes,
}

/// What one run of entries hands over.
pub(super) struct Taken {
    pub(super) entries: u64,
    pub(super) kept: Kept,
    /// Index and body of a snapshot that is to be kept.
    pub(super) snapshot: Option<(u64, Vec<u8>)>,
    pub(super) horizon: Horizon,
}

/// What of the log and of the snapshots a state still needs.
#[derive(Clone, Debug, Default)]
pub(super) struct Horizon {
    /// The purge point.
    purged: u64,
    /// The first entry that a restart reads again for the stored-once window.
    window_from: Option<u64>,
    /// The kept snapshots.
    points: Vec<u64>,
}

impl Horizon {
    pub(super) fn of(state: &GroupState) -> Horizon {
        Horizon {
            purged: state.purged().index,
            window_from: state.window_replay_from(),
            points: state.snapshot_points().iter().map(|point| point.index).collect(),
        }
    }

    /// Up to where the log can go once this state is durable: the last snapshot at or before the purge point before which a
    /// restart needs nothing; 0: there is none.
    pub(super) fn released(&self, snapshots: &Snapshots) -> io::Result<u64> {
        if self.purged == 0 {
            return Ok(0);
        }
        let upto = self.window_from.map_or(self.purged, |from| self.purged.min(from.saturating_sub(1)));
        Ok(snapshots.indexes()?.into_iter().filter(|index| *index <= upto).max().unwrap_or(0))
    }

    /// Snapshots before the purge point are kept until the log is purged; the others that are no points were given up.
    fn keeps(&self, snapshot: u64) -> bool {
        snapshot <= self.purged || self.points.contains(&snapshot)
    }
}

const KEPT_VERSION: u8 = 1;
const KEPT_HEADER_BYTES: usize = 9;

impl Kept {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut value = Vec::with_capacity(KEPT_HEADER_BYTES + self.bookkeeping.len());
        value.push(KEPT_VERSION);
        value.extend_from_slice(&self.applied.to_be_bytes());
        assert_eq!(value.len(), KEPT_HEADER_BYTES);
        value.extend_from_slice(&self.bookkeeping);
        value
    }

    pub(super) fn decode(mut value: Bytes) -> io::Result<Kept> {
        let damaged = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
        if value.len() < KEPT_HEADER_BYTES {
            return Err(damaged("the bookkeeping of the state is too short".into()));
        }
        let version = value.get_u8();
        if version != KEPT_VERSION {
            let what = "and this program knows up to";
            return Err(damaged(format!(
                "the bookkeeping has the format version {version}, {what} {KEPT_VERSION}: use a newer one"
            )));
        }
        let applied = value.get_u64();
        Ok(Kept { applied, bookkeeping: value })
    }
}

/// When to make a checkpoint.
#[derive(Clone, Debug)]
pub(crate) struct CheckpointBounds {
    pub(crate) bytes: usize,
    pub(crate) entries: u64,
    pub(crate) interval: Duration,
}

/// Collects changes and owns the checkpoint thread; dropping it makes a last checkpoint, but without a thread it does not:
/// there, it is a crash.
pub(super) struct Checkpoints {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    store: Arc<dyn StateStore>,
    queues: Arc<ConsumeQueues>,
    snapshots: Snapshots,
    /// Where [`Horizon::released`] is told.
    released: watch::Sender<u64>,
    bounds: CheckpointBounds,
    /// The snapshot that the log begins behind, as far as it is known: kept, whatever the state says.
    needed: AtomicU64,
    /// The purge point of the last checkpoint. A later one makes the next checkpoint due at once: the log goes after it.
    purged: AtomicU64,
    /// Held by who writes to the store; taken before `pending`.
    writing: Mutex<()>,
    pending: Mutex<Pending>,
    /// Something to look at for the thread.
    wake: Condvar,
    /// The thread took the pending changes, or failed.
    taken: Condvar,
}

#[derive(Default)]
struct Pending {
    writes: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    snapshots: Vec<(u64, Vec<u8>)>,
    horizon: Horizon,
    topics_removed: Vec<TopicUid>,
    kept: Option<Kept>,
    bytes: usize,
    entries: u64,
    since: Option<Instant>,
    closing: bool,
    failed: Option<String>,
}

impl Checkpoints {
    /// Begins with a state of that horizon; also gives up to where the log can go ([`Horizon::released`]).
    pub(super) fn start(
        name: String,
        store: Arc<dyn StateStore>,
        queues: Arc<ConsumeQueues>,
        snapshots: Snapshots,
        horizon: &Horizon,
        bounds: CheckpointBounds,
        threaded: bool,
    ) -> io::Result<(Checkpoints, watch::Receiver<u64>)> {
        let (released, seen) = watch::channel(horizon.released(&snapshots)?);
        let (wake, taken) = (Condvar::new(), Condvar::new());
        let (writing, pending) = (Mutex::default(), Mutex::default());
        let (needed, purged) = (AtomicU64::new(0), AtomicU64::new(horizon.purged));
        let shared =
            Shared { store, queues, snapshots, released, bounds, needed, purged, writing, pending, wake, taken };
        let shared = Arc::new(shared);
        let run = {
            let shared = Arc::clone(&shared);
            move || shared.run()
        };
        let thread = threaded.then(|| std::thread::Builder::new().name(name).spawn(run)).transpose()?;
        Ok((Checkpoints { shared, thread }, seen))
    }

    /// Takes the changes of one run over. Waits only when the thread is far behind; without a thread, makes the checkpoints
    /// that are due.
    pub(super) fn take(&self, changes: &mut Changes, taken: Taken) -> io::Result<()> {
        let shared = &self.shared;
        let mut pending = shared.pending.lock();
        while self.thread.is_some()
            && pending.failed.is_none()
            && pending.bytes > shared.bounds.bytes.saturating_mul(BEHIND_COUNT_MAX)
        {
            shared.taken.wait(&mut pending);
        }
        if let Some(reason) = &pending.failed {
            return Err(io::Error::other(format!("the last checkpoint failed: {reason}")));
        }
        pending.add(changes, taken);
        if self.thread.is_none() {
            if shared.due(&pending) {
                let taken = std::mem::take(&mut *pending);
                pending.failed = shared.write(taken).err().map(|error| error.to_string());
            }
            return Ok(());
        }
        let full = shared.full(&pending);
        drop(pending);
        if full {
            shared.wake.notify_one();
        }
        Ok(())
    }
}

/// What replaces everything: a snapshot that another replica kept.
pub(super) struct Installed<'a> {
    pub(super) kept: Kept,
    /// As it is kept here for others.
    pub(super) body: Vec<u8>,
    pub(super) pairs: WriteBatch,
    pub(super) state: &'a GroupState,
}

impl Checkpoints {
    /// The log begins behind that snapshot, or will.
    pub(super) fn needs(&self, snapshot: u64) {
        self.shared.needed.fetch_max(snapshot, Ordering::AcqRel);
    }

    /// Puts a snapshot in the place of state and ConsumeQueues, durable when it returns. A crash in between leaves the state
    /// before, or the new one with a mark by which [`finish_install`] goes on.
    pub(super) fn install(&self, installed: Installed<'_>) -> io::Result<()> {
        let shared = &self.shared;
        let _writing = shared.writing.lock();
        let mut pending = shared.pending.lock();
        // What waits belongs to the state that goes.
        let (closing, failed) = (pending.closing, pending.failed.take());
        *pending = Pending { closing, failed, ..Pending::default() };
        drop(pending);
        self.needs(installed.kept.applied);
        shared.snapshots.write(installed.kept.applied, &installed.body)?;
        let mut pairs = installed.pairs;
        pairs.put(BOOKKEEPING_KEY.to_vec(), installed.kept.encode());
        pairs.put(INSTALLED_KEY.to_vec(), Vec::new());
        shared.store.replace(pairs)?;
        shared.store.flush()?;
        finish_install(shared.store.as_ref(), &shared.queues, installed.state)
    }
}

/// Lets the ConsumeQueues begin where those of an installed state end, and takes the mark away.
pub(super) fn finish_install(store: &dyn StateStore, queues: &ConsumeQueues, state: &GroupState) -> io::Result<()> {
    queues.start_at(state.queues())?;
    let mut batch = WriteBatch::new();
    batch.delete(INSTALLED_KEY.to_vec());
    store.write(batch)?;
    store.flush()
}

#[cfg(test)]
impl Checkpoints {
    /// Lets the next change be written at once.
    pub(super) fn make_at_once(&self) {
        self.shared.pending.lock().entries = self.shared.bounds.entries;
    }

    /// Returns when a checkpoint has failed.
    pub(super) fn wait_failed(&self) {
        let mut pending = self.shared.pending.lock();
        while pending.failed.is_none() {
            self.shared.taken.wait(&mut pending);
        }
    }

    /// Forgets what was not written, as a crash does.
    pub(super) fn abandon(&self) {
        *self.shared.pending.lock() = Pending { closing: true, ..Pending::default() };
    }
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        self.shared.pending.lock().closing = true;
        self.shared.wake.notify_one();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the checkpoint thread panicked");
        }
    }
}

impl Pending {
    fn add(&mut self, changes: &mut Changes, taken: Taken) {
        for write in changes.writes.drain(..) {
            let (key, value) = match write {
                Write::Put { key, value } => (key, Some(value)),
                Write::Delete { key } => (key, None),
            };
            self.bytes += CHANGE_OVERHEAD_BYTES + key.len() + value.as_ref().map_or(0, Vec::len);
            self.writes.insert(key, value);
        }
        self.topics_removed.append(&mut changes.topics_removed);
        self.kept = Some(taken.kept);
        self.entries += taken.entries;
        self.horizon = taken.horizon;
        self.bytes += taken.snapshot.as_ref().map_or(0, |(_, body)| body.len());
        self.snapshots.extend(taken.snapshot);
        self.since.get_or_insert_with(Instant::now);
    }
}

impl Shared {
    fn full(&self, pending: &Pending) -> bool {
        pending.bytes >= self.bounds.bytes
            || pending.entries >= self.bounds.entries
            || !pending.snapshots.is_empty()
            || pending.horizon.purged > self.purged.load(Ordering::Acquire)
    }

    fn due(&self, pending: &Pending) -> bool {
        let Some(since) = pending.since else { return false };
        self.full(pending) || pending.closing || since.elapsed() >= self.bounds.interval
    }

    fn run(&self) {
        loop {
            let mut pending = self.pending.lock();
            while !self.due(&pending) {
                if pending.closing {
                    return;
                }
                match pending.since {
                    Some(since) => self.wake.wait_until(&mut pending, since + self.bounds.interval).timed_out(),
                    None => {
                        // Bounded, since the first change of an idle group does not wake this thread.
                        self.wake.wait_for(&mut pending, self.bounds.interval).timed_out()
                    }
                };
            }
            drop(pending);
            // Between the two a snapshot may be installed: then there is nothing left to write.
            let _writing = self.writing.lock();
            let mut pending = self.pending.lock();
            let taken = std::mem::take(&mut *pending);
            pending.closing = taken.closing;
            self.taken.notify_all();
            drop(pending);
            if let Err(error) = self.write(taken) {
                tracing::error!(%error, "a local checkpoint failed");
                self.pending.lock().failed = Some(error.to_string());
                self.taken.notify_all();
                return;
            }
        }
    }

    /// Steps 1 to 3 of the module's header; then drops the ConsumeQueues and snapshots that no state needs any more.
    fn write(&self, pending: Pending) -> io::Result<()> {
        let Some(kept) = pending.kept else { return Ok(()) };
        for (index, body) in &pending.snapshots {
            match self.snapshots.write(*index, body) {
                // The log then begins behind an older one.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                    tracing::error!(index, %error, "no snapshot")
                }
                written => written?,
            }
        }
        self.queues.sync()?;
        let mut batch = WriteBatch::default();
        for (key, value) in pending.writes {
            match value {
                Some(value) => batch.put(key, value),
                None => batch.delete(key),
            }
        }
        batch.put(BOOKKEEPING_KEY.to_vec(), kept.encode());
        self.store.write(batch)?;
        self.store.flush()?;
        self.purged.fetch_max(pending.horizon.purged, Ordering::AcqRel);
        for topic in pending.topics_removed {
            self.queues.remove_topic(topic);
        }
        if !pending.snapshots.is_empty() {
            let needed = self.needed.load(Ordering::Acquire);
            self.snapshots.retain(|index| index <= needed || pending.horizon.keeps(index))?;
        }
        if *self.released.borrow() < pending.horizon.purged {
            let released = pending.horizon.released(&self.snapshots)?;
            self.released.send_if_modified(|known| *known < released && std::mem::replace(known, released) != released);
        }
        Ok(())
    }
}
