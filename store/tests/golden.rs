//! A log and its ConsumeQueues of format version 1, as they are kept in `tests/golden/log-v1`: the present code reads them, and
//! writes the same bytes. So no change of these formats goes unnoticed.
//!
//! The log has rolled over segments, was truncated as a follower's is by a new leader, was purged, and holds a vote, a note
//! of what is committed, and all kinds of entries. When a format changes on purpose, `data_dir::FORMAT_VERSION` grows, the
//! kept folder stays with a test that opens it, and a new one is made beside it:
//! `cargo test --release -p raftmq-store --test golden -- --ignored`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use bytes::Bytes;
use raftmq_model::ids::{PhysicalOffset, QueueId, QueueOffset, TopicUid};
use raftmq_store::consume_queue::{ConsumeQueues, Unit};
use raftmq_store::data_dir::FORMAT_VERSION;
use raftmq_store::inspect::{Findings, LogWalk};
use raftmq_store::testing::golden;
use raftmq_store::{CommitLog, CommitLogOptions, DataDir, Done, EntryKind, NewEntry, RealIo};

const SEGMENT_BYTES: u64 = 8192;
/// The follower had entries of term 1 up to 24; the leader of term 2 knew them up to here.
const KEPT_UPTO: u64 = 15;
const LAST: u64 = 40;
const PURGED_UPTO: u64 = 14;
const COMMITTED: (u64, u64) = (2, 33);
const QUEUES: [(u64, u32, u64); 3] = [(7, 0, 50), (7, 1, 3), (12, 0, 1)];

fn kept() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/log-v1")
}

fn options(dir: &Path) -> CommitLogOptions {
    CommitLogOptions {
        segment_bytes_max: SEGMENT_BYTES,
        write_bytes_max: SEGMENT_BYTES,
        zero_ahead_bytes: 0,
        // Without a thread, the moments at which the note of what is committed is written are always the same.
        io_thread: false,
        ..CommitLogOptions::new(dir.join("log"))
    }
}

fn entry(term: u64, index: u64) -> NewEntry {
    let kind = match index {
        0 => EntryKind::Membership,
        16 => EntryKind::Blank,
        _ => EntryKind::Batch,
    };
    let len = if kind == EntryKind::Blank { 0 } else { 100 + (index * 137 % 900) as usize };
    let payload: Vec<u8> = (0..len).map(|at| (term * 31 + index * 7 + at as u64) as u8).collect();
    NewEntry { term, index, kind, payload: payload.into() }
}

/// What the log holds in the end.
fn entries() -> Vec<NewEntry> {
    (PURGED_UPTO + 1..=LAST).map(|index| entry(if index <= KEPT_UPTO { 1 } else { 2 }, index)).collect()
}

fn unit(at: u64) -> Unit {
    Unit { physical: PhysicalOffset(at * 1000 + 48), size: 100 + at as u32, tags_code: at as i64 * 7919 - 3 }
}

fn write(dir: &Path) {
    let data = DataDir::open(Arc::new(RealIo), dir, raftmq_model::ids::NodeId(3), 2).unwrap();
    data.adopt("5e3c-golden", 2).unwrap();
    let (log, _) = CommitLog::open(options(dir)).unwrap();
    let done = |call: &dyn Fn(Done)| {
        let (sender, receiver) = sync_channel(1);
        call(Box::new(move |result| drop(sender.send(result))));
        while log.drive() {}
        receiver.recv().unwrap().unwrap();
    };
    let append = |term: u64, indexes: std::ops::RangeInclusive<u64>| {
        let entries: Vec<NewEntry> = indexes.map(|index| entry(term, index)).collect();
        done(&|finish| log.append(entries.clone(), finish).unwrap());
    };
    done(&|finish| log.save_vote(Bytes::from_static(b"vote for node 1 in term 1"), finish));
    append(1, 0..=10);
    append(1, 11..=24);
    done(&|finish| log.save_vote(Bytes::from_static(b"vote for node 2 in term 2"), finish));
    done(&|finish| log.truncate_after(Some(KEPT_UPTO), finish));
    append(2, KEPT_UPTO + 1..=LAST - 1);
    log.save_committed(COMMITTED);
    append(2, LAST..=LAST);
    done(&|finish| log.purge(PURGED_UPTO, finish));

    let queues = ConsumeQueues::open(dir.join("consumequeue"), Arc::new(RealIo)).unwrap();
    for (topic, queue, count) in QUEUES {
        for offset in 0..count {
            queues.append(TopicUid(topic), QueueId(queue), QueueOffset(offset), unit(topic + offset)).unwrap();
        }
    }
    queues.sync().unwrap();
}

