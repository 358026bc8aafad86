//! Reading: recent entries from the tail cache, others from the mapped file.

use std::io::{Error, ErrorKind, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use raftmq_model::ids::PhysicalOffset;

use super::StoredEntry;
use super::index::Place;
use super::repair::damaged;
use super::state::{Shared, State};
use crate::frame::{HEADER_BYTES, check_frame};
use crate::io::IoFile;
use crate::segment::segment_base;

/// Committed entries whose frames were found whole by the last readers of records, which mostly read several records of one entry.
pub(super) struct Verified([AtomicU64; VERIFIED_COUNT]);

/// A power of two.
const VERIFIED_COUNT: usize = 64;

impl Default for Verified {
    fn default() -> Verified {
        Verified(std::array::from_fn(|_| AtomicU64::new(u64::MAX)))
    }
}

impl Verified {
    fn slot(&self, index: u64) -> &AtomicU64 {
        &self.0[(index % VERIFIED_COUNT as u64) as usize]
    }

    fn holds(&self, index: u64) -> bool {
        self.slot(index).load(Ordering::Relaxed) == index
    }

    fn add(&self, index: u64) {
        self.slot(index).store(index, Ordering::Relaxed);
    }

    /// The entry is to be checked again.
    pub(super) fn forget(&self, index: u64) {
        let _ = self.slot(index).compare_exchange(index, u64::MAX, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// Where an entry's bytes are.
enum Source {
    Cache(Bytes),
    /// A segment file, and whether the entry may still be truncated: then a slice of the map could change under its
    /// reader, and the bytes are copied.
    File(Arc<dyn IoFile>, bool),
}

fn source(state: &State, place: &Place, base: u64) -> Result<Source> {
    if let Some(payload) = state.cached(place.index) {
        return Ok(Source::Cache(payload.clone()));
    }
    let file = state.segments.get(&base).ok_or_else(|| {
        Error::new(ErrorKind::NotFound, format!("entry {} lies in a segment that is not there", place.index))
    })?;
    let may_go = state.committed.is_none_or(|(_, committed)| committed < place.index);
    Ok(Source::File(Arc::clone(file), may_go))
}

fn stored(place: &Place, payload: Bytes) -> StoredEntry {
    let payload_offset = PhysicalOffset(place.payload_offset());
    StoredEntry { term: place.term, index: place.index, kind: place.kind, payload, payload_offset }
}

impl Shared {
    pub(super) fn read(&self, from: u64, to_exclusive: u64, bytes_max: usize) -> Result<Vec<StoredEntry>> {
        loop {
            let (places, generation) = self.gather(from, to_exclusive, bytes_max)?;
            let mut entries = Vec::with_capacity(places.len());
            let mut broken = None;
            for (place, source) in places {
                match self.payload(&place, source)? {
                    Some(payload) => entries.push(stored(&place, payload)),
                    None => {
                        broken = Some(place);
                        break;
                    }
                }
            }
            let Some(place) = broken else { return Ok(entries) };
            // The entry may have been truncated while it was read; then there is no damage, and another answer.
            if let Some(damage) = self.note_damage(&place, generation) {
                return Err(damaged(damage));
            }
        }
    }

    fn gather(&self, from: u64, to_exclusive: u64, bytes_max: usize) -> Result<(Vec<(Place, Source)>, u64)> {
        let state = self.state.lock();
        if let Some(error) = state.objection() {
            return Err(error);
        }
        let (mut places, mut bytes) = (Vec::new(), 0);
        for index in from.max(state.index.first())..to_exclusive.min(state.index.end()) {
            let Some(place) = state.index.get(index) else { break };
            bytes += place.payload_bytes as usize;
            if bytes > bytes_max && !places.is_empty() {
                break;
            }
            let base = segment_base(place.offset, self.options.segment_bytes_max);
            places.push((place, source(&state, &place, base)?));
        }
        Ok((places, state.generation))
    }

    /// An entry's payload; `None` when the file does not hold the entry.
    fn payload(&self, place: &Place, source: Source) -> Result<Option<Bytes>> {
        let (file, may_go) = match source {
            Source::Cache(payload) => return Ok(Some(payload)),
            Source::File(file, may_go) => (file, may_go),
        };
        let base = segment_base(place.offset, self.options.segment_bytes_max);
        let frame = file.bytes(place.offset - base, HEADER_BYTES + place.payload_bytes as usize)?;
        let frame = if may_go { Bytes::copy_from_slice(&frame) } else { frame };
        let header = check_frame(&frame, base, place.offset);
        let intact = header.is_some_and(|header| {
            (header.term, header.index, header.kind) == (place.term, place.index, Some(place.kind))
        });
        Ok(intact.then(|| frame.slice(HEADER_BYTES..)))
    }

    pub(super) fn payload_around(&self, at: u64) -> Option<u64> {
        let state = self.state.lock();
        let place = state.index.get(state.index.first_at(at.saturating_add(1)).checked_sub(1)?)?;
        let payload = place.payload_offset();
        (payload..payload + u64::from(place.payload_bytes)).contains(&at).then_some(payload)
    }

    pub(super) fn record(&self, at: u64, len: u32) -> Result<Bytes> {
        let nowhere = || Error::new(ErrorKind::NotFound, format!("no entry holds {len} bytes at offset {at}"));
        let (place, source, generation) = {
            let state = self.state.lock();
            if let Some(error) = state.objection() {
                return Err(error);
            }
            let index = state.index.first_at(at.saturating_add(1)).checked_sub(1).ok_or_else(nowhere)?;
            let place = state.index.get(index).ok_or_else(nowhere)?;
            let base = segment_base(place.offset, self.options.segment_bytes_max);
            let source = source(&state, &place, base)?;
            (place, source, state.generation)
        };
        let within = at.checked_sub(place.payload_offset()).ok_or_else(nowhere)?;
        if within.saturating_add(u64::from(len)) > u64::from(place.payload_bytes) {
            return Err(nowhere());
        }
        match source {
            Source::Cache(payload) => Ok(payload.slice(within as usize..within as usize + len as usize)),
            Source::File(file, may_go) => {
                let base = segment_base(place.offset, self.options.segment_bytes_max);
                // What may be truncated is checked each time: its index can become another entry's.
                if !may_go && self.verified.holds(place.index) {
                    return file.bytes(at - base, len as usize);
                }
                let Some(payload) = self.payload(&place, Source::File(file, may_go))? else {
                    return match self.note_damage(&place, generation) {
                        Some(damage) => Err(damaged(damage)),
                        None => Err(nowhere()),
                    };
                };
                if !may_go {
                    self.verified.add(place.index);
                }
                Ok(payload.slice(within as usize..within as usize + len as usize))
            }
        }
    }
}
