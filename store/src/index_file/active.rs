//! The IndexFile that is added to.
//!
//! ```text
//! file:    | header | slots: nothing yet | entries 1..written |          memory: slots, entries written..count
//! ```
//! Entries lie in the order of the log, so they are only ever appended. Slots are what entries make of them: they stay in memory
//! and are written once, when the file is complete. After a restart they are made again from the entries.

use super::entry::{ENTRY_BYTES, Entry, seconds_between};
use super::header::{HEADER_BYTES, Header};
use crate::io::{Io, IoFile, OpenMode};
use raftmq_model::ids::{PhysicalOffset, Timestamp};
use std::io::{Error, ErrorKind, Result};
use std::path::Path;
use std::sync::Arc;

/// Entries that are read at once.
const BLOCK_COUNT: u32 = 3_000;

pub(super) struct Active {
    header: Header,
    file: Arc<dyn IoFile>,
    /// By slot, the newest entry; 0: none.
    slots: Vec<u32>,
    written: u32,
    tail: Vec<u8>,
    /// Over the entries.
    crc: crc32fast::Hasher,
}

impl Active {
    /// Makes the file. Its name is durable after a sync of the folder.
    pub(super) fn create(io: &dyn Io, path: &Path, header: Header) -> Result<Active> {
        let file = io.open(path, OpenMode::Create)?;
        file.set_len(0)?;
        file.write_all_at(&header.encode(), 0)?;
        Ok(Active::empty(file, header))
    }

    fn empty(file: Arc<dyn IoFile>, header: Header) -> Active {
        let slots = vec![0; header.slots as usize];
        Active { header, file, slots, written: 1, tail: Vec::new(), crc: crc32fast::Hasher::new() }
    }

    /// Goes on with a file that has the header `known`, up to where messages lie before `end` and entries of the log before
    /// `next_index`; everything behind is cut. `None` when nothing is left.
    ///
    /// # Errors
    /// `InvalidData` when the entries are not as they were written, and what the file system says.
    pub(super) fn open(
        io: &dyn Io,
        path: &Path,
        known: Header,
        end: PhysicalOffset,
        next_index: u64,
    ) -> Result<Option<Active>> {
        let file = io.open(path, OpenMode::Write)?;
        let header = Header::new(known.base, known.slots, known.next_index.min(next_index));
        let mut active = Active::empty(file, Header { begin_time: known.begin_time, ..header });
        read_entries(&*active.file.clone(), &known, path, |_, entry| {
            if entry.physical < end {
                active.link(entry.hash, entry.physical, entry.seconds);
            }
            entry.physical < end
        })?;
        let count = active.header.count;
        active.written = count;
        if count == 1 {
            return Ok(None);
        }
        if active.header != known {
            // Before anything is written over that the header on disk still counts.
            active.file.write_all_at(&active.header.encode(), 0)?;
            active.file.sync_data()?;
        }
        active.file.set_len(active.header.entry_at(count))?;
        Ok(Some(active))
    }

    pub(super) fn header(&self) -> &Header {
        &self.header
    }

    pub(super) fn newest(&self, hash: u32) -> u32 {
        self.slots[self.slot(hash)]
    }

    pub(super) fn tail_bytes(&self) -> usize {
        self.tail.len()
    }

    /// Adds one key of a message.
    pub(super) fn push(&mut self, hash: u32, physical: PhysicalOffset, now: Timestamp) {
        if self.header.count == 1 {
            self.header.begin_time = now;
        }
        let bytes = self.link(hash, physical, seconds_between(self.header.begin_time, now));
        self.tail.extend_from_slice(&bytes);
    }

    /// Puts the next entry at the head of its chain.
    fn link(&mut self, hash: u32, physical: PhysicalOffset, seconds: u32) -> [u8; ENTRY_BYTES] {
        let number = self.header.count;
        assert!(number < i32::MAX as u32, "an entry's number is an i32 on disk");
        assert!(number == 1 || physical >= self.header.end, "entries are in the order of the log");
        let slot = self.slot(hash);
        let entry = Entry { hash, physical, seconds, previous: self.slots[slot] };
        self.header.slots_used += u32::from(entry.previous == 0);
        self.slots[slot] = number;
        let bytes = entry.encode();
        self.crc.update(&bytes);
        if number == 1 {
            self.header.begin = physical;
        }
        (self.header.end, self.header.end_time) = (physical, entry.time(self.header.begin_time));
        self.header.count += 1;
        bytes
    }

    /// All log entries before `next_index` are indexed.
    pub(super) fn reached(&mut self, next_index: u64) {
        self.header.next_index = next_index;
    }

    /// Writes the tail to the file.
    pub(super) fn write_out(&mut self) -> Result<()> {
        self.file.write_all_at(&self.tail, self.header.entry_at(self.written))?;
        self.tail.clear();
        self.written = self.header.count;
        Ok(())
    }

