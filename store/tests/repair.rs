//! Rot in durable bytes is found, and a damaged log becomes equal to that of a peer again.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use raftmq_model::ids::PhysicalOffset;
use raftmq_store::commit_log::{Put, is_damage, put_frame, reach, start_over};
use raftmq_store::{CommitLog, CommitLogOptions, FaultyIo, Io, OpenError, OpenMode};
use support::{entry, options, payload};

const SEGMENT: u64 = 16384;
const WRITE: u64 = 4096;
const ENTRIES: u64 = 120;
const LOG: &str = "/data/group/commitlog";

/// A small generator, so that each seed is the same faults.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 16) % sides
    }
}

fn lens(index: u64) -> usize {
    [10, 700, 64, 1500, 333, 3000, 0, 8][(index * 5 % 8) as usize]
}

fn log_options(io: &FaultyIo) -> CommitLogOptions {
    options(io, SEGMENT, WRITE)
}

/// A log that all replicas have: terms grow, sizes differ, segments end with and without a filler.
fn replica() -> FaultyIo {
    let io = FaultyIo::new();
    let (log, _) = CommitLog::open(log_options(&io)).unwrap();
    for index in 0..ENTRIES {
        let term = 1 + index / 25;
        log.append(vec![entry(term, index, lens(index))], Box::new(|outcome| outcome.unwrap())).unwrap();
        log.save_committed((term, index));
        while log.drive() {}
    }
    log.save_vote(vec![7; 600].into(), Box::new(|outcome| outcome.unwrap()));
    while log.drive() {}
    io
}

fn open(io: &FaultyIo) -> CommitLog {
    CommitLog::open(log_options(io)).unwrap().0
}

fn files(io: &FaultyIo) -> Vec<(PathBuf, Bytes)> {
    let mut files = Vec::new();
    for dir in [LOG, "/data/group/index"] {
        for name in io.list(Path::new(dir)).unwrap() {
            let path = Path::new(dir).join(name);
            let file = io.open(&path, OpenMode::Read).unwrap();
            let len = file.len().unwrap();
            files.push((path, file.bytes(0, usize::try_from(len).unwrap()).unwrap()));
        }
    }
    files
}

/// Flips one bit of a byte before `tail` in the log's files, or anywhere in an index file.
fn flip(io: &FaultyIo, tail: u64, dice: &mut Dice) -> (PathBuf, u64) {
    let names = io.list(Path::new("/data/group/index")).unwrap();
    let (path, at) = if dice.roll(10) == 0 {
        let path = Path::new("/data/group/index").join(&names[dice.roll(names.len() as u64) as usize]);
        let len = io.open(&path, OpenMode::Read).unwrap().len().unwrap();
        (path, dice.roll(len))
    } else {
        let offset = dice.roll(tail);
        let base = offset - offset % SEGMENT;
        (Path::new(LOG).join(raftmq_store::segment::segment_name(base)), offset - base)
    };
    io.rot(&path, at, 1 << dice.roll(8)).unwrap();
    (path, at)
}

/// Opens a log, with frames of `peer` where it does not open by itself; gives how many it took.
fn mend(io: &FaultyIo, peer: &CommitLog) -> Result<(CommitLog, usize), OpenError> {
    let mut taken = 0;
    for _ in 0..=ENTRIES {
        match CommitLog::open(log_options(io)) {
            Ok((log, recovered)) => {
                assert_eq!(recovered.torn_bytes, 0, "nothing committed is cut");
                return Ok((log, taken));
            }
            Err(error) => {
                let Some(mut wanted) = error.wanted().cloned() else { return Err(error) };
                loop {
                    let frame = peer.committed_frame(wanted.offset()).unwrap().expect("the peer has it");
                    taken += 1;
                    match put_frame(&log_options(io), &wanted, &frame).unwrap() {
                        Put::Done => break,
                        Put::More(next) => wanted = next,
                    }
                }
            }
        }
    }
    panic!("the log is not whole after {taken} frames");
}

/// Looks at all of a log and repairs what is found, in steps of so many bytes.
fn scrub_and_repair(log: &CommitLog, peer: &CommitLog, step: u64) -> std::io::Result<()> {
    let mut next = 0;
    loop {
        let scrubbed = log.scrub(next, step)?;
        assert!(scrubbed.is_end || scrubbed.next > next, "a step gets on");
        next = scrubbed.next;
        for damage in log.damaged() {
            let frame = match log.own_frame(&damage)? {
                Some(frame) => frame,
                None => peer.committed_frame(damage.offset)?.expect("the peer has it"),
            };
            let told = Arc::new(Mutex::new(None));
            let tells = Arc::clone(&told);
            log.repair(&damage, frame, Box::new(move |outcome| *tells.lock().unwrap() = Some(outcome)));
            while log.drive() {}
            let outcome = told.lock().unwrap().take().expect("an answer");
            outcome?;
        }
        while log.drive() {}
        if scrubbed.is_end {
            return Ok(());
        }
    }
}

