//! Law 4 and 8 above the log: the power goes at every single operation of a machine that applies, makes checkpoints, keeps
//! snapshots, installs one and lets go of what was purged. Whatever of the unsynced bytes and names survives, a restart ends
//! with the state, the ConsumeQueues and the key index of a replay that was never interrupted.

use super::tests::{KEYS, NoClock, TOPIC, ack, append, pop, setup};
use super::*;
use crate::log_clock::LogClock;
use crate::machine::checkpoint::CheckpointBounds;
use crate::machine::open::MachineOptions;
use raftmq_model::batch::BatchWriter;
use raftmq_model::ids::{GroupId, PhysicalOffset, QueueId, QueueOffset, Timestamp};
use raftmq_raft::Machine;
use raftmq_store::consume_queue::{ConsumeQueues, Layout};
use raftmq_store::index_file::{self, KeyIndex};
use raftmq_store::state::{MemoryState, StateStore, WriteBatch};
use raftmq_store::{CommitLog, CommitLogOptions, FaultyIo, Io, NewEntry, OpenMode, Snapshots, StoredEntry};
use std::path::Path;
use std::time::Duration;

const GROUP: GroupId = GroupId(1);
const ENTRIES: u64 = 200;
const RUN_ENTRIES: usize = 3;
/// The key index goes on every so many runs, and is synced every so many times.
const INDEX_EVERY: usize = 8;
const INDEX_SYNC_EVERY: usize = 2;
/// Small enough for many files.
const INDEX: index_file::Layout =
    index_file::Layout { slots_count: 5, entries_count_max: 30, segment_bytes: 4096, tail_bytes_max: 200 };
/// An entry in twenty asks for a snapshot, another one purges up to it; the stored-once window reaches further back, so that
/// the log can follow only later, when the next purge is decided already.
const SNAPSHOT_EVERY: u64 = 20;
/// What of the unsynced bytes survives, so many times for each cut.
const SEEDS: u64 = 4;

/// How many times as many: `RAFTMQ_CRASH_SCALE=5 cargo test -p raftmq-broker crash_tests`.
fn scale() -> u64 {
    std::env::var("RAFTMQ_CRASH_SCALE").ok().and_then(|scale| scale.parse().ok()).unwrap_or(1)
}

fn commands(index: u64) -> Vec<Command> {
    if index <= 2 {
        return setup(index);
    }
    if index.is_multiple_of(SNAPSHOT_EVERY) {
        // With messages behind it in the same entry.
        return vec![append(index * 2), Command::Snapshot, append(index * 2 + 1)];
    }
    if index % SNAPSHOT_EVERY == SNAPSHOT_EVERY / 2 && index > SNAPSHOT_EVERY {
        return vec![Command::Purge { upto_index: index - SNAPSHOT_EVERY / 2 }];
    }
    let command = |i: u64| match i % 5 {
        3 => pop(i),
        4 => ack(i),
        _ => append(i),
    };
    vec![command(index * 2), command(index * 2 + 1)]
}

/// Bounds so small that everything happens within a hundred entries.
const RULES: Limits = Limits {
    stored_once_count_max: 40,
    stored_once_ms: 1 << 40,
    stored_once_id_bytes_max: 1 << 20,
    attempt_ids_count_max: 100,
    attempt_ids_ms: 1 << 40,
    attempt_id_bytes_max: 64,
    in_flight_count_max: 100,
    pop_count_max: 100,
};

/// A flush is an operation of the disk: the power can go before it.
struct Flushed {
    memory: Arc<MemoryState>,
    io: FaultyIo,
}

impl StateStore for Flushed {
    fn get(&self, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        self.memory.get(key)
    }

    fn scan(&self, prefix: &[u8], visit: &mut dyn FnMut(&[u8], &[u8])) -> io::Result<()> {
        self.memory.scan(prefix, visit)
    }

    fn write(&self, batch: WriteBatch) -> io::Result<()> {
        self.memory.write(batch)
    }

    fn flush(&self) -> io::Result<()> {
        self.io.open(Path::new("/flush"), OpenMode::Create)?.write_all_at(b"x", 0)?;
        self.memory.flush()
    }

