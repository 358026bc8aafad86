//! Damage is found and named, whatever it hits; what a crash may leave is only a note; and looking changes nothing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use proptest::prelude::*;
use raftmq_store::inspect::{
    Contents, Finding, Findings, GroupFolder, GroupReport, LogStats, LogWalk, ReadOnlyIo, Severity, verify,
};
use raftmq_store::segment::segment_name;
use raftmq_store::{CommitLog, FaultyIo, Io, OpenMode, RealIo, Snapshots};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use support::group::{self, SEGMENT, look, make};
use support::{Dice, Op, Run, random_script};

const ROOT: &str = "/data/group";
const SHAPE: (u64, u64) = (8192, 4096);

fn faulty() -> (FaultyIo, Arc<dyn Io>) {
    let io = FaultyIo::new();
    (io.clone(), Arc::new(io))
}

/// The files of the damage that was found.
fn damaged(findings: &Findings) -> Vec<PathBuf> {
    let damages = findings.list().iter().filter(|finding| finding.severity == Severity::Damage);
    damages.map(|finding| finding.file.clone()).collect()
}

/// The log that `support::Run` drives, whose payloads are no batches.
fn look_at_log(io: &FaultyIo) -> (GroupReport, Findings) {
    let mut findings = Findings::default();
    let io: Arc<dyn Io> = Arc::new(ReadOnlyIo::new(Arc::new(io.clone())));
    let folder =
        GroupFolder { log: ROOT.into(), queues: None, keys: None, snapshots: None, contents: Contents::Opaque };
    let report = verify(&io, &folder, None, &mut findings);
    (report, findings)
}

/// Index, file, position, header and payload bytes of each entry.
fn frames(io: &FaultyIo) -> Vec<(u64, PathBuf, u64, u64)> {
    let mut findings = Findings::default();
    let io: Arc<dyn Io> = Arc::new(io.clone());
    let mut walk = LogWalk::open(io, Path::new(ROOT), &mut findings).unwrap();
    let mut frames = Vec::new();
    while let Some(walked) = walk.next(&mut findings) {
        frames.push((walked.entry.index, walked.file, walked.at, 48 + walked.entry.payload.len() as u64));
    }
    frames
}

#[test]
fn a_good_group_is_good_and_stays_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let io: Arc<dyn Io> = Arc::new(RealIo);
    let checkpoint = make(&io, dir.path(), 200);
    let contents = || -> Vec<_> {
        let files = group::files(dir.path());
        files.into_iter().map(|file| (std::fs::read(&file).unwrap(), file)).collect()
    };
    let before = contents();
    let (report, findings) = look(&io, dir.path(), &checkpoint);
    assert!(findings.list().is_empty(), "{:?}", findings.list());
    assert_eq!((report.entries, report.messages, report.last), (68, 200, checkpoint.applied));
    let queues = report.queues.unwrap();
    assert_eq!((queues.queues, queues.units, queues.units_beyond), (2, 180, 0));
    assert_eq!(queues.records_without_unit, 20, "repeats are in the log and in no queue");
    let keys = report.keys.unwrap();
    assert_eq!((keys.entries, keys.next_index), (600, 68), "the id and two keys of each message");
    assert!(keys.files >= 3, "{keys:?}");
    assert!(report.log.segments > 2 && report.log.vote.is_some() && report.log.committed == checkpoint.applied);
    assert_eq!(contents(), before);
}

#[test]
fn nothing_is_written_even_where_a_start_would_repair() {
    for seed in 0..30 {
        let io = FaultyIo::new();
        let mut run = Run::new(io.clone(), SHAPE.0, SHAPE.1);
        io.cut_power_at(30 + seed * 3);
        run.run(&random_script(seed, 60));
        run.log = None;
        io.restart(seed);
        let before = io.operations();
        let (_, findings) = look_at_log(&io);
        assert_eq!(io.operations(), before, "{:?}", findings.list());
    }
    let read_only = ReadOnlyIo::new(Arc::new(FaultyIo::new()));
    assert!(read_only.remove(Path::new("/x")).is_err() && read_only.open(Path::new("/x"), OpenMode::Create).is_err());
}

