//! A model of the log, and a way to run calls against a log that is driven by hand.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod group;

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use raftmq_model::ids::PhysicalOffset;
use raftmq_store::frame::{EntryKind, HEADER_BYTES, frame_bytes};
use raftmq_store::segment::place;
use raftmq_store::{CommitLog, CommitLogOptions, FaultyIo, NewEntry, OpenError, Recovered};

pub fn options(io: &FaultyIo, segment: u64, write: u64) -> CommitLogOptions {
    CommitLogOptions {
        segment_bytes_max: segment,
        write_bytes_max: write,
        cache_bytes_max: 2000,
        zero_ahead_bytes: 4096,
        // Some runs are written into holes, others into zeros.
        holes_bytes_min: 2000,
        io_thread: false,
        io: Arc::new(io.clone()),
        ..CommitLogOptions::new(Path::new("/data/group"))
    }
}

pub fn payload(term: u64, index: u64, len: usize) -> Bytes {
    (0..len).map(|at| (term * 31 + index * 7 + at as u64) as u8 | 1).collect::<Vec<u8>>().into()
}

pub fn entry(term: u64, index: u64, len: usize) -> NewEntry {
    NewEntry { term, index, kind: EntryKind::Batch, payload: payload(term, index, len) }
}

/// One call.
#[derive(Clone, Debug)]
pub enum Op {
    /// Payload lengths of entries of the current term.
    Append(Vec<usize>),
    /// Removes so many entries, then the term grows.
    Truncate(usize),
    Vote(u8),
    /// Purges so many entries.
    Purge(usize),
    /// Goes on so many entries after the last one.
    Reset(u64),
    Committed,
    /// Does the IO of all calls before.
    Drive,
    /// Closes after the IO and opens again.
    Reopen,
}

/// What a log must hold.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Model {
    pub entries: Vec<(u64, u64, usize)>,
    pub purged: Option<(u64, u64)>,
    pub purged_end: u64,
    pub vote: Option<u8>,
}

impl Model {
    pub fn last(&self) -> Option<(u64, u64)> {
        self.entries.last().map(|(term, index, _)| (*term, *index)).or(self.purged)
    }

    pub fn next_index(&self) -> u64 {
        self.last().map_or(0, |(_, index)| index + 1)
    }

    /// Where each frame lies, and where the last one ends.
    pub fn layout(&self, segment: u64) -> (Vec<u64>, u64) {
        let mut tail = self.purged_end;
        let mut offsets = Vec::new();
        for (_, _, len) in &self.entries {
            let offset = place(tail, frame_bytes(*len as u64), segment);
            offsets.push(offset);
            tail = offset + frame_bytes(*len as u64);
        }
        (offsets, tail)
    }

    pub fn check(&self, log: &CommitLog, segment: u64) -> Result<(), String> {
        let read = log.read(0, u64::MAX, usize::MAX).map_err(|error| error.to_string())?;
        let (offsets, _) = self.layout(segment);
        if read.len() != self.entries.len() {
            return Err(format!("{} entries instead of {}", read.len(), self.entries.len()));
        }
        for ((stored, (term, index, len)), offset) in read.iter().zip(&self.entries).zip(offsets) {
            if (stored.term, stored.index) != (*term, *index) || stored.payload != payload(*term, *index, *len) {
                return Err(format!("{}/{} instead of {term}/{index}", stored.term, stored.index));
            }
            if stored.payload_offset != PhysicalOffset(offset + HEADER_BYTES as u64) {
                return Err(format!("entry {index} lies at {} instead of {offset}", stored.payload_offset));
            }
        }
        if log.last() != self.last() || log.purged() != self.purged {
            return Err(format!("last {:?}, purged {:?}", log.last(), log.purged()));
        }
        if log.vote() != self.vote.map(|vote| Bytes::from(vec![vote; 600])) {
            return Err(format!("vote {:?}", log.vote()));
        }
        Ok(())
    }

    /// What the op makes of the model; `term` is the term of new entries.
    fn apply(&mut self, call: &Call, segment: u64) {
        match call {
            Call::Append(entries) => self.entries.extend(entries.iter().copied()),
            Call::Truncate(count) => self.entries.truncate(self.entries.len() - count),
            Call::Vote(vote) => self.vote = Some(*vote),
            Call::Purge(count) => {
                let (offsets, _) = self.layout(segment);
                if let Some(last) = count.checked_sub(1) {
                    let (term, index, len) = self.entries[last];
                    self.purged = Some((term, index));
                    self.purged_end = offsets[last] + frame_bytes(len as u64);
                    self.entries.drain(..*count);
                }
            }
            Call::Reset(purged, end) => {
                self.entries.clear();
                (self.purged, self.purged_end) = (Some(*purged), *end);
            }
        }
    }

