//! Opening a log, and repairing what a crash left.
//!
//! All segments but the last were complete and durable before the next one was made, so damage in them is rot. In the
//! last one the scan stops at the first frame that is not whole. Nothing but zeros from there on is the end of the log.
//! Bytes within `write_bytes_max` of there can be a write that was not synced: a torn tail, cut. Bytes further on mean
//! that something durable was damaged: the log does not open. (What this cannot tell apart: rot in the last
//! `write_bytes_max` bytes looks like a torn tail.)
//!
//! Payload CRCs are checked in the last [`VERIFIED_SEGMENTS`] segments; header CRCs and the chain of indexes in these and in all
//! of which there is no index file (`segment_index.rs`). Of a segment that has one, the first and the last frame are looked at:
//! rot between them is found by who reads there, or by an inspection.

use std::collections::BTreeMap;
use std::io::Error;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use super::index::EntryIndex;
use super::manifest::Manifest;
use super::mend::WantedFrame;
use super::options::Durability;
use super::read::Verified;
use super::scan::{SegmentScan, Step, follows};
use super::segment_index;
use super::state::{Shared, State};
use super::vote::{self, VoteFile};
use super::writer::Writer;
use super::zero_ahead::write_zeros;
use super::{CommitLogOptions, EntryId, OpenError, Recovered};
use crate::frame::{self, FrameHeader, HEADER_BYTES};
use crate::io::{Io, IoFile, OpenMode};
use crate::segment::{SEGMENT_DIR, parse_segment_name, segment_base, segment_name};
use raftmq_model::planted::{self, Planted};

/// Segments from the end whose payloads are verified at open.
const VERIFIED_SEGMENTS: usize = 2;

type Opened<T> = Result<T, OpenError>;

struct Recovery {
    options: CommitLogOptions,
    segment_dir: PathBuf,
    manifest: Manifest,
    segments: BTreeMap<u64, Arc<dyn IoFile>>,
    index: EntryIndex,
    /// The last entry that was read, purged or not.
    last: Option<EntryId>,
    /// Where its frame ends.
    tail: u64,
    torn_bytes: u64,
    /// What was committed and durable here at some time.
    committed: Option<EntryId>,
}

pub(super) fn open(options: CommitLogOptions) -> Opened<(Arc<Shared>, Writer, Recovered)> {
    let dir = options.dir.clone();
    if let Some(reason) = options.objection() {
        return Err(OpenError::Options { dir, reason });
    }
    let failed = |source| OpenError::Io { dir: dir.clone(), source };
    let segment_dir = dir.join(SEGMENT_DIR);
    options.io.create_dir_all(&segment_dir).map_err(failed)?;
    let manifest = load_or_begin(&options)?;
    let mut loaded = VoteFile::load(&*options.io, &dir)?;
    if manifest.discard {
        loaded.vote_file.forget_committed().map_err(failed)?;
        loaded.committed = None;
    }
    let (start, index) = (manifest.start, EntryIndex::starting_at(manifest.purged.map_or(0, |purged| purged.1 + 1)));
    let segments = BTreeMap::new();
    let mut recovery = Recovery {
        options,
        segment_dir,
        manifest,
        segments,
        index,
        last: None,
        tail: start,
        torn_bytes: 0,
        committed: loaded.committed,
    };
    recovery.open_segments()?;
    recovery.scan()?;
    recovery.check_committed(None)?;
    if recovery.loss().is_some() {
        loaded.vote_file.forget_committed().map_err(failed)?;
    }
    recovery.check_purged()?;

    let state = recovery.state(loaded.vote, loaded.committed);
    let recovered = Recovered {
        last: state.last(),
        purged: state.purged,
        vote: state.vote.clone(),
        committed: state.committed,
        torn_bytes: recovery.torn_bytes,
    };
    let (work, room) = (Condvar::new(), Condvar::new());
    let shared = Arc::new(Shared {
        options: recovery.options,
        state: Mutex::new(state),
        work,
        room,
        driver: Mutex::default(),
        verified: Verified::default(),
    });
    let writer = Writer::new(Arc::clone(&shared), loaded.vote_file).map_err(failed)?;
    Ok((shared, writer, recovered))
}

