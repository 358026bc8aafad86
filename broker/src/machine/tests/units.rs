//! Damaged ConsumeQueue units of a queue whose log is there: whatever the damage, what apply made comes back from the log.
//! The script repeats every third message id, so there are records without units between those that have some.

use super::*;
use crate::units::{UnitScrub, Units};
use raftmq_store::consume_queue::{UNIT_BYTES, Unit};
use std::path::PathBuf;

const ENTRIES: u64 = 200;
const QUEUES: [QueueId; 2] = [QueueId(0), QueueId(1)];
const SEEDS: u64 = 200;

/// A replica that has applied the whole script, its ConsumeQueues on the disk.
struct Bench {
    dir: tempfile::TempDir,
    store: Arc<MemoryState>,
    log: CommitLog,
    expected: Vec<Vec<Unit>>,
}

fn all_units(view: &MachineView) -> Vec<Vec<Unit>> {
    let of = |queue| view.queues().read(TOPIC, queue, QueueOffset(0), usize::MAX).unwrap();
    QUEUES.map(of).into()
}

impl Bench {
    fn new() -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let log = write_log(dir.path(), ENTRIES);
        let store = Arc::new(MemoryState::new());
        let (mut machine, view) = open(dir.path(), &store);
        apply(&mut machine, &log, 1, ENTRIES, 16);
        let expected = all_units(&view);
        assert!(expected.iter().all(|units| units.len() > 50), "enough units to damage");
        drop((machine, view));
        Bench { dir, store, log, expected }
    }

    fn open(&self) -> (BrokerMachine, Arc<MachineView>) {
        open(self.dir.path(), &self.store)
    }

    fn file(&self, queue: QueueId) -> PathBuf {
        let topic = self.dir.path().join("consumequeue").join(TOPIC.to_string());
        topic.join(queue.to_string()).join(format!("{:020}", 0))
    }

    /// Changes the bytes of a queue's file.
    fn damage(&self, queue: QueueId, change: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = std::fs::read(self.file(queue)).unwrap();
        change(&mut bytes);
        std::fs::write(self.file(queue), bytes).unwrap();
    }

    fn check_all(&self, view: &MachineView) -> u64 {
        let check = |queue| {
            let units = Units::of(view, &self.log, TOPIC, queue);
            (0..units.max.0).map(|offset| units.check(QueueOffset(offset)).unwrap()).sum::<u64>()
        };
        QUEUES.into_iter().map(check).sum()
    }

    /// One pass over everything.
    fn scrub(&self, view: &MachineView) {
        let mut scrub = UnitScrub::default();
        for _ in 0..10 * ENTRIES {
            scrub.step(view, &self.log, 4096).unwrap();
            if scrub.passes_count == 1 {
                assert_eq!(scrub.unrepaired_count, 0);
                return;
            }
        }
        panic!("the pass does not end");
    }
}

/// The numbers of a seed.
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: usize) -> usize {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) % end as u64) as usize
    }

    fn queue(&mut self) -> QueueId {
        QUEUES[self.below(QUEUES.len())]
    }
}

#[test]
fn two_flipped_bits_are_repaired_wherever_they_are() {
    let bench = Bench::new();
    let (_machine, view) = bench.open();
    assert_eq!(bench.check_all(&view), 0, "nothing is damaged");
    for seed in 0..SEEDS {
        let mut draw = Draw(seed);
        let queue = draw.queue();
        bench.damage(queue, |bytes| {
            // Every other seed in the neighbourhood of each other.
            let at = draw.below(bytes.len() * 8);
            let reach = if seed % 2 == 0 { bytes.len() * 8 } else { 3 * UNIT_BYTES * 8 };
            let other = (at + 1 + draw.below(reach - 1)) % (bytes.len() * 8);
            [at, other].iter().for_each(|bit| bytes[bit / 8] ^= 1 << (bit % 8));
        });
        let repaired = if seed % 3 == 0 {
            bench.scrub(&view);
            1
        } else {
            bench.check_all(&view)
        };
        assert!((1..=2).contains(&repaired), "seed {seed}: {repaired}");
        assert_eq!(all_units(&view), bench.expected, "seed {seed}");
    }
}

#[test]
fn runs_of_units_that_are_gone_are_repaired() {
    let bench = Bench::new();
    let (_machine, view) = bench.open();
    for seed in 0..SEEDS {
        let mut draw = Draw(seed);
        let queue = draw.queue();
        bench.damage(queue, |bytes| {
            let units = bytes.len() / UNIT_BYTES;
            let count = 1 + draw.below(20);
            let at = draw.below(units - count) * UNIT_BYTES;
            let len = count * UNIT_BYTES;
            bytes[at..at + len].fill(if seed % 2 == 0 { 0 } else { 0xFF });
        });
        if seed % 4 < 2 {
            bench.scrub(&view);
        } else {
            assert!(bench.check_all(&view) <= 20, "seed {seed}");
        }
        assert_eq!(all_units(&view), bench.expected, "seed {seed}");
    }
}

/// A tag hash is nobody's neighbour: only the log tells.
#[test]
fn a_flipped_tag_hash_is_found_by_the_scrubber() {
    let bench = Bench::new();
    let (_machine, view) = bench.open();
    for seed in 0..64 {
        let mut draw = Draw(seed);
        let queue = draw.queue();
        bench.damage(queue, |bytes| {
            let unit = draw.below(bytes.len() / UNIT_BYTES);
            bytes[unit * UNIT_BYTES + 12 + draw.below(8)] ^= 1 << draw.below(8);
        });
        bench.scrub(&view);
        assert_eq!(all_units(&view), bench.expected, "seed {seed}");
    }
}

/// What a start needs of damaged queues is repaired by then: which message ids were stored.
#[test]
fn a_start_repairs_what_it_needs_and_fills_what_was_cut() {
    let bench = Bench::new();
    let digest = bench.open().1.state().digest();
    for seed in 0..SEEDS {
        let mut draw = Draw(seed);
        let queue = draw.queue();
        bench.damage(queue, |bytes| match seed % 3 {
            0 => bytes.truncate(draw.below(bytes.len())),
            1 => bytes[draw.below(1_000)] ^= 1 << draw.below(8),
            _ => {
                let at = draw.below(bytes.len() / UNIT_BYTES - 3) * UNIT_BYTES;
                bytes[at..at + 3 * UNIT_BYTES].fill(0);
            }
        });
        let (machine, view) = bench.open();
        assert_eq!(view.state().digest(), digest, "seed {seed}: also the stored-once window");
        bench.scrub(&view);
        assert_eq!(all_units(&view), bench.expected, "seed {seed}");
        view.queues().sync().unwrap();
        drop((machine, view));
        assert_eq!(all_units(&bench.open().1), bench.expected, "seed {seed}: what was repaired is on the disk");
    }
}