    /// The states that a crash may leave while the call is under way, the state before and after among them.
    fn partial(&self, call: &Call, segment: u64) -> Vec<Model> {
        let mut after = self.clone();
        after.apply(call, segment);
        let mut states = vec![self.clone(), after];
        match call {
            Call::Append(entries) => {
                for count in 1..entries.len() {
                    let mut state = self.clone();
                    state.entries.extend(entries[..count].iter().copied());
                    states.push(state);
                }
            }
            Call::Truncate(count) => {
                for count in 1..*count {
                    let mut state = self.clone();
                    state.entries.truncate(self.entries.len() - count);
                    states.push(state);
                }
            }
            _ => {}
        }
        states
    }
}

/// An op with its arguments resolved.
#[derive(Clone, Debug)]
enum Call {
    Append(Vec<(u64, u64, usize)>),
    Truncate(usize),
    Vote(u8),
    Purge(usize),
    Reset((u64, u64), u64),
}

/// A log under test together with its model.
pub struct Run {
    pub io: FaultyIo,
    pub log: Option<CommitLog>,
    pub segment: u64,
    pub write: u64,
    /// After all calls.
    pub now: Model,
    /// After the calls whose callback said Ok.
    pub acked: Model,
    /// No leader takes back what is committed: scripts do not either.
    committed: Option<u64>,
    pending: Vec<Call>,
    outcomes: Arc<Mutex<Vec<bool>>>,
    term: u64,
}

impl Run {
    pub fn new(io: FaultyIo, segment: u64, write: u64) -> Run {
        let (now, acked) = (Model::default(), Model::default());
        let outcomes = Arc::default();
        Run { io, log: None, segment, write, now, acked, committed: None, pending: Vec::new(), outcomes, term: 1 }
    }

    pub fn open(&mut self) -> Result<Recovered, OpenError> {
        self.log = None;
        let (log, recovered) = CommitLog::open(options(&self.io, self.segment, self.write))?;
        self.log = Some(log);
        self.committed = recovered.committed.map(|(_, index)| index);
        Ok(recovered)
    }

    fn done(&self) -> raftmq_store::Done {
        let outcomes = Arc::clone(&self.outcomes);
        Box::new(move |outcome| outcomes.lock().push(outcome.is_ok()))
    }

    /// Makes one call; false once anything failed.
    pub fn op(&mut self, op: &Op) -> bool {
        let Some(log) = self.log.clone() else { return false };
        let call = match op {
            Op::Drive => {
                while log.drive() {}
                return self.settle();
            }
            Op::Reopen => {
                while log.drive() {}
                drop(log);
                return self.settle() && self.open().is_ok() && self.agrees();
            }
            Op::Committed => {
                self.now.last().into_iter().for_each(|last| log.save_committed(last));
                self.committed = self.now.last().map(|(_, index)| index);
                return true;
            }
            Op::Append(lens) => {
                let first = self.now.next_index();
                let entries = (first..).zip(lens).map(|(index, len)| (self.term, index, *len)).collect();
                Call::Append(entries)
            }
            Op::Truncate(count) => {
                let free = self.now.entries.iter().filter(|entry| self.committed.is_none_or(|index| entry.1 > index));
                Call::Truncate(*count.min(&free.count()))
            }
            Op::Vote(vote) => Call::Vote(*vote),
            Op::Purge(count) => Call::Purge(*count.min(&self.now.entries.len())),
            Op::Reset(count) => {
                let purged = (self.term, self.now.next_index() + count);
                Call::Reset(purged, self.now.layout(self.segment).1 + 1000 * count)
            }
        };
        match &call {
            Call::Append(entries) => {
                let entries = entries.iter().map(|(term, index, len)| entry(*term, *index, *len)).collect();
                if log.append(entries, self.done()).is_err() {
                    self.settle();
                    return false;
                }
            }
            Call::Truncate(count) => {
                let keep = self.now.entries.len() - count;
                let index = if keep > 0 { Some(self.now.entries[keep - 1].1) } else { self.now.purged.map(|p| p.1) };
                log.truncate_after(index, self.done());
                self.term += 1;
            }
            Call::Vote(vote) => log.save_vote(vec![*vote; 600].into(), self.done()),
            Call::Purge(0) => return true,
            Call::Purge(count) => log.purge(self.now.entries[count - 1].1, self.done()),
            Call::Reset(purged, end) => log.reset(*purged, PhysicalOffset(*end), self.done()),
        }
        self.now.apply(&call, self.segment);
        self.pending.push(call);
        if self.outcomes.lock().contains(&false) { self.settle() } else { self.agrees() }
    }