#[test]
fn a_flipped_bit_in_each_kind_of_file_is_found_and_named() {
    let root = Path::new(ROOT);
    let (disk, io) = faulty();
    let checkpoint = make(&io, root, 200);
    let units = root.join("consumequeue/7/1/00000000000000000000");
    let files = [
        (root.join("log/manifest"), 28, Severity::Damage),
        (root.join("log/vote"), 12, Severity::Note),
        (root.join("log/vote"), 6144, Severity::Note),
        (root.join("log/vote"), 8200, Severity::Note),
        (root.join("log/commitlog").join(segment_name(0)), SEGMENT / 2, Severity::Damage),
        (root.join("log/commitlog").join(segment_name(SEGMENT)), SEGMENT / 2, Severity::Damage),
        // Physical offset, size and tag hash of the unit 45.
        (units.clone(), 45 * 20 + 6, Severity::Damage),
        (units.clone(), 45 * 20 + 11, Severity::Damage),
        (units.clone(), 45 * 20 + 19, Severity::Damage),
        (units, 79 * 20 + 3, Severity::Damage),
    ];
    for (file, at, severity) in files {
        disk.rot(&file, at, 0x04).unwrap();
        let (_, findings) = look(&io, root, &checkpoint);
        let found = findings.list().iter().find(|finding| finding.file == file && finding.severity == severity);
        let found = found.unwrap_or_else(|| panic!("{} at {at}: {:?}", file.display(), findings.list()));
        assert!(found.at <= at && at - found.at < 4096, "{found}, the flip is at {at}");
        assert!(!found.what.contains("torn"), "the state has applied all of it: {found}");
        assert_eq!(severity == Severity::Note, findings.damages() == 0, "{:?}", findings.list());
        disk.rot(&file, at, 0x04).unwrap();
    }
    assert!(look(&io, root, &checkpoint).1.list().is_empty());
}

#[test]
fn a_flipped_bit_in_an_index_file_is_found_and_named() {
    let root = Path::new(ROOT);
    let (disk, io) = faulty();
    let checkpoint = make(&io, root, 200);
    let names = io.list(&root.join("keyindex")).unwrap();
    for (name, last) in [(names.first(), false), (names.last(), true)] {
        let file = root.join("keyindex").join(name.unwrap());
        // Headers; hash, physical offset, seconds and chain of entries; and slots, which only complete files have.
        let entries = 88 + 40 * 4 + 20;
        for at in [4, 17, 50, 90, entries, entries + 11, entries + 35, entries + 59]
            .into_iter()
            .filter(|at| !last || *at != 90)
        {
            disk.rot(&file, at, 0x04).unwrap();
            let (_, findings) = look(&io, root, &checkpoint);
            let found = findings.list().iter().find(|finding| finding.file == file);
            let found = found.unwrap_or_else(|| panic!("{} at {at}: {:?}", file.display(), findings.list()));
            // The next start cannot do more about a header, nor less.
            assert_eq!(found.severity == Severity::Note, last && at < 88, "{found} {at}");
            disk.rot(&file, at, 0x04).unwrap();
        }
    }
    assert!(look(&io, root, &checkpoint).1.list().is_empty());
    io.remove_dir_all(&root.join("keyindex")).unwrap();
    assert!(look(&io, root, &checkpoint).1.list().is_empty(), "an index that is not there is built by the next start");
}

