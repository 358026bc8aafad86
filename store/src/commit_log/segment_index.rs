//! Where the entries of a complete segment lie, so that opening a long log need not read all of it.
//!
//! ```text
//! <dir>/index/<base, 20 digits>
//!
//!  0 magic u32 | 4 version u8 | 5 zero u24 | 8 base u64 | 16 segment bytes u64 | 24 first index u64 | 32 entries u32 | 36 runs u32
//! 40 (entries before the run u32 | zero u32 | term u64)*          one for each term
//!    (offset in the segment u32 | kind in the upper two bits, payload bytes below u32)*
//!    CRC u32 over all before
//! ```
//! Derived: what is missing or damaged is read from the segment instead. Written when a segment is sealed, from what the IO
//! thread wrote into it. **Invariant:** while a segment can still change (it is the last one, or a truncation reaches into it)
//! there is none of it; it goes, durably, before the segment does.

use std::io::Result;
use std::path::{Path, PathBuf};

use super::index::Place;
use crate::frame::{EntryKind, HEADER_BYTES, frame_bytes};
use crate::io::{Io, read_file, replace_file};
use crate::segment::{parse_segment_name, segment_name};

const MAGIC: u32 = 0x524d_5149; // "RMQI"
const VERSION: u8 = 1;
const FILE_HEADER_BYTES: usize = 40;
const RUN_BYTES: usize = 16;
const ENTRY_BYTES: usize = 8;
const KIND_SHIFT: u32 = 30;
/// A segment of the largest size that is full of the smallest frames.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// The folder of the files.
pub(super) fn folder(dir: &Path) -> PathBuf {
    dir.join("index")
}

/// Bases of the segments of which there is a file, whatever it holds.
pub(super) fn bases(io: &dyn Io, dir: &Path) -> Result<Vec<u64>> {
    let folder = folder(dir);
    if !io.exists(&folder)? {
        return Ok(Vec::new());
    }
    Ok(io.list(&folder)?.iter().filter_map(|name| parse_segment_name(name)).collect())
}

/// Writes the file of a segment, durable when it returns.
pub(super) fn save(io: &dyn Io, dir: &Path, places: &Places) -> Result<()> {
    let folder = folder(dir);
    io.create_dir_all(&folder)?;
    replace_file(io, &folder.join(segment_name(places.base)), &places.encode())
}

