//! An index against a list that is searched from end to end: whatever is added, synced, lost, purged or damaged.

use super::*;
use crate::commit_log::{CommitLogOptions, NewEntry};
use crate::io::{OpenMode, read_file};
use crate::testing::{Fault, FaultyIo};
use crate::{CommitLog, EntryKind};
use bytes::Bytes;
use proptest::prelude::*;
use raftmq_model::batch::BatchWriter;
use raftmq_model::command::{Ack, Append, AppendEntry, Command};
use raftmq_model::ids::{QueueId, TopicUid};
use raftmq_model::record::{Record, RecordView, key_hash};
use std::collections::BTreeMap;

const DIR: &str = "/group/keyindex";
const SEGMENT_BYTES: u64 = 8192;
const LAYOUT: Layout =
    Layout { slots_count: 7, entries_count_max: 24, segment_bytes: SEGMENT_BYTES, tail_bytes_max: 70 };
/// The first two have one hash, and so do the topics with them.
const KEYS: [&str; 6] = ["Aa", "BB", "order-1", "order-2", "x", "y"];
const TOPICS: [&str; 2] = ["orders", "bills"];
const ALWAYS: (Timestamp, Timestamp) = (Timestamp(i64::MIN), Timestamp(i64::MAX));

/// Topic and keys of one message.
type Message = (usize, Vec<usize>);

fn record((topic, keys): &Message, id: usize) -> Bytes {
    let host = "10.0.0.1:9".parse().unwrap();
    let keys: Vec<&str> = keys.iter().map(|key| KEYS[*key]).collect();
    let record = Record {
        topic: TOPICS[*topic].into(),
        queue_id: 0,
        flag: 0,
        sys_flag: 0,
        born_timestamp: 1,
        born_host: host,
        store_timestamp: 2,
        store_host: host,
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body: Bytes::from(vec![b'.'; 20]),
        properties: vec![("UNIQ_KEY".into(), format!("id-{id}")), ("KEYS".into(), keys.join(" "))],
    };
    record.encode().unwrap()
}

/// A message as a reader who has all of them knows it.
struct Known {
    index: u64,
    now: Timestamp,
    physical: PhysicalOffset,
    topic: usize,
    keys: Vec<String>,
}

/// A log, an index that follows it, and what must be found.
struct Rig {
    log: CommitLog,
    disk: FaultyIo,
    index: KeyIndex,
    known: Vec<Known>,
    next: u64,
    now: i64,
}

impl Rig {
    fn new() -> Rig {
        let options = CommitLogOptions {
            segment_bytes_max: SEGMENT_BYTES,
            write_bytes_max: 4096,
            zero_ahead_bytes: 0,
            io_thread: false,
            io: Arc::new(FaultyIo::new()),
            ..CommitLogOptions::new("/group/log")
        };
        let (log, _) = CommitLog::open(options).unwrap();
        let disk = FaultyIo::new();
        let index = open(&disk);
        index.restore(0, PhysicalOffset(0)).unwrap();
        Rig { log, disk, index, known: Vec::new(), next: 1, now: 1_000 }
    }

    /// One log entry with these messages; none: an entry without any.
    fn append(&mut self, messages: &[Message], later_ms: i64) {
        self.now += later_ms;
        let mut batch = BatchWriter::new(Timestamp(self.now));
        let mut entries = Vec::new();
        for message in messages {
            let id = self.known.len() + entries.len();
            let record = record(message, id);
            entries.push(AppendEntry {
                topic: TopicUid(1),
                queue: QueueId(0),
                tags_code: 0,
                message_id: Bytes::new(),
                record,
                record_at: 0,
            });
        }
        let command =
            if messages.is_empty() { Command::Ack(Ack::default()) } else { Command::Append(Append { entries }) };
        batch.push(&command.encode());
        let entry = NewEntry { term: 1, index: self.next, kind: EntryKind::Batch, payload: batch.finish() };
        self.log.append(vec![entry], Box::new(|result| result.unwrap())).unwrap();
        while self.log.drive() {}
        let stored = self.log.read(self.next, self.next + 1, usize::MAX).unwrap().remove(0);
        let commands = crate::inspect::commands(&stored).unwrap().unwrap();
        let at = crate::inspect::position(&stored);
        for (command_at, command) in &commands.commands {
            for carried in raftmq_model::machine::carried(at, *command_at, command.as_ref().unwrap()) {
                let message = &messages[self.known.iter().filter(|known| known.index == self.next).count()];
                let mut keys: Vec<String> = message.1.iter().map(|key| KEYS[*key].to_owned()).collect();
                keys.push(format!("id-{}", self.known.len()));
                let (index, now, physical) = (self.next, Timestamp(self.now), carried.physical);
                self.known.push(Known { index, now, physical, topic: message.0, keys });
            }
        }
        self.next += 1;
    }

