//! The IndexFiles of one group: by which key and message id which records are found, in RocketMQ's slots and chains.
//!
//! ```text
//! keyindex/<physical offset of the first log entry in the file, 20 digits>
//!
//!   0 header 88 B (ours 48, RocketMQ's 40) | slots × 4 B | entry 0, never used | entry 1 | entry 2 | …      20 B each
//!
//!   slot = hash mod slots:  number of the newest entry ──▶ entry: hash, physical offset, seconds, previous ──▶ … ──▶ 0
//! ```
//! The index is derived from the committed log and follows it from behind: [`KeyIndex::follow`] reads applied entries again,
//! on a thread of its caller's, so that apply does nothing for it. Every record in the log is indexed, repeats and refused
//! dead letters among them: who searches reads the record and asks the ConsumeQueue whether it was stored, which hash
//! collisions demand anyway.
//!
//! **Files.** A file takes whole log entries, and ends before the first one that lies in another segment of the CommitLog, or when
//! it has [`Layout::entries_count_max`] entries. Both follow from the log, and so do the names: replicas have equal complete
//! files, but for the first one of a replica that started in the middle of a segment. Entries are appended; the slots of the
//! file that is added to stay in memory, and are written, with a checksum over all, when it is complete. Nothing is
//! ever written through a map.
//!
//! **Memory.** The slots of one file and a tail that is not written yet: 2 MB and [`TAIL_BYTES_MAX`] with segments of 1 GiB, 128 KiB and
//! that tail with segments of 64 MiB; see [`Layout::memory_bytes`].
//!
//! **Restart.** The header says how many entries count and with which log entry it goes on; it is written when these entries are
//! durable. [`KeyIndex::restore`] cuts what lies behind it, and behind what the state has applied, and makes the slots again.
//! A file that is not as it was written goes, with all behind it, and is built again from the log; so is an index that is not
//! there. A failed write or sync is not the end: the file is taken as unknown, and goes with the next [`KeyIndex::restore`].
//!
//! One thread follows, syncs and forgets at a time (the others wait), any thread may search.
//!
//! | file | holds |
//! |---|---|
//! | `header`, `entry` | bytes |
//! | `active` | the file that is added to, and reading of any file |
//! | `follow` | from log entries to index entries |
//! | `restore` | after a start |
//! | `search` | from a key to records |

mod active;
mod entry;
mod follow;
mod header;
mod restore;
mod search;
#[cfg(test)]
mod tests;

pub use entry::ENTRY_BYTES;
pub use follow::Followed;
pub use restore::Restored;
pub use search::{Candidate, KeySearch};

pub(crate) use active::{content_crc, read_entries, read_header};
pub(crate) use entry::seconds_between;
pub(crate) use follow::keys_of;
pub(crate) use header::Header;

use crate::io::Io;
use crate::segment::segment_base;
use active::Active;
use parking_lot::{Mutex, RwLock};
use raftmq_model::ids::{PhysicalOffset, Timestamp};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Slots of a file, at most.
pub const SLOTS_COUNT_MAX: u32 = 500_000;
/// Slots of a file, at least.
pub const SLOTS_COUNT_MIN: u32 = 4096;
/// Entries for each slot of a full file, as in RocketMQ.
pub const ENTRIES_PER_SLOT_COUNT: u32 = 4;
/// Bytes of log for which there is a slot: with messages of 1 KiB that have an id and a key, a segment fills a file.
const BYTES_PER_SLOT: u64 = 2048;
/// Bytes of entries that wait in memory, at most, before they are written to the file (and what one log entry adds).
pub const TAIL_BYTES_MAX: usize = 1 << 20;
/// Digits of a file's name.
const NAME_CHARS: usize = 20;

/// Bounds of the files. Files say their slots themselves, so that other bounds do no harm to those that are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Slots of a new file.
    pub slots_count: u32,
    /// A file with so many entries is complete; the log entry that reaches it is the last one in it.
    pub entries_count_max: u32,
    /// Size of the CommitLog's segments.
    pub segment_bytes: u64,
    /// See [`TAIL_BYTES_MAX`].
    pub tail_bytes_max: usize,
}

