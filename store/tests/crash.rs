//! Law 4 and 8 at the level of one log: what was acknowledged survives a crash at any operation, what was truncated does
//! not come back, votes are never forgotten, and a failed operation stops the log.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use proptest::prelude::*;
use raftmq_store::io::{read_file, replace_file};
use raftmq_store::testing::Fault;
use raftmq_store::{FaultyIo, Io};
use std::path::Path;
use support::{Op, Run, random_script};

/// Segment and write bound: many small segments, and truncations of several writes inside one.
const SHAPES: [(u64, u64); 2] = [(8192, 4096), (32768, 4096)];

/// Appends over several segments, in groups; truncations inside a segment, across segments, to nothing; votes between
/// entries; purges up to a segment, in its middle, of everything; a reset; reopens.
fn script() -> Vec<Op> {
    vec![
        Op::Vote(1),
        Op::Append(vec![0, 10, 500]),
        Op::Append(vec![3000, 3000]),
        Op::Drive,
        Op::Committed,
        Op::Append(vec![1000; 9]),
        Op::Vote(2),
        Op::Append(vec![200; 30]),
        Op::Drive,
        Op::Truncate(35),
        Op::Append(vec![4048, 4048, 7]),
        Op::Drive,
        Op::Truncate(2),
        Op::Append(vec![900; 3]),
        Op::Drive,
        Op::Reopen,
        Op::Purge(9),
        Op::Append(vec![2500; 6]),
        Op::Vote(3),
        Op::Drive,
        Op::Purge(5),
        Op::Truncate(3),
        Op::Truncate(100),
        Op::Append(vec![1500; 8]),
        Op::Drive,
        Op::Purge(100),
        Op::Append(vec![64; 40]),
        Op::Reopen,
        Op::Truncate(40),
        Op::Append(vec![64; 10]),
        Op::Reset(3),
        Op::Append(vec![700; 12]),
        Op::Vote(4),
        Op::Drive,
        Op::Committed,
        Op::Append(vec![1]),
    ]
}

fn operations_of(script: &[Op], (segment, write): (u64, u64)) -> u64 {
    let mut run = Run::new(FaultyIo::new(), segment, write);
    run.run(script);
    assert_eq!(run.now, run.acked, "everything is acknowledged when nothing fails");
    run.io.operations()
}

/// How many times as many seeds: `RAFTMQ_CRASH_SCALE=20 cargo test -p raftmq-store --test crash`, and as `-p raftmq-broker crash_tests`.
fn scale() -> u64 {
    std::env::var("RAFTMQ_CRASH_SCALE").ok().and_then(|scale| scale.parse().ok()).unwrap_or(1)
}

fn sweep(script: &[Op], shape: (u64, u64), seeds: u64) {
    let operations = operations_of(script, shape);
    for cut in 1..=operations + 1 {
        for seed in 0..seeds {
            let mut run = Run::new(FaultyIo::new(), shape.0, shape.1);
            run.io.cut_power_at(cut);
            run.run(script);
            run.crash(seed * 1000 + cut, (seed % 3 == 1).then_some(1 + (seed + cut) % 7));
            // Once more, in the middle of what came after.
            run.io.cut_power_at(run.io.operations() + 1 + (cut + seed) % 11);
            let _ = script[4..14].iter().all(|op| run.op(op));
            run.crash(seed, None);
        }
    }
}

#[test]
fn a_crash_at_every_operation_loses_nothing_acknowledged() {
    for shape in SHAPES {
        sweep(&script(), shape, 9 * scale());
    }
}

#[test]
fn crashes_in_random_scripts_lose_nothing_acknowledged() {
    for seed in 1..1 + 11 * scale() {
        sweep(&random_script(seed, 30), SHAPES[seed as usize % 2], 2);
    }
}

#[test]
fn a_replaced_file_has_one_of_its_contents_after_three_crashes() {
    let (file, contents) = (Path::new("/data/file"), |number: u64| [number as u8; 700]);
    let cuts = (1..7).flat_map(|a| (1..7).flat_map(move |b| (1..7).map(move |c| [a, b, c])));
    for (cuts, seed) in cuts.flat_map(|cuts| (0..32).map(move |seed| (cuts, seed))) {
        let io = FaultyIo::new();
        io.create_dir_all(Path::new("/data")).unwrap();
        replace_file(&io, file, &contents(0)).unwrap();
        for (number, cut) in (1..).zip(cuts) {
            io.cut_power_at(io.operations() + cut);
            let _ = replace_file(&io, file, &contents(number));
            io.restart(seed * 3 + number);
        }
        let found = read_file(&io, file, 4096).unwrap().unwrap();
        assert!((0..4).any(|number| found == contents(number)), "{cuts:?}, seed {seed}: {} bytes", found.len());
    }
}

#[test]
fn a_failed_operation_stops_the_log_and_loses_nothing_acknowledged() {
    let script = script();
    let shape = SHAPES[0];
    for fault in [Fault::NoSpace, Fault::Device] {
        for operation in 1..=operations_of(&script, shape) {
            let mut run = Run::new(FaultyIo::new(), shape.0, shape.1);
            run.io.fail_at(operation, fault);
            run.run(&script);
            if let Some(log) = &run.log {
                let refused = log.append(vec![], Box::new(|_| ())).is_err();
                assert!(refused && log.read(0, 1, 1).is_err(), "operation {operation} failed and the log goes on");
            }
            run.crash(operation, None);
        }
    }
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        6 => prop::collection::vec(0_usize..4048, 0..8).prop_map(Op::Append),
        2 => (0_usize..20).prop_map(Op::Truncate),
        1 => (0_u8..90).prop_map(Op::Vote),
        1 => (0_usize..20).prop_map(Op::Purge),
        1 => (0_u64..9).prop_map(Op::Reset),
        1 => Just(Op::Committed),
        1 => Just(Op::Reopen),
        3 => Just(Op::Drive),
    ];
    prop::collection::vec(op, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400 * scale() as u32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_script_survives_any_crash(script in ops(), shape in 0_usize..2, cut in 1_u64..400, seed in any::<u64>()) {
        let (segment, write) = SHAPES[shape];
        let mut run = Run::new(FaultyIo::new(), segment, write);
        run.io.cut_power_at(cut);
        run.run(&script);
        run.crash(seed, (seed % 4 == 0).then_some(1 + seed % 9));
    }
}