#[test]
fn one_wrong_unit_is_one_finding() {
    let root = Path::new(ROOT);
    let (disk, io) = faulty();
    let checkpoint = make(&io, root, 2000);
    let units = root.join("consumequeue/7/0/00000000000000000000");
    for (byte, mask) in [(0, 0x40), (4, 0x01), (7, 0x08), (11, 0x01)] {
        for unit in [0, 1, 300, 511, 512, 513, 800] {
            disk.rot(&units, unit * 20 + byte, mask).unwrap();
            let (_, findings) = look(&io, root, &checkpoint);
            let at: Vec<u64> = findings.list().iter().map(|finding| finding.at).collect();
            assert_eq!(at, [unit * 20], "byte {byte}: {:?}", findings.list());
            disk.rot(&units, unit * 20 + byte, mask).unwrap();
        }
    }
}

#[test]
fn a_purged_group_is_good_with_the_snapshot_that_its_log_begins_behind() {
    const PURGED: u64 = 300;
    let root = Path::new(ROOT);
    let (disk, io) = faulty();
    let checkpoint = make(&io, root, 2000);
    let (log, _) = CommitLog::open(group::log_options(&io, root)).unwrap();
    log.purge(PURGED, Box::new(|outcome| outcome.unwrap()));
    while log.drive() {}
    assert!(log.segments()[0].base.0 > 0, "files went");
    drop(log);
    let snapshots = Snapshots::new(root.join("snapshots"), Arc::clone(&io));
    let (_, findings) = look(&io, root, &checkpoint);
    assert_eq!(damaged(&findings), [snapshots.path(PURGED)], "{:?}", findings.list());

    snapshots.write(PURGED, b"the state").unwrap();
    let (report, findings) = look(&io, root, &checkpoint);
    assert_eq!(findings.damages(), 0, "{:?}", findings.list());
    assert_eq!(report.first.unwrap().1, PURGED + 1);
    let units = report.queues.unwrap().units;
    assert!(units >= report.messages * 8 / 10 && units < 1500, "{units} units of {} messages", report.messages);

    disk.rot(&snapshots.path(PURGED), 33, 4).unwrap();
    let (_, findings) = look(&io, root, &checkpoint);
    assert_eq!(damaged(&findings), [snapshots.path(PURGED)], "{:?}", findings.list());
    disk.rot(&snapshots.path(PURGED), 33, 4).unwrap();
    // A unit of a message that is still there.
    disk.rot(&root.join("consumequeue/7/0/00000000000000000000"), 800 * 20 + 7, 8).unwrap();
    assert_eq!(look(&io, root, &checkpoint).1.damages(), 1);
}

#[test]
fn queues_and_log_that_end_before_the_state_are_damage() {
    let dir = tempfile::tempdir().unwrap();
    let io: Arc<dyn Io> = Arc::new(RealIo);
    let checkpoint = make(&io, dir.path(), 200);
    let units = dir.path().join("consumequeue/7/0/00000000000000000000");
    let bytes = std::fs::read(&units).unwrap();
    std::fs::write(&units, &bytes[..bytes.len() - 20]).unwrap();
    let (_, findings) = look(&io, dir.path(), &checkpoint);
    assert_eq!(damaged(&findings), std::slice::from_ref(&units), "{:?}", findings.list());
    // More than the state knows is what a crash leaves.
    std::fs::write(&units, [&bytes[..], &[7; 100]].concat()).unwrap();
    let (report, findings) = look(&io, dir.path(), &checkpoint);
    assert_eq!((findings.damages(), report.queues.unwrap().units_beyond), (0, 5), "{:?}", findings.list());

    let mut ahead = checkpoint;
    ahead.applied = ahead.applied.map(|(term, index)| (term, index + 1));
    let (_, findings) = look(&io, dir.path(), &ahead);
    assert_eq!(findings.damages(), 1);
    assert!(findings.list()[0].what.contains("has applied entry 68"), "{:?}", findings.list());
}