    fn follow(&self, upto: u64) -> Result<()> {
        while !self.index.follow(&self.log, upto, 300)?.up_to_date {}
        Ok(())
    }

    /// A new process on what is left of the disk, whose state has applied `applied`.
    fn restart(&mut self, applied: u64) -> Restored {
        self.index = open(&self.disk);
        self.index.restore(applied, self.log.end_offset(applied).unwrap_or_default()).unwrap()
    }

    fn purge(&self, upto: u64) {
        self.log.purge(upto, Box::new(|result| result.unwrap()));
        while self.log.drive() {}
        self.index.forget_before(self.log.end_offset(upto).unwrap()).unwrap();
    }

    fn found(&self, topic: &str, key: &str, (from, to): (Timestamp, Timestamp)) -> Result<Vec<PhysicalOffset>> {
        let mut search = self.index.search(topic, key, from, to);
        let mut found = Vec::new();
        while let Some(batch) = search.next_batch()? {
            found.extend(batch.into_iter().map(|candidate| candidate.physical).filter(|at| self.has(*at, topic, key)));
        }
        Ok(found)
    }

    fn has(&self, at: PhysicalOffset, topic: &str, key: &str) -> bool {
        let Ok(size) = self.log.record(at, 4) else { return false };
        let size = u32::from_be_bytes(size.as_ref().try_into().unwrap());
        let Ok(record) = self.log.record(at, size) else { return false };
        let Ok(view) = RecordView::parse(&record) else { return false };
        view.topic() == topic && (view.message_id() == Some(key) || view.keys().any(|one| one == key))
    }

    fn expected(&self, topic: &str, key: &str, (from, to): (Timestamp, Timestamp)) -> Vec<PhysicalOffset> {
        let (first, next) = (self.log.first_index(), self.index.stats().next_index);
        let is_meant = |known: &&Known| {
            (first..next).contains(&known.index)
                && TOPICS[known.topic] == topic
                && known.keys.iter().any(|one| one == key)
                && from <= known.now
                && known.now <= to
        };
        self.known.iter().rev().filter(is_meant).map(|known| known.physical).collect()
    }

    fn check(&self) {
        let ids = [0, self.known.len() / 2, self.known.len()].map(|id| format!("id-{id}"));
        for topic in TOPICS {
            for key in KEYS.into_iter().chain(ids.iter().map(String::as_str)) {
                assert_eq!(self.found(topic, key, ALWAYS).unwrap(), self.expected(topic, key, ALWAYS), "{topic} {key}");
            }
        }
        // Times are to a second: nothing is missing, and little too much.
        for (from, to) in [(1_000, self.now / 2), (self.now / 2, self.now / 2 + 3_000), (self.now, self.now)] {
            let span = (Timestamp(from), Timestamp(to));
            let found = self.found("orders", "x", span).unwrap();
            assert!(self.expected("orders", "x", span).iter().all(|at| found.contains(at)), "{span:?}");
            let wider = (Timestamp(from - 1_000), Timestamp(to + 1_000));
            let wider = self.expected("orders", "x", wider);
            assert!(found.iter().all(|at| wider.contains(at)), "{span:?}");
        }
    }

    fn files(&self) -> BTreeMap<u64, Vec<u8>> {
        files(&self.disk)
    }
}

