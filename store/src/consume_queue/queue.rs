//! One ConsumeQueue: files, and a tail that waits in memory.
//!
//! ```text
//! min                       written        max
//!  |  units in files           |  tail      |
//! ```
//! Invariants: min <= written <= max; the tail holds exactly `written..max`.

use super::unit::{UNIT_BYTES, Unit};
use super::{Layout, number};
use crate::io::{Io, IoFile, OpenMode};
use raftmq_model::ids::{PhysicalOffset, QueueOffset};
use std::collections::BTreeSet;
use std::io::{Error, ErrorKind, Result};
use std::path::PathBuf;
use std::sync::Arc;

/// Blank units that are written at once.
const BLANKS_PER_WRITE_COUNT: u64 = 4096;

pub(super) struct Queue {
    dir: PathBuf,
    layout: Layout,
    min: u64,
    written: u64,
    tail: Vec<u8>,
    /// The files, each named here by the offset of its first unit.
    files: BTreeSet<u64>,
    /// The file that was used last: mostly the one that is written to.
    open: Option<(u64, Arc<dyn IoFile>)>,
    /// Files that were written to since the last sync.
    unsynced: BTreeSet<u64>,
    names_unsynced: bool,
}

/// What of a queue is written and not yet durable.
pub(super) struct Unsynced {
    files: Vec<Arc<dyn IoFile>>,
    dir: Option<PathBuf>,
}

impl Unsynced {
    pub(super) fn sync(self, io: &dyn Io) -> Result<()> {
        for file in self.files {
            file.sync_data()?;
        }
        match self.dir {
            Some(dir) => io.sync_dir(&dir),
            None => Ok(()),
        }
    }
}

impl Queue {
    /// A queue without files that begins at `begin`.
    pub(super) fn new(dir: PathBuf, layout: Layout, begin: QueueOffset) -> Queue {
        Queue {
            dir,
            layout,
            min: begin.0,
            written: begin.0,
            tail: Vec::new(),
            files: BTreeSet::new(),
            open: None,
            unsynced: BTreeSet::new(),
            names_unsynced: false,
        }
    }

    /// Opens what is in `dir`. The end is that of the unbroken files; what was not synced may be anything, so it has
    /// to be truncated to a checkpoint.
    pub(super) fn open(dir: PathBuf, io: &dyn Io, layout: Layout) -> Result<Queue> {
        let mut queue = Queue::new(dir, layout, QueueOffset(0));
        for name in io.list(&queue.dir)? {
            let first_byte = number::<u64>(&queue.dir.join(&name), name.trim_start_matches('0'));
            let first_byte = if name.bytes().all(|b| b == b'0') { 0 } else { first_byte? };
            let (first, rest) = (first_byte / UNIT_BYTES as u64, first_byte % UNIT_BYTES as u64);
            if rest != 0 || first % layout.units_per_file != 0 || name != file_name(first) {
                let path = queue.dir.join(&name);
                let sentence = format!("{} does not belong in a ConsumeQueue", path.display());
                return Err(Error::new(ErrorKind::InvalidData, sentence));
            }
            queue.files.insert(first);
        }
        let Some(first) = queue.files.first().copied() else { return Ok(queue) };
        queue.written = queue.unbroken_end(io, first)?;
        queue.min = queue.first_not_blank(io, first)?;
        Ok(queue)
    }

    pub(super) fn min(&self) -> QueueOffset {
        QueueOffset(self.min)
    }

    pub(super) fn max(&self) -> QueueOffset {
        QueueOffset(self.written + (self.tail.len() / UNIT_BYTES) as u64)
    }

    pub(super) fn append(&mut self, io: &dyn Io, offset: QueueOffset, unit: Unit) -> Result<()> {
        if offset != self.max() {
            let (dir, max) = (self.dir.display(), self.max());
            let sentence = format!("the ConsumeQueue in {dir} ends at {max}, and {offset} was to be appended");
            return Err(Error::new(ErrorKind::InvalidData, sentence));
        }
        self.tail.extend_from_slice(&unit.encode());
        if self.tail.len() >= self.layout.tail_bytes_max { self.write_out(io) } else { Ok(()) }
    }

    pub(super) fn read(&mut self, io: &dyn Io, from: QueueOffset, count_max: usize) -> Result<Vec<Unit>> {
        let (mut at, max) = (from.0, self.max().0);
        if at < self.min || at >= max {
            return Ok(Vec::new());
        }
        let end = max.min(at.saturating_add(count_max as u64));
        let mut units = Vec::with_capacity((end - at) as usize);
        while at < end.min(self.written) {
            let first = self.file_of(at);
            let count = end.min(self.written).min(first + self.layout.units_per_file) - at;
            let mut bytes = vec![0; count as usize * UNIT_BYTES];
            self.file(io, first)?.read_exact_at(&mut bytes, (at - first) * UNIT_BYTES as u64)?;
            units.extend(decode(&bytes));
            at += count;
        }
        if at < end {
            let (skip, count) = ((at - self.written) as usize, (end - at) as usize);
            units.extend(decode(&self.tail[skip * UNIT_BYTES..(skip + count) * UNIT_BYTES]));
        }
        assert_eq!(units.len() as u64, end - from.0, "as many units as were asked for");
        Ok(units)
    }

