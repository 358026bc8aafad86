//! What the log knows in memory, and the calls that change it.
//!
//! One lock. It is held for memory work only, never over IO.

use std::collections::{BTreeMap, VecDeque};
use std::io::{Error, ErrorKind, Result};
use std::sync::Arc;
use std::task::Waker;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use raftmq_model::ids::PhysicalOffset;

use super::index::{EntryIndex, Place};
use super::manifest::Manifest;
use super::queue::{Frame, Work};
use super::read::Verified;
use super::{CommitLogOptions, Done, EntryId, Integrity, NewEntry, SegmentInfo};
use crate::frame::{HEADER_BYTES, frame_bytes};
use crate::io::IoFile;
use crate::segment::{place, segment_base};

/// Memory that a cached entry costs beside its payload.
const CACHED_ENTRY_BYTES: usize = 64;

pub(super) struct Shared {
    pub(super) options: CommitLogOptions,
    pub(super) state: Mutex<State>,
    /// There is work, or the log closes.
    pub(super) work: Condvar,
    /// The queue got shorter.
    pub(super) room: Condvar,
    /// Who drives the log, when it has no IO thread.
    pub(super) driver: Mutex<Option<Waker>>,
    /// Committed entries whose frames were checked a moment ago.
    pub(super) verified: Verified,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) index: EntryIndex,
    /// Payloads of the last `cache.len()` entries.
    pub(super) cache: VecDeque<Bytes>,
    pub(super) cache_bytes: usize,
    pub(super) purged: Option<EntryId>,
    /// Where the purged entry's frame ends; 0 when nothing was purged.
    pub(super) purged_end: u64,
    /// The manifest's `start` once the queued work is done.
    pub(super) start: u64,
    /// Where the last frame ends.
    pub(super) tail: u64,
    /// Frames that end at or before it are in their file. Counts the current generation only.
    pub(super) written_end: u64,
    /// The first index that is not durable.
    pub(super) durable_end: u64,
    /// Counts truncations: what was queued in an earlier generation may be gone by now.
    pub(super) generation: u64,
    pub(super) queue: VecDeque<Work>,
    pub(super) queue_bytes: usize,
    /// By base. The writer adds and removes.
    pub(super) segments: BTreeMap<u64, Arc<dyn IoFile>>,
    pub(super) vote: Option<Bytes>,
    pub(super) committed: Option<EntryId>,
    /// Entries that were found damaged and are not repaired yet, by index.
    pub(super) damaged: BTreeMap<u64, Place>,
    /// Counts; what is damaged now is not counted here.
    pub(super) integrity: Integrity,
    /// Who waits for damage.
    pub(super) repairer: Option<Waker>,
    pub(super) poison: Option<(ErrorKind, String)>,
    pub(super) closed: bool,
}

impl State {
    /// Why nothing goes any more, if so.
    pub(super) fn objection(&self) -> Option<Error> {
        if let Some((kind, message)) = &self.poison {
            return Some(Error::new(*kind, format!("the log stopped after a failure: {message}")));
        }
        self.closed.then(|| Error::other("the log is closed"))
    }

    pub(super) fn is_poisoned(&self) -> bool {
        self.poison.is_some()
    }

    /// Makes every later call fail. What is queued stays for the writer to fail.
    pub(super) fn poison(&mut self, error: &Error) {
        if self.poison.is_none() {
            self.poison = Some((error.kind(), error.to_string()));
        }
    }

    pub(super) fn last(&self) -> Option<EntryId> {
        self.index.last().or(self.purged)
    }

    /// The last entry that is committed and durable here.
    pub(super) fn committed_and_durable(&self) -> Option<EntryId> {
        let committed = self.committed?;
        if committed.1 < self.durable_end { Some(committed) } else { self.entry_id(self.durable_end.checked_sub(1)?) }
    }

    pub(super) fn entry_id(&self, index: u64) -> Option<EntryId> {
        self.index.term(index).map(|term| (term, index)).or(self.purged.filter(|(_, purged)| *purged == index))
    }

    pub(super) fn end_offset(&self, index: u64) -> Option<u64> {
        let purged_end = self.purged.filter(|(_, purged)| *purged == index).map(|_| self.purged_end);
        self.index.get(index).map(|place| place.end()).or(purged_end)
    }

    /// The end of the last frame when the log holds `self.index`.
    fn index_end(&self) -> u64 {
        self.index.last().and_then(|(_, last)| self.end_offset(last)).unwrap_or(self.purged_end)
    }