/// The manifest; for a new log it is made, last of all, so that what precedes it is complete wherever there is one.
fn load_or_begin(options: &CommitLogOptions) -> Opened<Manifest> {
    let (io, dir) = (&*options.io, &options.dir);
    let failed = |source| OpenError::Io { dir: dir.clone(), source };
    if let Some(manifest) = Manifest::load(io, dir)? {
        if manifest.segment_bytes != options.segment_bytes_max {
            let (is, asked) = (manifest.segment_bytes, options.segment_bytes_max);
            let reason = format!("its segments have {is} bytes and segment_bytes_max is {asked}; it cannot be changed");
            return Err(OpenError::Options { dir: dir.clone(), reason });
        }
        return Ok(manifest);
    }
    if !io.list(&dir.join(SEGMENT_DIR)).map_err(failed)?.is_empty() {
        let reason = "there are segments and no manifest".to_owned();
        return Err(OpenError::Damaged { file: super::manifest::path(dir), offset: 0, reason, wanted: None });
    }
    if io.exists(&vote::path(dir)).map_err(failed)? {
        match VoteFile::load(io, dir) {
            Ok(loaded) if loaded.vote.is_some() => {
                let reason = "there is a vote and no manifest".to_owned();
                return Err(OpenError::Damaged { file: super::manifest::path(dir), offset: 0, reason, wanted: None });
            }
            Err(newer @ OpenError::Newer { .. }) => return Err(newer),
            // What a crash at the birth of the log left.
            Ok(_) | Err(_) => {}
        }
    }
    VoteFile::create(io, dir).map_err(failed)?;
    let manifest = Manifest::new(options.segment_bytes_max);
    manifest.save(io, dir).map_err(failed)?;
    Ok(manifest)
}

impl Recovery {
    fn io(&self) -> &dyn Io {
        &*self.options.io
    }

    fn segment_bytes(&self) -> u64 {
        self.manifest.segment_bytes
    }

    fn failed(&self, source: Error) -> OpenError {
        OpenError::Io { dir: self.options.dir.clone(), source }
    }

    fn damaged(&self, offset: u64, reason: impl Into<String>) -> OpenError {
        let base = segment_base(offset, self.segment_bytes());
        let file = self.segment_dir.join(segment_name(base));
        OpenError::Damaged { file, offset: offset - base, reason: reason.into(), wanted: None }
    }

    /// As [`Recovery::damaged`], where the frame that begins at `wanted` would help.
    fn damaged_frame(&self, offset: u64, reason: impl Into<String>, wanted: u64, upto: Option<u64>) -> OpenError {
        let mut error = self.damaged(offset, reason);
        if let OpenError::Damaged { wanted: field, .. } = &mut error {
            *field = Some(self.wanted(wanted, upto));
        }
        error
    }

    fn wanted(&self, offset: u64, upto: Option<u64>) -> Box<WantedFrame> {
        let base = segment_base(offset, self.segment_bytes());
        let file = self.segment_dir.join(segment_name(base));
        Box::new(WantedFrame { file, base, offset, last: self.last, purged: self.manifest.purged, upto })
    }

    /// A frame that this program cannot read is no torn tail: nothing is cut.
    fn newer(&self, offset: u64, found: u8) -> OpenError {
        let base = segment_base(offset, self.segment_bytes());
        let file = self.segment_dir.join(segment_name(base));
        let is_last = self.segments.last_key_value().is_none_or(|(last, _)| *last == base);
        let upto = self.last.filter(|_| is_last).map(|(_, last)| last + 1);
        let wanted = Some(self.wanted(offset, upto));
        OpenError::Newer { file, offset: offset - base, found, known: frame::VERSION, wanted }
    }

    /// Opens the segments of the log, and removes those that a purge or a reset left behind.
    fn open_segments(&mut self) -> Opened<()> {
        let mut bases = Vec::new();
        for name in self.io().list(&self.segment_dir).map_err(|error| self.failed(error))? {
            let base = parse_segment_name(&name).filter(|base| base.is_multiple_of(self.segment_bytes()));
            let Some(base) = base else {
                let reason = format!("{SEGMENT_DIR}/{name} is no segment of it");
                return Err(OpenError::Options { dir: self.options.dir.clone(), reason });
            };
            bases.push(base);
        }
        let first = segment_base(self.manifest.start, self.segment_bytes());
        let (kept, left): (Vec<u64>, Vec<u64>) =
            bases.into_iter().partition(|base| *base >= first && !self.manifest.discard);
        self.remove_stale_indexes(first, kept.last().copied())?;
        for base in left.iter().rev() {
            self.remove_segment(*base)?;
        }
        if self.manifest.discard {
            self.manifest.discard = false;
            self.manifest.save(self.io(), &self.options.dir).map_err(|error| self.failed(error))?;
        }
        for (base, expected) in kept.iter().zip((first..).step_by(usize::try_from(self.segment_bytes()).unwrap_or(1))) {
            if *base != expected {
                return Err(self.damaged(expected, "the segment is missing"));
            }
            let path = self.segment_dir.join(segment_name(*base));
            let file = self.io().open(&path, OpenMode::Write).map_err(|error| self.failed(error))?;
            self.segments.insert(*base, file);
        }
        Ok(())
    }

