//! The log on real files and, where damage is needed, on the faulty disk.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};

use bytes::Bytes;
use raftmq_model::ids::PhysicalOffset;
use raftmq_store::frame::frame_bytes;
use raftmq_store::segment::{segment_base, segment_name};
use raftmq_store::testing::SizedIo;
use raftmq_store::{CommitLog, CommitLogOptions, Done, Durability, FaultyIo, Io, OpenError, OpenMode, RealIo, Volume};
use support::{entry, options, payload};

const SEGMENT: u64 = 65536;

fn small(dir: &Path) -> CommitLogOptions {
    CommitLogOptions {
        segment_bytes_max: SEGMENT,
        write_bytes_max: 32768,
        cache_bytes_max: 10_000,
        zero_ahead_bytes: 8192,
        holes_bytes_min: 3000,
        ..CommitLogOptions::new(dir)
    }
}

fn wait(call: impl FnOnce(Done)) -> std::io::Result<()> {
    let (sender, receiver) = mpsc::sync_channel(1);
    call(Box::new(move |outcome| sender.send(outcome).unwrap()));
    receiver.recv().unwrap()
}

fn append(log: &CommitLog, term: u64, first: u64, lens: &[usize]) {
    let entries = (first..).zip(lens).map(|(index, len)| entry(term, index, *len)).collect();
    wait(|done| log.append(entries, done).unwrap()).unwrap();
}

fn assert_holds(log: &CommitLog, term: u64, indexes: std::ops::Range<u64>, len: usize) {
    let entries = log.read(indexes.start, indexes.end, usize::MAX).unwrap();
    assert_eq!(entries.len() as u64, indexes.end - indexes.start);
    for (entry, index) in entries.iter().zip(indexes) {
        assert_eq!((entry.term, entry.index), (term, index));
        assert_eq!(entry.payload, payload(term, index, len), "entry {index}");
        let at = PhysicalOffset(entry.payload_offset.0 + 3);
        assert_eq!(log.record(at, 50).unwrap(), entry.payload.slice(3..53), "entry {index}");
    }
}

#[test]
fn entries_come_back_from_cache_and_files_and_after_a_reopen() {
    let dir = tempfile::tempdir().unwrap();
    let (log, recovered) = CommitLog::open(small(dir.path())).unwrap();
    assert_eq!(recovered, Default::default());
    assert_eq!((log.last(), log.durable_index(), log.first_index()), (None, None, 0));
    for first in (0..600).step_by(20) {
        append(&log, 1, first, &[1000; 20]);
    }
    assert_eq!(log.durable_index(), Some(599));
    log.save_committed((1, 300));
    assert_holds(&log, 1, 0..600, 1000);
    let segments = log.segments();
    assert!(segments.len() > 8 && segments[1].base == PhysicalOffset(SEGMENT));
    drop(log);

    let (log, recovered) = CommitLog::open(small(dir.path())).unwrap();
    assert_eq!((recovered.last, recovered.torn_bytes), (Some((1, 599)), 0));
    assert_eq!(recovered.committed, Some((1, 300)), "the hint is written when the log closes");
    assert_eq!(log.segments(), segments);
    assert_holds(&log, 1, 0..600, 1000);
    append(&log, 2, 600, &[1000; 5]);
    assert_holds(&log, 2, 600..605, 1000);
}

#[test]
fn a_read_is_bounded_by_bytes_and_by_what_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let (log, _) = CommitLog::open(small(dir.path())).unwrap();
    append(&log, 1, 0, &[1000; 10]);
    assert_eq!(log.read(2, 10, 2500).unwrap().len(), 2);
    assert_eq!(log.read(2, 10, 0).unwrap().len(), 1, "at least one");
    assert_eq!(log.read(8, 100, usize::MAX).unwrap().len(), 2);
    assert!(log.read(10, 20, usize::MAX).unwrap().is_empty());
    let first = &log.read(0, 1, 0).unwrap()[0];
    assert!(log.record(PhysicalOffset(first.payload_offset.0 + 990), 11).is_err(), "beyond the entry");
    assert!(log.record(PhysicalOffset(first.payload_offset.0 - 1), 5).is_err(), "the header is no record");
    assert!(log.record(PhysicalOffset(1 << 40), 5).is_err());
}