    fn unflushed_bytes(&self) -> usize {
        self.memory.unflushed_bytes()
    }
}

/// One replica's disk.
struct Rig {
    io: FaultyIo,
    memory: Arc<MemoryState>,
}

/// What a replica has in the end: its state, the messages that are kept, and the snapshot behind the purge point.
#[derive(Debug, PartialEq)]
struct End {
    digest: u64,
    units: Vec<(u64, Vec<PhysicalOffset>)>,
    /// By key, where in the log its records lie.
    keys: Vec<Vec<PhysicalOffset>>,
    /// Its digest: how the stored-once window is cut into chunks is each replica's own business.
    snapshot: Option<u64>,
}

impl Rig {
    /// A disk with nothing but a log of all entries.
    fn new() -> Rig {
        Rig::with_log(ENTRIES)
    }

    /// A disk with nothing but a log that ends with the entry `last`.
    fn with_log(last: u64) -> Rig {
        let rig = Rig { io: FaultyIo::new(), memory: Arc::default() };
        let log = rig.log();
        let entries = (1..=last).map(|index| {
            let mut batch = BatchWriter::new(Timestamp(1_000 + index as i64 * 10));
            commands(index).iter().for_each(|command| batch.push(&command.encode()));
            NewEntry { term: 1, index, kind: EntryKind::Batch, payload: batch.finish() }
        });
        for entry in entries {
            log.append(vec![entry], Box::new(|result| result.unwrap())).unwrap();
            while log.drive() {}
        }
        rig
    }

    fn log(&self) -> CommitLog {
        self.open_log().unwrap()
    }

    fn open_log(&self) -> io::Result<CommitLog> {
        let options = CommitLogOptions {
            segment_bytes_max: 4096,
            write_bytes_max: 4096,
            zero_ahead_bytes: 0,
            io_thread: false,
            io: Arc::new(self.io.clone()),
            ..CommitLogOptions::new("/group/log")
        };
        CommitLog::open(options).map(|(log, _)| log).map_err(io::Error::other)
    }

    /// Lets the log begin behind the entry `purged`, whose frame ends at `begins_at`, and gives it all that follows.
    fn go_on_behind(&self, entries: &[StoredEntry], purged: u64, begins_at: PhysicalOffset) {
        let log = self.log();
        log.reset((1, purged), begins_at, Box::new(|result| result.unwrap()));
        while log.drive() {}
        for entry in entries.iter().filter(|entry| entry.index > purged) {
            let StoredEntry { term, index, kind, payload, .. } = entry.clone();
            log.append(vec![NewEntry { term, index, kind, payload }], Box::new(|result| result.unwrap())).unwrap();
            while log.drive() {}
        }
    }

    fn open(&self) -> io::Result<(BrokerMachine, Arc<MachineView>)> {
        let io: Arc<dyn Io> = Arc::new(self.io.clone());
        let layout = Layout { units_per_file: 8, tail_bytes_max: 60 };
        let options = MachineOptions {
            group: GROUP,
            rules: RULES,
            store: Arc::new(Flushed { memory: Arc::clone(&self.memory), io: self.io.clone() }),
            queues: Arc::new(ConsumeQueues::open_with("/group/consumequeue", Arc::clone(&io), layout)?),
            snapshots: Snapshots::new("/group/snapshots", io),
            waits: Arc::default(),
            checkpoints: CheckpointBounds { bytes: 1 << 20, entries: 7, interval: Duration::from_secs(3_600) },
            clock: Arc::new(LogClock::new(Arc::new(NoClock))),
            threaded: false,
        };
        BrokerMachine::open(options, || self.open_log())
    }