    /// Index files of the last segment, which is about to change, and of segments that are not there.
    fn remove_stale_indexes(&self, first: u64, last: Option<u64>) -> Opened<()> {
        let dir = &self.options.dir;
        let bases = segment_index::bases(self.io(), dir).map_err(|error| self.failed(error))?;
        let stale = |base: &u64| *base < first || last.is_none_or(|last| *base >= last);
        for base in bases.into_iter().filter(stale) {
            segment_index::remove(self.io(), dir, base).map_err(|error| self.failed(error))?;
        }
        Ok(())
    }

    /// Takes the entries of a complete segment from its index file; false when it has to be read.
    fn take_index(&mut self, file: &dyn IoFile, base: u64) -> Opened<bool> {
        let (segment, purged) = (self.segment_bytes(), self.manifest.purged);
        let places =
            segment_index::load(self.io(), &self.options.dir, base, segment).map_err(|error| self.failed(error))?;
        let Some(places) = places else { return Ok(false) };
        let (Some(first), Some(last)) = (places.first(), places.last()) else { return Ok(false) };
        let scan = self.segment(file, base);
        for place in [first, last] {
            let header = scan.frame(place.offset, false).map_err(|error| self.failed(error))?;
            let is_it = |header: &FrameHeader| {
                (header.term, header.index, header.payload_bytes) == (place.term, place.index, place.payload_bytes)
            };
            if !header.as_ref().is_some_and(is_it) {
                return Ok(false);
            }
        }
        let header = scan.frame(first.offset, false).map_err(|error| self.failed(error))?;
        let filled = match places.filler_bytes() {
            Some(room) => scan
                .frame(last.end(), true)
                .map_err(|error| self.failed(error))?
                .is_some_and(|filler| filler.kind.is_none() && filler.frame_bytes() == room),
            None => true,
        };
        if !filled || !header.is_some_and(|header| follows(self.last, purged, &header)) {
            return Ok(false);
        }
        (self.last, self.tail) = (Some((last.term, last.index)), last.end());
        for place in places.iter() {
            if purged.is_none_or(|(_, purged)| purged < place.index) {
                self.index.push(place);
            }
        }
        Ok(true)
    }

    fn remove_segment(&mut self, base: u64) -> Opened<()> {
        self.segments.remove(&base);
        let removed = self.io().remove(&self.segment_dir.join(segment_name(base)));
        removed.and_then(|()| self.io().sync_dir(&self.segment_dir)).map_err(|error| self.failed(error))
    }

    fn scan(&mut self) -> Opened<()> {
        let bases: Vec<u64> = self.segments.keys().copied().collect();
        let (count, segment) = (bases.len(), self.segment_bytes());
        for (number, base) in bases.into_iter().enumerate() {
            let Some(file) = self.segments.get(&base).cloned() else { continue };
            let from = base.max(self.manifest.start);
            let is_last = number + 1 == count;
            let len = file.len().map_err(|error| self.failed(error))?;
            if is_last && len < segment {
                file.set_len(segment).map_err(|error| self.failed(error))?;
            } else if len != segment {
                return Err(self.damaged(base, format!("the segment has {len} bytes instead of {segment}")));
            }
            let verify = self.options.verify_all || number + VERIFIED_SEGMENTS >= count;
            let before = self.tail;
            if !is_last && !verify && from == base && self.take_index(&*file, base)? {
                continue;
            }
            let stop = self.scan_segment(&*file, base, from, verify)?;
            if is_last {
                // Before anything is cut.
                self.check_committed((stop < base + segment).then_some(stop))?;
                self.end_segment(&*file, base, stop)?;
            } else if stop != base + segment {
                if base + segment - stop < HEADER_BYTES as u64 {
                    self.zero_rest(&*file, base, stop)?;
                    continue;
                }
                return Err(self.damaged_frame(stop, "a frame was expected there", stop, None));
            }
            if is_last && number > 0 && self.tail == before {
                self.drop_empty_segment(base)?;
            }
        }
        Ok(())
    }

    /// Reads frames; gives where the first one would be that is not there, the segment's end when it is complete.
    fn scan_segment(&mut self, file: &dyn IoFile, base: u64, from: u64, verify: bool) -> Opened<u64> {
        let (segment, purged) = (self.segment(file, base), self.manifest.purged);
        let mut at = from;
        loop {
            match segment.step(at, self.last, purged, verify).map_err(|error| self.failed(error))? {
                Step::Entry(place) => {
                    if purged.is_none_or(|(_, purged)| purged < place.index) {
                        self.index.push(place);
                    }
                    at = place.end();
                    self.last = Some((place.term, place.index));
                    self.tail = at;
                }
                Step::Complete => return Ok(segment.end()),
                Step::NoFrame => {
                    let newer = segment.newer(at).map_err(|error| self.failed(error))?;
                    return newer.map_or(Ok(at), |found| Err(self.newer(at, found)));
                }
                Step::Stray(_) => return Ok(at),
            }
        }
    }