#[test]
fn entries_that_do_not_follow_or_do_not_fit_are_refused_whole() {
    let dir = tempfile::tempdir().unwrap();
    let (log, _) = CommitLog::open(small(dir.path())).unwrap();
    append(&log, 2, 0, &[10; 3]);
    for entries in [
        vec![entry(2, 4, 10)],
        vec![entry(1, 3, 10)],
        vec![entry(2, 3, 10), entry(2, 5, 10)],
        vec![entry(2, 3, 10), entry(2, 4, 32768 - 47)],
    ] {
        assert!(log.append(entries, Box::new(|_| panic!("nothing was appended"))).is_err());
    }
    assert_eq!(log.last(), Some((2, 2)));
    append(&log, 2, 3, &[32768 - 48]);
}

#[test]
fn a_truncation_across_segments_is_durable() {
    let dir = tempfile::tempdir().unwrap();
    let (log, _) = CommitLog::open(small(dir.path())).unwrap();
    append(&log, 1, 0, &[1000; 200]);
    wait(|done| log.truncate_after(Some(30), done)).unwrap();
    assert_eq!((log.last(), log.durable_index()), (Some((1, 30)), Some(30)));
    assert_eq!(std::fs::read_dir(dir.path().join("commitlog")).unwrap().count(), 1);
    append(&log, 3, 31, &[1000; 100]);
    drop(log);
    let (log, recovered) = CommitLog::open(small(dir.path())).unwrap();
    assert_eq!(recovered.last, Some((3, 130)));
    assert_holds(&log, 1, 0..31, 1000);
    assert_holds(&log, 3, 31..131, 1000);
    wait(|done| log.truncate_after(None, done)).unwrap();
    assert_eq!(log.last(), None);
}

#[test]
fn a_purge_removes_whole_segments_and_is_remembered() {
    let dir = tempfile::tempdir().unwrap();
    let (log, _) = CommitLog::open(small(dir.path())).unwrap();
    append(&log, 1, 0, &[1000; 300]);
    log.save_committed((1, 299));
    let held = log.read(10, 11, 0).unwrap().remove(0).payload;
    let segments = log.segments();
    wait(|done| log.purge(segments[1].last_index, done)).unwrap();
    let first = segments[2].first_index;
    assert_eq!((log.first_index(), log.entry_id(first - 1)), (first, Some((1, first - 1))));
    assert_eq!(log.segments(), segments[2..]);
    assert!(!dir.path().join("commitlog").join(segment_name(0)).exists());
    assert_eq!(held, payload(1, 10, 1000), "a reader keeps what it holds");
    assert!(wait(|done| log.purge(300, done)).is_err(), "beyond the log");
    wait(|done| log.purge(first + 2, done)).unwrap();
    drop(log);

    let (log, recovered) = CommitLog::open(small(dir.path())).unwrap();
    assert_eq!((recovered.purged, log.first_index()), (Some((1, first + 2)), first + 3));
    assert!(log.read(0, first + 3, usize::MAX).unwrap().is_empty());
    assert_holds(&log, 1, first + 3..300, 1000);
}

#[test]
fn a_reset_goes_on_where_the_other_replicas_are() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (full, _) = CommitLog::open(small(dir.path())).unwrap();
    append(&full, 1, 0, &[1000; 150]);
    let (behind, _) = CommitLog::open(small(other.path())).unwrap();
    append(&behind, 1, 0, &[1000; 20]);
    wait(|done| behind.reset((1, 99), full.end_offset(99).unwrap(), done)).unwrap();
    assert_eq!((behind.last(), behind.durable_index()), (Some((1, 99)), Some(99)));
    append(&behind, 1, 100, &[1000; 50]);
    let offset = |log: &CommitLog, index| log.read(index, index + 1, 0).unwrap()[0].payload_offset;
    for index in [100, 149] {
        assert_eq!(offset(&full, index), offset(&behind, index));
    }
    drop(behind);
    let (behind, recovered) = CommitLog::open(small(other.path())).unwrap();
    assert_eq!((recovered.purged, recovered.last), (Some((1, 99)), Some((1, 149))));
    assert_holds(&behind, 1, 100..150, 1000);
    assert!(wait(|done| behind.reset((1, 120), PhysicalOffset(0), done)).is_err(), "the log reaches further");
}

