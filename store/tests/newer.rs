//! What a newer program wrote is refused with a sentence that names the file, and nothing in the folder changes: neither
//! taken for damage nor cut off as a torn tail.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use bytes::Bytes;
use raftmq_store::commit_log::cut_damage;
use raftmq_store::inspect::{Findings, LogWalk, Severity};
use raftmq_store::testing::golden;
use raftmq_store::{CommitLog, CommitLogOptions, Done, EntryKind, NewEntry, OpenError, RealIo};

const SEGMENT_BYTES: u64 = 8192;
const PAYLOAD_BYTES: usize = 1000;
/// Frames of these payloads, padded to 8 bytes.
const FRAME_BYTES: u64 = 1048;
const SLOT: u64 = 4096;

fn options(dir: &Path) -> CommitLogOptions {
    CommitLogOptions {
        segment_bytes_max: SEGMENT_BYTES,
        write_bytes_max: SEGMENT_BYTES,
        zero_ahead_bytes: 0,
        ..CommitLogOptions::new(dir)
    }
}

fn wait(call: impl FnOnce(Done)) {
    let (sender, receiver) = sync_channel(1);
    call(Box::new(move |result| drop(sender.send(result))));
    receiver.recv().unwrap().unwrap();
}

/// A log of three segments and a vote.
fn write_log(dir: &Path) {
    let (log, _) = CommitLog::open(options(dir)).unwrap();
    wait(|done| log.save_vote(Bytes::from_static(b"vote"), done));
    let entries = (0..18).map(|index| {
        let payload = Bytes::from(vec![index as u8; PAYLOAD_BYTES]);
        NewEntry { term: 1, index, kind: EntryKind::Batch, payload }
    });
    wait(|done| log.append(entries.collect(), done).unwrap());
}

fn segment(number: u64) -> PathBuf {
    Path::new("commitlog").join(format!("{:020}", number * SEGMENT_BYTES))
}

/// Makes the header that begins at `at` one of version 2, as a newer program with the same place for it would.
fn make_newer(file: &Path, at: u64, checksum: Option<(u64, u64)>) {
    let opened = std::fs::OpenOptions::new().read(true).write(true).open(file).unwrap();
    let mut version = [0];
    opened.read_exact_at(&mut version, at + 4).unwrap();
    assert_eq!(version, [1], "{} holds no unit of version 1 at {at}", file.display());
    opened.write_all_at(&[2], at + 4).unwrap();
    if let Some((from, len)) = checksum {
        // Any other checksum than the one of version 1: what a newer one covers is not known here.
        let mut sum = vec![0; len as usize];
        opened.read_exact_at(&mut sum, at + from).unwrap();
        sum.iter_mut().for_each(|byte| *byte ^= 0x55);
        opened.write_all_at(&sum, at + from).unwrap();
    }
}

/// The units that have a version: file, where the unit begins, and where its checksum lies in it.
fn units() -> Vec<(&'static str, PathBuf, u64, (u64, u64))> {
    vec![
        ("manifest", "manifest".into(), 0, (52, 4)),
        ("first frame", segment(0), 0, (40, 4)),
        ("frame in the middle of an old segment", segment(1), 2 * FRAME_BYTES, (40, 4)),
        ("filler of an old segment", segment(1), 7 * FRAME_BYTES, (40, 4)),
        ("first frame of the last segment", segment(2), 0, (40, 4)),
        ("last frame", segment(2), 3 * FRAME_BYTES, (40, 4)),
    ]
}

#[test]
fn a_newer_unit_is_refused_and_nothing_changes() {
    for (name, file, at, checksum) in units() {
        let dir = tempfile::tempdir().unwrap();
        write_log(dir.path());
        make_newer(&dir.path().join(&file), at, Some(checksum));
        let before: BTreeMap<PathBuf, Vec<u8>> = golden::files(dir.path()).unwrap();
        let refused = |error: OpenError| {
            let expected = format!(
                "{} has the format version 2 at byte {at}, and this program knows up to 1: use a newer one",
                dir.path().join(&file).display()
            );
            assert_eq!(error.to_string(), expected, "{name}");
        };
        refused(CommitLog::open(options(dir.path())).map(drop).unwrap_err());
        // Not even who asks for a cut gets one.
        refused(cut_damage(options(dir.path())).map(drop).unwrap_err());
        assert_eq!(golden::files(dir.path()).unwrap(), before, "{name}: the folder is as it was");

        let mut findings = Findings::default();
        if let Some(mut walk) = LogWalk::open(Arc::new(RealIo), dir.path(), &mut findings) {
            while walk.next(&mut findings).is_some() {}
        }
        let told = findings.list().iter().any(|finding| {
            finding.severity == Severity::Damage
                && finding.file == dir.path().join(&file)
                && finding.what.contains("format version 2")
        });
        assert!(told, "{name}: {:?}", findings.list());
    }
}

fn slots_of_the_vote() -> [(&'static str, PathBuf, u64, (u64, u64)); 2] {
    [("first slot of the vote", "vote".into(), 0, (16, 4)), ("second slot of the vote", "vote".into(), SLOT, (16, 4))]
}

#[test]
fn one_slot_of_the_vote_that_looks_newer_is_rot_and_two_are_a_newer_program() {
    let [first, second] = slots_of_the_vote();
    for slots in [vec![&first], vec![&second], vec![&first, &second]] {
        let dir = tempfile::tempdir().unwrap();
        write_log(dir.path());
        for (_, file, at, checksum) in &slots {
            make_newer(&dir.path().join(file), *at, Some(*checksum));
        }
        let before = std::fs::read(dir.path().join("vote")).unwrap();
        match CommitLog::open(options(dir.path())) {
            Ok((log, recovered)) => {
                assert!(slots.len() == 1 && recovered.vote == Some(Bytes::from_static(b"vote")));
                drop(log);
                let healed = std::fs::read(dir.path().join("vote")).unwrap();
                let slot = SLOT as usize;
                assert!(healed != before && healed[..64] == healed[slot..slot + 64], "both slots are equal again");
            }
            Err(error) => {
                assert_eq!(slots.len(), 2, "{error}");
                assert!(error.to_string().contains("format version 2 at byte 0"), "{error}");
                assert_eq!(std::fs::read(dir.path().join("vote")).unwrap(), before);
            }
        }
    }
}

#[test]
fn a_version_byte_that_rotted_is_damage_as_any_other() {
    for (name, file, at, _) in units().into_iter().chain(slots_of_the_vote()) {
        let dir = tempfile::tempdir().unwrap();
        write_log(dir.path());
        make_newer(&dir.path().join(&file), at, None);
        match CommitLog::open(options(dir.path())) {
            Err(OpenError::Damaged { file: found, .. }) => assert_eq!(found, dir.path().join(&file), "{name}"),
            // One slot of the vote is healed from the other, and in the last segment it looks like a torn tail.
            Ok((_, recovered)) => {
                assert_eq!(recovered.vote, Some(Bytes::from_static(b"vote")), "{name}");
                assert!(name.contains("slot") || recovered.torn_bytes > 0, "{name}");
            }
            Err(error) => panic!("{name}: {error}"),
        }
    }
}
