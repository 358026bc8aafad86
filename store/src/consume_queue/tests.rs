//! Tests of ConsumeQueues: buffered reads, cuts, files.

use super::*;
use crate::testing::{Fault, FaultyIo};

const TOPIC: TopicUid = TopicUid(7);
const QUEUE: QueueId = QueueId(2);
const LAYOUT: Layout = Layout { units_per_file: 10, tail_bytes_max: 3 * UNIT_BYTES };

fn unit(offset: u64) -> Unit {
    Unit { physical: PhysicalOffset(1000 + offset * 100), size: 90, tags_code: -(offset as i64) }
}

fn open(io: &FaultyIo) -> ConsumeQueues {
    ConsumeQueues::open_with("/group/consumequeue", Arc::new(io.clone()), LAYOUT).unwrap()
}

fn fill(queues: &ConsumeQueues, from: u64, to: u64) {
    for offset in from..to {
        queues.append(TOPIC, QUEUE, QueueOffset(offset), unit(offset)).unwrap();
    }
}

fn assert_holds(queues: &ConsumeQueues, from: u64, to: u64) {
    let expected: Vec<Unit> = (from..to).map(unit).collect();
    assert_eq!(queues.read(TOPIC, QUEUE, QueueOffset(from), 1000).unwrap(), expected);
    assert_eq!(queues.max(TOPIC, QUEUE), QueueOffset(to));
}

#[test]
fn units_are_readable_at_once_from_files_and_tail() {
    let queues = open(&FaultyIo::new());
    for to in 0..47 {
        assert_holds(&queues, 0, to);
        fill(&queues, to, to + 1);
    }
    for from in 0..47 {
        for count in [0, 1, 9, 10, 11, 100] {
            let expected: Vec<Unit> = (from..47.min(from + count)).map(unit).collect();
            assert_eq!(queues.read(TOPIC, QUEUE, QueueOffset(from), count as usize).unwrap(), expected);
        }
    }
    assert_eq!(queues.read(TOPIC, QUEUE, QueueOffset(47), 1).unwrap(), []);
    assert_eq!(queues.read(TopicUid(8), QUEUE, QueueOffset(0), 1).unwrap(), []);
    let range = QueueRange { topic: TOPIC, queue: QUEUE, min: QueueOffset(0), max: QueueOffset(47) };
    assert_eq!(queues.queues(), [range]);
}

#[test]
fn files_have_the_layout_of_rocketmq() {
    let io = FaultyIo::new();
    let queues = open(&io);
    fill(&queues, 0, 12);
    queues.sync().unwrap();
    let names = io.list("/group/consumequeue/7/2".as_ref()).unwrap();
    assert_eq!(names, ["00000000000000000000", "00000000000000000200"]);
    let second = crate::io::read_file(&io, "/group/consumequeue/7/2/00000000000000000200".as_ref(), 1000);
    let second = second.unwrap().unwrap();
    assert_eq!(second.len(), 2 * UNIT_BYTES);
    assert_eq!(second[UNIT_BYTES..], *b"\0\0\0\0\0\0\x08\x34\0\0\0\x5a\xff\xff\xff\xff\xff\xff\xff\xf5");
    assert_eq!(6_000_000, UNITS_PER_FILE as usize * UNIT_BYTES);
}

#[test]
fn a_restart_finds_the_checkpoint_whatever_was_lost_behind_it() {
    for checkpoint in [0, 1, 9, 10, 11, 20, 25] {
        for seed in 0..30 {
            let io = FaultyIo::new();
            let queues = open(&io);
            queues.restore([]).unwrap();
            fill(&queues, 0, checkpoint);
            queues.sync().unwrap();
            fill(&queues, checkpoint, 47);
            io.restart(seed);
            let queues = open(&io);
            queues.restore([(TOPIC, QUEUE, QueueOffset(checkpoint))]).unwrap();
            assert_holds(&queues, 0, checkpoint);
            // Replay, and once more with a crash in the middle of it.
            fill(&queues, checkpoint, 39);
            io.restart(seed + 1);
            let queues = open(&io);
            queues.restore([(TOPIC, QUEUE, QueueOffset(checkpoint))]).unwrap();
            fill(&queues, checkpoint, 39);
            queues.sync().unwrap();
            io.restart(seed + 2);
            let queues = open(&io);
            queues.restore([(TOPIC, QUEUE, QueueOffset(39))]).unwrap();
            assert_holds(&queues, 0, 39);
        }
    }
}