    /// Opens the replica and applies what it has not, as Raft does; lets go of what is purged as a replica's drivers do.
    fn run(&self, entries: &[StoredEntry], upto: u64) -> io::Result<End> {
        let (mut machine, view) = self.open()?;
        let applied = applied(&mut machine)?;
        let keys = KeyIndex::new("/group/keyindex", Arc::new(self.io.clone()), INDEX);
        keys.restore(applied, self.open_log()?.end_offset(applied).unwrap_or_default())?;
        let (mut run, mut runs) = (0, 0);
        for entry in entries.iter().filter(|entry| entry.index > applied && entry.index <= upto) {
            machine.apply(entry)?;
            run += 1;
            if run == RUN_ENTRIES || machine.ends_run() || entry.index == upto {
                machine.apply_end(raftmq_raft::internals::bookkeeping(entry.term, entry.index))?;
                run = 0;
                runs += 1;
                if runs % INDEX_EVERY == 0 || entry.index == upto {
                    assert!(keys.follow(&self.open_log()?, entry.index, usize::MAX)?.up_to_date);
                }
                if runs % (INDEX_EVERY * INDEX_SYNC_EVERY) == 0 {
                    keys.sync()?;
                }
                self.release(&view, &keys)?;
            }
        }
        // After a restart behind the last entry, too.
        keys.follow(&self.open_log()?, upto, usize::MAX)?;
        self.end(&mut machine, &view, &keys)
    }

    fn release(&self, view: &MachineView, keys: &KeyIndex) -> io::Result<()> {
        let released = *view.released().borrow();
        if released == 0 {
            return Ok(());
        }
        let log = self.open_log()?;
        if log.purged().is_none_or(|(_, purged)| purged < released) {
            // That it is there is what the purge relies on.
            assert!(view.snapshots().read(released)?.is_some(), "the snapshot of a released purge point is kept");
            purge(&log, released)?;
        }
        crate::leader::forget_files(view, &log, Some(keys))
    }

    fn end(&self, machine: &mut BrokerMachine, view: &MachineView, keys: &KeyIndex) -> io::Result<End> {
        let state = view.state();
        let mut units = Vec::new();
        for queue in [QueueId(0), QueueId(1)] {
            let min = state.queue_min(TOPIC, queue);
            let read = view.queues().read(TOPIC, queue, min, usize::MAX)?;
            assert_eq!(view.queues().max(TOPIC, queue), state.queue_max(TOPIC, queue).unwrap_or(QueueOffset(0)));
            units.push((min.0, read.iter().map(|unit| unit.physical).collect()));
        }
        let (digest, purged) = (state.digest(), state.purged().index);
        let keys = found(keys, self.open_log()?.end_offset(purged).unwrap_or_default())?;
        drop(state);
        let kept = if purged == 0 { None } else { machine.kept_snapshot(purged)? };
        let snapshot = kept.map(|kept| snapshot::load(GROUP, RULES, kept.data).map(|(state, _)| state.digest()));
        Ok(End { digest, units, keys, snapshot: snapshot.transpose()? })
    }

    fn crash(&self, seed: u64) {
        self.io.restart(seed);
        self.memory.crash();
    }
}

/// What an index finds from `begin` on: by key, where the records lie.
fn found(keys: &KeyIndex, begin: PhysicalOffset) -> io::Result<Vec<Vec<PhysicalOffset>>> {
    let of_key = |key: &str| {
        let mut search = keys.search("orders", key, Timestamp(0), Timestamp(i64::MAX));
        let mut found = Vec::new();
        while let Some(batch) = search.next_batch()? {
            found.extend(batch.into_iter().map(|candidate| candidate.physical).filter(|at| *at >= begin));
        }
        Ok(found)
    };
    KEYS.into_iter().chain(["id-395"]).map(of_key).collect()
}

fn purge(log: &CommitLog, upto: u64) -> io::Result<()> {
    let (done, result) = std::sync::mpsc::sync_channel(1);
    log.purge(upto, Box::new(move |outcome| done.send(outcome).unwrap()));
    while log.drive() {}
    result.recv().unwrap()
}

fn applied(machine: &mut BrokerMachine) -> io::Result<u64> {
    let Some(books) = machine.restored()? else { return Ok(0) };
    Ok(raftmq_raft::stored_applied(books)?.map_or(0, |(_, index)| index))
}

fn all_entries() -> Vec<StoredEntry> {
    Rig::new().log().read(0, u64::MAX, usize::MAX).unwrap()
}