    /// A segment that has its full length.
    fn segment<'a>(&self, file: &'a dyn IoFile, base: u64) -> SegmentScan<'a> {
        SegmentScan { file, base, segment_bytes: self.segment_bytes(), len: self.segment_bytes() }
    }

    /// Cuts what lies behind the last frame of the last segment, a filler among it: the place of the next frame is
    /// decided when it comes.
    fn end_segment(&mut self, file: &dyn IoFile, base: u64, stop: u64) -> Opened<()> {
        let from = self.tail.max(self.manifest.start).max(base);
        let segment_end = base + self.segment_bytes();
        let nonzero = self.segment(file, base).nonzero(from, segment_end).map_err(|error| self.failed(error))?;
        let Some((_, end)) = nonzero else { return Ok(()) };
        let (torn, to) = (end - from, end - base);
        if stop < segment_end {
            if torn > self.options.torn_bytes_max() && !self.options.cut_damage {
                let reason = format!("a frame was expected there, and there are bytes up to {to}");
                return Err(self.damaged_frame(from, reason, stop, self.last.map(|(_, last)| last + 1)));
            }
            self.torn_bytes = torn;
            tracing::warn!(segment = base, at = from - base, bytes = torn, "a torn tail was cut");
        }
        write_zeros(file, from - base, to).map_err(|error| self.failed(error))?;
        file.sync_data().map_err(|error| self.failed(error))
    }

    /// The rest of a complete segment is too short for a filler, and not zero.
    fn zero_rest(&self, file: &dyn IoFile, base: u64, from: u64) -> Opened<()> {
        let end = base + self.segment_bytes();
        tracing::error!(
            segment = base,
            at = from - base,
            "bytes behind the last frame were damaged, and are zeros again"
        );
        write_zeros(file, from - base, end - base).map_err(|error| self.failed(error))?;
        file.sync_data().map_err(|error| self.failed(error))
    }

    /// The last segment was made and nothing in it became durable: the log ends in the one before, without its filler.
    fn drop_empty_segment(&mut self, base: u64) -> Opened<()> {
        self.remove_segment(base)?;
        let Some((before, file)) = self.segments.last_key_value().map(|(base, file)| (*base, Arc::clone(file))) else {
            return Ok(());
        };
        segment_index::remove(self.io(), &self.options.dir, before).map_err(|error| self.failed(error))?;
        self.end_segment(&*file, before, before + self.segment_bytes())
    }

    /// A torn write is of entries that nobody has been told about. One that was committed and is missing was damaged, and a
    /// replica that goes on without it could elect a leader which does not have it either.
    /// `stop`: where the next frame should be.
    fn check_committed(&self, stop: Option<u64>) -> Opened<()> {
        match self.loss() {
            Some(index) if !self.options.cut_damage && self.options.durability == Durability::Fsync => {
                let ends = self.end().map_or("is empty".to_owned(), |end| format!("ends at entry {end}"));
                let reason = format!("entry {index} was stored here and committed, and the log {ends}");
                Err(match stop {
                    Some(stop) => self.damaged_frame(self.tail, reason, stop, Some(index)),
                    None => self.damaged(self.tail, reason),
                })
            }
            _ => Ok(()),
        }
    }

    fn end(&self) -> Option<u64> {
        self.last.max(self.manifest.purged).map(|(_, index)| index)
    }

    /// An entry that was committed and is missing.
    fn loss(&self) -> Option<u64> {
        self.committed.map(|(_, index)| index).filter(|index| self.end().is_none_or(|end| end < *index))
    }

    fn check_purged(&self) -> Opened<()> {
        match self.manifest.objection(self.last, self.tail) {
            Some((offset, reason)) => Err(self.damaged(offset, reason)),
            None => Ok(()),
        }
    }

    fn state(&mut self, vote: Option<bytes::Bytes>, committed: Option<EntryId>) -> State {
        let index = std::mem::take(&mut self.index);
        let (purged, purged_end, start) = (self.manifest.purged, self.manifest.purged_end, self.manifest.start);
        let tail = if self.last.is_some() { self.tail } else { purged_end };
        let segments = std::mem::take(&mut self.segments);
        let mut state = State { index, purged, purged_end, start, tail, segments, vote, ..State::default() };
        state.written_end = tail;
        state.durable_end = state.last().map_or(0, |(_, last)| last + 1);
        // A hint is as good as the log that it is about: cut to what is durable, dropped when it is about another log.
        let committed = if planted::is(Planted::CommittedTooEarly) { state.last() } else { committed };
        state.committed = committed.and_then(|committed| match state.last() {
            Some(last) if last.1 < committed.1 => Some(last),
            _ if state.purged.is_some_and(|purged| committed.1 <= purged.1) => state.purged,
            _ => state.entry_id(committed.1).filter(|id| *id == committed),
        });
        state
    }
}
