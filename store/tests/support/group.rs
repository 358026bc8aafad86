//! A broker group's folder as a node makes it: log, ConsumeQueues, and what its state says of them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use raftmq_model::batch::{Batch, BatchWriter};
use raftmq_model::command::{Append, AppendEntry, Command};
use raftmq_model::config::TopicConfig;
use raftmq_model::filter::tags_code;
use raftmq_model::ids::{GroupId, Position, QueueId, Timestamp, TopicUid};
use raftmq_model::machine::{Changes, GroupState};
use raftmq_model::record::Record;
use raftmq_store::consume_queue::ConsumeQueues;
use raftmq_store::index_file::{KeyIndex, Layout};
use raftmq_store::inspect::{Checkpoint, Contents, Findings, GroupFolder, GroupReport, ReadOnlyIo, verify};
use raftmq_store::{CommitLog, CommitLogOptions, EntryKind, Io, NewEntry};

pub const SEGMENT: u64 = 16384;
pub const TOPIC: TopicUid = TopicUid(7);

pub fn folder(root: &Path) -> GroupFolder {
    let [queues, keys, snapshots] = ["consumequeue", "keyindex", "snapshots"].map(|name| Some(root.join(name)));
    GroupFolder { log: root.join("log"), queues, keys, snapshots, contents: Contents::Messages }
}

fn append(number: u64) -> Command {
    let tag = ["a", "b"][number as usize % 2];
    let address = "10.0.0.1:9".parse().unwrap();
    let record = Record {
        topic: "orders".into(),
        queue_id: (number % 2) as u32,
        flag: 0,
        sys_flag: 0,
        born_timestamp: 1,
        born_host: address,
        store_timestamp: 2,
        store_host: address,
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body: vec![number as u8; 50 + number as usize % 300].into(),
        properties: vec![
            ("TAGS".into(), tag.into()),
            ("UNIQ_KEY".into(), format!("id-{number}")),
            ("KEYS".into(), format!("order-{} customer-{}", number, number % 7)),
        ],
    };
    Command::Append(Append {
        entries: vec![AppendEntry {
            topic: TOPIC,
            queue: QueueId((number % 2) as u32),
            tags_code: tags_code(tag),
            // Each tenth message is a repeat of the one two before it, and is stored once.
            message_id: Bytes::from(format!("id-{}", if number % 10 == 9 { number - 2 } else { number })),
            record: record.encode().unwrap(),
            record_at: 0,
        }],
    })
}

fn entry(index: u64, commands: &[Command]) -> NewEntry {
    let mut batch = BatchWriter::new(Timestamp(1000 + index as i64));
    commands.iter().for_each(|command| batch.push(&command.encode()));
    NewEntry { term: 1 + index / 40, index, kind: EntryKind::Batch, payload: batch.finish() }
}

/// How the group's log is opened, to be driven by the caller.
pub fn log_options(io: &Arc<dyn Io>, root: &Path) -> CommitLogOptions {
    CommitLogOptions {
        segment_bytes_max: SEGMENT,
        write_bytes_max: 8192,
        zero_ahead_bytes: 4096,
        // Some runs are written into holes, others into zeros.
        holes_bytes_min: 2000,
        io_thread: false,
        io: Arc::clone(io),
        ..CommitLogOptions::new(root.join("log"))
    }
}

/// Makes a group of `count` messages in two queues, three to an entry, and answers its checkpoint.
pub fn make(io: &Arc<dyn Io>, root: &Path, count: u64) -> Checkpoint {
    let (log, _) = CommitLog::open(log_options(io, root)).unwrap();
    let topic = TopicConfig {
        uid: TOPIC.0,
        name: "orders".into(),
        version: 1,
        queue_groups: vec![1, 1],
        ..TopicConfig::default()
    };
    let mut entries = vec![entry(0, &[Command::PutTopic(topic)])];
    let appends: Vec<Command> = (0..count).map(append).collect();
    entries.extend((1..).zip(appends.chunks(3)).map(|(index, commands)| entry(index, commands)));
    for entry in entries {
        log.append(vec![entry], Box::new(|outcome| outcome.unwrap())).unwrap();
        while log.drive() {}
    }
    log.save_vote(Bytes::from_static(&[1; 24]), Box::new(|outcome| outcome.unwrap()));
    log.save_committed(log.last().unwrap());
    while log.drive() {}
    let queues = ConsumeQueues::open(root.join("consumequeue"), Arc::clone(io)).unwrap();
    let state = apply(&log, &queues);
    queues.sync().unwrap();
    index(&log, root, io);
    Checkpoint { applied: log.last(), queues: state.queues().collect() }
}

/// Indexes the whole log.
fn index(log: &CommitLog, root: &Path, io: &Arc<dyn Io>) {
    let layout = Layout { slots_count: 40, entries_count_max: 160, ..Layout::for_segments(SEGMENT) };
    let keys = KeyIndex::new(root.join("keyindex"), Arc::clone(io), layout);
    let (_, last) = log.last().unwrap();
    keys.restore(last, log.end_offset(last).unwrap()).unwrap();
    assert!(keys.follow(log, last, usize::MAX).unwrap().up_to_date);
    keys.sync().unwrap();
}

fn apply(log: &CommitLog, queues: &ConsumeQueues) -> GroupState {
    let (mut state, mut changes) = (GroupState::new(GroupId(1)), Changes::default());
    for stored in log.read(0, u64::MAX, usize::MAX).unwrap() {
        let batch = Batch::decode(stored.payload).unwrap();
        let at = Position { term: stored.term, index: stored.index, payload_offset: stored.payload_offset };
        for (command_at, bytes) in batch.commands() {
            state.apply(at, command_at, batch.now, &Command::decode(bytes).unwrap(), &mut changes);
        }
    }
    queues.append_all(&changes.enqueues).unwrap();
    state
}

/// Verifies the group in `root`.
pub fn look(io: &Arc<dyn Io>, root: &Path, checkpoint: &Checkpoint) -> (GroupReport, Findings) {
    let mut findings = Findings::default();
    let io: Arc<dyn Io> = Arc::new(ReadOnlyIo::new(Arc::clone(io)));
    let report = verify(&io, &folder(root), Some(checkpoint), &mut findings);
    (report, findings)
}

/// All files below `dir`.
pub fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() { found.extend(files(&entry)) } else { found.push(entry) }
    }
    found.sort();
    found
}