#[test]
fn equal_logs_are_equal_files_whatever_was_truncated_on_the_way() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (straight, _) = CommitLog::open(small(dir.path())).unwrap();
    let (crooked, _) = CommitLog::open(small(other.path())).unwrap();
    append(&straight, 1, 0, &[1000; 50]);
    append(&straight, 2, 50, &[17; 500]);
    append(&crooked, 1, 0, &[1000; 170]);
    wait(|done| crooked.truncate_after(Some(49), done)).unwrap();
    append(&crooked, 2, 50, &[17; 500]);
    for segment in straight.segments() {
        let name = Path::new("commitlog").join(segment_name(segment.base.0));
        let files = [&dir, &other].map(|dir| std::fs::read(dir.path().join(&name)).unwrap());
        assert!(files[0] == files[1], "{}", name.display());
    }
}

#[test]
fn callbacks_run_in_the_order_of_the_calls() {
    let dir = tempfile::tempdir().unwrap();
    let (log, _) = CommitLog::open(small(dir.path())).unwrap();
    let (sender, receiver) = mpsc::sync_channel(1000);
    let note = |call: u64| -> Done {
        let sender = sender.clone();
        Box::new(move |outcome| sender.send((call, outcome.is_ok())).unwrap())
    };
    for call in 0..300 {
        match call % 50 {
            49 => log.save_vote(Bytes::from(vec![call as u8]), note(call)),
            _ => log.append(vec![entry(1, log.last().map_or(0, |last| last.1 + 1), 700)], note(call)).unwrap(),
        }
    }
    let calls: Vec<_> = (0..300).map(|_| receiver.recv().unwrap()).collect();
    assert_eq!(calls, (0..300).map(|call| (call, true)).collect::<Vec<_>>());
}

#[test]
fn what_a_truncation_replaced_is_neither_durable_nor_read_from_its_file_before_it_is_written() {
    let io = FaultyIo::new();
    let (log, _) = CommitLog::open(options(&io, 65536, 8192)).unwrap();
    let queue = |term, first: u64, count: usize| {
        let entries = (first..).zip(vec![1000; count]).map(|(index, len)| entry(term, index, len)).collect();
        log.append(entries, Box::new(|_| ())).unwrap();
    };
    queue(1, 0, 20);
    while log.drive() {}
    assert_eq!(log.durable_index(), Some(19));
    queue(1, 20, 1);
    log.truncate_after(Some(4), Box::new(|_| ()));
    queue(2, 5, 10);
    // Step by step: the old append, the truncation, the new append.
    for durable in [4, 4, 14] {
        assert_holds(&log, 2, 5..15, 1000);
        assert!(log.durable_index() <= Some(4), "only what stays was made durable");
        assert!(log.drive());
        assert_eq!(log.durable_index(), Some(durable));
        assert_holds(&log, 2, 5..15, 1000);
    }
    assert!(!log.drive());
}

#[test]
fn durability_memory_round_trips() {
    let dir = tempfile::tempdir().unwrap();
    let options = || CommitLogOptions { durability: Durability::Memory, ..small(dir.path()) };
    let (log, _) = CommitLog::open(options()).unwrap();
    append(&log, 1, 0, &[1000; 200]);
    drop(log);
    let (log, recovered) = CommitLog::open(options()).unwrap();
    assert_eq!(recovered.last, Some((1, 199)));
    assert_holds(&log, 1, 0..200, 1000);
}

#[test]
fn a_log_does_not_open_with_another_segment_size() {
    let dir = tempfile::tempdir().unwrap();
    drop(CommitLog::open(small(dir.path())).unwrap());
    let other = CommitLogOptions { segment_bytes_max: 2 * SEGMENT, ..small(dir.path()) };
    assert!(matches!(CommitLog::open(other), Err(OpenError::Options { .. })));
}

/// A log of one-write groups on the faulty disk, with the positions of its frames.
struct Disk {
    io: FaultyIo,
    frames: Vec<u64>,
}

impl Disk {
    const SEGMENT: u64 = 32768;
    const WRITE: u64 = 4096;

    fn new(entries: u64) -> Disk {
        let io = FaultyIo::new();
        let (log, _) = CommitLog::open(options(&io, Self::SEGMENT, Self::WRITE)).unwrap();
        for index in 0..entries {
            log.append(vec![entry(1, index, 1000)], Box::new(|outcome| outcome.unwrap())).unwrap();
            while log.drive() {}
        }
        log.save_vote(vec![7; 600].into(), Box::new(|outcome| outcome.unwrap()));
        while log.drive() {}
        let entries = log.read(0, entries, usize::MAX).unwrap();
        Disk { io, frames: entries.iter().map(|entry| entry.payload_offset.0 - 48).collect() }
    }

