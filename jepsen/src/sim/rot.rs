//! Bits that flip at rest, on one node: never on more than a minority, so that a peer always has what is damaged.
//!
//! Only bytes flip that were committed and durable, and that lie further from the end of the log than what may be written and not
//! synced: nearer, the product takes them for a torn tail after a loss of power, as its docs say.

use super::host::{Machine, NODES, WRITE_BYTES_MAX};
use super::net::Host;
use super::world::World;
use raftmq_model::ids::GroupId;
use raftmq_raft::Group;
use raftmq_store::segment::{segment_base, segment_name};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Between two events, in milliseconds.
const GAP_MS: std::ops::Range<u64> = 1_000..6_000;
/// Bits of one event.
const BITS_COUNT: usize = 2;
/// How often the committed ranges are looked at, in microseconds.
const LOOK_US: u64 = 50_000;
/// Of the two copies of a vote, the first is the one that rots.
const VOTE_SLOT_BYTES: u64 = 48;

/// See the module.
pub(super) struct Rot {
    node: Host,
    chance: StdRng,
    due_us: u64,
    /// What may rot in each group's log: physical offsets.
    ranges: BTreeMap<GroupId, (u64, u64)>,
}

impl Rot {
    /// The rot of a seed.
    pub(super) fn new(seed: u64) -> Rot {
        let mut chance = StdRng::seed_from_u64(seed ^ 0x0052_4F54);
        let node = chance.random_range(NODES);
        Rot { node, chance, due_us: 0, ranges: BTreeMap::new() }
    }

    /// Flips what is due.
    pub(super) fn step(&mut self, world: &mut World) {
        if world.now_us().is_multiple_of(LOOK_US) {
            self.look(world);
        }
        if world.now_us() < self.due_us {
            return;
        }
        let first = self.due_us == 0;
        self.due_us = world.now_us() + self.chance.random_range(GAP_MS) * 1_000;
        if first {
            return;
        }
        self.look(world);
        for _ in 0..BITS_COUNT {
            self.flip(world);
        }
    }

    fn look(&mut self, world: &World) {
        let Some(machine) = world.machines.get(&self.node) else { return };
        let told = machine.slot.lock();
        let Some(running) = &told.running else { return };
        let brokers = running.broker.groups().into_iter();
        for (id, group) in std::iter::once((GroupId::META, running.namesrv.group().clone())).chain(brokers) {
            match range_of(&group) {
                Some(range) => self.ranges.insert(id, range),
                None => self.ranges.remove(&id),
            };
        }
    }

    fn flip(&mut self, world: &mut World) {
        let at = self.chance.random_range(0..self.ranges.len().max(1));
        let Some((group, (from, to))) = self.ranges.iter().nth(at).map(|(group, range)| (*group, *range)) else {
            return;
        };
        let offset = self.chance.random_range(from..to);
        let base = segment_base(offset, super::host::SEGMENT_BYTES);
        let dir = if group == GroupId::META {
            PathBuf::from("/data/meta")
        } else {
            PathBuf::from(format!("/data/groups/{group}/log"))
        };
        let (kind, file, at) = match self.chance.random_range(0..10) {
            0 => ("vote", dir.join("vote"), self.chance.random_range(0..VOTE_SLOT_BYTES)),
            1 => ("index", dir.join("index").join(segment_name(base)), self.chance.random_range(0..400)),
            _ => ("log", dir.join("commitlog").join(segment_name(base)), offset - base),
        };
        let mask = 1 << self.chance.random_range(0..8);
        let Some(machine) = world.machines.get(&self.node) else { return };
        // A file that is not there, or shorter, does not rot.
        if rots(machine, &file, at, mask) {
            world.note_rot(kind, format!("a bit flips on node {}: {} byte {at}", self.node, file.display()));
        }
    }
}

fn rots(machine: &Machine, file: &std::path::Path, at: u64, mask: u8) -> bool {
    machine.disk.rot(file, at, mask).is_ok()
}

/// From the first entry's frame to where frames are too near to the end.
fn range_of(group: &Group) -> Option<(u64, u64)> {
    let log = group.log();
    let (_, committed) = log.committed()?;
    let durable = log.durable_index()?;
    let first = log.first_index();
    let from = log.read(first, first + 1, 0).ok()?.first()?.payload_offset.0 - raftmq_store::frame::HEADER_BYTES as u64;
    let tail = log.end_offset(committed.min(durable))?.0;
    let to = tail.checked_sub(WRITE_BYTES_MAX)?;
    (from < to).then_some((from, to))
}
