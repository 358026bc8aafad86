//! All IO of a log, on one thread, in the order of the calls.

use std::collections::BTreeSet;
use std::io::{Error, IoSlice, Result};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::manifest::Manifest;
use super::queue::{Frame, Work};
use super::repair::header;
use super::segment_index::{self, Places};
use super::state::{Shared, State};
use super::vote::VoteFile;
use super::zero_ahead::{ZeroAhead, write_zeros};
use super::{Done, Durability, EntryId};
use crate::frame::{FRAME_ALIGN, FrameHeader, HEADER_BYTES, frame_bytes};
use crate::io::{IoFile, OpenMode};
use crate::segment::{SEGMENT_DIR, segment_base, segment_name};
use raftmq_model::planted::{self, Planted};

/// How long the committed hint waits for other IO after some IO was done.
const HINT_DELAY: Duration = Duration::from_millis(100);
const PADDING: [u8; FRAME_ALIGN as usize] = [0; FRAME_ALIGN as usize];

/// Appends that become durable together.
#[derive(Default)]
struct Group {
    frames: Vec<Frame>,
    payload_bytes: usize,
    generation: u64,
    waiters: Vec<Done>,
}

enum Step {
    Group(Group),
    Other(Work),
}

pub(super) struct Writer {
    pub(super) shared: Arc<Shared>,
    segment_dir: PathBuf,
    /// The segment that is written: base and file. `None` when the next frame begins a segment.
    current: Option<(u64, Arc<dyn IoFile>)>,
    /// Where the last written frame ends.
    tail: u64,
    zero_ahead: ZeroAhead,
    vote_file: VoteFile,
    hint_written: Option<EntryId>,
    /// All entries in the current segment; `None` when they are not known from its beginning on.
    places: Option<Places>,
    /// Segments of which there is an index file.
    indexed: BTreeSet<u64>,
}

impl Writer {
    pub(super) fn new(shared: Arc<Shared>, vote_file: VoteFile) -> Result<Writer> {
        let options = &shared.options;
        let step = if options.durability == Durability::Fsync { options.zero_ahead_bytes } else { 0 };
        let threaded = options.io_thread && options.io.allows_threads();
        let zero_ahead = ZeroAhead::start(step, options, threaded)?;
        let segment_dir = options.dir.join(SEGMENT_DIR);
        let (tail, current, hint_written) = {
            let state = shared.state.lock();
            (state.tail, state.segments.last_key_value().map(|(base, file)| (*base, Arc::clone(file))), state.committed)
        };
        let indexed = segment_index::bases(&*shared.options.io, &shared.options.dir)?.into_iter().collect();
        let places = None;
        let mut writer =
            Writer { shared, segment_dir, current: None, tail, zero_ahead, vote_file, hint_written, places, indexed };
        match current {
            Some((base, file)) if base + writer.segment_bytes() > tail => {
                writer.enter(base, file);
                writer.places = writer.known_places(base);
            }
            _ => writer.begin_midway()?,
        }
        Ok(writer)
    }

    /// The entries of the segment at `base`, when the log still has all of them. Only while nothing is queued.
    fn known_places(&self, base: u64) -> Option<Places> {
        let state = self.shared.state.lock();
        let first = state.index.first_at(base);
        let begins = state.index.get(first).map_or(self.tail, |place| place.offset);
        let mut places = Places::new(base, self.segment_bytes());
        (first..state.index.end()).map_while(|index| state.index.get(index)).for_each(|place| {
            if begins == base {
                places.push(&place);
            }
        });
        (begins == base).then_some(places)
    }

    fn segment_bytes(&self) -> u64 {
        self.shared.options.segment_bytes_max
    }

    /// The IO thread: works until the log is closed and the queue is empty.
    pub(super) fn run(&mut self) {
        loop {
            while self.step() {}
            let mut state = self.shared.state.lock();
            if state.queue.is_empty() && !state.closed {
                let timed_out = self.shared.work.wait_for(&mut state, HINT_DELAY).timed_out();
                if timed_out && state.queue.is_empty() && !state.closed {
                    drop(state);
                    self.write_hint();
                    state = self.shared.state.lock();
                    while state.queue.is_empty() && !state.closed {
                        self.shared.work.wait(&mut state);
                    }
                }
            }
            if state.queue.is_empty() && state.closed {
                drop(state);
                self.write_hint();
                return;
            }
        }
    }