fn assert_whole(log: &CommitLog) {
    let entries = log.read(0, u64::MAX, usize::MAX).unwrap();
    assert_eq!(entries.len() as u64, ENTRIES);
    for stored in entries {
        assert_eq!(stored.payload, payload(stored.term, stored.index, lens(stored.index)), "entry {}", stored.index);
    }
}

fn tail(log: &CommitLog) -> u64 {
    log.end_offset(ENTRIES - 1).unwrap().0
}

#[test]
fn any_flipped_bits_of_an_open_log_are_found_and_repaired() {
    let (peer_io, mut found) = (replica(), 0);
    let peer = open(&peer_io);
    for seed in 0..400 {
        let (io, mut dice) = (replica(), Dice(seed));
        let log = open(&io);
        let flips: Vec<_> = (0..2).map(|_| flip(&io, tail(&log), &mut dice)).collect();
        scrub_and_repair(&log, &peer, 1 + dice.roll(20_000)).unwrap();
        let integrity = log.integrity();
        assert!(integrity.found_count >= 1 || flips[0] == flips[1], "seed {seed}: {flips:?}");
        assert_eq!((integrity.damaged_count, integrity.repaired_count), (0, integrity.found_count), "seed {seed}");
        assert!(files(&io) == files(&peer_io), "seed {seed}: {flips:?}");
        assert_whole(&log);
        found += integrity.found_count;
    }
    assert!(found > 400, "{found}");
}

#[test]
fn any_flipped_bits_of_a_closed_log_are_mended_before_it_opens_or_repaired_behind_it() {
    let (peer_io, mut taken) = (replica(), 0);
    let peer = open(&peer_io);
    for seed in 0..400 {
        let (io, mut dice) = (replica(), Dice(seed));
        let flips: Vec<_> = (0..1 + dice.roll(4)).map(|_| flip(&io, tail(&peer), &mut dice)).collect();
        let (log, frames) = mend(&io, &peer).unwrap_or_else(|error| panic!("seed {seed}: {flips:?}: {error}"));
        taken += frames;
        scrub_and_repair(&log, &peer, 5000).unwrap();
        assert!(files(&io) == files(&peer_io), "seed {seed}: {flips:?}");
        assert_whole(&log);
    }
    assert!(taken > 100, "{taken}");
}

/// A whole page is gone, frames and the beginnings of frames.
#[test]
fn a_run_of_damaged_frames_is_mended_one_after_the_other() {
    let peer_io = replica();
    let peer = open(&peer_io);
    let last = tail(&peer) - tail(&peer) % SEGMENT;
    for page in [0, 4096, last, last - SEGMENT + 8192] {
        let io = replica();
        let path = Path::new(LOG).join(raftmq_store::segment::segment_name(page - page % SEGMENT));
        for at in (page % SEGMENT..(page % SEGMENT + 4096).min(tail(&peer))).step_by(4) {
            io.rot(&path, at, 0x5a).unwrap();
        }
        let (log, _) = mend(&io, &peer).unwrap();
        scrub_and_repair(&log, &peer, 5000).unwrap();
        assert!(files(&io) == files(&peer_io), "page {page}");
        assert_whole(&log);
    }
}

/// One bit of the version, and one elsewhere in the header.
#[test]
fn a_frame_that_rotted_into_what_looks_newer_is_mended_as_any_other() {
    let peer_io = replica();
    let peer = open(&peer_io);
    let last = tail(&peer) - tail(&peer) % SEGMENT;
    for base in [0, last] {
        let io = replica();
        let path = Path::new(LOG).join(raftmq_store::segment::segment_name(base));
        io.rot(&path, 4, 2).unwrap();
        io.rot(&path, 30, 1).unwrap();
        let refused = CommitLog::open(log_options(&io)).map(drop).unwrap_err();
        assert!(matches!(refused, OpenError::Newer { offset: 0, found: 3, .. }), "{refused}");
        let (log, taken) = mend(&io, &peer).unwrap();
        assert_eq!(taken, 1);
        assert!(files(&io) == files(&peer_io));
        assert_whole(&log);
    }
}