    pub(super) fn cached(&self, index: u64) -> Option<&Bytes> {
        let from_end = usize::try_from(self.index.end().checked_sub(index)?).ok()?;
        self.cache.get(self.cache.len().checked_sub(from_end)?)
    }

    fn cache_push(&mut self, payload: Bytes) {
        self.cache_bytes += payload.len() + CACHED_ENTRY_BYTES;
        self.cache.push_back(payload);
    }

    /// Drops the oldest cached payloads beyond the bound, as far as they are in their file.
    pub(super) fn evict(&mut self, bytes_max: usize) {
        while self.cache_bytes > bytes_max {
            let index = self.index.end() - self.cache.len() as u64;
            if self.index.get(index).is_none_or(|place| place.end() > self.written_end) {
                return;
            }
            self.cache_pop_front();
        }
    }

    fn cache_pop_front(&mut self) {
        if let Some(payload) = self.cache.pop_front() {
            self.cache_bytes -= payload.len() + CACHED_ENTRY_BYTES;
        }
    }

    /// Where the entry goes that follows the log and `tail`.
    fn next_place(
        &self,
        tail: u64,
        expected: Option<EntryId>,
        entry: &NewEntry,
        max: usize,
        segment: u64,
    ) -> Result<Place> {
        let refuse = |reason: String| Err(Error::new(ErrorKind::InvalidInput, reason));
        if let Some((term, index)) = expected
            && (entry.index != index + 1 || entry.term < term)
        {
            return refuse(format!("entry {}/{} cannot follow {term}/{index}", entry.term, entry.index));
        }
        if entry.payload.len() > max {
            return refuse(format!("entry {} has {} bytes, more than {max}", entry.index, entry.payload.len()));
        }
        let payload_bytes = entry.payload.len() as u32;
        let offset = place(tail, frame_bytes(u64::from(payload_bytes)), segment);
        Ok(Place { term: entry.term, index: entry.index, kind: entry.kind, offset, payload_bytes })
    }

    pub(super) fn segment_infos(&self, segment_bytes: u64) -> Vec<SegmentInfo> {
        let mut infos = Vec::new();
        let mut first = self.index.first();
        while let Some(place) = self.index.get(first) {
            let base = segment_base(place.offset, segment_bytes);
            let next = self.index.first_at(base + segment_bytes);
            infos.push(SegmentInfo { base: PhysicalOffset(base), first_index: first, last_index: next - 1 });
            first = next;
        }
        infos
    }
}

impl Shared {
    pub(super) fn append(&self, entries: Vec<NewEntry>, done: Done) -> Result<()> {
        let max = self.options.payload_bytes_max();
        let segment = self.options.segment_bytes_max;
        let mut state = self.state.lock();
        while self.options.io_thread && state.queue_bytes > self.options.queue_bytes_max && state.objection().is_none()
        {
            self.room.wait(&mut state);
        }
        if let Some(error) = state.objection() {
            return Err(error);
        }
        let mut frames = Vec::with_capacity(entries.len());
        let (mut tail, mut last, mut payload_bytes) = (state.tail, state.last(), 0);
        for entry in entries {
            let place = state.next_place(tail, last, &entry, max, segment)?;
            tail = place.end();
            last = Some((entry.term, entry.index));
            payload_bytes += entry.payload.len();
            frames.push(Frame { place, payload: entry.payload });
        }
        for frame in &frames {
            state.index.push(frame.place);
            state.cache_push(frame.payload.clone());
        }
        state.tail = tail;
        state.queue_bytes += payload_bytes;
        let generation = state.generation;
        state.queue.push_back(Work::Append { frames, payload_bytes, generation, done });
        drop(state);
        self.wake();
        Ok(())
    }

    /// Queues what `change` makes of the state, or hands `done` the reason why not.
    pub(super) fn enqueue(
        &self,
        done: Done,
        change: impl FnOnce(&mut State, Done) -> std::result::Result<Work, (Done, Error)>,
    ) {
        let mut state = self.state.lock();
        let outcome = match state.objection() {
            Some(error) => Err((done, error)),
            None => change(&mut state, done),
        };
        match outcome {
            Ok(work) => {
                state.queue.push_back(work);
                drop(state);
                self.wake();
            }
            Err((done, error)) => {
                drop(state);
                done(Err(error));
            }
        }
    }

