//! ConsumeQueues: for each queue of a group, where its messages lie in the CommitLog, in order of their queue offsets.
//!
//! ```text
//! consumequeue/<topic uid>/<queue id>/<byte offset of the first unit, 20 digits>      300 000 units of 20 bytes each
//! ```
//! They are derived from the committed log: `apply` appends to a buffered tail that readers see at once, tails go to the
//! files when they are full, and nothing is synced but by [`ConsumeQueues::sync`] at a checkpoint. After a restart
//! [`ConsumeQueues::restore`] cuts each queue to where it was at the checkpoint of the state, and replay goes on there.
//!
//! One thread appends and truncates, one may sync at the same time (what was appended before the call is durable behind
//! it), any thread may read. A failed write or sync is final (law 8).
//!
//! | file | holds |
//! |---|---|
//! | `unit` | the 20 bytes |
//! | `queue` | one queue: files, tail, cutting |
//! | `finder` | from a physical offset to the queue offset, for the replay of the stored-once window |

mod finder;
mod queue;
#[cfg(test)]
mod tests;
mod unit;

pub use finder::OffsetFinder;
pub use unit::{UNIT_BYTES, Unit};

use crate::io::Io;
use parking_lot::{Mutex, RwLock};
use queue::Queue;
use raftmq_model::ids::{PhysicalOffset, QueueId, QueueOffset, TopicUid};
use raftmq_model::machine::Enqueue;
use raftmq_model::planted::{self, Planted};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Error, ErrorKind, Result};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Units of a file, as in RocketMQ.
pub const UNITS_PER_FILE: u64 = 300_000;
/// Bytes of a queue's tail that wait in memory, at most, before they are written to its file.
pub const TAIL_BYTES_MAX: usize = 16 * 1024;

/// Bounds of the files; anything but the default is for tests.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Units of a file. A folder must always be opened with the same number.
    pub units_per_file: u64,
    /// See [`TAIL_BYTES_MAX`].
    pub tail_bytes_max: usize,
}

impl Default for Layout {
    fn default() -> Layout {
        Layout { units_per_file: UNITS_PER_FILE, tail_bytes_max: TAIL_BYTES_MAX }
    }
}

/// A queue and what of it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueRange {
    /// The topic.
    pub topic: TopicUid,
    /// The queue.
    pub queue: QueueId,
    /// Offset of the first unit.
    pub min: QueueOffset,
    /// Offset that the next unit gets.
    pub max: QueueOffset,
}

type Place = (TopicUid, QueueId);

/// The ConsumeQueues of one group.
pub struct ConsumeQueues {
    dir: PathBuf,
    io: Arc<dyn Io>,
    layout: Layout,
    queues: RwLock<BTreeMap<Place, Arc<Mutex<Queue>>>>,
    removed: Mutex<Removed>,
    failed: AtomicBool,
    rewritten: AtomicU64,
}

/// Folders of deleted topics. The checkpoint of the state may still know such a topic, so its folder stays until a
/// later checkpoint has begun: only then is the one that forgot the topic surely durable.
#[derive(Default)]
struct Removed {
    since_sync: Vec<PathBuf>,
    before_sync: Vec<PathBuf>,
}

impl ConsumeQueues {
    /// Opens the queues in `dir` (usually `<group>/consumequeue`), made when there is none. What is there may lie
    /// behind the state's checkpoint: [`ConsumeQueues::restore`] has to follow before anything is appended.
    ///
    /// # Errors
    /// What the file system says, and `InvalidData` when the folder holds what does not belong there.
    pub fn open(dir: impl Into<PathBuf>, io: Arc<dyn Io>) -> Result<ConsumeQueues> {
        ConsumeQueues::open_with(dir, io, Layout::default())
    }

    /// As [`ConsumeQueues::open`] with other bounds.
    ///
    /// # Errors
    /// As [`ConsumeQueues::open`].
    pub fn open_with(dir: impl Into<PathBuf>, io: Arc<dyn Io>, layout: Layout) -> Result<ConsumeQueues> {
        let dir = dir.into();
        io.create_dir_all(&dir)?;
        let mut queues = BTreeMap::new();
        for topic in io.list(&dir)? {
            let topic_dir = dir.join(&topic);
            let topic = TopicUid(number(&topic_dir, &topic)?);
            for queue in io.list(&topic_dir)? {
                let queue_dir = topic_dir.join(&queue);
                let queue = QueueId(number(&queue_dir, &queue)?);
                let opened = Queue::open(queue_dir, io.as_ref(), layout)?;
                queues.insert((topic, queue), Arc::new(Mutex::new(opened)));
            }
        }
        let (removed, failed, rewritten) = (Mutex::default(), AtomicBool::new(false), AtomicU64::new(0));
        Ok(ConsumeQueues { dir, io, layout, queues: RwLock::new(queues), removed, failed, rewritten })
    }