impl Layout {
    /// What fits a log with segments of that size.
    #[must_use]
    pub fn for_segments(segment_bytes: u64) -> Layout {
        let slots = segment_bytes / BYTES_PER_SLOT;
        let slots_count = slots.clamp(u64::from(SLOTS_COUNT_MIN), u64::from(SLOTS_COUNT_MAX)) as u32;
        let entries_count_max = slots_count * ENTRIES_PER_SLOT_COUNT;
        Layout { slots_count, entries_count_max, segment_bytes, tail_bytes_max: TAIL_BYTES_MAX }
    }

    /// Memory that the index of one group takes while it follows the log, beside what one log entry adds.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.slots_count as usize * 4 + self.tail_bytes_max
    }
}

/// What an index has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexStats {
    /// Files.
    pub files: u64,
    /// Entries in them: keys and ids of messages.
    pub entries: u64,
    /// Bytes of the files.
    pub bytes: u64,
    /// All log entries before this one are indexed.
    pub next_index: u64,
}

/// The IndexFiles of one group. See the module.
pub struct KeyIndex {
    dir: PathBuf,
    io: Arc<dyn Io>,
    layout: Layout,
    /// Held by who changes files. Taken before `shared`.
    feeding: Mutex<Feeding>,
    shared: RwLock<Shared>,
}

#[derive(Default)]
struct Feeding {
    /// [`KeyIndex::restore`] was called and nothing failed since.
    ready: bool,
    /// A file that must not be believed any more.
    distrusted: Option<u64>,
    /// A file was made and its name may not be durable.
    names_unsynced: bool,
    /// What the header on disk says.
    synced_next_index: u64,
}

#[derive(Default)]
struct Shared {
    complete: BTreeMap<u64, Header>,
    active: Option<Active>,
    next_index: u64,
}

impl Shared {
    fn last(&self) -> Option<&Header> {
        self.active.as_ref().map(Active::header).or_else(|| self.complete.values().next_back())
    }
}