    pub(super) fn truncate_after(&self, index: Option<u64>, done: Done) {
        self.enqueue(done, |state, done| {
            let keep_end = index.map_or(0, |index| index.saturating_add(1));
            let mut removed = Vec::new();
            while state.index.end() > keep_end
                && let Some(place) = state.index.pop_last()
            {
                if let Some(payload) = state.cache.pop_back() {
                    state.cache_bytes -= payload.len() + CACHED_ENTRY_BYTES;
                }
                removed.push(place);
            }
            let end = state.index_end();
            state.tail = end;
            state.generation += 1;
            state.written_end = state.written_end.min(end);
            state.durable_end = state.durable_end.min(state.last().map_or(0, |(_, last)| last + 1));
            let generation = state.generation;
            if end < state.start {
                // The segment in which the log must go on was purged as a whole: begin it again.
                state.start = end;
                let manifest = self.manifest(state, true);
                return Ok(Work::Purge { manifest, generation, done });
            }
            Ok(Work::Truncate { end, zero: self.zero_ranges(end, &removed), generation, done })
        });
    }

    /// What a truncation to `end` zeroes in the segment that stays: from the end backwards, in whole frames and at most
    /// `write_bytes_max` at a time, so that a crash in between leaves what looks like a torn tail.
    fn zero_ranges(&self, end: u64, removed: &[Place]) -> Vec<(u64, u64)> {
        let (segment, max) = (self.options.segment_bytes_max, self.options.write_bytes_max);
        let mut ranges = Vec::new();
        if end.is_multiple_of(segment) {
            return ranges;
        }
        let segment_end = segment_base(end, segment) + segment;
        let here = removed.partition_point(|place| place.offset >= segment_end);
        let mut to = removed.get(here).map_or(end, Place::end);
        if here > 0 {
            ranges.push((to, segment_end.min(to + HEADER_BYTES as u64))); // the filler's header
        }
        let mut from = to;
        for place in &removed[here..] {
            if to - place.offset > max {
                ranges.push((from, to));
                to = from;
            }
            from = place.offset;
        }
        ranges.push((from, to));
        ranges.retain(|(from, to)| from < to);
        ranges
    }

    fn manifest(&self, state: &State, discard: bool) -> Manifest {
        let (start, purged, purged_end) = (state.start, state.purged, state.purged_end);
        Manifest { segment_bytes: self.options.segment_bytes_max, start, purged, purged_end, discard }
    }

    pub(super) fn save_vote(&self, vote: Bytes, done: Done) {
        self.enqueue(done, |state, done| {
            state.vote = Some(vote.clone());
            Ok(Work::Vote { vote, done })
        });
    }

    pub(super) fn save_committed(&self, committed: EntryId) {
        self.state.lock().committed = Some(committed);
    }

    pub(super) fn purge(&self, upto_index: u64, done: Done) {
        self.enqueue(done, |state, done| {
            if state.index.first() <= upto_index {
                let Some(place) = state.index.get(upto_index) else {
                    let reason = format!("the log ends before entry {upto_index}, nothing was purged");
                    return Err((done, Error::new(ErrorKind::InvalidInput, reason)));
                };
                state.purged = Some((place.term, upto_index));
                state.purged_end = place.end();
                state.index.forget_upto(upto_index);
                while state.index.end() - (state.cache.len() as u64) < state.index.first() {
                    state.cache_pop_front();
                }
                let next = state.index.get(upto_index + 1).map_or(place.end(), |next| next.offset);
                state.start = state.start.max(segment_base(next, self.options.segment_bytes_max));
            }
            let (manifest, generation) = (self.manifest(state, false), state.generation);
            Ok(Work::Purge { manifest, generation, done })
        });
    }

    pub(super) fn reset(&self, purged: EntryId, end: u64, done: Done) {
        self.enqueue(done, |state, done| {
            if state.last().is_some_and(|(_, last)| last > purged.1) || !end.is_multiple_of(crate::frame::FRAME_ALIGN) {
                let reason = format!("the log cannot go on after entry {} at {end}: it reaches further", purged.1);
                return Err((done, Error::new(ErrorKind::InvalidInput, reason)));
            }
            state.index = EntryIndex::starting_at(purged.1 + 1);
            state.cache.clear();
            state.cache_bytes = 0;
            (state.purged, state.purged_end) = (Some(purged), end);
            (state.start, state.tail, state.written_end) = (end, end, end);
            state.generation += 1;
            let (manifest, generation) = (self.manifest(state, true), state.generation);
            Ok(Work::Purge { manifest, generation, done })
        });
    }

    /// Tells the IO thread, or who drives the log, that there is work.
    fn wake(&self) {
        if self.options.io_thread {
            self.work.notify_one();
        } else if let Some(driver) = self.driver.lock().take() {
            driver.wake();
        }
    }

    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.work.notify_all();
        self.room.notify_all();
    }
}