    /// Cuts every queue to the next offset that the state's checkpoint has for it, and drops what that does not know.
    /// The call behind [`ConsumeQueues::open`], with `GroupState::queues()`.
    ///
    /// # Errors
    /// `InvalidData` when a queue ends before its checkpoint, and what the file system says.
    pub fn restore(&self, checkpoint: impl IntoIterator<Item = (TopicUid, QueueId, QueueOffset)>) -> Result<()> {
        let known: BTreeMap<Place, QueueOffset> = checkpoint.into_iter().map(|(t, q, next)| ((t, q), next)).collect();
        let topics: BTreeSet<TopicUid> = known.keys().map(|(topic, _)| *topic).collect();
        let places: Vec<Place> = self.queues.read().keys().copied().collect();
        for (topic, queue) in places {
            if !topics.contains(&topic) {
                self.drop_unknown(topic)?;
            } else if !known.contains_key(&(topic, queue)) {
                self.truncate(topic, queue, QueueOffset(0))?;
            }
        }
        for ((topic, queue), next) in known {
            if planted::is(Planted::QueueNotTruncated) {
                continue;
            }
            self.fill(topic, queue, next)?;
            self.truncate(topic, queue, next)?;
        }
        Ok(())
    }

    /// Makes queues of which the state has messages and whose files are not there, with zeros for their units: before
    /// [`ConsumeQueues::restore`]. As with units that files lost, the right ones are written from the log.
    ///
    /// # Errors
    /// What the file system says. Final.
    pub fn refill(&self, state: impl IntoIterator<Item = QueueRange>) -> Result<()> {
        for range in state {
            if range.min < range.max && self.get(range.topic, range.queue).is_none() {
                let entry = self.get_or_begin(range.topic, range.queue, range.min)?;
                let result = entry.lock().begin_filled(self.io.as_ref(), range.max);
                self.final_if_failed(result)?;
            }
        }
        Ok(())
    }

    /// Puts zeros where the files of a queue lost units before `next`: they lead nowhere, so they are found and written anew from the
    /// log as damaged ones are. A queue that has no file at all is left: then more is wrong than some bytes.
    fn fill(&self, topic: TopicUid, queue: QueueId, next: QueueOffset) -> Result<()> {
        let Some(entry) = self.get(topic, queue) else { return Ok(()) };
        let result = entry.lock().fill(self.io.as_ref(), next);
        self.final_if_failed(result)
    }

    /// Writes a unit anew that is there and damaged; durable with the next [`ConsumeQueues::sync`]. Any thread may. False: the queue
    /// has no unit of that offset any more.
    ///
    /// # Errors
    /// What the file system says. Final.
    pub fn rewrite(&self, topic: TopicUid, queue: QueueId, offset: QueueOffset, unit: Unit) -> Result<bool> {
        self.check()?;
        let Some(entry) = self.get(topic, queue) else { return Ok(false) };
        let result = entry.lock().rewrite(self.io.as_ref(), offset, unit);
        if matches!(result, Ok(true)) {
            self.rewritten.fetch_add(1, Ordering::Relaxed);
        }
        self.final_if_failed(result)
    }

    /// Units that were written anew since the queues were opened.
    #[must_use]
    pub fn rewritten_count(&self) -> u64 {
        self.rewritten.load(Ordering::Relaxed)
    }

    /// Appends one unit; readers see it when this returns. `offset` must be the queue's max. A queue that is not there
    /// begins at `offset`.
    ///
    /// # Errors
    /// `InvalidData` when `offset` is another than the queue's max; what the file system says when the tail is written
    /// out. Final.
    pub fn append(&self, topic: TopicUid, queue: QueueId, offset: QueueOffset, unit: Unit) -> Result<()> {
        let entry = self.get_or_begin(topic, queue, offset)?;
        let mut queue = entry.lock();
        let offset = if planted::is(Planted::QueueNotTruncated) { queue.max() } else { offset };
        let result = queue.append(self.io.as_ref(), offset, unit);
        drop(queue);
        self.final_if_failed(result)
    }

