//! Restart and replay: whatever the checkpoint, the state ends up equal.

mod digests;
mod units;

use super::*;
use crate::log_clock::LogClock;
use crate::machine::checkpoint::CheckpointBounds;
use crate::machine::open::MachineOptions;
use raftmq_model::batch::BatchWriter;
use raftmq_model::command::{Ack, Append, AppendEntry, AppendOutcome, HandleKey, Pop};
use raftmq_model::config::{ConsumerGroupConfig, TopicConfig};
use raftmq_model::ids::{GroupId, PhysicalOffset, QueueId, QueueOffset, Timestamp};
use raftmq_model::record::{Record, property};
use raftmq_store::consume_queue::ConsumeQueues;
use raftmq_store::state::MemoryState;
use raftmq_store::{CommitLog, CommitLogOptions, NewEntry, RealIo, Snapshots};
use std::path::Path;
use std::time::Duration;

const GROUP: GroupId = GroupId(1);
pub(super) const TOPIC: TopicUid = TopicUid(7);
const CONSUMERS: ConsumerGroupUid = ConsumerGroupUid(8);

/// The records that everything else needs.
pub(super) fn setup(index: u64) -> Vec<Command> {
    vec![command_of(index - 1)]
}

fn command_of(i: u64) -> Command {
    match i {
        0 => Command::PutTopic(TopicConfig {
            uid: TOPIC.0,
            version: 1,
            name: "orders".to_owned(),
            topic_type: 1,
            permission: 6,
            queue_groups: vec![1, 1],
        }),
        1 => Command::PutConsumerGroup(ConsumerGroupConfig {
            uid: CONSUMERS.0,
            version: 1,
            name: "billing".to_owned(),
            fifo: false,
            attempts_max: 3,
            consume_enabled: true,
        }),
        i if i % 5 == 3 => pop(i),
        i if i % 5 == 4 => ack(i),
        i => append(i),
    }
}

/// Every third message id comes twice.
pub(super) fn append(i: u64) -> Command {
    let id = if i.is_multiple_of(3) { i.saturating_sub(5) } else { i };
    let entry = AppendEntry {
        topic: TOPIC,
        queue: QueueId((i % 2) as u32),
        tags_code: i as i64 * 31,
        message_id: Bytes::from(format!("id-{id}")),
        record: record(i, id),
        record_at: 0,
    };
    Command::Append(Append { entries: vec![entry] })
}

/// With keys that other messages have, too.
fn record(i: u64, id: u64) -> Bytes {
    let host = "10.0.0.1:9".parse().unwrap();
    let record = Record {
        topic: "orders".to_owned(),
        queue_id: (i % 2) as u32,
        flag: 0,
        sys_flag: 0,
        born_timestamp: 1,
        born_host: host,
        store_timestamp: 2,
        store_host: host,
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body: Bytes::from(vec![i as u8; i as usize % 100]),
        properties: vec![
            (property::UNIQ_KEY.to_owned(), format!("id-{id}")),
            (property::KEYS.to_owned(), format!("{} {}", KEYS[i as usize % 3], KEYS[3 + i as usize % 2])),
        ],
    };
    record.encode().unwrap()
}

/// What messages are found by.
pub(super) const KEYS: [&str; 5] = ["a", "b", "c", "d", "e"];

/// Some are stale: that must be the same everywhere, too.
pub(super) fn pop(i: u64) -> Command {
    let from = i / 5;
    Command::Pop(Pop {
        consumer_group: CONSUMERS.0,
        topic: TOPIC.0,
        queue: (i % 2) as u32,
        from: from / 2,
        next: from / 2 + 1,
        fresh: vec![from / 2],
        again: Vec::new(),
        invisible_ms: 30,
        attempt_id: format!("attempt-{i}"),
    })
}

pub(super) fn ack(i: u64) -> Command {
    let handle = HandleKey {
        consumer_group: CONSUMERS.0,
        topic: TOPIC.0,
        queue: ((i - 1) % 2) as u32,
        offset: (i / 5) / 2,
        attempt: 1,
        popped_at: 1,
    };
    Command::Ack(Ack { handles: vec![handle] })
}

/// Entries 1..=count, two commands each, in a log of its own.
fn write_log(dir: &Path, count: u64) -> CommitLog {
    let (log, _) = CommitLog::open(log_options(dir)).unwrap();
    let entries = (1..=count).map(|index| {
        let mut batch = BatchWriter::new(Timestamp(1_000 + index as i64 * 10));
        for i in [index * 2 - 2, index * 2 - 1] {
            batch.push(&command_of(i).encode());
        }
        NewEntry { term: 1, index, kind: EntryKind::Batch, payload: batch.finish() }
    });
    let (done, durable) = std::sync::mpsc::sync_channel(1);
    log.append(entries.collect(), Box::new(move |result| drop(done.send(result)))).unwrap();
    durable.recv().unwrap().unwrap();
    log
}