    /// One group of appends or one other call; false when there is nothing to do.
    pub(super) fn step(&mut self) -> bool {
        let step = take(&mut self.shared.state.lock(), self.shared.options.write_bytes_max);
        match step {
            None => return false,
            Some(Step::Group(group)) => self.append(group),
            Some(Step::Other(work)) => self.other(work),
        }
        if self.shared.state.lock().queue.is_empty() {
            self.write_hint();
        }
        true
    }

    /// Fails what is queued and will not be done.
    pub(super) fn abandon(&mut self) {
        let works: Vec<Work> = self.shared.state.lock().queue.drain(..).collect();
        works.into_iter().for_each(|work| work.fail(Error::other("the log was closed")));
    }

    fn append(&mut self, group: Group) {
        let outcome = self.write_frames(&group.frames);
        if let Err(error) = &outcome {
            self.poison(error);
        } else {
            let mut state = self.shared.state.lock();
            state.queue_bytes = state.queue_bytes.saturating_sub(group.payload_bytes);
            if state.generation == group.generation
                && let Some(last) = group.frames.last()
            {
                state.written_end = last.place.end();
                state.durable_end = last.place.index + 1;
            }
            state.evict(self.shared.options.cache_bytes_max);
            self.shared.room.notify_all();
        }
        finish(group.waiters, &outcome);
        self.fail_queued(&outcome);
    }

    fn other(&mut self, work: Work) {
        let (outcome, done) = match work {
            Work::Append { done, .. } => (Err(Error::other("appends are written in groups")), done),
            Work::Truncate { end, zero, generation, done } => {
                let outcome = self.truncate(end, &zero);
                (outcome.map(|()| self.settled(end, generation)), done)
            }
            Work::Vote { vote, done } => (self.vote_file.save(vote), done),
            Work::Repair { target, done } => match self.repair(&target) {
                Ok(outcome) => return done(outcome),
                Err(error) => (Err(error), done),
            },
            Work::Purge { manifest, generation, done } => {
                let outcome = if manifest.discard { self.discard(manifest) } else { self.purge(manifest) };
                let end = manifest.purged_end;
                (
                    outcome.map(|()| {
                        if manifest.discard {
                            self.settled(end, generation)
                        }
                    }),
                    done,
                )
            }
        };
        if let Err(error) = &outcome {
            self.poison(error);
        }
        finish([done], &outcome);
        self.fail_queued(&outcome);
    }

    /// A truncation is durable: so is all that stays.
    fn settled(&self, end: u64, generation: u64) {
        let mut state = self.shared.state.lock();
        if state.generation != generation {
            return;
        }
        state.written_end = end;
        // Entries that were appended since lie behind `end` and are not written.
        let first_after = state.index.first_at(end);
        state.durable_end = if state.last().is_some() { first_after } else { 0 };
    }

    fn poison(&self, error: &Error) {
        tracing::error!(dir = %self.shared.options.dir.display(), tail = self.tail, %error, "the log stops: its IO failed");
        self.shared.state.lock().poison(error);
        self.shared.room.notify_all();
    }

    /// Fails what came after a call that failed.
    fn fail_queued(&self, outcome: &Result<()>) {
        if let Err(error) = outcome {
            let works: Vec<Work> = self.shared.state.lock().queue.drain(..).collect();
            works.into_iter().for_each(|work| work.fail(copy(error)));
        }
    }

    /// Writes frames and makes them durable: per run of frames in one segment one write and one sync, at most
    /// `write_bytes_max` bytes each.
    fn write_frames(&mut self, mut frames: &[Frame]) -> Result<()> {
        while let Some(first) = frames.first() {
            let (start, segment) = (first.place.offset, self.segment_bytes());
            let base = segment_base(start, segment);
            let end_max = (base + segment).min(start + self.shared.options.write_bytes_max);
            let count = frames.partition_point(|frame| frame.place.end() <= end_max);
            assert!(count > 0, "a frame is not larger than what may be written");
            let (run, rest) = frames.split_at(count);
            self.write_run(base, run)?;
            frames = rest;
        }
        Ok(())
    }