    /// Appends what `apply` enqueued, in order.
    ///
    /// # Errors
    /// As [`ConsumeQueues::append`].
    pub fn append_all(&self, enqueues: &[Enqueue]) -> Result<()> {
        for Enqueue { topic, queue, offset, physical, size, tags_code } in enqueues {
            let unit = Unit { physical: *physical, size: *size, tags_code: *tags_code };
            self.append(*topic, *queue, *offset, unit)?;
        }
        Ok(())
    }

    /// The units from `from` on, at most `count_max`: none when `from` is not within the queue, or there is no queue.
    ///
    /// # Errors
    /// What the file system says.
    pub fn read(&self, topic: TopicUid, queue: QueueId, from: QueueOffset, count_max: usize) -> Result<Vec<Unit>> {
        match self.get(topic, queue) {
            Some(entry) => entry.lock().read(self.io.as_ref(), from, count_max),
            None => Ok(Vec::new()),
        }
    }

    /// Offset of the first unit of a queue; 0 when there is no queue.
    #[must_use]
    pub fn min(&self, topic: TopicUid, queue: QueueId) -> QueueOffset {
        self.get(topic, queue).map_or(QueueOffset(0), |entry| entry.lock().min())
    }

    /// Offset that the next unit of a queue gets; 0 when there is no queue.
    #[must_use]
    pub fn max(&self, topic: TopicUid, queue: QueueId) -> QueueOffset {
        self.get(topic, queue).map_or(QueueOffset(0), |entry| entry.lock().max())
    }

    /// Offset of the first unit whose record lies at `physical` or behind it; max when there is none.
    ///
    /// # Errors
    /// What the file system says.
    pub fn lower_bound(&self, topic: TopicUid, queue: QueueId, physical: PhysicalOffset) -> Result<QueueOffset> {
        match self.get(topic, queue) {
            Some(entry) => entry.lock().lower_bound(self.io.as_ref(), physical),
            None => Ok(QueueOffset(0)),
        }
    }