#[test]
fn a_reader_finds_damage_and_is_served_behind_the_repair() {
    let peer_io = replica();
    let peer = open(&peer_io);
    let (io, entry) = (replica(), peer.read(5, 6, 0).unwrap().remove(0));
    let log = open(&io);
    let path = Path::new(LOG).join("00000000000000000000");
    io.rot(&path, entry.payload_offset.0 + 40, 1).unwrap();
    for _ in 0..2 {
        assert!(is_damage(&log.read(5, 6, 0).unwrap_err()));
        assert!(is_damage(&log.record(entry.payload_offset, 8).unwrap_err()), "whichever part of it is asked for");
    }
    assert!(is_damage(&log.committed_frame(PhysicalOffset(entry.payload_offset.0 - 48)).unwrap_err()));
    assert_eq!(log.integrity().found_count, 1, "found once");
    assert_eq!(log.read(6, 7, 0).unwrap().len(), 1, "others are served");
    scrub_and_repair(&log, &peer, 5000).unwrap();
    assert_eq!(log.read(5, 6, 0).unwrap()[0], entry);
    assert_eq!(log.record(entry.payload_offset, 8).unwrap(), entry.payload.slice(..8));
}

#[test]
fn only_the_frame_itself_is_put_in_its_place() {
    let peer_io = replica();
    let peer = open(&peer_io);
    let io = replica();
    let log = open(&io);
    let at = |index: u64| PhysicalOffset(peer.read(index, index + 1, 0).unwrap()[0].payload_offset.0 - 48);
    io.rot(&Path::new(LOG).join("00000000000000000000"), at(5).0 + 50, 1).unwrap();
    log.scrub(0, u64::MAX).unwrap();
    let damage = log.damaged().remove(0);
    let whole = peer.committed_frame(at(5)).unwrap().unwrap();
    let mut flipped = whole.to_vec();
    flipped[60] ^= 4;
    for wrong in [peer.committed_frame(at(6)).unwrap().unwrap(), flipped.into(), whole.slice(..50), Bytes::new()] {
        let told = Arc::new(Mutex::new(None));
        let tells = Arc::clone(&told);
        log.repair(&damage, wrong.clone(), Box::new(move |outcome| *tells.lock().unwrap() = Some(outcome)));
        while log.drive() {}
        assert!(told.lock().unwrap().take().unwrap().is_err());
        assert_eq!(log.damaged().len(), 1);
    }
    // Closed, with the header damaged: its length is not known.
    drop(log);
    io.rot(&Path::new(LOG).join("00000000000000000000"), at(5).0 + 10, 1).unwrap();
    io.remove(&Path::new("/data/group/index").join("00000000000000000000")).unwrap();
    let before = files(&io);
    let Err(OpenError::Damaged { wanted: Some(wanted), .. }) = CommitLog::open(log_options(&io)) else {
        panic!("it opens, or does not say what it wants");
    };
    assert_eq!(wanted.offset(), at(5));
    for wrong in [peer.committed_frame(at(6)).unwrap().unwrap(), whole.slice(..50), Bytes::new()] {
        assert!(put_frame(&log_options(&io), &wanted, &wrong).is_err());
    }
    assert!(files(&io) == before, "nothing was changed");
    assert_eq!(put_frame(&log_options(&io), &wanted, &whole).unwrap(), Put::Done);
}

#[test]
fn a_peer_gives_no_frame_that_is_not_committed() {
    let io = FaultyIo::new();
    let log = open(&io);
    for index in 0..4 {
        log.append(vec![entry(1, index, 100)], Box::new(|outcome| outcome.unwrap())).unwrap();
    }
    while log.drive() {}
    log.save_committed((1, 1));
    let at = |index: u64| PhysicalOffset(log.read(index, index + 1, 0).unwrap()[0].payload_offset.0 - 48);
    assert!(log.committed_frame(at(1)).unwrap().is_some());
    assert_eq!(log.committed_frame(at(2)).unwrap(), None);
    assert_eq!(log.committed_frame(PhysicalOffset(at(1).0 + 8)).unwrap(), None, "no frame begins there");
    assert_eq!(log.committed_frame(PhysicalOffset(1 << 40)).unwrap(), None);
}

