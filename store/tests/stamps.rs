//! How far the disks of nodes have come.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::sync::Arc;

use raftmq_model::ids::{NodeId, ReplicaId};
use raftmq_store::stamps::{STAMPS_COUNT_MAX, Stamp, Stamps, StampsError};
use raftmq_store::testing::Fault;
use raftmq_store::{FaultyIo, Io, RealIo};

const DIR: &str = "/data";

fn replica(node: u32, incarnation: u32) -> ReplicaId {
    ReplicaId { node: NodeId(node), incarnation }
}

fn stamp(node: u32, incarnation: u32, stamp: u64) -> Stamp {
    Stamp { replica: replica(node, incarnation), stamp }
}

fn open(io: &FaultyIo) -> Stamps {
    io.create_dir_all(Path::new(DIR)).unwrap();
    Stamps::open(Arc::new(io.clone()), Path::new(DIR), replica(3, 1)).unwrap()
}

#[test]
fn the_bytes_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    let mut stamps = Stamps::open(Arc::new(RealIo), dir.path(), replica(3, 2)).unwrap();
    assert_eq!(stamps.own(), 0);
    stamps.learn(&[stamp(1, 1, 0x0102)]).unwrap();
    assert_eq!(stamps.advance().unwrap(), 1);
    let hex: String = std::fs::read(dir.path().join("stamps")).unwrap().iter().map(|b| format!("{b:02x}")).collect();
    let rows = "00000001000000010000000000000102".to_owned() + "00000003000000020000000000000001";
    assert_eq!(hex, format!("524d51540100000000000002{rows}5b45a117"));
}

#[test]
fn the_own_one_grows_and_of_others_the_highest_of_the_latest_life_stays() {
    let io = FaultyIo::new();
    let mut stamps = open(&io);
    for expected in 1..=3 {
        assert_eq!(stamps.advance().unwrap(), expected);
    }
    stamps.learn(&[stamp(1, 1, 5), stamp(2, 1, 7), stamp(3, 1, 99), stamp(4, 1, 0)]).unwrap();
    let operations = io.operations();
    stamps.learn(&[stamp(1, 1, 5), stamp(2, 1, 6), stamp(3, 2, 99)]).unwrap();
    assert_eq!(io.operations(), operations, "nothing is new");
    stamps.learn(&[stamp(1, 1, 4), stamp(2, 2, 1), stamp(2, 1, 50)]).unwrap();
    let known = vec![stamp(1, 1, 5), stamp(2, 2, 1), stamp(3, 1, 3)];
    assert_eq!(stamps.all(), known);
    assert_eq!((stamps.of(replica(2, 1)), stamps.of(replica(2, 2)), stamps.own()), (0, 1, 3));
    io.restart(1);
    assert_eq!(open(&io).all(), known);
}

#[test]
fn the_number_of_nodes_is_bounded() {
    let io = FaultyIo::new();
    let mut stamps = open(&io);
    let many: Vec<Stamp> = (10..).map(|node| stamp(node, 1, 1)).take(STAMPS_COUNT_MAX + 10).collect();
    stamps.advance().unwrap();
    stamps.learn(&many).unwrap();
    assert_eq!(stamps.all().len(), STAMPS_COUNT_MAX);
    assert_eq!(stamps.advance().unwrap(), 2);
    assert_eq!(open(&io).all().len(), STAMPS_COUNT_MAX);
}

#[test]
fn damage_and_a_newer_version_are_refused_with_a_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let open = || Stamps::open(Arc::new(RealIo), dir.path(), replica(3, 1));
    open().unwrap().advance().unwrap();
    let file = dir.path().join("stamps");
    let whole = std::fs::read(&file).unwrap();
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        std::fs::write(&file, &bytes).unwrap();
        assert!(matches!(open(), Err(StampsError::Damaged { .. })), "byte {at}");
        std::fs::write(&file, &whole[..at]).unwrap();
        assert!(matches!(open(), Err(StampsError::Damaged { .. })), "cut at {at}");
    }
    let mut newer = whole[..whole.len() - 4].to_vec();
    newer[4] = 2;
    newer.extend_from_slice(&crc32fast::hash(&newer).to_be_bytes());
    std::fs::write(&file, newer).unwrap();
    let error = open().err().unwrap();
    assert_eq!(
        error.to_string(),
        format!("{} has version 2, and this program knows up to 1: use a newer one", file.display())
    );
}

#[test]
fn what_was_told_is_never_lost_in_a_crash_or_after_a_failed_write() {
    let steps = |stamps: &mut Stamps, told: &mut (u64, u64)| -> std::io::Result<()> {
        for heard in 1..4 {
            told.0 = stamps.advance()?;
            stamps.learn(&[stamp(1, 1, heard)])?;
            told.1 = heard;
        }
        Ok(())
    };
    let whole = FaultyIo::new();
    steps(&mut open(&whole), &mut (0, 0)).unwrap();
    for operation in 2..=whole.operations() {
        for seed in 0..10 {
            for fault in [None, Some(Fault::NoSpace), Some(Fault::Device)] {
                let io = FaultyIo::new();
                match fault {
                    None => io.cut_power_at(operation),
                    Some(fault) => io.fail_at(operation, fault),
                }
                let mut told = (0, 0);
                assert!(steps(&mut open(&io), &mut told).is_err(), "operation {operation} failed and nobody was told");
                io.restart(seed);
                let found = open(&io);
                let found = (found.own(), found.of(replica(1, 1)));
                let fits = |found, told| found == told || found == told + 1;
                let fit = fits(found.0, told.0) && fits(found.1, told.1);
                assert!(fit, "operation {operation}, seed {seed}: {found:?}, told {told:?}");
            }
        }
    }
}