fn open(disk: &FaultyIo) -> KeyIndex {
    KeyIndex::new(DIR, Arc::new(disk.clone()), LAYOUT)
}

fn files(disk: &FaultyIo) -> BTreeMap<u64, Vec<u8>> {
    let read = |base: u64| read_file(disk, &path_of(DIR.as_ref(), base), 1 << 30).unwrap().unwrap();
    bases(disk, DIR.as_ref()).unwrap().into_iter().map(|base| (base, read(base))).collect()
}

/// A log of `count` entries in which much happens, all of it indexed and durable.
fn filled(count: u64) -> Rig {
    let mut rig = Rig::new();
    fill(&mut rig, count);
    rig.follow(u64::MAX - 1).unwrap();
    rig.index.sync().unwrap();
    rig
}

fn fill(rig: &mut Rig, count: u64) {
    for at in 0..count as usize {
        let message = |n: usize| (n % 2, vec![n % 6, n * 7 % 6]);
        let messages: Vec<Message> = (0..at % 4).map(|n| message(at * 3 + n)).collect();
        rig.append(&messages, (at as i64 % 5) * 700);
    }
}

#[test]
fn what_was_added_is_found_in_files_of_rocketmqs_layout() {
    let rig = filled(60);
    rig.check();
    assert_eq!(key_hash("orders", "Aa"), key_hash("orders", "BB"), "a collision is among the keys");
    let files = rig.files();
    assert!(files.len() >= 6, "{}", files.len());
    let segments: BTreeMap<u64, u64> = files.keys().map(|base| (segment_base(*base, SEGMENT_BYTES), *base)).collect();
    assert!(segments.len() >= 2 && segments.len() < files.len(), "files end with segments and when they are full");
    let (base, first) = files.first_key_value().unwrap();
    let header = Header::decode(first.first_chunk().unwrap(), "f".as_ref(), *base).unwrap();
    assert!(header.complete && header.count > LAYOUT.entries_count_max && header.begin_time < header.end_time);
    // Slot by slot to the newest entry, and along the chain, all by the bytes.
    let number = |at: usize| u32::from_be_bytes(first[at..at + 4].try_into().unwrap());
    let mut seen = 0;
    for slot in 0..7 {
        let mut entry = number(HEADER_BYTES_OF_TWO + slot * 4);
        while entry != 0 {
            let at = HEADER_BYTES_OF_TWO + 7 * 4 + entry as usize * 20;
            assert_eq!(number(at) % 7, slot as u32);
            assert!(number(at + 16) < entry);
            (entry, seen) = (number(at + 16), seen + 1);
        }
    }
    assert_eq!(seen + 1, header.count);
    assert_eq!(first.len(), HEADER_BYTES_OF_TWO + 7 * 4 + header.count as usize * 20);
    let (slots, entries) = first[HEADER_BYTES_OF_TWO..].split_at(7 * 4);
    let mut crc = crc32fast::Hasher::new();
    crc.update(&entries[20..]);
    crc.update(slots);
    assert_eq!(crc.finalize(), header.content_crc);
}

const HEADER_BYTES_OF_TWO: usize = 48 + 40;

#[test]
fn a_replica_that_starts_later_has_equal_files_from_the_next_segment_on() {
    let whole = filled(90);
    let late = filled(90);
    late.disk.restart(1);
    late.purge(20);
    let mut late = late;
    late.index.io.remove_dir_all(DIR.as_ref()).unwrap();
    assert_eq!(late.restart(90), Restored { next_index: 0, dropped: None });
    late.follow(90).unwrap();
    late.index.sync().unwrap();
    late.check();
    let (whole, late) = (whole.files(), late.files());
    let started = segment_base(*late.keys().next().unwrap(), SEGMENT_BYTES);
    let behind = |files: &BTreeMap<u64, Vec<u8>>| -> BTreeMap<u64, Vec<u8>> {
        files
            .iter()
            .filter(|(base, _)| **base >= started + SEGMENT_BYTES)
            .map(|(base, file)| (*base, file.clone()))
            .collect()
    };
    assert!(behind(&whole).len() >= 3 && whole.len() > late.len());
    assert_eq!(behind(&late), behind(&whole));
}