/// Appends and checkpoints; what was durable when the first call failed.
fn run(io: &FaultyIo) -> Result<u64> {
    let queues = ConsumeQueues::open_with("/group/consumequeue", Arc::new(io.clone()), LAYOUT)?;
    let mut durable = 0;
    for (from, to) in [(0, 4), (4, 15), (15, 16), (16, 33)] {
        for offset in from..to {
            if queues.append(TOPIC, QUEUE, QueueOffset(offset), unit(offset)).is_err() {
                assert!(queues.sync().is_err(), "a failed write is final");
                return Ok(durable);
            }
        }
        if queues.sync().is_err() {
            assert!(queues.sync().is_err(), "a failed sync is final");
            return Ok(durable);
        }
        durable = to;
    }
    Ok(durable)
}

#[test]
fn a_power_cut_at_any_operation_leaves_the_checkpoint() {
    let whole = FaultyIo::new();
    assert_eq!(run(&whole).unwrap(), 33);
    for cut in 1..=whole.operations() {
        for seed in 0..4 {
            let io = FaultyIo::new();
            io.cut_power_at(cut);
            let Ok(durable) = run(&io) else { continue };
            io.restart(seed);
            let queues = open(&io);
            queues.restore([(TOPIC, QUEUE, QueueOffset(durable))]).unwrap();
            assert_holds(&queues, 0, durable);
        }
    }
}

#[test]
fn a_failed_operation_is_final_and_leaves_the_checkpoint() {
    let whole = FaultyIo::new();
    assert_eq!(run(&whole).unwrap(), 33);
    for fault in [Fault::NoSpace, Fault::Device] {
        for operation in 1..=whole.operations() {
            let io = FaultyIo::new();
            io.fail_at(operation, fault);
            let durable = run(&io).unwrap_or(0);
            assert!(durable < 33, "operation {operation} failed and nobody was told");
            io.restart(operation);
            let queues = open(&io);
            queues.restore([(TOPIC, QUEUE, QueueOffset(durable))]).unwrap();
            assert_holds(&queues, 0, durable);
        }
    }
}

#[test]
fn truncate_cuts_files_and_tail() {
    for next in 0..=25 {
        let io = FaultyIo::new();
        let queues = open(&io);
        fill(&queues, 0, 25);
        queues.truncate(TOPIC, QUEUE, QueueOffset(next)).unwrap();
        assert_holds(&queues, 0, next);
        fill(&queues, next, 31);
        queues.sync().unwrap();
        assert_holds(&open(&io), 0, 31);
    }
}