/// Removes the file of a segment, durable when it returns; fine when there is none.
pub(super) fn remove(io: &dyn Io, dir: &Path, base: u64) -> Result<()> {
    let folder = folder(dir);
    match io.remove(&folder.join(segment_name(base))) {
        Ok(()) => io.sync_dir(&folder),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// The entries of a segment; `None` when there is no file, or none that can be used.
pub(super) fn load(io: &dyn Io, dir: &Path, base: u64, segment_bytes: u64) -> Result<Option<Places>> {
    match read_file(io, &folder(dir).join(segment_name(base)), FILE_BYTES_MAX) {
        Ok(file) => Ok(file.and_then(|bytes| Places::decode(&bytes, base, segment_bytes))),
        Err(error) if error.kind() == std::io::ErrorKind::InvalidData => Ok(None),
        Err(error) => Err(error),
    }
}

/// All entries of one segment from its first one on, eight bytes each.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Places {
    base: u64,
    segment_bytes: u64,
    first_index: u64,
    /// Entries before the run, and its term.
    runs: Vec<(u32, u64)>,
    /// Offset in the segment; kind in the upper two bits and payload bytes below.
    entries: Vec<(u32, u32)>,
}

impl Places {
    /// Of a segment that has no entry yet.
    pub(super) fn new(base: u64, segment_bytes: u64) -> Places {
        Places { base, segment_bytes, first_index: 0, runs: Vec::new(), entries: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The next entry; it lies where the one before ends, the first one where the segment begins.
    pub(super) fn push(&mut self, place: &Place) {
        let end = self.last().map_or(self.base, |last| last.end());
        assert_eq!(place.offset, end, "frames have no gaps");
        assert!(place.end() <= self.base + self.segment_bytes, "an entry lies in its segment");
        if self.is_empty() {
            self.first_index = place.index;
        }
        assert_eq!(place.index, self.first_index + self.entries.len() as u64, "entries have no gaps");
        if self.runs.last().is_none_or(|(_, term)| *term != place.term) {
            self.runs.push((self.entries.len() as u32, place.term));
        }
        let within = (place.offset - self.base) as u32;
        self.entries.push((within, (place.kind as u32) << KIND_SHIFT | place.payload_bytes));
    }

    /// Forgets the entries that begin at or behind the physical offset `end`.
    pub(super) fn truncate(&mut self, end: u64) {
        let keep = self.entries.partition_point(|(within, _)| self.base + u64::from(*within) < end);
        self.entries.truncate(keep);
        self.runs.retain(|(at, _)| (*at as usize) < keep);
    }

    fn get(&self, at: usize) -> Option<Place> {
        let (within, size) = *self.entries.get(at)?;
        let run = self.runs.partition_point(|(from, _)| *from as usize <= at).checked_sub(1)?;
        Some(Place {
            term: self.runs.get(run)?.1,
            index: self.first_index + at as u64,
            kind: EntryKind::from_u8((size >> KIND_SHIFT) as u8)?,
            offset: self.base + u64::from(within),
            payload_bytes: size & ((1 << KIND_SHIFT) - 1),
        })
    }

    pub(super) fn first(&self) -> Option<Place> {
        self.get(0)
    }

    pub(super) fn last(&self) -> Option<Place> {
        self.get(self.entries.len().checked_sub(1)?)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Place> + '_ {
        (0..self.entries.len()).map_while(|at| self.get(at))
    }

    /// Bytes behind the last entry, where there is room for the filler that must lie there.
    pub(super) fn filler_bytes(&self) -> Option<u64> {
        let room = (self.base + self.segment_bytes).checked_sub(self.last()?.end())?;
        (room >= HEADER_BYTES as u64).then_some(room)
    }

    fn encode(&self) -> Vec<u8> {
        let (runs, entries) = (self.runs.len(), self.entries.len());
        let mut bytes = Vec::with_capacity(FILE_HEADER_BYTES + runs * RUN_BYTES + entries * ENTRY_BYTES + 4);
        bytes.extend_from_slice(&MAGIC.to_be_bytes());
        bytes.extend_from_slice(&[VERSION, 0, 0, 0]);
        bytes.extend_from_slice(&self.base.to_be_bytes());
        bytes.extend_from_slice(&self.segment_bytes.to_be_bytes());
        bytes.extend_from_slice(&self.first_index.to_be_bytes());
        bytes.extend_from_slice(&(entries as u32).to_be_bytes());
        bytes.extend_from_slice(&(runs as u32).to_be_bytes());
        assert_eq!(bytes.len(), FILE_HEADER_BYTES);
        for (at, term) in &self.runs {
            bytes.extend_from_slice(&at.to_be_bytes());
            bytes.extend_from_slice(&[0; 4]);
            bytes.extend_from_slice(&term.to_be_bytes());
        }
        for (within, size) in &self.entries {
            bytes.extend_from_slice(&within.to_be_bytes());
            bytes.extend_from_slice(&size.to_be_bytes());
        }
        let crc = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&crc.to_be_bytes());
        bytes
    }

    fn decode(bytes: &[u8], base: u64, segment_bytes: u64) -> Option<Places> {
        let (body, crc) = bytes.split_last_chunk::<4>()?;
        if crc32fast::hash(body) != u32::from_be_bytes(*crc) {
            return None;
        }
        let mut fields = Fields(body);
        let head = (fields.u32()?, fields.u32()?, fields.u64()?, fields.u64()?);
        if head != (MAGIC, u32::from(VERSION) << 24, base, segment_bytes) {
            return None;
        }
        let first_index = fields.u64()?;
        let (entries, runs) = (fields.u32()? as usize, fields.u32()? as usize);
        if fields.0.len() != entries.checked_mul(ENTRY_BYTES)?.checked_add(runs.checked_mul(RUN_BYTES)?)? {
            return None;
        }
        let run = |fields: &mut Fields<'_>| Some((fields.u32()?, fields.u32()?, fields.u64()?));
        let runs: Vec<(u32, u64)> = (0..runs).map_while(|_| run(&mut fields)).map(|(at, _, term)| (at, term)).collect();
        let entries = (0..entries).map_while(|_| Some((fields.u32()?, fields.u32()?))).collect();
        let places = Places { base, segment_bytes, first_index, runs, entries };
        places.is_sound().then_some(places)
    }

    /// One frame behind the other, within the segment, in terms that do not fall.
    fn is_sound(&self) -> bool {
        let mut end = self.base;
        let mut term = 0;
        let follows = |place: Place| {
            let sound = place.offset == end && place.term >= term;
            (end, term) = (end + frame_bytes(u64::from(place.payload_bytes)), place.term);
            sound
        };
        let sound = self.iter().map(follows).filter(|sound| *sound).count();
        sound == self.entries.len() && sound > 0 && end <= self.base + self.segment_bytes
    }
}

struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn u32(&mut self) -> Option<u32> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*taken))
    }

    fn u64(&mut self) -> Option<u64> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_be_bytes(*taken))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::FaultyIo;

    const BASE: u64 = 8192;
    const SEGMENT: u64 = 4096;

    fn places() -> Places {
        let (mut offset, mut places) = (BASE, Places::new(BASE, SEGMENT));
        for (term, index, payload_bytes) in [(3, 7, 0), (3, 8, 100), (5, 9, 1), (5, 10, 3000)] {
            let kind = if index == 9 { EntryKind::Blank } else { EntryKind::Batch };
            let place = Place { term, index, kind, offset, payload_bytes };
            places.push(&place);
            assert_eq!(places.last(), Some(place));
            offset = place.end();
        }
        places
    }

    #[test]
    fn what_is_saved_is_loaded() {
        let (io, dir) = (FaultyIo::new(), Path::new("/group"));
        assert_eq!(load(&io, dir, BASE, SEGMENT).unwrap(), None);
        assert_eq!(bases(&io, dir).unwrap(), Vec::<u64>::new());
        save(&io, dir, &places()).unwrap();
        assert_eq!(load(&io, dir, BASE, SEGMENT).unwrap(), Some(places()));
        assert_eq!(load(&io, dir, BASE, SEGMENT * 2).unwrap(), None, "of another size");
        assert_eq!(bases(&io, dir).unwrap(), [BASE]);
        remove(&io, dir, BASE).unwrap();
        remove(&io, dir, BASE).unwrap();
        assert_eq!(bases(&io, dir).unwrap(), Vec::<u64>::new());
    }

    #[test]
    fn a_cut_one_goes_on_like_the_log() {
        let whole: Vec<Place> = places().iter().collect();
        assert_eq!(whole.iter().map(|place| place.term).collect::<Vec<_>>(), [3, 3, 5, 5]);
        for keep in 0..whole.len() {
            let mut cut = places();
            cut.truncate(whole[keep].offset);
            assert_eq!(cut.iter().collect::<Vec<_>>(), whole[..keep]);
            let next = Place { term: 9, ..whole[keep] };
            cut.push(&next);
            assert_eq!(cut.last(), Some(next));
            assert_eq!(Places::decode(&cut.encode(), BASE, SEGMENT), Some(cut));
        }
    }

    #[test]
    fn damage_is_never_an_index() {
        let whole = places().encode();
        assert_eq!(Places::decode(&whole, BASE, SEGMENT), Some(places()));
        for bit in 0..whole.len() * 8 {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Places::decode(&flipped, BASE, SEGMENT), None, "bit {bit}");
        }
        for len in 0..whole.len() {
            assert_eq!(Places::decode(&whole[..len], BASE, SEGMENT), None, "cut to {len}");
        }
        let empty = Places::new(BASE, SEGMENT).encode();
        assert_eq!(Places::decode(&empty, BASE, SEGMENT), None, "an empty one says nothing");
    }
}
