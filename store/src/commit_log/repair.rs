//! Damage to durable bytes of an open log: what is known of it, and putting the right bytes back.
//!
//! Where every frame lies is in the index in memory, so a damaged one is replaced in place: by bytes of another replica,
//! where they are the same (law 6), or by those that this one still has. The IO thread does it, in the order of the calls,
//! with one write and one sync. A loss of power in between leaves each sector as it was or as it must be: the frame is still
//! damaged, and found again, or it is whole. Fillers and index files follow from the entries and are made anew.

use std::io::{Error, ErrorKind, IoSlice, Result};
use std::path::PathBuf;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use raftmq_model::ids::PhysicalOffset;

use super::index::Place;
use super::queue::{Target, Work};
use super::segment_index::{self, Places};
use super::state::{Shared, State};
use super::writer::Writer;
use super::{CommitLog, Done};
use crate::frame::{FrameHeader, HEADER_BYTES, check_frame};
use crate::io::IoFile;
use crate::segment::{SEGMENT_DIR, segment_base, segment_name};

/// Damaged entries that are remembered at a time; others are found again later.
pub const DAMAGED_COUNT_MAX: usize = 1024;

/// An entry whose bytes in the file are not as they were written. [`CommitLog::read`] and [`CommitLog::record`] fail with
/// it, see [`is_damage`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{} is damaged at byte {at} (entry {index})", file.display())]
pub struct Damage {
    /// The segment file.
    pub file: PathBuf,
    /// Where in the file the entry's frame begins.
    pub at: u64,
    /// Physical offset of that.
    pub offset: PhysicalOffset,
    /// The entry.
    pub index: u64,
}

/// Whether a log's call failed since an entry is damaged: it can work again when that is repaired.
#[must_use]
pub fn is_damage(error: &Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Damage>())
}

/// How whole the log is. Counts are of the time since it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Integrity {
    /// Entries that are known to be damaged now.
    pub damaged_count: u64,
    /// Units that were found damaged: entries, fillers, index files.
    pub found_count: u64,
    /// Units that were repaired.
    pub repaired_count: u64,
}

impl CommitLog {
    /// How whole the log is, as far as it was looked at.
    #[must_use]
    pub fn integrity(&self) -> Integrity {
        let state = self.0.shared.state.lock();
        Integrity { damaged_count: state.damaged.len() as u64, ..state.integrity }
    }

    /// The entries that are known to be damaged, ascending.
    #[must_use]
    pub fn damaged(&self) -> Vec<Damage> {
        let shared = &self.0.shared;
        let mut state = shared.state.lock();
        state.forget_stale_damage();
        state.damaged.values().map(|place| shared.damage(place)).collect()
    }