    /// Writes a unit over the one that is there; false when there is none.
    pub(super) fn rewrite(&mut self, io: &dyn Io, offset: QueueOffset, unit: Unit) -> Result<bool> {
        let at = offset.0;
        if at < self.min || at >= self.max().0 {
            return Ok(false);
        }
        if at >= self.written {
            let tail = (at - self.written) as usize * UNIT_BYTES;
            self.tail[tail..tail + UNIT_BYTES].copy_from_slice(&unit.encode());
            return Ok(true);
        }
        let first = self.file_of(at);
        self.file(io, first)?.write_all_at(&unit.encode(), (at - first) * UNIT_BYTES as u64)?;
        self.unsynced.insert(first);
        Ok(true)
    }

    /// Gives a queue that has no files zeros up to `next`.
    pub(super) fn begin_filled(&mut self, io: &dyn Io, next: QueueOffset) -> Result<()> {
        self.create_file(io, self.file_of(self.written))?;
        self.fill(io, next)
    }

    /// Sees to it that the files reach to `next`, with zeros where they are too short or missing. The first file must be there: it
    /// says where the queue begins.
    pub(super) fn fill(&mut self, io: &dyn Io, next: QueueOffset) -> Result<()> {
        let Some(mut first) = self.files.first().copied() else { return Ok(()) };
        assert!(self.tail.is_empty(), "files are filled before anything is appended");
        if self.written >= next.0 {
            return Ok(());
        }
        tracing::warn!(
            "the ConsumeQueue in {} lost units before {next}: they are made anew from the log",
            self.dir.display()
        );
        while first < next.0 {
            let units = next.0.min(first + self.layout.units_per_file) - first;
            if self.files.insert(first) {
                self.names_unsynced = true;
                io.open(&self.dir.join(file_name(first)), OpenMode::Create)?;
            }
            let file = self.file(io, first)?;
            let whole = file.len()? / UNIT_BYTES as u64;
            if whole < units {
                file.set_len(whole * UNIT_BYTES as u64)?;
                file.set_len(units * UNIT_BYTES as u64)?;
                self.unsynced.insert(first);
            }
            first += self.layout.units_per_file;
        }
        self.written = next.0;
        Ok(())
    }

    pub(super) fn lower_bound(&mut self, io: &dyn Io, physical: PhysicalOffset) -> Result<QueueOffset> {
        let (mut low, mut high) = (self.min, self.max().0);
        while low < high {
            let middle = low + (high - low) / 2;
            let behind = self.read(io, QueueOffset(middle), 1)?.first().is_some_and(|unit| unit.physical >= physical);
            if behind { high = middle } else { low = middle + 1 }
        }
        Ok(QueueOffset(low))
    }

    /// Writes the tail out and hands over what has to be synced, so that appends need not wait for the disk.
    pub(super) fn begin_sync(&mut self, io: &dyn Io) -> Result<Unsynced> {
        self.write_out(io)?;
        if self.files.is_empty() && self.written > 0 {
            // Nothing but a beginning: the file says where.
            self.create_file(io, self.file_of(self.written))?;
        }
        let mut files = Vec::with_capacity(self.unsynced.len());
        for first in std::mem::take(&mut self.unsynced) {
            files.push(self.file(io, first)?);
        }
        let dir = std::mem::take(&mut self.names_unsynced).then(|| self.dir.clone());
        Ok(Unsynced { files, dir })
    }

    pub(super) fn truncate(&mut self, io: &dyn Io, next: QueueOffset) -> Result<()> {
        let (next, max) = (next.0, self.max().0);
        if next > max {
            let sentence =
                format!("the ConsumeQueue in {} ends at {max}, its checkpoint is {next}", self.dir.display());
            return Err(Error::new(ErrorKind::InvalidData, sentence));
        }
        if next < self.min {
            return self.reset(io, QueueOffset(next));
        }
        if next >= self.written {
            self.tail.truncate((next - self.written) as usize * UNIT_BYTES);
        } else {
            self.tail.clear();
            self.written = next;
            let first = self.file_of(next);
            if self.files.contains(&first) {
                // Kept even when it holds nothing: an unsynced removal could leave a queue that does not know where it
                // begins.
                self.file(io, first)?.set_len((next - first) * UNIT_BYTES as u64)?;
                self.unsynced.insert(first);
            }
        }
        // Also files behind a broken one, which `open` found and did not count.
        self.remove_files_from(io, self.written + 1)
    }

