//! Somebody who keeps the logs of the broker groups short: snapshots now and then, and purges up to where every consumer
//! group has finished everything, so that no message that anybody still waits for is forgotten.

use super::world::World;
use raftmq_broker::leader::Replica;
use raftmq_model::command::Command;
use raftmq_model::machine::SnapshotPoint;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;

const PAUSE_MS: std::ops::Range<u64> = 500..4_000;
/// One step in so many is a snapshot; else it is a purge where one can be.
const SNAPSHOT_RATIO: (u32, u32) = (2, 5);

/// See the module.
pub(super) struct Retention {
    chance: StdRng,
    next_us: u64,
    /// Consumer groups that read every message.
    groups_count: usize,
}

impl Retention {
    pub(super) fn new(seed: u64, groups_count: u32) -> Retention {
        Retention { chance: StdRng::seed_from_u64(seed ^ 0x5052_4745), next_us: 0, groups_count: groups_count as usize }
    }

    /// Proposes something when it is time to.
    pub(super) fn step(&mut self, world: &World) {
        if world.now_us() < self.next_us {
            return;
        }
        self.next_us = world.now_us() + self.chance.random_range(PAUSE_MS) * 1_000;
        for machine in world.machines.values() {
            let brokers = machine.slot.lock().running.as_ref().map(|running| Arc::clone(&running.broker));
            let Some(broker) = brokers else { continue };
            for (id, group) in broker.groups() {
                let Some(replica) = broker.replica(id).filter(|_| group.leadership().borrow().ready) else { continue };
                let (once, times) = SNAPSHOT_RATIO;
                let command = if self.chance.random_ratio(once, times) {
                    Some(Command::Snapshot)
                } else {
                    self.finished_point(&replica).map(|upto_index| Command::Purge { upto_index })
                };
                if let Some(command) = command {
                    machine.spawn(async move {
                        // Leaders come and go; the next step sees what is there then.
                        let _ = replica.propose(vec![command.encode()]).await;
                    });
                }
            }
        }
    }

    /// The newest snapshot before which all consumer groups have finished everything.
    fn finished_point(&self, replica: &Replica) -> Option<u64> {
        let progress = replica.progress();
        let finished = |point: &&SnapshotPoint| {
            point.queues.iter().filter(|(.., next)| next.0 > 0).all(|(topic, queue, next)| {
                let of_queue = progress
                    .iter()
                    .filter(|progress| (progress.consumed.topic, progress.consumed.queue) == (*topic, *queue));
                of_queue.filter(|progress| progress.finished_upto >= *next).count() >= self.groups_count
            })
        };
        replica.snapshot_points().iter().rev().find(finished).map(|point| point.index)
    }
}