#[test]
fn a_torn_tail_is_a_note_and_a_damaged_entry_before_another_is_not() {
    let (io, _) = faulty();
    let mut run = Run::new(io.clone(), SHAPE.0, SHAPE.1);
    run.run(&[Op::Append(vec![700; 12]), Op::Vote(1), Op::Drive]);
    let frames = frames(&io);
    let (_, last_file, last_at, last_bytes) = frames.last().unwrap().clone();
    io.rot(&last_file, last_at + last_bytes - 1, 1).unwrap();
    let (report, findings) = look_at_log(&io);
    assert_eq!((findings.damages(), findings.notes()), (0, 1), "{:?}", findings.list());
    assert!(findings.list()[0].to_string().contains("torn tail"), "{:?}", findings.list());
    assert_eq!((report.entries, report.last), (11, Some((1, 10))));

    let (index, file, at, _) = frames[4].clone();
    io.rot(&file, at + 100, 1).unwrap();
    let (report, findings) = look_at_log(&io);
    assert_eq!((findings.damages(), report.entries), (1, 10));
    let found = &findings.list()[0];
    assert_eq!((&found.file, found.at), (&file, at), "{found}");
    assert!(found.what.contains(&format!("entry {index} does not match its checksum")), "{found}");
}

#[test]
fn a_committed_entry_that_is_missing_at_the_end_is_damage() {
    let (io, _) = faulty();
    let mut run = Run::new(io.clone(), SHAPE.0, SHAPE.1);
    run.run(&[Op::Append(vec![700; 12]), Op::Drive, Op::Committed, Op::Vote(1), Op::Drive]);
    let (_, file, at, bytes) = frames(&io).last().unwrap().clone();
    io.rot(&file, at + bytes - 1, 1).unwrap();
    let (_, findings) = look_at_log(&io);
    let lost = |finding: &Finding| finding.severity == Severity::Damage && finding.what.contains("entry 11");
    assert!(findings.list().iter().any(lost), "{:?}", findings.list());
}

#[test]
fn a_missing_a_short_and_a_foreign_segment_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let io: Arc<dyn Io> = Arc::new(RealIo);
    let checkpoint = make(&io, dir.path(), 300);
    let segments = dir.path().join("log/commitlog");
    let second = segments.join(segment_name(SEGMENT));
    std::fs::write(segments.join("letter.txt"), "dear").unwrap();
    let (_, findings) = look(&io, dir.path(), &checkpoint);
    assert_eq!(damaged(&findings), [segments.join("letter.txt")]);
    std::fs::remove_file(segments.join("letter.txt")).unwrap();

    let bytes = std::fs::read(&second).unwrap();
    std::fs::write(&second, &bytes[..5000]).unwrap();
    assert_eq!(damaged(&look(&io, dir.path(), &checkpoint).1)[0], second);
    std::fs::remove_file(&second).unwrap();
    let (report, findings) = look(&io, dir.path(), &checkpoint);
    assert_eq!(damaged(&findings)[0], second);
    assert!(report.entries > 50, "it goes on behind the hole: {report:?}");
    std::fs::remove_file(dir.path().join("log/manifest")).unwrap();
    assert_eq!(damaged(&look(&io, dir.path(), &checkpoint).1), [dir.path().join("log/manifest")]);
}