#[test]
fn a_power_cut_or_a_fault_at_any_operation_ends_with_the_files_of_an_uninterrupted_run() {
    const COUNT: u64 = 50;
    let expected = filled(COUNT).files();
    let run = |rig: &Rig| -> Result<()> {
        for upto in [7, 20, 21, 40, COUNT] {
            rig.follow(upto)?;
            rig.index.sync()?;
        }
        Ok(())
    };
    let mut straight = Rig::new();
    fill(&mut straight, COUNT);
    let before = straight.disk.operations();
    run(&straight).unwrap();
    let operations = straight.disk.operations() - before;
    assert!(operations > 60 && straight.files() == expected, "{operations}");
    for cut in 1..=operations {
        for seed in 0..6 {
            let mut rig = Rig::new();
            fill(&mut rig, COUNT);
            rig.disk.cut_power_at(rig.disk.operations() + cut);
            assert!(run(&rig).is_err());
            rig.disk.restart(seed * 1000 + cut);
            // The state is behind the index, or far before it; and once more, in the middle of what the restart does.
            let applied = [COUNT, 25, 3][seed as usize % 3];
            rig.disk.cut_power_at(rig.disk.operations() + 1 + (cut * 7 + seed) % 30);
            rig.index = open(&rig.disk);
            let _ = rig.index.restore(applied, rig.log.end_offset(applied).unwrap()).and_then(|_| run(&rig));
            rig.disk.restart(seed + cut);
            rig.restart(applied);
            run(&rig).unwrap();
            assert!(rig.files() == expected, "cut {cut} seed {seed}");
            rig.check();
        }
        for fault in [Fault::NoSpace, Fault::Device] {
            let mut rig = Rig::new();
            fill(&mut rig, COUNT);
            rig.disk.fail_at(rig.disk.operations() + cut, fault);
            run(&rig).unwrap_err();
            let behind = rig.index.needs_restore();
            assert!(behind, "{fault:?} at {cut}");
            assert!(!rig.index.follow(&rig.log, COUNT, 1).unwrap().up_to_date, "nothing goes on before a restore");
            rig.index.restore(COUNT, rig.log.end_offset(COUNT).unwrap()).unwrap();
            run(&rig).unwrap();
            rig.check();
            // What was synced is there, also after a power cut.
            rig.disk.restart(cut);
            let restored = rig.restart(COUNT);
            assert_eq!(restored.dropped, None, "{fault:?} at {cut}");
            run(&rig).unwrap();
            assert!(rig.files() == expected, "{fault:?} at {cut}");
        }
    }
}

#[test]
fn a_file_that_is_cut_is_never_believed_beyond_the_cut_while_it_is_filled_again() {
    const COUNT: u64 = 60;
    let layout = Layout { entries_count_max: 100, ..LAYOUT };
    let open = |disk: &FaultyIo| KeyIndex::new(DIR, Arc::new(disk.clone()), layout);
    for seed in 0..200 {
        let mut rig = Rig::new();
        fill(&mut rig, COUNT);
        rig.index = open(&rig.disk);
        rig.index.restore(COUNT, rig.log.end_offset(COUNT).unwrap()).unwrap();
        rig.follow(COUNT).unwrap();
        rig.index.sync().unwrap();
        let expected = rig.files();
        // The state comes back far behind; some of what is done again is lost.
        let applied = 3 + seed % 40;
        rig.index = open(&rig.disk);
        rig.index.restore(applied, rig.log.end_offset(applied).unwrap()).unwrap();
        rig.follow(applied + seed % 17).unwrap();
        rig.disk.restart(seed);
        rig.index = open(&rig.disk);
        let restored = rig.index.restore(COUNT, rig.log.end_offset(COUNT).unwrap()).unwrap();
        // A file that was begun and never synced may be there by name only.
        assert!(restored.dropped.is_none_or(|what| !what.contains("does not fit")), "seed {seed}");
        rig.follow(COUNT).unwrap();
        rig.check();
        rig.index.sync().unwrap();
        assert!(rig.files() == expected, "seed {seed}");
    }
}