impl KeyIndex {
    /// The index in `dir` (usually `<group>/keyindex`), which is made when there is none. Nothing is read or written before
    /// [`KeyIndex::restore`].
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>, io: Arc<dyn Io>, layout: Layout) -> KeyIndex {
        assert!(layout.slots_count > 0 && layout.entries_count_max > 0 && layout.segment_bytes > 0, "{layout:?}");
        KeyIndex { dir: dir.into(), io, layout, feeding: Mutex::default(), shared: RwLock::default() }
    }

    /// Whether [`KeyIndex::restore`] has to be called (again) before the index goes on.
    #[must_use]
    pub fn needs_restore(&self) -> bool {
        !self.feeding.lock().ready
    }

    /// What is there.
    #[must_use]
    pub fn stats(&self) -> IndexStats {
        let shared = self.shared.read();
        let mut stats = IndexStats { next_index: shared.next_index, ..IndexStats::default() };
        for header in shared.complete.values().chain(shared.active.as_ref().map(Active::header)) {
            stats.files += 1;
            stats.entries += u64::from(header.count - 1);
            stats.bytes += header.entry_at(header.count);
        }
        stats
    }

    /// Makes durable what was added, and says so in the header.
    ///
    /// # Errors
    /// What the file system says; then the file is taken as unknown, and [`KeyIndex::restore`] has to be called.
    pub fn sync(&self) -> Result<()> {
        let mut feeding = self.feeding.lock();
        let result = self.sync_active(&mut feeding);
        self.settle(&mut feeding, result)
    }

    fn sync_active(&self, feeding: &mut Feeding) -> Result<()> {
        let (file, header) = {
            let mut shared = self.shared.write();
            let next_index = shared.next_index;
            let Some(active) = shared.active.as_mut().filter(|_| feeding.synced_next_index != next_index) else {
                return Ok(());
            };
            active.reached(next_index);
            active.begin_sync()?
        };
        file.sync_data()?;
        if std::mem::take(&mut feeding.names_unsynced) {
            self.io.sync_dir(&self.dir)?;
        }
        // Durable with the next sync; until then an older header counts, which is as good.
        file.write_all_at(&header.encode(), 0)?;
        feeding.synced_next_index = header.next_index;
        Ok(())
    }

    /// Removes the files whose messages all lie before `begin`. The last file stays.
    ///
    /// # Errors
    /// What the file system says. What is left is removed another time.
    pub fn forget_before(&self, begin: PhysicalOffset) -> Result<()> {
        let _feeding = self.feeding.lock();
        let gone: Vec<u64> = {
            let mut shared = self.shared.write();
            let last = shared.last().map(|header| header.base);
            let gone = |header: &&Header| header.end < begin && Some(header.base) != last;
            let gone: Vec<u64> = shared.complete.values().filter(gone).map(|header| header.base).collect();
            shared.complete.retain(|base, _| !gone.contains(base));
            gone
        };
        for base in &gone {
            match self.io.remove(&self.path(*base)) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        if gone.is_empty() { Ok(()) } else { self.io.sync_dir(&self.dir) }
    }

    /// Adds the hashes of messages of the log entry `index`, whose payload lies at `at`, in order.
    fn add(
        &self,
        feeding: &mut Feeding,
        index: u64,
        at: PhysicalOffset,
        now: Timestamp,
        keys: &[(u32, PhysicalOffset)],
    ) -> Result<()> {
        if keys.is_empty() {
            return Ok(());
        }
        let ends = self.shared.read().active.as_ref().is_some_and(|active| {
            let header = active.header();
            let segment = |offset| segment_base(offset, self.layout.segment_bytes);
            header.count > self.layout.entries_count_max || segment(at.0) != segment(header.base)
        });
        if ends {
            self.complete_active(feeding, index)?;
        }
        let mut shared = self.shared.write();
        if shared.active.is_none() {
            let header = Header::new(at.0, self.layout.slots_count, index);
            shared.active = Some(Active::create(&*self.io, &self.path(at.0), header)?);
            feeding.names_unsynced = true;
        }
        let Some(active) = shared.active.as_mut() else { return Ok(()) };
        for (hash, physical) in keys {
            active.push(*hash, *physical, now);
        }
        if active.tail_bytes() >= self.layout.tail_bytes_max { active.write_out() } else { Ok(()) }
    }

    /// Writes slots and checksum of the active file, durable when it returns, so that a later file never stands behind one that
    /// is not complete. `next_index` is the first log entry that is not in it.
    fn complete_active(&self, feeding: &mut Feeding, next_index: u64) -> Result<()> {
        let prepared =
            self.shared.write().active.as_mut().map(|active| active.begin_complete(next_index)).transpose()?;
        let Some((file, slots, header)) = prepared else { return Ok(()) };
        file.write_all_at(&slots, Header::slot_at(0))?;
        file.sync_data()?;
        file.write_all_at(&header.encode(), 0)?;
        file.sync_data()?;
        if std::mem::take(&mut feeding.names_unsynced) {
            self.io.sync_dir(&self.dir)?;
        }
        let mut shared = self.shared.write();
        shared.active = None;
        shared.complete.insert(header.base, header);
        feeding.synced_next_index = header.next_index;
        Ok(())
    }

    /// After a failure the active file is unknown.
    fn settle<T>(&self, feeding: &mut Feeding, result: Result<T>) -> Result<T> {
        if result.is_err() {
            feeding.ready = false;
            let base = self.shared.read().active.as_ref().map(|active| active.header().base);
            feeding.distrusted = feeding.distrusted.or(base);
        }
        result
    }

    fn path(&self, base: u64) -> PathBuf {
        path_of(&self.dir, base)
    }
}

/// The file of a base.
pub(crate) fn path_of(dir: &Path, base: u64) -> PathBuf {
    dir.join(format!("{base:0NAME_CHARS$}"))
}

/// The bases of the files in `dir`, ascending; other names are left alone. None when there is no folder.
pub(crate) fn bases(io: &dyn Io, dir: &Path) -> Result<Vec<u64>> {
    if !io.exists(dir)? {
        return Ok(Vec::new());
    }
    let names = io.list(dir)?;
    let bases = names.iter().filter(|name| name.len() == NAME_CHARS).filter_map(|name| name.parse().ok());
    Ok(bases.collect())
}

impl std::fmt::Debug for KeyIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyIndex").field("dir", &self.dir).field("stats", &self.stats()).finish_non_exhaustive()
    }
}