#[test]
fn equal_logs_have_equal_digests_at_each_index() {
    let digest = |io: &FaultyIo, upto: u64| {
        let (mut findings, mut stats) = (Findings::default(), LogStats::default());
        let io: Arc<dyn Io> = Arc::new(io.clone());
        let mut walk = LogWalk::open(io, Path::new(ROOT), &mut findings).unwrap();
        while let Some(walked) = walk.next(&mut findings).filter(|walked| walked.entry.index <= upto) {
            stats.add(&walked, Contents::Opaque);
        }
        stats.digest()
    };
    let [one, other] = [(8192, 4096), (32768, 8192)].map(|(segment, write)| {
        let io = FaultyIo::new();
        let mut run = Run::new(io.clone(), segment, write);
        run.run(&[Op::Append(vec![700; 12]), Op::Drive]);
        if segment == 8192 {
            // Another tail: a last entry of another length.
            assert!(run.op(&Op::Append(vec![5])) && run.op(&Op::Drive));
        } else {
            assert!(run.op(&Op::Append(vec![6])) && run.op(&Op::Drive));
        }
        io
    });
    for upto in 0..12 {
        assert_eq!(digest(&one, upto), digest(&other, upto), "at {upto}");
        assert!(upto == 0 || digest(&one, upto) != digest(&one, upto - 1));
    }
    assert_ne!(digest(&one, 12), digest(&other, 12));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_log_that_was_closed_is_good(seed: u64, ops in 5usize..60) {
        let io = FaultyIo::new();
        let mut run = Run::new(io.clone(), SHAPE.0, SHAPE.1);
        run.run(&random_script(seed, ops));
        let (report, findings) = look_at_log(&io);
        prop_assert_eq!(findings.damages(), 0, "{:?}", findings.list());
        prop_assert_eq!(report.entries as usize, run.now.entries.len());
        prop_assert_eq!(report.last, run.now.last());
    }

    #[test]
    fn a_flip_within_a_frame_is_found(seed: u64, ops in 5usize..60, pick: u64) {
        let io = FaultyIo::new();
        let mut run = Run::new(io.clone(), SHAPE.0, SHAPE.1);
        run.run(&random_script(seed, ops));
        let frames = frames(&io);
        prop_assume!(!frames.is_empty());
        let mut dice = Dice(pick | 1);
        let (index, file, at, bytes) = &frames[dice.roll(frames.len() as u64) as usize];
        let byte = at + dice.roll(*bytes);
        io.rot(file, byte, 1 << dice.roll(8)).unwrap();
        let (_, findings) = look_at_log(&io);
        let found = findings.list().iter().find(|finding| &finding.file == file && finding.at == *at);
        prop_assert!(found.is_some(), "entry {} in {} at {}: {:?}", index, file.display(), at, findings.list());
        let is_last = *index == frames.last().unwrap().0;
        prop_assert!(is_last || findings.damages() > 0, "{:?}", findings.list());
    }

    #[test]
    fn random_flips_never_panic(seed: u64, pick: u64, flips in 1u64..40) {
        let root = Path::new(ROOT);
        let (disk, io) = faulty();
        let checkpoint = make(&io, root, 20 + seed % 100);
        let segments = io.list(&root.join("log/commitlog")).unwrap();
        let mut files: Vec<PathBuf> = segments.iter().map(|name| root.join("log/commitlog").join(name)).collect();
        files.extend(["log/manifest", "log/vote"].map(|name| root.join(name)));
        files.extend([0, 1].map(|queue| root.join(format!("consumequeue/7/{queue}/00000000000000000000"))));
        let mut dice = Dice(pick | 1);
        for _ in 0..flips {
            let file = &files[dice.roll(files.len() as u64) as usize];
            let len = io.open(file, OpenMode::Read).unwrap().len().unwrap();
            disk.rot(file, dice.roll(len), 1 << dice.roll(8)).unwrap();
        }
        let (report, _) = look(&io, root, &checkpoint);
        prop_assert!(report.messages <= 120);
    }

    #[test]
    fn files_of_noise_never_panic(noise in proptest::collection::vec(any::<u8>(), 0..20_000), which in 0usize..4) {
        let root = Path::new(ROOT);
        let (_, io) = faulty();
        let checkpoint = make(&io, root, 60);
        let first = "00000000000000000000";
        let segment = format!("log/commitlog/{first}");
        let units = format!("consumequeue/7/0/{first}");
        let name = ["log/manifest", "log/vote", &segment, &units][which];
        let file = io.open(&root.join(name), OpenMode::Write).unwrap();
        file.set_len(noise.len() as u64).unwrap();
        file.write_all_at(&noise, 0).unwrap();
        look(&io, root, &checkpoint);
    }
}