fn log_options(dir: &Path) -> CommitLogOptions {
    CommitLogOptions { segment_bytes_max: 1 << 20, zero_ahead_bytes: 0, ..CommitLogOptions::new(dir.join("log")) }
}

/// A clock before all that is applied.
pub(super) struct NoClock;

impl raftmq_model::clock::Clock for NoClock {
    fn now(&self) -> Timestamp {
        Timestamp(0)
    }
}

fn open(dir: &Path, store: &Arc<MemoryState>) -> (BrokerMachine, Arc<MachineView>) {
    let store: Arc<dyn raftmq_store::state::StateStore> = Arc::clone(store) as _;
    let queues = Arc::new(ConsumeQueues::open(dir.join("consumequeue"), Arc::new(RealIo)).unwrap());
    let checkpoints = CheckpointBounds { bytes: 1 << 20, entries: 1 << 20, interval: Duration::from_secs(3_600) };
    let clock = Arc::new(LogClock::new(Arc::new(NoClock)));
    let (rules, snapshots) = (Limits::default(), Snapshots::new(dir.join("snapshots"), Arc::new(RealIo)));
    let waits = Arc::default();
    let options =
        MachineOptions { group: GROUP, rules, store, queues, snapshots, waits, checkpoints, clock, threaded: true };
    // The log of a running group would be closed here; tests keep theirs open, which the lock of the log allows.
    BrokerMachine::open(options, || Ok(CommitLog::open(log_options(dir)).unwrap().0)).unwrap()
}

/// Applies `from..=to` in runs of `run` entries; the outcomes of all commands.
fn apply(machine: &mut BrokerMachine, log: &CommitLog, from: u64, to: u64, run: usize) -> Vec<Bytes> {
    let entries = log.read(from, to + 1, usize::MAX).unwrap();
    assert_eq!(entries.len() as u64, to + 1 - from);
    let mut outcomes = Vec::new();
    for run in entries.chunks(run) {
        for entry in run {
            outcomes.extend(machine.apply(entry).unwrap());
        }
        let last = run.last().unwrap().index;
        machine.apply_end(Bytes::from(last.to_be_bytes().to_vec())).unwrap();
    }
    outcomes
}

fn applied(machine: &mut BrokerMachine) -> u64 {
    let restored = machine.restored().unwrap();
    restored.map_or(0, |bytes| u64::from_be_bytes(bytes.as_ref().try_into().unwrap()))
}

fn units(view: &MachineView) -> Vec<(u32, Vec<PhysicalOffset>)> {
    let of = |queue| {
        let units = view.queues().read(TOPIC, QueueId(queue), QueueOffset(0), usize::MAX).unwrap();
        (queue, units.iter().map(|unit| unit.physical).collect())
    };
    vec![of(0), of(1)]
}

#[test]
fn a_restart_from_a_checkpoint_in_the_middle_ends_with_an_equal_state() {
    const ENTRIES: u64 = 200;
    let straight = tempfile::tempdir().unwrap();
    let log = write_log(straight.path(), ENTRIES);
    let (mut machine, view) = open(straight.path(), &Arc::default());
    let expected = apply(&mut machine, &log, 1, ENTRIES, 64);
    let repeated = |bytes: &Bytes| match Outcome::decode(bytes.clone()).unwrap() {
        Outcome::Append(answers) => matches!(answers[0], AppendOutcome::Stored { repeated: true, .. }),
        _ => false,
    };
    assert!(expected.iter().filter(|outcome| repeated(outcome)).count() > 20, "the script repeats message ids");
    for (checkpoint, crash) in [(1, 2), (60, 130), (130, 199), (200, 200)] {
        let dir = tempfile::tempdir().unwrap();
        let log = write_log(dir.path(), ENTRIES);
        let store = Arc::new(MemoryState::new());
        let (mut machine, _) = open(dir.path(), &store);
        assert_eq!(applied(&mut machine), 0);
        apply(&mut machine, &log, 1, checkpoint, 7);
        drop(machine);
        let (mut machine, _) = open(dir.path(), &store);
        assert_eq!(applied(&mut machine), checkpoint);
        if crash > checkpoint {
            apply(&mut machine, &log, checkpoint + 1, crash, 3);
        }
        machine.checkpoints.abandon();
        drop(machine);
        store.crash();
        let (mut machine, again) = open(dir.path(), &store);
        assert_eq!(applied(&mut machine), checkpoint, "what was applied behind the checkpoint is lost");
        if checkpoint < ENTRIES {
            let outcomes = apply(&mut machine, &log, checkpoint + 1, ENTRIES, 16);
            assert_eq!(outcomes, expected[checkpoint as usize * 2..], "also for repeated message ids");
        }
        assert_eq!(again.state().digest(), view.state().digest(), "checkpoint at {checkpoint}, crash at {crash}");
        assert_eq!(units(&again), units(&view));
    }
}