#[test]
fn a_queue_that_ends_before_its_checkpoint_is_refused() {
    let queues = open(&FaultyIo::new());
    fill(&queues, 0, 5);
    let error = queues.truncate(TOPIC, QUEUE, QueueOffset(6)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    assert!(queues.append(TOPIC, QUEUE, QueueOffset(5), unit(5)).is_err(), "what failed once stays failed");
}

#[test]
fn offsets_are_consecutive() {
    let queues = open(&FaultyIo::new());
    fill(&queues, 0, 2);
    assert_eq!(queues.append(TOPIC, QUEUE, QueueOffset(3), unit(3)).unwrap_err().kind(), ErrorKind::InvalidData);
}

#[test]
fn a_queue_may_begin_anywhere() {
    for begin in [1, 10, 15, 20] {
        for units in [0, 1, 7] {
            let io = FaultyIo::new();
            let queues = open(&io);
            fill(&queues, 0, 3);
            queues.reset(TOPIC, QUEUE, QueueOffset(begin)).unwrap();
            fill(&queues, begin, begin + units);
            queues.sync().unwrap();
            io.restart(begin);
            let queues = open(&io);
            queues.restore([(TOPIC, QUEUE, QueueOffset(begin + units))]).unwrap();
            assert_holds(&queues, begin, begin + units);
            assert_eq!(queues.min(TOPIC, QUEUE), QueueOffset(begin));
            assert_eq!(queues.read(TOPIC, QUEUE, QueueOffset(begin - 1), 1).unwrap(), []);
        }
    }
}

#[test]
fn a_removed_topic_outlives_the_checkpoint_that_may_still_know_it() {
    let io = FaultyIo::new();
    let queues = open(&io);
    fill(&queues, 0, 5);
    queues.sync().unwrap();
    queues.remove_topic(TOPIC);
    assert_eq!(queues.queues(), []);
    let dir = "/group/consumequeue/7".as_ref();
    queues.sync().unwrap();
    assert!(io.exists(dir).unwrap(), "the state without the topic may not be durable yet");
    queues.sync().unwrap();
    assert!(!io.exists(dir).unwrap());
}

#[test]
fn restore_drops_what_the_checkpoint_does_not_know() {
    let io = FaultyIo::new();
    let queues = open(&io);
    fill(&queues, 0, 5);
    queues.append(TOPIC, QueueId(3), QueueOffset(0), unit(0)).unwrap();
    queues.append(TopicUid(8), QUEUE, QueueOffset(0), unit(0)).unwrap();
    queues.sync().unwrap();
    let queues = open(&io);
    queues.restore([(TOPIC, QUEUE, QueueOffset(5))]).unwrap();
    let ranges: Vec<_> = queues.queues().iter().map(|range| (range.topic, range.queue, range.max)).collect();
    assert_eq!(ranges, [(TOPIC, QUEUE, QueueOffset(5)), (TOPIC, QueueId(3), QueueOffset(0))]);
}

#[test]
fn a_topic_that_is_younger_than_the_checkpoint_keeps_its_queue_when_the_log_is_replayed() {
    let io = FaultyIo::new();
    let queues = open(&io);
    fill(&queues, 0, 5);
    queues.sync().unwrap();
    // Killed before the state's first checkpoint: the replay appends everything again.
    let queues = open(&io);
    queues.restore([]).unwrap();
    fill(&queues, 0, 7);
    (0..3).for_each(|_| queues.sync().unwrap());
    let queues = open(&io);
    queues.restore([(TOPIC, QUEUE, QueueOffset(7))]).unwrap();
    assert_eq!(queues.read(TOPIC, QUEUE, QueueOffset(0), 10).unwrap().len(), 7);
}

#[test]
fn records_are_found_by_where_they_lie() {
    let queues = open(&FaultyIo::new());
    fill(&queues, 0, 3000);
    let mut finder = queues.finder();
    let mut find = |physical| finder.find(TOPIC, QUEUE, PhysicalOffset(physical)).unwrap();
    assert_eq!(find(999), None);
    for offset in (0..3000).chain([2999, 5, 1500, 0]) {
        assert_eq!(find(1000 + offset * 100), Some(QueueOffset(offset)));
        assert_eq!(find(1001 + offset * 100), None);
    }
    assert_eq!(queues.lower_bound(TOPIC, QUEUE, PhysicalOffset(1001)).unwrap(), QueueOffset(1));
    assert_eq!(queues.lower_bound(TOPIC, QUEUE, PhysicalOffset(u64::MAX)).unwrap(), QueueOffset(3000));
}

#[test]
fn a_failed_sync_is_final() {
    let io = FaultyIo::new();
    let queues = open(&io);
    fill(&queues, 0, 5);
    io.fail_at(io.operations() + 3, crate::testing::Fault::Device);
    assert!(queues.sync().is_err());
    assert!(queues.sync().is_err());
}

#[test]
fn files_before_an_offset_go_and_the_rest_stays() {
    let io = FaultyIo::new();
    let queues = open(&io);
    fill(&queues, 0, 47);
    queues.sync().unwrap();
    queues.forget_before(TOPIC, QUEUE, QueueOffset(29)).unwrap();
    assert_eq!(queues.min(TOPIC, QUEUE), QueueOffset(20), "the file in which the offset lies stays");
    assert_holds(&queues, 20, 47);
    assert_eq!(queues.read(TOPIC, QUEUE, QueueOffset(19), 1).unwrap(), []);
    // Everything, while the last file stays.
    queues.forget_before(TOPIC, QUEUE, QueueOffset(47)).unwrap();
    assert_holds(&queues, 40, 47);
    fill(&queues, 47, 60);
    queues.forget_before(TOPIC, QUEUE, QueueOffset(60)).unwrap();
    assert_eq!(queues.min(TOPIC, QUEUE), QueueOffset(50));
    queues.forget_before(TopicUid(99), QUEUE, QueueOffset(60)).unwrap();
}

#[test]
fn a_crash_while_files_go_leaves_a_queue_that_reaches_its_checkpoint() {
    for cut in 1..12 {
        for seed in 0..30 {
            let io = FaultyIo::new();
            let queues = open(&io);
            fill(&queues, 0, 47);
            queues.sync().unwrap();
            io.cut_power_at(io.operations() + cut);
            let done = queues.forget_before(TOPIC, QUEUE, QueueOffset(45)).is_ok();
            io.restart(seed);
            let queues = open(&io);
            queues.restore([(TOPIC, QUEUE, QueueOffset(47))]).unwrap();
            let min = queues.min(TOPIC, QUEUE).0;
            assert!(min.is_multiple_of(10) && min <= 40 && (min == 40 || !done), "cut {cut} seed {seed}: {min}");
            assert_holds(&queues, min, 47);
        }
    }
}