    fn rot(&self, offset: u64) -> PathBuf {
        let base = offset - offset % Self::SEGMENT;
        let file = Path::new("/data/group/commitlog").join(segment_name(base));
        self.io.rot(&file, offset - base, 0x40).unwrap();
        file
    }

    /// Whether all bytes from `offset` to the end of its segment are zero.
    fn zero_from(&self, offset: u64) -> bool {
        let base = offset - offset % Self::SEGMENT;
        let file = Path::new("/data/group/commitlog").join(segment_name(base));
        let file = Io::open(&self.io, &file, OpenMode::Read).unwrap();
        let rest = file.bytes(offset - base, (base + Self::SEGMENT - offset) as usize).unwrap();
        rest.iter().all(|byte| *byte == 0)
    }

    fn open(&self) -> Result<(CommitLog, raftmq_store::Recovered), OpenError> {
        CommitLog::open(options(&self.io, Self::SEGMENT, Self::WRITE))
    }
}

#[test]
fn damage_near_the_end_is_a_torn_tail() {
    for at in [0, 20, 47, 48, 1000] {
        let disk = Disk::new(100);
        disk.rot(disk.frames[98] + at);
        let (log, recovered) = disk.open().unwrap();
        assert_eq!((recovered.last, recovered.vote), (Some((1, 97)), Some(vec![7; 600].into())));
        assert!(recovered.torn_bytes > 1000 && recovered.torn_bytes <= Disk::WRITE);
        assert!(disk.zero_from(disk.frames[98]), "the torn bytes are gone");
        log.append(vec![entry(2, 98, 10)], Box::new(|outcome| outcome.unwrap())).unwrap();
        while log.drive() {}
        drop(log);
        let (_, recovered) = disk.open().unwrap();
        assert_eq!((recovered.last, recovered.torn_bytes), (Some((2, 98)), 0));
    }
}

#[test]
fn damage_further_back_is_rot_and_names_the_place() {
    // In the last segment, in the payload of the one before, in the first header of the first one.
    for (frame, at) in [(94, 5), (94, 500), (70, 500), (0, 0)] {
        let disk = Disk::new(100);
        let file = disk.rot(disk.frames[frame] + at);
        match disk.open() {
            Err(OpenError::Damaged { file: found, offset, .. }) => {
                assert_eq!((found, offset), (file, disk.frames[frame] % Disk::SEGMENT), "frame {frame}");
            }
            other => panic!("frame {frame} byte {at}: {:?}", other.map(|(_, recovered)| recovered)),
        }
    }
}

fn index_files(disk: &Disk) -> Vec<String> {
    Io::list(&disk.io, Path::new("/data/group/index")).unwrap()
}

#[test]
fn rot_in_an_indexed_segment_is_found_by_who_reads_there() {
    for at in [24, 50, 500] {
        let disk = Disk::new(100);
        let file = disk.rot(disk.frames[5] + at);
        let (log, recovered) = disk.open().unwrap();
        assert_eq!(recovered.last, Some((1, 99)), "no frame but the first and the last one was looked at");
        let error = log.read(5, 6, usize::MAX).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidData, "{error}");
        for other in [4, 6, 40] {
            assert_eq!(log.read(other, other + 1, usize::MAX).unwrap().len(), 1);
        }
        drop(log);
        Io::remove(&disk.io, &Path::new("/data/group/index").join(segment_name(0))).unwrap();
        match disk.open() {
            Err(OpenError::Damaged { file: found, .. }) if at < 48 => assert_eq!(found, file),
            Ok(_) if at >= 48 => {}
            other => panic!("byte {at}: {:?}", other.map(|(_, recovered)| recovered)),
        }
    }
}