#[test]
fn a_failed_checkpoint_is_final() {
    let dir = tempfile::tempdir().unwrap();
    let log = write_log(dir.path(), 3);
    let store = Arc::new(MemoryState::new());
    let (mut machine, _) = open(dir.path(), &store);
    store.fail_next_flush();
    let entries = log.read(1, 4, usize::MAX).unwrap();
    machine.checkpoints.make_at_once();
    machine.apply(&entries[0]).unwrap();
    machine.apply_end(Bytes::from_static(b"1")).unwrap();
    machine.checkpoints.wait_failed();
    machine.apply(&entries[1]).unwrap();
    assert!(machine.apply_end(Bytes::from_static(b"2")).is_err());
}

/// A unit has no checksum: whichever of its bits flips, it leads to its message or to an error, never to another one.
#[test]
fn a_damaged_queue_unit_hands_out_no_other_message() {
    let io = raftmq_store::FaultyIo::new();
    let options = CommitLogOptions { io: Arc::new(io.clone()), io_thread: false, ..CommitLogOptions::new("/g/log") };
    let (log, _) = CommitLog::open(options).unwrap();
    // Records of one size, so that many flipped places are the beginning of some record.
    let record = |i: u64, queue: u32| {
        let record = raftmq_model::record::Record {
            topic: "orders".to_owned(),
            queue_id: queue,
            body: Bytes::from(vec![i as u8; 64]),
            flag: 0,
            sys_flag: 0,
            born_timestamp: 1,
            born_host: ([10, 0, 0, 9], 1).into(),
            store_timestamp: 1,
            store_host: ([10, 0, 0, 1], 8081).into(),
            reconsume_times: 0,
            prepared_transaction_offset: 0,
            properties: Vec::new(),
        };
        record.encode().unwrap()
    };
    let mut batch = BatchWriter::new(Timestamp(1));
    batch.push(&command_of(0).encode());
    for i in 0..64 {
        let (topic, queue) = (TOPIC, QueueId(i as u32 % 2));
        let (message_id, record) = (Bytes::from(format!("id-{i}")), record(i, queue.0));
        let entry = AppendEntry { topic, queue, tags_code: 0, message_id, record, record_at: 0 };
        batch.push(&Command::Append(Append { entries: vec![entry] }).encode());
    }
    let entry = NewEntry { term: 1, index: 0, kind: EntryKind::Batch, payload: batch.finish() };
    log.append(vec![entry], Box::new(|outcome| outcome.unwrap())).unwrap();
    while log.drive() {}
    let queues = Arc::new(ConsumeQueues::open("/g/queues", Arc::new(io.clone())).unwrap());
    let waits = Arc::new(WaitTable::default());
    let options = MachineOptions {
        group: GROUP,
        rules: Limits::default(),
        store: Arc::new(MemoryState::default()),
        queues: Arc::clone(&queues),
        snapshots: Snapshots::new("/g/snapshots", Arc::new(io.clone())),
        waits,
        checkpoints: CheckpointBounds { bytes: 1 << 20, entries: 1 << 20, interval: Duration::from_secs(60) },
        clock: Arc::new(LogClock::new(Arc::new(NoClock))),
        threaded: false,
    };
    let (mut machine, view) = BrokerMachine::open(options, || unreachable!("there is nothing to go through")).unwrap();
    let stored = log.read(0, 1, 0).unwrap().remove(0);
    let (term, index, kind, payload_offset) = (stored.term, stored.index, stored.kind, stored.payload_offset);
    machine.apply(&Entry { term, index, kind, payload: stored.payload, payload_offset }).unwrap();
    queues.sync().unwrap();
    let read = |offset: u64| view.message(&log, TOPIC, QueueId(0), QueueOffset(offset), None).map(|(_, record)| record);
    let expected: Vec<Bytes> = (0..32).map(|offset| read(offset).unwrap()).collect();
    let file = Path::new("/g/queues").join(TOPIC.to_string()).join("0").join(format!("{:020}", 0));
    let mut refused = 0;
    for unit in [0, 7, 31] {
        for bit in 0..12 * 8 {
            let (at, mask) = (unit * 20 + bit / 8, 1 << (bit % 8));
            io.rot(&file, at, mask).unwrap();
            for offset in [unit, unit.saturating_sub(1), (unit + 1).min(31)] {
                match read(offset) {
                    Ok(record) => assert!(record == expected[offset as usize], "unit {unit} bit {bit}"),
                    Err(_) => refused += 1,
                }
            }
            assert!(read(unit).is_err(), "unit {unit} bit {bit}");
            io.rot(&file, at, mask).unwrap();
        }
    }
    assert!(refused >= 3 * 96, "{refused}");
}