#[test]
fn a_power_cut_at_every_operation_of_a_machine_changes_nothing_in_the_end() {
    let entries = all_entries();
    let rig = Rig::new();
    let before = rig.io.operations();
    let expected = rig.run(&entries, ENTRIES).unwrap();
    let operations = rig.io.operations() - before;
    assert!(
        rig.log().purged().is_some_and(|(_, purged)| purged >= 140),
        "the log was purged: {:?}",
        rig.log().purged()
    );
    assert!(rig.open_queues_begin_late(), "ConsumeQueue files went");
    let files = rig.io.list(Path::new("/group/keyindex")).unwrap();
    assert!(files.len() > 2 && files[0].as_str() > "00000000000000004096", "index files came and went: {files:?}");
    assert!(expected.keys.iter().all(|found| !found.is_empty()), "{:?}", expected.keys);
    assert_eq!(rig.open().unwrap().1.snapshots().indexes().unwrap(), [140, 160, 180, 200], "and snapshots");
    assert!(operations > 300, "{operations}");
    for cut in 1..=operations {
        for seed in 0..SEEDS * scale() {
            let rig = Rig::new();
            rig.io.cut_power_at(rig.io.operations() + cut);
            let first = rig.run(&entries, ENTRIES);
            rig.crash(seed * 1000 + cut);
            // And once more, in the middle of what the restart does.
            if let Err(error) = first {
                assert!(rig.io.operations() > before, "{error}");
                rig.io.cut_power_at(rig.io.operations() + 1 + (cut * 7 + seed) % 40);
                let _ = rig.run(&entries, ENTRIES);
                rig.crash(seed);
            }
            let end = rig.run(&entries, ENTRIES).unwrap_or_else(|error| panic!("cut {cut} seed {seed}: {error}"));
            assert_eq!(end, expected, "cut {cut} seed {seed}");
        }
    }
}

impl Rig {
    fn open_queues_begin_late(&self) -> bool {
        let (_, view) = self.open().unwrap();
        view.queues().queues().iter().all(|range| range.min.0 >= 8)
    }
}

#[test]
fn a_power_cut_at_every_operation_of_an_install_leaves_the_old_state_or_the_new_one() {
    const BEHIND: u64 = 30;
    let entries = all_entries();
    let source = Rig::new();
    let expected = source.run(&entries, ENTRIES).unwrap();
    let (mut machine, view) = source.open().unwrap();
    let purged = view.state().purged().index;
    let kept = machine.kept_snapshot(purged).unwrap().unwrap();
    let begins_at = Rig::new().log().end_offset(purged).unwrap();
    assert!(purged > BEHIND);

    let behind = || {
        // Its log ends before the snapshot, too.
        let rig = Rig::with_log(BEHIND);
        let old = rig.run(&entries, BEHIND).unwrap().digest;
        // What is behind the last checkpoint goes with the process.
        rig.memory.crash();
        (rig, old)
    };
    let install = |rig: &Rig| -> io::Result<()> {
        let (mut machine, _) = rig.open()?;
        machine.install(kept.data.clone(), kept.bookkeeping.clone())
    };
    let (rig, _) = behind();
    let before = rig.io.operations();
    install(&rig).unwrap();
    let operations = rig.io.operations() - before;
    assert!(operations > 10, "{operations}");
    for cut in 1..=operations + 1 {
        for seed in 0..20 * scale() {
            let (rig, old) = behind();
            rig.io.cut_power_at(rig.io.operations() + cut);
            let installed = install(&rig).is_ok();
            rig.crash(seed * 1000 + cut);
            // A crash in the middle of going on with it, too.
            rig.io.cut_power_at(rig.io.operations() + 1 + seed % 7);
            let _ = rig.open();
            rig.crash(seed);
            let (mut machine, view) = rig.open().unwrap_or_else(|error| panic!("cut {cut} seed {seed}: {error}"));
            let applied = applied(&mut machine).unwrap();
            assert!(applied == purged || (applied <= BEHIND && !installed), "cut {cut} seed {seed}: {applied}");
            drop((machine, view));
            if applied != purged {
                assert_eq!(rig.run(&entries, BEHIND).unwrap().digest, old);
                rig.memory.crash();
                install(&rig).unwrap();
            }
            // As Raft does behind an install, and at the next start when it did not come to it.
            rig.go_on_behind(&entries, purged, begins_at);
            let end = rig.run(&entries, ENTRIES).unwrap();
            assert_eq!(end, expected, "cut {cut} seed {seed}");
        }
    }
}