    fn write_run(&mut self, base: u64, run: &[Frame]) -> Result<()> {
        let file = self.segment_for(base)?;
        let start = run.first().map_or(self.tail, |frame| frame.place.offset);
        let end = run.last().map_or(self.tail, |frame| frame.place.end());
        assert_eq!(start, self.tail, "frames have no gaps but fillers");
        self.zero_ahead.prepare(start - base, end - base)?;
        // Payloads are written from where they are; each header is joined with the padding of the frame before it.
        let headers: Vec<[u8; HEADER_BYTES]> =
            run.iter().map(|frame| header(&frame.place).encode(base, &frame.payload)).collect();
        let mut slices = Vec::with_capacity(run.len() * 3);
        for (frame, header) in run.iter().zip(&headers) {
            let payload_bytes = frame.payload.len() as u64;
            let padding = frame_bytes(payload_bytes) - payload_bytes - HEADER_BYTES as u64;
            slices.push(IoSlice::new(header));
            slices.extend((payload_bytes > 0).then(|| IoSlice::new(&frame.payload)));
            slices.extend((padding > 0).then(|| IoSlice::new(&PADDING[..padding as usize])));
        }
        file.write_at(&slices, start - base)?;
        if self.shared.options.durability == Durability::Fsync && !planted::is(Planted::AckBeforeSync) {
            file.sync_data()?;
        }
        self.tail = end;
        if let Some(places) = &mut self.places {
            run.iter().for_each(|frame| places.push(&frame.place));
        }
        Ok(())
    }

    /// The file of the segment at `base`, which is the current one or follows it.
    fn segment_for(&mut self, base: u64) -> Result<Arc<dyn IoFile>> {
        if let Some((current, file)) = &self.current {
            if *current == base {
                return Ok(Arc::clone(file));
            }
            assert!(*current < base, "the log grows forwards");
            self.seal()?;
        }
        assert_eq!(self.tail, base, "a new segment is begun where the last one ends");
        self.create_segment(base)
    }

    /// Completes the current segment with a filler and makes it durable: only then may the next one exist.
    fn seal(&mut self) -> Result<()> {
        let Some((base, file)) = self.current.take() else { return Ok(()) };
        self.zero_ahead.pause();
        let end = base + self.segment_bytes();
        assert!(self.tail <= end, "the tail lies in the current segment");
        if end - self.tail >= HEADER_BYTES as u64 {
            let filler = FrameHeader::filler(self.tail, end - self.tail).encode(base, &[]);
            file.write_all_at(&filler, self.tail - base)?;
        }
        file.sync_data()?;
        self.tail = end;
        self.save_index(base)
    }

    /// Notes where the entries of a segment lie that is complete and durable.
    fn save_index(&mut self, base: u64) -> Result<()> {
        let Some(places) = self.places.take().filter(|places| !places.is_empty()) else { return Ok(()) };
        let options = &self.shared.options;
        segment_index::save(&*options.io, &options.dir, &places)?;
        self.indexed.insert(base);
        Ok(())
    }

    /// There is an index file of that segment again.
    pub(super) fn note_indexed(&mut self, base: u64) {
        self.indexed.insert(base);
    }

    /// Removes the index files of segments from `base` on, before these change.
    fn remove_indexes_from(&mut self, base: u64) -> Result<()> {
        let options = &self.shared.options;
        while let Some(last) = self.indexed.last().copied().filter(|last| *last >= base) {
            segment_index::remove(&*options.io, &options.dir, last)?;
            self.indexed.remove(&last);
        }
        Ok(())
    }

    fn create_segment(&mut self, base: u64) -> Result<Arc<dyn IoFile>> {
        let io = &self.shared.options.io;
        let file = io.open(&self.segment_dir.join(segment_name(base)), OpenMode::CreateNew)?;
        file.set_len(self.segment_bytes())?;
        io.sync_dir(&self.segment_dir)?;
        self.shared.state.lock().segments.insert(base, Arc::clone(&file));
        self.enter(base, Arc::clone(&file));
        self.places = (self.tail == base).then(|| Places::new(base, self.segment_bytes()));
        Ok(file)
    }

    fn enter(&mut self, base: u64, file: Arc<dyn IoFile>) {
        self.zero_ahead.begin(&file, self.tail.saturating_sub(base));
        self.current = Some((base, file));
    }

    /// Makes the segment that the log goes on in when it begins in the middle of one.
    fn begin_midway(&mut self) -> Result<()> {
        if self.tail.is_multiple_of(self.segment_bytes()) {
            return Ok(());
        }
        self.create_segment(segment_base(self.tail, self.segment_bytes())).map(|_| ())
    }

    /// From the end backwards, each step durable before the next one, so that a crash leaves a shorter log and no hole.
    fn truncate(&mut self, end: u64, zero: &[(u64, u64)]) -> Result<()> {
        assert!(end <= self.tail, "a truncation does not grow the log");
        self.zero_ahead.pause();
        self.remove_indexes_from(segment_base(end, self.segment_bytes()))?;
        self.remove_segments_from(end)?;
        let last = self.shared.state.lock().segments.last_key_value().map(|(base, file)| (*base, Arc::clone(file)));
        let kept = last.filter(|(base, _)| base + self.segment_bytes() > end);
        if let Some((base, file)) = &kept {
            for (from, to) in zero {
                write_zeros(&**file, from - base, to - base)?;
                file.sync_data()?;
            }
        }
        self.tail = end;
        match kept {
            Some((base, _)) if self.current.as_ref().is_some_and(|(current, _)| *current == base) => {
                if let Some(places) = &mut self.places {
                    places.truncate(end);
                }
            }
            Some((base, file)) => {
                self.enter(base, file);
                // Known to the index in memory, which may be ahead of this thread: the next start reads the segment.
                self.places = None;
            }
            None => (self.current, self.places) = (None, None),
        }
        Ok(())
    }