#[test]
fn complete_segments_have_an_index_and_any_damage_to_it_is_harmless() {
    let disk = Disk::new(100);
    let segments = Io::list(&disk.io, Path::new("/data/group/commitlog")).unwrap();
    let complete = &segments[..segments.len() - 1];
    assert!(complete.len() >= 3);
    assert_eq!(index_files(&disk), complete);
    let expected = disk.open().unwrap().0.read(0, u64::MAX, usize::MAX).unwrap();
    for (number, at) in [(0, 0), (0, 13), (1, 40), (1, 60), (2, 24)] {
        disk.io.rot(&Path::new("/data/group/index").join(&complete[number]), at, 1).unwrap();
        let (log, _) = disk.open().unwrap();
        assert_eq!(log.read(0, u64::MAX, usize::MAX).unwrap(), expected);
    }
    // One of a segment that is not there, and one of the last segment: that one is about to change.
    let last = segments.last().unwrap();
    for name in [last.as_str(), "00000000000099999744"] {
        let path = Path::new("/data/group/index").join(name);
        Io::open(&disk.io, &path, OpenMode::Create).unwrap();
    }
    drop(disk.open().unwrap());
    assert_eq!(index_files(&disk), complete);
    // A truncation into a complete segment takes its index and those behind it away.
    let (log, _) = disk.open().unwrap();
    log.truncate_after(Some(30), Box::new(|outcome| outcome.unwrap()));
    while log.drive() {}
    let base = segment_base(disk.frames[30], Disk::SEGMENT);
    assert!(index_files(&disk).iter().all(|name| *name < segment_name(base)));
    for index in 31..90 {
        log.append(vec![entry(2, index, 1000)], Box::new(|outcome| outcome.unwrap())).unwrap();
    }
    while log.drive() {}
    drop(log);
    let (log, recovered) = disk.open().unwrap();
    assert_eq!(recovered.last, Some((2, 89)));
    let terms: Vec<u64> = log.read(0, u64::MAX, usize::MAX).unwrap().iter().map(|entry| entry.term).collect();
    assert_eq!(terms, [vec![1; 31], vec![2; 59]].concat());
}

impl Disk {
    fn commit(&self, index: u64) {
        let (log, _) = self.open().unwrap();
        log.save_committed((1, index));
        log.save_vote(vec![7; 600].into(), Box::new(|outcome| outcome.unwrap()));
        while log.drive() {}
    }
}

#[test]
fn a_committed_entry_that_is_missing_was_damaged_and_not_torn() {
    for at in [0, 20, 48, 1000] {
        let disk = Disk::new(100);
        disk.commit(98);
        let file = disk.rot(disk.frames[98] + at);
        match disk.open() {
            Err(OpenError::Damaged { file: found, offset, reason, .. }) => {
                assert_eq!((found, offset), (file, disk.frames[98] % Disk::SEGMENT));
                assert!(reason.contains("entry 98") && reason.contains("ends at entry 97"), "{reason}");
            }
            other => panic!("byte {at}: {:?}", other.map(|(_, recovered)| recovered)),
        }
        assert!(!disk.zero_from(disk.frames[98]), "nothing is cut without a word");
        let options = options(&disk.io, Disk::SEGMENT, Disk::WRITE);
        let cut = raftmq_store::commit_log::cut_damage(options).unwrap();
        assert!(cut.last == Some((1, 97)) && cut.bytes > 1000, "{cut:?}");
        let (_, recovered) = disk.open().unwrap();
        assert_eq!((recovered.last, recovered.committed), (Some((1, 97)), None));
    }
    let disk = Disk::new(100);
    disk.commit(97);
    disk.rot(disk.frames[98]);
    assert_eq!(disk.open().unwrap().1.last, Some((1, 97)), "beyond what was committed it may have been torn");
}

#[test]
fn rot_in_an_old_payload_is_found_by_its_reader() {
    let disk = Disk::new(200);
    let file = disk.rot(disk.frames[5] + 500);
    let (log, _) = disk.open().unwrap();
    let error = log.read(5, 6, 0).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidData);
    assert!(error.to_string().contains(&file.display().to_string()), "{error}");
    assert_eq!(log.read(6, 7, 0).unwrap().len(), 1);
}

#[test]
fn a_missing_segment_is_damage() {
    use raftmq_store::Io;
    let disk = Disk::new(100);
    disk.io.remove(&Path::new("/data/group/commitlog").join(segment_name(Disk::SEGMENT))).unwrap();
    assert!(matches!(disk.open(), Err(OpenError::Damaged { .. })));
}