    /// The file and the header that may be written when what the file has is durable.
    pub(super) fn begin_sync(&mut self) -> Result<(Arc<dyn IoFile>, Header)> {
        self.write_out()?;
        Ok((Arc::clone(&self.file), self.header))
    }

    /// The file, its slots as they are written, and its header once it is complete.
    pub(super) fn begin_complete(&mut self, next_index: u64) -> Result<(Arc<dyn IoFile>, Vec<u8>, Header)> {
        self.write_out()?;
        self.header.next_index = next_index;
        let slots: Vec<u8> = self.slots.iter().flat_map(|slot| slot.to_be_bytes()).collect();
        let mut crc = self.crc.clone();
        crc.update(&slots);
        let header = Header { complete: true, content_crc: crc.finalize(), ..self.header };
        Ok((Arc::clone(&self.file), slots, header))
    }

    /// An entry.
    pub(super) fn entry(&self, number: u32) -> Result<Entry> {
        if number < self.written {
            return read_entry(&*self.file, &self.header, number);
        }
        let at = (number - self.written) as usize;
        match self.tail.as_chunks::<ENTRY_BYTES>().0.get(at) {
            Some(bytes) => Ok(Entry::decode(bytes)),
            None => Err(Error::new(ErrorKind::InvalidData, format!("there is no entry {number}"))),
        }
    }

    fn slot(&self, hash: u32) -> usize {
        (hash % self.header.slots) as usize
    }
}

/// The header of a file that has all the bytes that it speaks of.
///
/// # Errors
/// `InvalidData` with the file's name, and what the file system says.
pub(crate) fn read_header(file: &dyn IoFile, path: &Path, base: u64) -> Result<Header> {
    let short = || Error::new(ErrorKind::InvalidData, format!("{} is damaged: it ends too early", path.display()));
    if file.len()? < HEADER_BYTES as u64 {
        return Err(short());
    }
    let mut bytes = [0; HEADER_BYTES];
    file.read_exact_at(&mut bytes, 0)?;
    let header = Header::decode(&bytes, path, base)?;
    if header.count > 1 && file.len()? < header.entry_at(header.count) {
        return Err(short());
    }
    Ok(header)
}

pub(crate) fn read_entry(file: &dyn IoFile, header: &Header, number: u32) -> Result<Entry> {
    let mut bytes = [0; ENTRY_BYTES];
    file.read_exact_at(&mut bytes, header.entry_at(number))?;
    Ok(Entry::decode(&bytes))
}

pub(crate) fn read_slot(file: &dyn IoFile, header: &Header, hash: u32) -> Result<u32> {
    let mut bytes = [0; 4];
    file.read_exact_at(&mut bytes, Header::slot_at(hash % header.slots))?;
    Ok(u32::from_be_bytes(bytes))
}

/// Gives out the entries that `header` counts, in order, until `visit` wants no more; checks order and chains.
///
/// # Errors
/// `InvalidData` with the file and the entry that is not as it was written, and what the file system says.
pub(crate) fn read_entries(
    file: &dyn IoFile,
    header: &Header,
    path: &Path,
    mut visit: impl FnMut(u32, Entry) -> bool,
) -> Result<()> {
    let mut slots = vec![0; header.slots as usize];
    let mut before = PhysicalOffset(0);
    let mut first = 1;
    while first < header.count {
        let count = BLOCK_COUNT.min(header.count - first);
        let mut bytes = vec![0; count as usize * ENTRY_BYTES];
        file.read_exact_at(&mut bytes, header.entry_at(first))?;
        for (number, bytes) in (first..).zip(bytes.as_chunks::<ENTRY_BYTES>().0) {
            let entry = Entry::decode(bytes);
            let slot = (entry.hash % header.slots) as usize;
            if entry.previous != slots[slot]
                || entry.physical < before
                || entry.hash.max(entry.seconds) > i32::MAX as u32
            {
                let what = format!("{} is damaged: entry {number} does not fit those before", path.display());
                return Err(Error::new(ErrorKind::InvalidData, what));
            }
            (slots[slot], before) = (number, entry.physical);
            if !visit(number, entry) {
                return Ok(());
            }
        }
        first += count;
    }
    Ok(())
}

/// The checksum of a complete file's entries and slots.
pub(crate) fn content_crc(file: &dyn IoFile, header: &Header) -> Result<u32> {
    let mut crc = crc32fast::Hasher::new();
    let parts = [(header.entry_at(1), header.entry_at(header.count)), (Header::slot_at(0), header.entry_at(0))];
    for (mut at, end) in parts {
        while at < end {
            let mut bytes = vec![0; (end - at).min(u64::from(BLOCK_COUNT) * ENTRY_BYTES as u64) as usize];
            file.read_exact_at(&mut bytes, at)?;
            crc.update(&bytes);
            at += bytes.len() as u64;
        }
    }
    Ok(crc.finalize())
}
