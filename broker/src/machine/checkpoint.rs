//! The local checkpoint: applied changes become durable, off the apply path.
//!
//! ```text
//! apply_end ──▶ pending (in memory, last write of a key wins) ──▶ checkpoint thread:
//!                                                                  1 sync ConsumeQueues   (≥ what pending says)
//!                                                                  2 write pending + bookkeeping as one batch
//!                                                                  3 flush the state store (atomic, durable)
//! ```
//! Invariant: the state store never says more than the synced ConsumeQueues have. What is lost in a crash is applied
//! again from the log. A failed sync or write is kept and answered to every later `take`: the group stops, and with it
//! the process (law 8).

use bytes::{Buf, Bytes};
use parking_lot::{Condvar, Mutex};
use raftmq_model::ids::TopicUid;
use raftmq_model::machine::{Changes, Write};
use raftmq_store::consume_queue::ConsumeQueues;
use raftmq_store::state::{StateStore, WriteBatch};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Where Raft's bookkeeping lies in the state store: in the range that the rules leave to the runtime.
pub(super) const BOOKKEEPING_KEY: &[u8] = &[0xF0];
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

const KEPT_VERSION: u8 = 1;
const KEPT_HEADER_BYTES: usize = 9;

impl Kept {
    fn encode(&self) -> Vec<u8> {
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
    bounds: CheckpointBounds,
    pending: Mutex<Pending>,
    /// Something to look at for the thread.
    wake: Condvar,
    /// The thread took the pending changes, or failed.
    taken: Condvar,
}

#[derive(Default)]
struct Pending {
    writes: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    topics_removed: Vec<TopicUid>,
    kept: Option<Kept>,
    bytes: usize,
    entries: u64,
    since: Option<Instant>,
    closing: bool,
    failed: Option<String>,
}

impl Checkpoints {
    pub(super) fn start(
        name: String,
        store: Arc<dyn StateStore>,
        queues: Arc<ConsumeQueues>,
        bounds: CheckpointBounds,
        threaded: bool,
    ) -> io::Result<Checkpoints> {
        let (wake, taken) = (Condvar::new(), Condvar::new());
        let shared = Arc::new(Shared { store, queues, bounds, pending: Mutex::default(), wake, taken });
        let run = {
            let shared = Arc::clone(&shared);
            move || shared.run()
        };
        let thread = threaded.then(|| std::thread::Builder::new().name(name).spawn(run)).transpose()?;
        Ok(Checkpoints { shared, thread })
    }

    /// Takes the changes of one run over. Waits only when the thread is far behind; without a thread, makes the checkpoints
    /// that are due.
    pub(super) fn take(&self, changes: &mut Changes, entries: u64, kept: Kept) -> io::Result<()> {
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
        pending.add(changes, entries, kept);
        if self.thread.is_none() {
            if pending.due(&shared.bounds) {
                let taken = std::mem::take(&mut *pending);
                pending.failed = shared.write(taken).err().map(|error| error.to_string());
            }
            return Ok(());
        }
        let full = pending.full(&shared.bounds);
        drop(pending);
        if full {
            shared.wake.notify_one();
        }
        Ok(())
    }
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
    fn add(&mut self, changes: &mut Changes, entries: u64, kept: Kept) {
        for write in changes.writes.drain(..) {
            let (key, value) = match write {
                Write::Put { key, value } => (key, Some(value)),
                Write::Delete { key } => (key, None),
            };
            self.bytes += CHANGE_OVERHEAD_BYTES + key.len() + value.as_ref().map_or(0, Vec::len);
            self.writes.insert(key, value);
        }
        self.topics_removed.append(&mut changes.topics_removed);
        self.kept = Some(kept);
        self.entries += entries;
        self.since.get_or_insert_with(Instant::now);
    }

    fn full(&self, bounds: &CheckpointBounds) -> bool {
        self.bytes >= bounds.bytes || self.entries >= bounds.entries
    }

    fn due(&self, bounds: &CheckpointBounds) -> bool {
        let Some(since) = self.since else { return false };
        self.full(bounds) || self.closing || since.elapsed() >= bounds.interval
    }
}

impl Shared {
    fn run(&self) {
        loop {
            let mut pending = self.pending.lock();
            while !pending.due(&self.bounds) {
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

    /// Steps 1 to 3 of the module's header; then drops the ConsumeQueues that no state needs any more.
    fn write(&self, pending: Pending) -> io::Result<()> {
        self.queues.sync()?;
        let mut batch = WriteBatch::default();
        for (key, value) in pending.writes {
            match value {
                Some(value) => batch.put(key, value),
                None => batch.delete(key),
            }
        }
        if let Some(kept) = pending.kept {
            batch.put(BOOKKEEPING_KEY.to_vec(), kept.encode());
        }
        self.store.write(batch)?;
        self.store.flush()?;
        for topic in pending.topics_removed {
            self.queues.remove_topic(topic);
        }
        Ok(())
    }
}