#[test]
#[ignore = "makes the kept folder; see the module"]
fn make_the_folder_of_this_version() {
    assert_eq!(FORMAT_VERSION, 1, "a new version has a folder of its own");
    let dir = tempfile::tempdir().unwrap();
    write(dir.path());
    golden::pack(dir.path(), &kept(), |path| path != Path::new("LOCK")).unwrap();
}

#[test]
fn the_same_calls_write_the_same_bytes() {
    let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    golden::unpack(&kept(), theirs.path()).unwrap();
    write(ours.path());
    std::fs::remove_file(ours.path().join("LOCK")).unwrap();
    // Derived, and not there yet when the folder was made: a log without these opens as well.
    std::fs::remove_dir_all(ours.path().join("log/index")).unwrap();
    let (ours, theirs) = (golden::files(ours.path()).unwrap(), golden::files(theirs.path()).unwrap());
    assert_eq!(ours.keys().collect::<Vec<_>>(), theirs.keys().collect::<Vec<_>>());
    for (path, bytes) in &ours {
        let at = bytes.iter().zip(&theirs[path]).position(|(our, their)| our != their);
        assert_eq!((at, bytes.len()), (None, theirs[path].len()), "{} differs there", path.display());
    }
}

#[test]
fn the_kept_log_is_read() {
    let dir = tempfile::tempdir().unwrap();
    golden::unpack(&kept(), dir.path()).unwrap();
    let mut findings = Findings::default();
    let mut walk = LogWalk::open(Arc::new(RealIo), &dir.path().join("log"), &mut findings).unwrap();
    let mut walked = Vec::new();
    while let Some(next) = walk.next(&mut findings) {
        walked.push(next);
    }
    assert_eq!((findings.damages(), findings.notes()), (0, 0), "{:?}", findings.list());
    assert!(walked.iter().any(|entry| entry.purged), "a purge ends in mid-segment");

    let data = DataDir::open(Arc::new(RealIo), dir.path(), raftmq_model::ids::NodeId(3), 1).unwrap();
    let identity = data.identity();
    assert_eq!((identity.incarnation, identity.cluster_id.as_deref()), (2, Some("5e3c-golden")));
    let (log, recovered) = CommitLog::open(options(dir.path())).unwrap();
    assert_eq!((recovered.last, recovered.purged), (Some((2, LAST)), Some((1, PURGED_UPTO))));
    assert_eq!(recovered.vote, Some(Bytes::from_static(b"vote for node 2 in term 2")));
    assert_eq!((recovered.committed, recovered.torn_bytes), (Some(COMMITTED), 0));
    let read = log.read(0, u64::MAX, usize::MAX).unwrap();
    let as_new = |stored: &raftmq_store::StoredEntry| NewEntry {
        term: stored.term,
        index: stored.index,
        kind: stored.kind,
        payload: stored.payload.clone(),
    };
    assert_eq!(read.iter().map(as_new).collect::<Vec<_>>(), entries());
    // The places that other replicas and ConsumeQueues name.
    let place = |index: u64| read.iter().find(|stored| stored.index == index).unwrap().payload_offset.0;
    assert_eq!([place(15), place(16), place(LAST)], PLACES);
    assert_eq!(log.segments().len(), SEGMENTS_COUNT);
}

/// Payload offsets of the entries 15, 16 and [`LAST`] in the kept log.
const PLACES: [u64; 3] = [9544, 9952, 25616];
const SEGMENTS_COUNT: usize = 3;

#[test]
fn the_kept_consume_queues_are_read() {
    let dir = tempfile::tempdir().unwrap();
    golden::unpack(&kept(), dir.path()).unwrap();
    let queues = ConsumeQueues::open(dir.path().join("consumequeue"), Arc::new(RealIo)).unwrap();
    queues.restore(QUEUES.map(|(topic, queue, count)| (TopicUid(topic), QueueId(queue), QueueOffset(count)))).unwrap();
    for (topic, queue, count) in QUEUES {
        let read = queues.read(TopicUid(topic), QueueId(queue), QueueOffset(0), usize::MAX).unwrap();
        assert_eq!(read, (0..count).map(|offset| unit(topic + offset)).collect::<Vec<_>>());
    }
}