    pub(super) fn reset(&mut self, io: &dyn Io, next: QueueOffset) -> Result<()> {
        self.tail.clear();
        self.min = next.0;
        self.written = next.0;
        self.remove_files_from(io, 0)
    }

    /// Removes the files that lie wholly before `offset`, but never the last one, which says where the queue begins.
    pub(super) fn forget_before(&mut self, io: &dyn Io, offset: QueueOffset) -> Result<()> {
        while let Some(first) = self.files.first().copied() {
            let next = first + self.layout.units_per_file;
            if next > offset.0 || next > self.written || self.files.len() == 1 {
                return Ok(());
            }
            if self.open.as_ref().is_some_and(|(open, _)| *open == first) {
                self.open = None;
            }
            io.remove(&self.dir.join(file_name(first)))?;
            // One by one: a file that came back after a crash without its neighbour would look like the queue's end.
            io.sync_dir(&self.dir)?;
            self.unsynced.remove(&first);
            self.files.remove(&first);
            self.min = self.min.max(next);
        }
        Ok(())
    }

    /// Writes the tail to the files.
    fn write_out(&mut self, io: &dyn Io) -> Result<()> {
        let mut done = 0;
        while done < self.tail.len() {
            let first = self.file_of(self.written);
            let room = (first + self.layout.units_per_file - self.written) as usize * UNIT_BYTES;
            let end = self.tail.len().min(done + room);
            if !self.files.contains(&first) {
                self.create_file(io, first)?;
            }
            let at = (self.written - first) * UNIT_BYTES as u64;
            self.file(io, first)?.write_all_at(&self.tail[done..end], at)?;
            self.unsynced.insert(first);
            self.written += ((end - done) / UNIT_BYTES) as u64;
            done = end;
        }
        self.tail.clear();
        Ok(())
    }

    /// Makes the file that begins at `first`, with blanks up to where the queue is written.
    fn create_file(&mut self, io: &dyn Io, first: u64) -> Result<()> {
        if self.files.is_empty() {
            io.create_dir_all(&self.dir)?;
        }
        let file = io.open(&self.dir.join(file_name(first)), OpenMode::Create)?;
        file.set_len(0)?;
        let mut blank = first;
        while blank < self.written {
            let count = BLANKS_PER_WRITE_COUNT.min(self.written - blank);
            let blanks = Unit::BLANK.encode().repeat(count as usize);
            file.write_all_at(&blanks, (blank - first) * UNIT_BYTES as u64)?;
            blank += count;
        }
        self.files.insert(first);
        self.unsynced.insert(first);
        self.names_unsynced = true;
        self.open = Some((first, file));
        Ok(())
    }

    fn remove_files_from(&mut self, io: &dyn Io, from: u64) -> Result<()> {
        for first in self.files.split_off(&from) {
            if self.open.as_ref().is_some_and(|(open, _)| *open == first) {
                self.open = None;
            }
            io.remove(&self.dir.join(file_name(first)))?;
            self.unsynced.remove(&first);
            self.names_unsynced = true;
        }
        Ok(())
    }

    fn file_of(&self, offset: u64) -> u64 {
        offset - offset % self.layout.units_per_file
    }

    fn file(&mut self, io: &dyn Io, first: u64) -> Result<Arc<dyn IoFile>> {
        if let Some((open, file)) = &self.open
            && *open == first
        {
            return Ok(Arc::clone(file));
        }
        let file = io.open(&self.dir.join(file_name(first)), OpenMode::Write)?;
        self.open = Some((first, Arc::clone(&file)));
        Ok(file)
    }

    fn unbroken_end(&mut self, io: &dyn Io, first: u64) -> Result<u64> {
        let mut first = first;
        loop {
            let units = self.file(io, first)?.len()? / UNIT_BYTES as u64;
            let next = first + self.layout.units_per_file;
            if units < self.layout.units_per_file || !self.files.contains(&next) {
                return Ok(first + units.min(self.layout.units_per_file));
            }
            first = next;
        }
    }

    fn first_not_blank(&mut self, io: &dyn Io, first: u64) -> Result<u64> {
        let (mut low, mut high) = (first, self.written.min(first + self.layout.units_per_file));
        let file = self.file(io, first)?;
        while low < high {
            let middle = low + (high - low) / 2;
            let mut bytes = [0; UNIT_BYTES];
            file.read_exact_at(&mut bytes, (middle - first) * UNIT_BYTES as u64)?;
            if Unit::decode(&bytes) == Unit::BLANK { low = middle + 1 } else { high = middle }
        }
        Ok(low)
    }
}

fn decode(bytes: &[u8]) -> impl Iterator<Item = Unit> + '_ {
    bytes.as_chunks::<UNIT_BYTES>().0.iter().map(Unit::decode)
}

pub(super) fn file_name(first: u64) -> String {
    format!("{:020}", first * UNIT_BYTES as u64)
}