#[test]
fn a_damaged_file_is_built_again_and_shows_no_wrong_message() {
    let expected = filled(60).files();
    let bases: Vec<u64> = expected.keys().copied().collect();
    for base in [bases[0], bases[2], *bases.last().unwrap()] {
        let len = expected[&base].len() as u64;
        for at in (0..len).step_by(13) {
            let mut rig = filled(60);
            let path = path_of(DIR.as_ref(), base);
            rig.disk.rot(&path, at, 0x10).unwrap();
            let restored = rig.restart(60);
            for topic in TOPICS {
                for key in KEYS {
                    // An error, or less; `has` is what a caller does about collisions.
                    let expected = rig.expected(topic, key, ALWAYS);
                    let found = rig.found(topic, key, ALWAYS).unwrap_or_default();
                    assert!(found.iter().all(|at| expected.contains(at)), "{at}");
                }
            }
            let in_header = at < HEADER_BYTES_OF_TWO as u64;
            assert!(restored.dropped.is_some() || !in_header, "byte {at}");
            if restored.dropped.is_some() || rig.index.needs_restore() {
                rig.index.restore(60, rig.log.end_offset(60).unwrap()).unwrap();
                rig.follow(60).unwrap();
                rig.index.sync().unwrap();
                assert!(rig.files() == expected, "byte {at} of {base}");
            }
        }
    }
}

#[test]
fn a_file_of_a_newer_version_and_other_files_are_told_apart() {
    let mut rig = filled(30);
    let base = *rig.files().keys().next().unwrap();
    rig.disk.open(&path_of(DIR.as_ref(), base), OpenMode::Write).unwrap().write_all_at(&[9], 4).unwrap();
    rig.disk.open("/group/keyindex/notes".as_ref(), OpenMode::Create).unwrap();
    let restored = rig.restart(30);
    assert!(restored.dropped.unwrap().contains("newer"));
    assert!(rig.disk.exists("/group/keyindex/notes".as_ref()).unwrap());
}

#[derive(Clone, Debug)]
enum Step {
    Append(Vec<Message>, i64),
    Follow(u64),
    Sync,
    Crash(u64, u64),
    Purge(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let message = (0..2_usize, prop::collection::vec(0..KEYS.len(), 0..3));
    prop_oneof![
        12 => (prop::collection::vec(message, 0..4), 0..4_000_i64).prop_map(|(messages, later)| Step::Append(messages, later)),
        5 => (0..4_u64).prop_map(Step::Follow),
        3 => Just(Step::Sync),
        2 => (any::<u64>(), 0..8_u64).prop_map(|(seed, behind)| Step::Crash(seed, behind)),
        1 => (1..10_u64).prop_map(Step::Purge),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn an_index_finds_what_a_list_has(steps in prop::collection::vec(step(), 1..120)) {
        let mut rig = Rig::new();
        for step in steps {
            let last = rig.next - 1;
            match step {
                Step::Append(messages, later) => rig.append(&messages, later),
                Step::Follow(behind) => rig.follow(last.saturating_sub(behind)).unwrap(),
                Step::Sync => rig.index.sync().unwrap(),
                Step::Crash(seed, behind) => {
                    rig.disk.restart(seed);
                    // A state is never behind what was purged.
                    let applied = last.saturating_sub(behind).max(rig.log.purged().map_or(0, |(_, purged)| purged));
                    rig.restart(applied);
                }
                Step::Purge(count) => {
                    let upto = (rig.log.first_index() + count).min(rig.index.stats().next_index.saturating_sub(1));
                    if upto >= rig.log.first_index() && (1..=last).contains(&upto) {
                        rig.purge(upto);
                    }
                }
            }
            rig.check();
        }
        rig.follow(rig.next - 1).unwrap();
        rig.check();
        prop_assert!(rig.next == 1 || rig.index.stats().next_index == rig.next);
    }
}