    /// Whether an entry is known to be damaged; else `context` is woken when one is. For the one task that has it repaired.
    pub fn poll_damage(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.0.shared.state.lock();
        state.forget_stale_damage();
        if state.damaged.is_empty() {
            state.repairer = Some(context.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(())
    }

    /// The frame of a damaged entry as this replica has it elsewhere: in memory, or in the file when only what lies between
    /// two frames is damaged.
    ///
    /// # Errors
    /// What the system says.
    pub fn own_frame(&self, damage: &Damage) -> Result<Option<Bytes>> {
        let shared = &self.0.shared;
        let (place, cached, file) = {
            let state = shared.state.lock();
            let Some(place) = state.damaged.get(&damage.index).copied() else { return Ok(None) };
            let base = shared.base(&place);
            (place, state.cached(place.index).cloned(), state.segments.get(&base).cloned())
        };
        if let Some(payload) = cached {
            return Ok(Some(encoded(&place, shared.base(&place), &payload)));
        }
        let Some(file) = file else { return Ok(None) };
        let frame = read_frame(&*file, &place, shared.base(&place))?;
        Ok(is_frame_of(&frame, &place, shared.base(&place)).then_some(frame))
    }

    /// Puts `frame`, the entry's header and payload as another replica has them, in the place of a damaged one; `done` runs
    /// when that is durable and was read back. Nothing happens when the entry is not damaged or not there any more.
    ///
    /// # Errors
    /// `done` is given `InvalidInput` when the bytes are not that entry's frame, `InvalidData` when the file does not give
    /// back what was written, and what the system says, which is final.
    pub fn repair(&self, damage: &Damage, frame: Bytes, done: Done) {
        let shared = &self.0.shared;
        let place = shared.state.lock().damaged.get(&damage.index).copied();
        let Some(place) = place else { return done(Ok(())) };
        if !is_frame_of(&frame, &place, shared.base(&place)) {
            let what = format!("these bytes are not the frame of entry {} at {}", place.index, damage.offset);
            return done(Err(Error::new(ErrorKind::InvalidInput, what)));
        }
        shared.queue_repair(Target::Frame(place, frame), done);
    }

    /// The frame that begins at `offset`, for another replica that has it damaged: header and payload of a committed entry,
    /// or the header of the filler behind one. `None` when there is none here.
    ///
    /// # Errors
    /// Damage ([`is_damage`]), which is noted; what the system says.
    pub fn committed_frame(&self, offset: PhysicalOffset) -> Result<Option<Bytes>> {
        self.0.shared.committed_frame(offset.0)
    }
}

impl State {
    /// Forgets damage to what is no longer in the log.
    fn forget_stale_damage(&mut self) {
        let index = &self.index;
        self.damaged.retain(|at, place| index.get(*at) == Some(*place));
    }
}

impl Shared {
    pub(super) fn base(&self, place: &Place) -> u64 {
        segment_base(place.offset, self.options.segment_bytes_max)
    }

    pub(super) fn damage(&self, place: &Place) -> Damage {
        let base = self.base(place);
        let file = self.options.dir.join(SEGMENT_DIR).join(segment_name(base));
        Damage { file, at: place.offset - base, offset: PhysicalOffset(place.offset), index: place.index }
    }

    /// Notes that an entry was found damaged by who looked at it in `generation`; `None` when it was truncated or purged
    /// meanwhile, and there is no damage.
    pub(super) fn note_damage(&self, place: &Place, generation: u64) -> Option<Damage> {
        let damage = self.damage(place);
        let mut state = self.state.lock();
        if state.generation != generation || state.index.get(place.index) != Some(*place) {
            return None;
        }
        if state.damaged.len() < DAMAGED_COUNT_MAX && state.damaged.insert(place.index, *place).is_none() {
            state.integrity.found_count += 1;
            self.verified.forget(place.index);
            let repairer = state.repairer.take();
            drop(state);
            tracing::error!("{damage}");
            repairer.into_iter().for_each(std::task::Waker::wake);
        }
        Some(damage)
    }

    /// Has a filler or an index file made anew that was found damaged.
    pub(super) fn remake(&self, target: Target, file: &std::path::Path, at: u64) {
        tracing::error!("{} is damaged at byte {at}; it is made anew from the entries", file.display());
        self.state.lock().integrity.found_count += 1;
        self.queue_repair(target, Box::new(|_| {}));
    }

    fn queue_repair(&self, target: Target, done: Done) {
        self.enqueue(done, |_, done| Ok(Work::Repair { target, done }));
    }

    fn committed_frame(&self, offset: u64) -> Result<Option<Bytes>> {
        let segment = self.options.segment_bytes_max;
        let base = segment_base(offset, segment);
        let (place, cached, filler, generation) = {
            let state = self.state.lock();
            if let Some(error) = state.objection() {
                return Err(error);
            }
            let Some((_, committed)) = state.committed_and_durable() else { return Ok(None) };
            let index = state.index.first_at(offset);
            let place = state.index.get(index).filter(|place| index <= committed && place.offset == offset);
            // A filler is there for good when the entry behind it is.
            let next = state.index.get(index).filter(|next| index <= committed && next.offset == base + segment);
            let before = index.checked_sub(1).and_then(|before| state.end_offset(before));
            let filler = next.is_some() && before == Some(offset);
            (place, place.and_then(|place| state.cached(place.index).cloned()), filler, state.generation)
        };
        if filler && base + segment - offset >= HEADER_BYTES as u64 {
            let filler = FrameHeader::filler(offset, base + segment - offset).encode(base, &[]);
            return Ok(Some(Bytes::copy_from_slice(&filler)));
        }
        let Some(place) = place else { return Ok(None) };
        if let Some(payload) = cached {
            return Ok(Some(encoded(&place, base, &payload)));
        }
        let Some(file) = self.state.lock().segments.get(&base).cloned() else { return Ok(None) };
        let frame = read_frame(&*file, &place, base)?;
        if is_frame_of(&frame, &place, base) {
            return Ok(Some(frame));
        }
        self.note_damage(&place, generation).map_or(Ok(None), |damage| Err(damaged(damage)))
    }
}

pub(super) fn damaged(damage: Damage) -> Error {
    Error::new(ErrorKind::InvalidData, damage)
}

/// Header and payload of an entry's frame.
fn encoded(place: &Place, base: u64, payload: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(HEADER_BYTES + payload.len());
    frame.extend_from_slice(&header(place).encode(base, payload));
    frame.extend_from_slice(payload);
    frame.freeze()
}

pub(super) fn header(place: &Place) -> FrameHeader {
    let Place { term, index, kind, offset, payload_bytes } = *place;
    FrameHeader { kind: Some(kind), payload_bytes, term, index, offset }
}

/// A copy of what the file has there, past the map and as far as it can be past the system's cache.
fn read_frame(file: &dyn IoFile, place: &Place, base: u64) -> Result<Bytes> {
    let mut frame = vec![0; HEADER_BYTES + place.payload_bytes as usize];
    file.read_exact_at(&mut frame, place.offset - base)?;
    Ok(frame.into())
}

/// Whether these bytes are the whole frame of that entry.
pub(super) fn is_frame_of(frame: &Bytes, place: &Place, base: u64) -> bool {
    frame.len() == HEADER_BYTES + place.payload_bytes as usize
        && check_frame(frame, base, place.offset) == Some(header(place))
}

impl Writer {
    /// Writes the right bytes. The inner error is for the caller alone, the outer one ends the log.
    pub(super) fn repair(&mut self, target: &Target) -> Result<Result<()>> {
        match target {
            Target::Frame(place, frame) => self.repair_frame(place, frame),
            Target::Filler(base) => self.repair_filler(*base).map(Ok),
            Target::Index(base) => self.repair_index(*base).map(Ok),
        }
    }

    fn repair_frame(&mut self, place: &Place, frame: &Bytes) -> Result<Result<()>> {
        let shared = Arc::clone(&self.shared);
        let base = shared.base(place);
        let file = {
            let state = shared.state.lock();
            let is_there = state.index.get(place.index) == Some(*place) && place.index < state.durable_end;
            match state.segments.get(&base).filter(|_| is_there) {
                Some(file) => Arc::clone(file),
                None => return Ok(Ok(())),
            }
        };
        let bytes = (place.end() - place.offset) as usize;
        assert!(is_frame_of(frame, place, base), "only the entry's own frame is put in its place");
        let padding = [0; crate::frame::FRAME_ALIGN as usize];
        let padding = &padding[..bytes - frame.len()];
        if !overwrite(&*file, place.offset - base, frame, padding)? {
            let damage = shared.damage(place);
            return Ok(Err(Error::new(ErrorKind::InvalidData, format!("{damage}, also after it was written again"))));
        }
        let mut state = shared.state.lock();
        if state.damaged.remove(&place.index).is_some() {
            state.integrity.repaired_count += 1;
        }
        Ok(Ok(()))
    }

    /// The filler of a complete segment, and the zeros behind it.
    fn repair_filler(&mut self, base: u64) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let end = base + shared.options.segment_bytes_max;
        let (from, file) = {
            let state = shared.state.lock();
            let last = state.index.first_at(end).checked_sub(1).and_then(|last| state.index.get(last));
            let is_complete = state.segments.range(end..).next().is_some();
            match (last.filter(|last| last.offset >= base && is_complete), state.segments.get(&base)) {
                (Some(last), Some(file)) => (last.end(), Arc::clone(file)),
                _ => return Ok(()),
            }
        };
        let mut header = Vec::new();
        if end - from >= HEADER_BYTES as u64 {
            header.extend_from_slice(&FrameHeader::filler(from, end - from).encode(base, &[]));
        }
        super::zero_ahead::write_zeros(&*file, from - base + header.len() as u64, end - base)?;
        if overwrite(&*file, from - base, &header, &[])? {
            shared.state.lock().integrity.repaired_count += 1;
        } else {
            tracing::error!(segment = base, "the filler is damaged, also after it was written again");
        }
        Ok(())
    }

    /// The index file of a complete segment of which no entry is purged.
    fn repair_index(&mut self, base: u64) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let Some(places) = shared.places_of(base) else { return Ok(()) };
        segment_index::save(&*shared.options.io, &shared.options.dir, &places)?;
        self.note_indexed(base);
        shared.state.lock().integrity.repaired_count += 1;
        Ok(())
    }
}

impl Shared {
    /// The entries of a complete segment; `None` when it is not complete or the log has not all of them.
    pub(super) fn places_of(&self, base: u64) -> Option<Places> {
        let segment = self.options.segment_bytes_max;
        let state = self.state.lock();
        state.segments.range(base + segment..).next()?;
        let (first, end) = (state.index.first_at(base), state.index.first_at(base + segment));
        if state.index.get(first)?.offset != base || first >= end || end > state.durable_end {
            return None;
        }
        let mut places = Places::new(base, segment);
        (first..end).filter_map(|index| state.index.get(index)).for_each(|place| places.push(&place));
        Some(places)
    }
}

/// Writes, syncs and reads back; whether the file then holds these bytes.
pub(super) fn overwrite(file: &dyn IoFile, at: u64, bytes: &[u8], padding: &[u8]) -> Result<bool> {
    file.write_at(&[IoSlice::new(bytes), IoSlice::new(padding)], at)?;
    file.sync_data()?;
    let len = bytes.len() + padding.len();
    file.forget_cached(at, len as u64);
    let mut read = vec![0; len];
    file.read_exact_at(&mut read, at)?;
    Ok(read[..bytes.len()] == *bytes && read[bytes.len()..] == *padding)
}
