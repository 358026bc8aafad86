//! What is done to a simulated cluster, and when: a pure function of a seed.

use super::host::NODES;
use super::net::{Host, Weather};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

/// A moment between two faults, in milliseconds: sometimes they overlap.
const GAP_MS: std::ops::Range<u64> = 300..8_000;
const FAULT_MS: std::ops::Range<u64> = 100..9_000;
/// A node that stays away does so from a moment in the first range, for a time in the second one, in milliseconds.
const AWAY_AT_MS: std::ops::Range<u64> = 1_000..10_000;
const AWAY_MS: std::ops::Range<u64> = 35_000..48_000;
/// Of so many seeds, one has a node that stays away.
const AWAY_ONE_OF: u64 = 4;
/// A disk is lost at a moment in this range, in milliseconds: in seeds with one group, and with several.
const WIPE_AT_MS: std::ops::Range<u64> = 3_000..30_000;
const WIPE_OF_EIGHT: [u64; 2] = [3, 4];
/// A disk is copied at a moment in the first range, and the copy put back after a time in the second one, in milliseconds.
const COPY_AT_MS: std::ops::Range<u64> = 2_000..15_000;
const COPY_MS: std::ops::Range<u64> = 4_000..25_000;
const COPY_OF_EIGHT: [u64; 2] = [6, 7];
/// How far a wall clock may jump, in either direction.
const SKEW_MS_MAX: i64 = 90_000;

/// Whom a fault hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whom {
    /// The leader of the broker group at that time; the first node when there is none.
    Leader,
    /// The next node after the leader.
    Follower,
    /// This one.
    Node(Host),
}

/// What happens at once. What has an end has it after the fault's time.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// The process ends; it is started again.
    Kill(Whom),
    /// The process ends and stays away so long that the others purge what it has not got.
    Away(Whom),
    /// The process ends and its disk is lost: the node comes back on an empty one, as its next life.
    Wipe(Whom),
    /// The process ends and its disk is copied; at the end, the copy is put in the place of the disk.
    Restore(Whom),
    /// All processes end; each is started again.
    KillAll,
    /// The power of a node fails: what was not synced is gone or torn.
    PowerCut(Whom),
    /// The power of all nodes fails.
    PowerCutAll,
    /// The process stands still.
    Pause(Whom),
    /// No bytes between the node and the other nodes.
    Isolate(Whom),
    /// The node does not hear the others.
    Deaf(Whom),
    /// The others do not hear the node.
    Mute(Whom),
    /// Clients do not reach the node, nor it them.
    ClientsFrom(Whom),
    /// Two nodes do not hear each other.
    Bridge,
    /// Slow and lossy links, everywhere.
    Storm(Weather),
    /// Each write to a log of the node takes up to this many milliseconds.
    SlowDisk(Whom, u64),
    /// The next write or sync fails with an I/O error, and the process has to end.
    DiskError(Whom),
    /// The wall clock of the node jumps by this many milliseconds, and back at the end.
    Skew(Whom, i64),
    /// Leadership is handed over as planned.
    Transfer,
}

/// One fault.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// When, in milliseconds after the faults begin.
    pub at_ms: u64,
    /// For how long, in milliseconds.
    pub for_ms: u64,
    /// What.
    pub fault: Fault,
}

/// The faults of a run.
#[must_use]
pub fn plan(seed: u64, length_ms: u64) -> Vec<Event> {
    let mut chance = StdRng::seed_from_u64(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xFA17);
    let mut events = Vec::new();
    let mut at_ms = chance.random_range(GAP_MS);
    while at_ms < length_ms {
        let for_ms = chance.random_range(FAULT_MS).min(length_ms - at_ms);
        events.push(Event { at_ms, for_ms, fault: fault(&mut chance) });
        at_ms += chance.random_range(GAP_MS);
    }
    let at_ms = chance.random_range(AWAY_AT_MS);
    if seed % AWAY_ONE_OF == 1 && at_ms < length_ms {
        let for_ms = chance.random_range(AWAY_MS).min(length_ms - at_ms);
        let whom = if chance.random() { Whom::Follower } else { Whom::Leader };
        let before = events.partition_point(|event| event.at_ms <= at_ms);
        events.insert(before, Event { at_ms, for_ms, fault: Fault::Away(whom) });
    }
    let at_ms = chance.random_range(WIPE_AT_MS);
    if WIPE_OF_EIGHT.contains(&(seed % 8)) && at_ms < length_ms {
        let whom = if chance.random() { Whom::Follower } else { Whom::Leader };
        let before = events.partition_point(|event| event.at_ms <= at_ms);
        events.insert(before, Event { at_ms, for_ms: 0, fault: Fault::Wipe(whom) });
    }
    let at_ms = chance.random_range(COPY_AT_MS);
    if COPY_OF_EIGHT.contains(&(seed % 8)) && at_ms < length_ms {
        let for_ms = chance.random_range(COPY_MS).min(length_ms - at_ms);
        let whom = if chance.random() { Whom::Follower } else { Whom::Leader };
        let before = events.partition_point(|event| event.at_ms <= at_ms);
        events.insert(before, Event { at_ms, for_ms, fault: Fault::Restore(whom) });
    }
    events
}

fn fault(chance: &mut StdRng) -> Fault {
    let nodes: Vec<Host> = NODES.collect();
    let whom = match chance.random_range(0..4) {
        0 | 1 => Whom::Leader,
        2 => Whom::Follower,
        _ => Whom::Node(nodes.choose(chance).copied().unwrap_or(1)),
    };
    match chance.random_range(0..18) {
        0 | 1 => Fault::Kill(whom),
        2 => Fault::KillAll,
        3 | 4 => Fault::PowerCut(whom),
        5 => Fault::PowerCutAll,
        6 => Fault::Pause(whom),
        7 | 8 => Fault::Isolate(whom),
        9 => Fault::Deaf(whom),
        10 => Fault::Mute(whom),
        11 => Fault::ClientsFrom(whom),
        12 => Fault::Bridge,
        13 => Fault::Storm(Weather {
            latency_us_max: chance.random_range(2_000..60_000),
            lost_one_of: chance.random_range(5..100),
        }),
        14 => Fault::SlowDisk(whom, chance.random_range(20..1_500)),
        15 => Fault::DiskError(whom),
        16 => Fault::Skew(whom, chance.random_range(-SKEW_MS_MAX..=SKEW_MS_MAX)),
        _ => Fault::Transfer,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_plan() {
        assert_eq!(plan(1, 60_000), plan(1, 60_000));
        assert_ne!(plan(1, 60_000), plan(2, 60_000));
    }

    #[test]
    fn all_kinds_come_and_end_in_time() {
        let mut kinds = std::collections::BTreeSet::new();
        for seed in 0..100 {
            for event in plan(seed, 60_000) {
                assert!(event.at_ms + event.for_ms <= 60_000, "seed {seed}: {event:?}");
                kinds.insert(format!("{:?}", event.fault).split(['(', ' ']).next().map(str::to_owned));
            }
        }
        assert_eq!(kinds.len(), 18, "{kinds:?}");
    }
}
