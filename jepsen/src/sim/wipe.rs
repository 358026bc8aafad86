//! A node loses its disk for good and comes back on an empty one, as its next life: what `raftmq replica replace` does.

use super::net::Host;
use super::world::World;
use raftmq_model::meta::{MetaOp, ReplaceNode};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// How often an operator asks, and how long one call may take.
const PAUSE_MS: std::ops::Range<u64> = 100..3_000;
const PATIENCE: Duration = Duration::from_secs(5);

/// A disk that is lost, until its node starts again.
pub(super) struct Wipe {
    pub(super) node: Host,
    pub(super) incarnation: u32,
    chance: StdRng,
    next_us: u64,
    decided: Arc<AtomicBool>,
}

impl Wipe {
    pub(super) fn new(node: Host, incarnation: u32, seed: u64) -> Wipe {
        let chance = StdRng::seed_from_u64(seed ^ 0x5749_5045);
        Wipe { node, incarnation, chance, next_us: 0, decided: Arc::default() }
    }

    /// Asks again when it is time to; whether the meta group has placed the node's replicas anew, so that it may start.
    pub(super) fn step(&mut self, world: &World) -> bool {
        if self.decided.load(Ordering::Relaxed) {
            return true;
        }
        if world.now_us() >= self.next_us {
            self.next_us = world.now_us() + self.chance.random_range(PAUSE_MS) * 1_000;
            if let Some((machine, meta)) = world.somebody(&mut self.chance) {
                let decided = Arc::clone(&self.decided);
                let op = MetaOp::ReplaceNode(ReplaceNode { node: self.node, incarnation: self.incarnation });
                machine.spawn(async move {
                    if meta.propose(op, Instant::now() + PATIENCE).await.is_ok() {
                        decided.store(true, Ordering::Relaxed);
                    }
                });
            }
        }
        false
    }
}