    /// Removes the segments that begin at or after `offset`, the last one first, each removal durable before the next.
    fn remove_segments_from(&mut self, offset: u64) -> Result<()> {
        loop {
            let last = self.shared.state.lock().segments.last_key_value().map(|(base, _)| *base);
            let Some(base) = last.filter(|base| *base >= offset) else { return Ok(()) };
            self.shared.state.lock().segments.remove(&base);
            self.shared.options.io.remove(&self.segment_dir.join(segment_name(base)))?;
            self.shared.options.io.sync_dir(&self.segment_dir)?;
        }
    }

    fn purge(&mut self, manifest: Manifest) -> Result<()> {
        let options = &self.shared.options;
        manifest.save(&*options.io, &options.dir)?;
        let first = segment_base(manifest.start, self.segment_bytes());
        let bases: Vec<u64> = self.shared.state.lock().segments.range(..first).map(|(base, _)| *base).collect();
        for base in &bases {
            self.shared.state.lock().segments.remove(base);
            options.io.remove(&self.segment_dir.join(segment_name(*base)))?;
        }
        if !bases.is_empty() {
            options.io.sync_dir(&self.segment_dir)?;
        }
        while let Some(base) = self.indexed.first().copied().filter(|base| *base < first) {
            segment_index::remove(&*options.io, &options.dir, base)?;
            self.indexed.remove(&base);
        }
        if self.current.as_ref().is_some_and(|(base, _)| *base < first) {
            assert_eq!(self.tail, first, "only a full segment is purged while it is the current one");
            self.zero_ahead.pause();
            (self.current, self.places) = (None, None);
        }
        Ok(())
    }

    /// Drops all segments and goes on at `manifest.start`. The manifest says so first: a crash in between finishes it.
    fn discard(&mut self, manifest: Manifest) -> Result<()> {
        self.zero_ahead.pause();
        let io = Arc::clone(&self.shared.options.io);
        manifest.save(&*io, &self.shared.options.dir)?;
        (self.current, self.places) = (None, None);
        self.remove_indexes_from(0)?;
        self.remove_segments_from(0)?;
        Manifest { discard: false, ..manifest }.save(&*io, &self.shared.options.dir)?;
        self.tail = manifest.start;
        self.begin_midway()
    }

    /// Notes what is committed and durable here: at the next start the log must have it. A hint, so a failure is left for
    /// the next write to find.
    fn write_hint(&mut self) {
        let (committed, poisoned) = {
            let state = self.shared.state.lock();
            (state.committed_and_durable(), state.is_poisoned())
        };
        if let Some(committed) = committed
            && self.hint_written != Some(committed)
            && !poisoned
        {
            self.hint_written = Some(committed);
            if let Err(error) = self.vote_file.write_committed(committed) {
                self.poison(&error);
                self.fail_queued(&Err(error));
            }
        }
    }
}

fn copy(error: &Error) -> Error {
    Error::new(error.kind(), error.to_string())
}

fn finish(waiters: impl IntoIterator<Item = Done>, outcome: &Result<()>) {
    for done in waiters {
        done(outcome.as_ref().copied().map_err(copy));
    }
}

/// Takes the next step: all appends at the head of the queue that fit into one write, or one other call.
fn take(state: &mut State, write_bytes_max: u64) -> Option<Step> {
    let mut group = Group::default();
    loop {
        let fits = match state.queue.front() {
            Some(Work::Append { payload_bytes, .. }) => {
                group.waiters.is_empty() || (group.payload_bytes + payload_bytes) as u64 <= write_bytes_max
            }
            Some(_) if group.waiters.is_empty() => return state.queue.pop_front().map(Step::Other),
            _ => false,
        };
        if !fits {
            break;
        }
        if let Some(Work::Append { frames, payload_bytes, generation, done }) = state.queue.pop_front() {
            group.frames.extend(frames);
            group.payload_bytes += payload_bytes;
            group.generation = generation;
            group.waiters.push(done);
        }
    }
    (!group.waiters.is_empty()).then_some(Step::Group(group))
}
