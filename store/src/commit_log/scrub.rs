//! Reading what nobody reads: a walk over the durable entries, for a scrubber that finds damage while other replicas are whole.
//!
//! Bytes are read with `pread` past the system's cache, as far as that can be: pages that a reader has mapped stay there, and
//! damage under them is found once they are gone.

use std::io::Result;
use std::sync::Arc;

use super::CommitLog;
use super::index::Place;
use super::queue::Target;
use super::repair::is_frame_of;
use super::scan::SegmentScan;
use super::segment_index;
use super::state::Shared;
use crate::frame::HEADER_BYTES;
use crate::io::IoFile;
use crate::segment::{SEGMENT_DIR, segment_name};
use bytes::Bytes;

/// Bytes that are read at once (one larger entry is).
const CHUNK_BYTES: u64 = 1 << 20;
/// A device's "input/output error": what a bad sector reads as.
const EIO: i32 = 5;

/// What one step of [`CommitLog::scrub`] did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Scrubbed {
    /// The entry to go on with.
    pub next: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// Nothing durable comes after that: the pass is done.
    pub is_end: bool,
}

/// A run of entries in one segment.
struct Run {
    places: Vec<Place>,
    base: u64,
    file: Arc<dyn IoFile>,
    generation: u64,
    /// The segment is complete, and these are its last ones.
    ends_segment: bool,
}

impl CommitLog {
    /// Reads about `bytes_max` bytes of durable entries from the one at `from` on (or the first that is there) and checks
    /// them with what lies between them. Damage is noted as that of a read is; fillers and index files are made anew.
    ///
    /// # Errors
    /// What the system says; any when the log is poisoned.
    pub fn scrub(&self, from: u64, bytes_max: u64) -> Result<Scrubbed> {
        let shared = &self.0.shared;
        let mut done = Scrubbed { next: from, ..Scrubbed::default() };
        while done.bytes < bytes_max {
            let Some(run) = shared.gather_run(done.next, CHUNK_BYTES.min(bytes_max - done.bytes))? else {
                done.is_end = true;
                break;
            };
            done.bytes += shared.scrub_run(&run)?;
            done.next = run.places.last().map_or(done.next, |last| last.index + 1);
        }
        Ok(done)
    }
}

impl Shared {
    fn gather_run(&self, from: u64, bytes_max: u64) -> Result<Option<Run>> {
        let segment = self.options.segment_bytes_max;
        let state = self.state.lock();
        if let Some(error) = state.objection() {
            return Err(error);
        }
        let first = from.max(state.index.first());
        let end = state.durable_end.min(state.index.end());
        let Some(start) = state.index.get(first).filter(|_| first < end) else { return Ok(None) };
        let base = self.base(&start);
        let Some(file) = state.segments.get(&base).cloned() else { return Ok(None) };
        let next_segment = state.index.first_at(base + segment);
        let segment_last = next_segment.min(end);
        let mut places = Vec::new();
        for index in first..segment_last {
            let Some(place) = state.index.get(index) else { break };
            if !places.is_empty() && place.end() - start.offset > bytes_max {
                break;
            }
            places.push(place);
        }
        // What ends it was synced before the next segment was begun, and is looked at once an entry there is durable, too.
        let ends_segment = next_segment < end && places.last().is_some_and(|last| last.index + 1 == next_segment);
        Ok(Some(Run { places, base, file, generation: state.generation, ends_segment }))
    }

    fn scrub_run(&self, run: &Run) -> Result<u64> {
        let (Some(first), Some(last)) = (run.places.first(), run.places.last()) else { return Ok(0) };
        let (from, to) = (first.offset - run.base, last.end() - run.base);
        match read_past_cache(&*run.file, from, to) {
            Ok(bytes) => {
                for place in &run.places {
                    let at = (place.offset - first.offset) as usize;
                    self.scrub_frame(run, place, &bytes.slice(at..at + (place.end() - place.offset) as usize));
                }
            }
            // A sector cannot be read: which entry is in it?
            Err(error) if error.raw_os_error() == Some(EIO) => {
                for place in &run.places {
                    let read = read_past_cache(&*run.file, place.offset - run.base, place.end() - run.base);
                    self.scrub_frame(run, place, &read.unwrap_or_default());
                }
            }
            Err(error) => return Err(error),
        }
        let rest = if run.ends_segment { self.scrub_segment_end(run, last.end())? } else { 0 };
        Ok(to - from + rest)
    }

    /// `bytes`: the frame and the zeros that fill it up.
    fn scrub_frame(&self, run: &Run, place: &Place, bytes: &Bytes) {
        let len = HEADER_BYTES + place.payload_bytes as usize;
        let whole = bytes.len() >= len
            && is_frame_of(&bytes.slice(..len), place, run.base)
            && bytes[len..].iter().all(|byte| *byte == 0);
        if !whole {
            self.note_damage(place, run.generation);
        }
    }

    /// What lies behind the last entry of a complete segment, and its index file.
    fn scrub_segment_end(&self, run: &Run, from: u64) -> Result<u64> {
        let (base, segment) = (run.base, self.options.segment_bytes_max);
        let end = base + segment;
        run.file.forget_cached(from - base, end - from);
        let scan = SegmentScan { file: &*run.file, base, segment_bytes: segment, len: segment };
        let header_bytes = if end - from >= HEADER_BYTES as u64 { HEADER_BYTES as u64 } else { 0 };
        let intact = header_bytes == 0
            || scan
                .frame_copied(from)?
                .is_some_and(|header| header.kind.is_none() && header.offset + header.frame_bytes() == end);
        let stray = scan.nonzero(from + header_bytes, end)?;
        let is_now = |shared: &Shared| shared.state.lock().generation == run.generation;
        if (!intact || stray.is_some()) && is_now(self) {
            let file = self.options.dir.join(SEGMENT_DIR).join(segment_name(base));
            let at = stray.filter(|_| intact).map_or(from, |(at, _)| at);
            self.remake(Target::Filler(base), &file, at - base);
        }
        if let Some(places) = self.places_of(base) {
            let options = &self.options;
            let kept = segment_index::load(&*options.io, &options.dir, base, segment)?;
            if kept.as_ref() != Some(&places) && is_now(self) {
                let file = segment_index::folder(&options.dir).join(segment_name(base));
                self.remake(Target::Index(base), &file, 0);
            }
        }
        Ok(header_bytes)
    }
}

fn read_past_cache(file: &dyn IoFile, from: u64, to: u64) -> Result<Bytes> {
    let mut bytes = vec![0; (to - from) as usize];
    file.forget_cached(from, to - from);
    file.read_exact_at(&mut bytes, from)?;
    file.forget_cached(from, to - from);
    Ok(bytes.into())
}