    /// A reader that turns ascending physical offsets into queue offsets.
    #[must_use]
    pub fn finder(&self) -> OffsetFinder<'_> {
        OffsetFinder::new(self)
    }

    /// Writes all tails out and makes everything durable: the first half of a checkpoint, before the state's flush.
    /// Folders of topics that were removed before the last call but one are dropped.
    ///
    /// # Errors
    /// What the file system says. Final: nobody knows what is durable.
    pub fn sync(&self) -> Result<()> {
        let result = self.check().and_then(|()| self.sync_all());
        self.final_if_failed(result)
    }

    /// Drops the units from `next` on. A queue that is not there is one that ends at 0.
    ///
    /// # Errors
    /// `InvalidData` when the queue ends before `next`; what the file system says. Final.
    pub fn truncate(&self, topic: TopicUid, queue: QueueId, next: QueueOffset) -> Result<()> {
        let entry = self.get_or_begin(topic, queue, QueueOffset(0))?;
        let result = entry.lock().truncate(self.io.as_ref(), next);
        self.final_if_failed(result)
    }

    /// Drops all units of a queue and lets it begin at `next`: for an installed snapshot, whose messages come later.
    /// Not safe against a crash by itself: until the next checkpoint the state on disk may still want the old units, so
    /// the installer has to leave a durable mark before.
    ///
    /// # Errors
    /// What the file system says. Final.
    pub fn reset(&self, topic: TopicUid, queue: QueueId, next: QueueOffset) -> Result<()> {
        let entry = self.get_or_begin(topic, queue, next)?;
        let result = entry.lock().reset(self.io.as_ref(), next);
        self.final_if_failed(result)
    }

    /// Drops everything and lets each queue begin where it ends in a state that came without its messages: an installed
    /// snapshot's. Durable when it returns, and not safe against a crash by itself: see [`ConsumeQueues::reset`].
    ///
    /// # Errors
    /// What the file system says. Final.
    pub fn start_at(&self, state: impl IntoIterator<Item = (TopicUid, QueueId, QueueOffset)>) -> Result<()> {
        let topics: BTreeSet<TopicUid> = self.queues.read().keys().map(|(topic, _)| *topic).collect();
        for topic in topics {
            self.drop_unknown(topic)?;
        }
        for (topic, queue, next) in state {
            self.reset(topic, queue, next)?;
        }
        self.sync()
    }

    /// Removes the files of a queue that lie wholly before `offset`; what else lies before it stays and can be read.
    ///
    /// # Errors
    /// What the file system says. Not final: nothing that is needed is lost. A queue whose folder goes at the same time, with its
    /// topic, has nothing left to remove.
    pub fn forget_before(&self, topic: TopicUid, queue: QueueId, offset: QueueOffset) -> Result<()> {
        let Some(entry) = self.get(topic, queue) else { return Ok(()) };
        let result = entry.lock().forget_before(self.io.as_ref(), offset);
        match result {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }

    /// Forgets a topic's queues. Readers find nothing from now on; the files go once a checkpoint without the topic is
    /// durable (with the second [`ConsumeQueues::sync`] from here).
    pub fn remove_topic(&self, topic: TopicUid) {
        let mut queues = self.queues.write();
        let count = queues.len();
        queues.retain(|(uid, _), _| *uid != topic);
        if queues.len() < count {
            self.removed.lock().since_sync.push(self.dir.join(topic.to_string()));
        }
    }

    /// Drops a topic that the durable checkpoint does not know, files and all, before the replay makes it again: the name
    /// of its folder is its own.
    fn drop_unknown(&self, topic: TopicUid) -> Result<()> {
        self.queues.write().retain(|(uid, _), _| *uid != topic);
        let result = self.io.remove_dir_all(&self.dir.join(topic.to_string()));
        self.final_if_failed(result.and_then(|()| self.io.sync_dir(&self.dir)))
    }

    /// All queues, by topic uid and queue id.
    #[must_use]
    pub fn queues(&self) -> Vec<QueueRange> {
        let range = |((topic, queue), entry): (&Place, &Arc<Mutex<Queue>>)| {
            let entry = entry.lock();
            QueueRange { topic: *topic, queue: *queue, min: entry.min(), max: entry.max() }
        };
        self.queues.read().iter().map(range).collect()
    }

    /// The file in which the unit of an offset lies or would lie, and where in it.
    #[must_use]
    pub fn place(&self, topic: TopicUid, queue: QueueId, offset: QueueOffset) -> (PathBuf, u64) {
        let first = offset.0 - offset.0 % self.layout.units_per_file;
        let file = self.dir.join(topic.to_string()).join(queue.to_string()).join(queue::file_name(first));
        (file, (offset.0 - first) * UNIT_BYTES as u64)
    }

    fn sync_all(&self) -> Result<()> {
        let outlived = std::mem::take(&mut self.removed.lock().before_sync);
        for dir in &outlived {
            self.io.remove_dir_all(dir)?;
        }
        if !outlived.is_empty() {
            self.io.sync_dir(&self.dir)?;
        }
        let entries: Vec<Arc<Mutex<Queue>>> = self.queues.read().values().cloned().collect();
        for entry in entries {
            let unsynced = entry.lock().begin_sync(self.io.as_ref())?;
            unsynced.sync(self.io.as_ref())?;
        }
        let mut removed = self.removed.lock();
        removed.before_sync = std::mem::take(&mut removed.since_sync);
        Ok(())
    }

    fn get(&self, topic: TopicUid, queue: QueueId) -> Option<Arc<Mutex<Queue>>> {
        self.queues.read().get(&(topic, queue)).cloned()
    }

    fn get_or_begin(&self, topic: TopicUid, queue: QueueId, begin: QueueOffset) -> Result<Arc<Mutex<Queue>>> {
        self.check()?;
        if let Some(entry) = self.get(topic, queue) {
            return Ok(entry);
        }
        let dir = self.dir.join(topic.to_string()).join(queue.to_string());
        let entry = Arc::new(Mutex::new(Queue::new(dir, self.layout, begin)));
        self.queues.write().insert((topic, queue), Arc::clone(&entry));
        Ok(entry)
    }

    fn check(&self) -> Result<()> {
        if self.failed.load(Ordering::Acquire) {
            return Err(Error::other(format!("the ConsumeQueues in {} failed before", self.dir.display())));
        }
        Ok(())
    }

    fn final_if_failed<T>(&self, result: Result<T>) -> Result<T> {
        if result.is_err() {
            self.failed.store(true, Ordering::Release);
        }
        result
    }
}

impl std::fmt::Debug for ConsumeQueues {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConsumeQueues").field("dir", &self.dir).field("queues", &self.queues()).finish_non_exhaustive()
    }
}

/// A name that is a number, as this build writes it.
fn number<N: std::str::FromStr + std::fmt::Display>(path: &std::path::Path, name: &str) -> Result<N> {
    match name.parse::<N>() {
        Ok(number) if number.to_string() == name => Ok(number),
        _ => Err(Error::new(ErrorKind::InvalidData, format!("{} does not belong among ConsumeQueues", path.display()))),
    }
}