/// Cuts the power at each operation of a repair: what was whole stays so, what was damaged is found again or repaired.
#[test]
fn a_crash_in_a_repair_makes_nothing_worse() {
    let peer_io = replica();
    let peer = open(&peer_io);
    for seed in 0..12 {
        for cut in 1.. {
            let (io, mut dice) = (replica(), Dice(seed));
            let log = open(&io);
            (0..2).for_each(|_| drop(flip(&io, tail(&log), &mut dice)));
            log.scrub(0, u64::MAX).unwrap();
            let damaged: Vec<u64> = log.damaged().iter().map(|damage| damage.index).collect();
            io.cut_power_at(io.operations() + cut);
            let ended = scrub_and_repair(&log, &peer, 5000).is_ok() && !io.is_off();
            drop(log);
            io.restart(seed * 1000 + cut);
            let (log, _) = mend(&io, &peer).unwrap_or_else(|error| panic!("seed {seed} cut {cut}: {error}"));
            log.scrub(0, u64::MAX).unwrap();
            let left: Vec<u64> = log.damaged().iter().map(|damage| damage.index).collect();
            assert!(left.iter().all(|index| damaged.contains(index)), "seed {seed} cut {cut}: {damaged:?}, {left:?}");
            assert!(!ended || left.is_empty(), "a repair that was done stays done");
            scrub_and_repair(&log, &peer, 5000).unwrap();
            assert!(files(&io) == files(&peer_io), "seed {seed} cut {cut}");
            if ended {
                break;
            }
        }
    }
}

#[test]
fn a_crash_while_a_closed_log_is_mended_makes_nothing_worse() {
    let peer_io = replica();
    let peer = open(&peer_io);
    for seed in 0..12 {
        for cut in 1.. {
            let (io, mut dice) = (replica(), Dice(seed));
            (0..3).for_each(|_| drop(flip(&io, tail(&peer), &mut dice)));
            io.cut_power_at(io.operations() + cut);
            let ended = mend_or_fail(&io, &peer) && !io.is_off();
            io.restart(seed * 1000 + cut);
            let (log, _) = mend(&io, &peer).unwrap_or_else(|error| panic!("seed {seed} cut {cut}: {error}"));
            scrub_and_repair(&log, &peer, 5000).unwrap();
            assert!(files(&io) == files(&peer_io), "seed {seed} cut {cut}");
            assert_whole(&log);
            if ended {
                break;
            }
        }
    }
}

/// As [`mend`], of a disk whose power may go.
fn mend_or_fail(io: &FaultyIo, peer: &CommitLog) -> bool {
    for _ in 0..=ENTRIES {
        match CommitLog::open(log_options(io)) {
            Ok(_) => return true,
            Err(OpenError::Damaged { wanted: Some(wanted), .. }) => {
                let frame = peer.committed_frame(wanted.offset()).unwrap().expect("the peer has it");
                if put_frame(&log_options(io), &wanted, &frame).is_err() {
                    return false;
                }
            }
            Err(_) => return false,
        }
    }
    false
}

/// What the other replicas have purged cannot be had from them: the log is emptied, and its vote stays.
#[test]
fn a_log_that_starts_over_keeps_its_vote_and_knows_how_far_it_reached() {
    for (at, cut) in [(500, None), (500, Some(1)), (500, Some(2)), (500, Some(3)), (500, Some(4)), (16384 + 20, None)] {
        let io = replica();
        // A whole page of the first segment, and then frames that are whole.
        for byte in (0..4096).step_by(8) {
            io.rot(&Path::new(LOG).join("00000000000000000000"), byte, 4).unwrap();
        }
        io.rot(&Path::new(LOG).join(raftmq_store::segment::segment_name(at - at % SEGMENT)), at % SEGMENT, 1).unwrap();
        io.remove(&Path::new("/data/group/index").join("00000000000000000000")).unwrap();
        let Err(OpenError::Damaged { wanted: Some(wanted), .. }) = CommitLog::open(log_options(&io)) else {
            panic!("it opens");
        };
        assert_eq!(reach(&log_options(&io), &wanted).unwrap(), ENTRIES - 1);
        if let Some(cut) = cut {
            io.cut_power_at(io.operations() + cut);
            let _ = start_over(&log_options(&io));
            io.restart(cut);
            // Before it was said that the log starts over, it is as it was.
            if CommitLog::open(log_options(&io)).is_err() {
                assert_eq!(reach(&log_options(&io), &wanted).unwrap(), ENTRIES - 1);
            }
        }
        start_over(&log_options(&io)).unwrap();
        let (log, recovered) = CommitLog::open(log_options(&io)).unwrap();
        assert_eq!((recovered.last, recovered.purged, recovered.committed), (None, None, None));
        assert_eq!(recovered.vote, Some(vec![7; 600].into()));
        log.append(vec![entry(9, 0, 10)], Box::new(|outcome| outcome.unwrap())).unwrap();
        while log.drive() {}
        drop(log);
        assert_eq!(CommitLog::open(log_options(&io)).unwrap().1.last, Some((9, 0)));
    }
}