    /// Whether the log goes on; then it must hold what the model holds.
    fn agrees(&self) -> bool {
        if self.log.as_ref().is_some_and(|log| log.read(0, 0, 0).is_err()) {
            return false;
        }
        if let Some(log) = &self.log
            && let Err(difference) = self.now.check(log, self.segment)
            && !self.io.is_off()
        {
            panic!("{difference}\nin {:?}", self.now);
        }
        true
    }

    /// Takes note of the callbacks.
    fn settle(&mut self) -> bool {
        for outcome in std::mem::take(&mut *self.outcomes.lock()) {
            if !outcome {
                return false;
            }
            let call = self.pending.remove(0);
            self.acked.apply(&call, self.segment);
        }
        !self.io.is_off() && self.agrees()
    }

    /// After a crash and an open: the log must be what was acked and then the calls under way up to some point.
    pub fn check_recovered(&mut self, recovered: &Recovered) {
        let log = self.log.clone().unwrap();
        let mut state = self.acked.clone();
        let mut differences = Vec::new();
        let mut candidates = vec![state.clone()];
        for call in &self.pending {
            candidates.extend(state.partial(call, self.segment));
            state.apply(call, self.segment);
        }
        let found = candidates.into_iter().find(|candidate| {
            let outcome = candidate.check(&log, self.segment);
            differences.extend(outcome.clone().err());
            outcome.is_ok()
        });
        let Some(found) = found else {
            panic!("acked {:?}\npending {:?}\nrecovered {recovered:?}\n{differences:?}", self.acked, self.pending);
        };
        assert_eq!(recovered.last, found.last());
        assert!(recovered.committed.is_none_or(|committed| Some(committed) <= recovered.last));
        assert_eq!(log.durable_index(), found.last().map(|last| last.1));
        self.pending.clear();
        self.outcomes.lock().clear();
        self.term += 1;
        (self.now, self.acked) = (found.clone(), found);
    }

    /// Runs the ops until one fails.
    pub fn run(&mut self, script: &[Op]) {
        if self.open().is_ok() {
            let _ = script.iter().all(|op| self.op(op)) && self.op(&Op::Drive);
        }
    }

    /// Cuts the power, opens again (with `crash_at` through a second crash at that operation of the recovery), checks
    /// the log against the model, and goes on with it.
    pub fn crash(&mut self, seed: u64, crash_at: Option<u64>) {
        if let Some(log) = &self.log {
            drop(log.clone());
        }
        self.settle();
        self.log = None;
        self.io.restart(seed);
        if let Some(operation) = crash_at {
            self.io.cut_power_at(self.io.operations() + operation);
            let _ = self.open();
            self.log = None;
            self.io.restart(seed + 1);
        }
        let recovered = self.open().unwrap_or_else(|error| panic!("{error}\n{:?}\n{:?}", self.acked, self.pending));
        self.check_recovered(&recovered);
        for op in [Op::Append(vec![100, 2000]), Op::Vote(99), Op::Truncate(1), Op::Append(vec![10]), Op::Reopen] {
            assert!(self.op(&op), "{op:?} after the crash");
        }
    }
}

/// A small generator, so that scripts repeat from a seed.
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % sides
    }
}

pub fn random_script(seed: u64, ops: usize) -> Vec<Op> {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    (0..ops)
        .map(|_| match dice.roll(20) {
            0..=7 => Op::Append((0..dice.roll(6)).map(|_| (dice.roll(60) * dice.roll(50)) as usize).collect()),
            8..=9 => Op::Truncate(dice.roll(12) as usize),
            10..=11 => Op::Vote(dice.roll(90) as u8),
            12..=13 => Op::Purge(dice.roll(10) as usize),
            14 => Op::Committed,
            15 => Op::Reopen,
            16 => Op::Reset(dice.roll(9)),
            _ => Op::Drive,
        })
        .collect()
}