#[test]
fn a_vote_survives_rot_in_one_slot_and_is_never_forgotten() {
    let vote = Path::new("/data/group/vote");
    for slot in [0, 4096] {
        let disk = Disk::new(3);
        disk.io.rot(vote, slot + 30, 1).unwrap();
        assert_eq!(disk.open().unwrap().1.vote, Some(vec![7; 600].into()));
        // It was healed: the other slot may go now.
        disk.io.rot(vote, 4096 - slot + 30, 1).unwrap();
        assert_eq!(disk.open().unwrap().1.vote, Some(vec![7; 600].into()));
    }
    let disk = Disk::new(3);
    disk.io.rot(vote, 30, 1).unwrap();
    disk.io.rot(vote, 4096 + 30, 1).unwrap();
    assert!(matches!(disk.open(), Err(OpenError::Vote { .. })));
    let disk = Disk::new(3);
    Io::remove(&disk.io, vote).unwrap();
    assert!(matches!(disk.open(), Err(OpenError::Vote { .. })));
}

#[test]
fn a_damaged_committed_hint_is_only_a_lost_hint() {
    let disk = Disk::new(10);
    let (log, _) = disk.open().unwrap();
    log.save_committed((1, 6));
    log.save_vote(vec![8; 600].into(), Box::new(|outcome| outcome.unwrap()));
    while log.drive() {}
    drop(log);
    assert_eq!(disk.open().unwrap().1.committed, Some((1, 6)));
    disk.io.rot(Path::new("/data/group/vote"), 8192 + 20, 1).unwrap();
    assert_eq!(disk.open().unwrap().1.committed, None);
}

#[test]
fn a_hint_reaches_to_the_durable_end_at_most() {
    let disk = Disk::new(10);
    let (log, _) = disk.open().unwrap();
    log.save_committed((1, 6000));
    log.save_vote(vec![8; 600].into(), Box::new(|outcome| outcome.unwrap()));
    while log.drive() {}
    drop(log);
    assert_eq!(disk.open().unwrap().1.committed, Some((1, 9)));
}

/// Where the first byte after the last entry lies that was written.
fn written_ahead(io: &FaultyIo, tail: u64) -> Option<u64> {
    let segment = io.open(&Path::new("/log/commitlog").join(segment_name(0)), OpenMode::Read).unwrap();
    // Sectors are written whole.
    segment.next_data(tail.next_multiple_of(512)).unwrap()
}

#[test]
fn a_nearly_full_volume_is_not_zeroed_ahead_into_and_entries_go_on() {
    let io = FaultyIo::new();
    let options = CommitLogOptions { reserve_bytes: 100_000, io: Arc::new(io.clone()), ..small("/log".as_ref()) };
    let room = |available_bytes| io.set_volume(Volume { total_bytes: 1 << 30, available_bytes });
    room(100_000);
    let (log, _) = CommitLog::open(options.clone()).unwrap();
    let put = |index: u64| append(&log, 1, index, &[1000]);
    let tail = |count: u64| count * frame_bytes(1000);
    for index in 1..=3 {
        put(index);
        assert_eq!(written_ahead(&io, tail(index)), None, "entry {index}");
    }
    room(200_000);
    put(4);
    assert!(written_ahead(&io, tail(4)).is_some(), "there is room again");
    room(0);
    for index in 5..=20 {
        put(index);
    }
    assert_eq!(written_ahead(&io, tail(20)), None, "what was zeroed is used up");
    assert_holds(&log, 1, 1..21, 1000);
    drop(log);
    io.restart(1);
    let (log, recovered) = CommitLog::open(options).unwrap();
    assert_eq!(recovered.torn_bytes, 0);
    assert_holds(&log, 1, 1..21, 1000);
}

#[test]
fn the_zeroing_thread_leaves_a_nearly_full_volume_alone_too() {
    let dir = tempfile::tempdir().unwrap();
    let io = SizedIo::new(Arc::new(RealIo));
    let options = CommitLogOptions { reserve_bytes: 100_000, io: Arc::new(io.clone()), ..small(dir.path()) };
    let (log, _) = CommitLog::open(options).unwrap();
    for index in 0..60 {
        // In turn: zeroed ahead, not, and so on, with the tail catching up each time.
        let available_bytes = if index / 5 % 2 == 0 { 1 << 20 } else { 0 };
        io.set_volume(Volume { total_bytes: 1 << 30, available_bytes });
        append(&log, 1, index + 1, &[3000]);
    }
    drop(log);
    let (log, recovered) = CommitLog::open(small(dir.path())).unwrap();
    assert_eq!(recovered.torn_bytes, 0);
    assert_holds(&log, 1, 1..61, 3000);
}
