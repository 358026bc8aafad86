//! Retention: the leader decides what is forgotten, and every replica forgets it.
//!
//! ```text
//! leader, now and then:  RetentionPolicy::next ── Snapshot or Purge ──▶ log ──▶ apply on every replica
//! every replica:         a durable checkpoint needs the log before the purge point no more
//!                        ──▶ Raft takes the kept snapshot and purges ──▶ ConsumeQueue files, IndexFiles, older snapshots go
//! ```
//! Until a file is gone it costs space and nothing else: readers begin at the state's first offsets.

use super::Replica;
use crate::machine::MachineView;
use raftmq_model::command::{Command, Outcome};
use raftmq_model::ids::PhysicalOffset;
use raftmq_model::retention::{Retained, RetentionStep};
use raftmq_raft::CompactError;
use raftmq_store::CommitLog;
use raftmq_store::index_file::KeyIndex;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// A disk with less room than this many reserves is short of it: early enough that purging comes before refusing.
const NEAR_RESERVE: u64 = 2;
/// After this, what could not be purged is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(10);
/// Steps of one look; there is another look soon.
const STEPS_COUNT_MAX: usize = 4;

impl Replica {
    /// Proposes snapshots and purges while this replica leads; runs until the group closes.
    pub(super) async fn retain(self: Arc<Self>) {
        let mut leadership = self.leadership();
        let pause = Duration::from_millis(self.limits.retention_check_ms);
        loop {
            if leadership.wait_for(|now| now.leader == Some(self.node) && now.ready).await.is_err() {
                return;
            }
            self.retention_steps().await;
            let _ = timeout(pause, leadership.changed()).await;
        }
    }

    async fn retention_steps(&self) {
        for _ in 0..STEPS_COUNT_MAX {
            let Some(step) = self.retention_step() else { return };
            let command = match step {
                RetentionStep::Snapshot => Command::Snapshot,
                RetentionStep::Purge { upto_index } => Command::Purge { upto_index },
            };
            // The leadership is going, or the log is busy: the next look, here or elsewhere, sees what is left.
            let Ok(outcomes) = self.propose(vec![command.encode()]).await else { return };
            match outcomes.into_iter().next().map(Outcome::decode) {
                Some(Ok(Outcome::Done)) => tracing::info!(group = %self.id(), ?step, "retention"),
                other => {
                    tracing::warn!(group = %self.id(), ?step, ?other, "retention was refused");
                    return;
                }
            }
        }
    }

    fn retention_step(&self) -> Option<RetentionStep> {
        let log = self.group.log();
        let (_, last) = log.last()?;
        let end = log.end_offset(last).unwrap_or(PhysicalOffset(0));
        let short = self.disk_short();
        let state = self.view.state();
        // What the last purge gives back is seen only when the log has followed it.
        let disk_short = short && log.purged().map_or(0, |(_, index)| index) >= state.purged().index;
        let (purged, points) = (state.purged(), state.snapshot_points());
        self.retention.next(&Retained { now: self.clock.now(), purged, points, end, disk_short })
    }

    /// The disk of this node comes near its reserve, or that of another replica is down to it.
    fn disk_short(&self) -> bool {
        let volume = self.volumes.own.borrow().volume;
        let near = volume.reserve_bytes(self.limits.disk_reserve_bytes).saturating_mul(NEAR_RESERVE);
        let voters = self.group.status().voters;
        let peers_full = self.volumes.peers_full.borrow();
        volume.available_bytes < near || voters.iter().any(|voter| peers_full.contains(voter))
    }

    /// Lets go of what the state needs no more; runs until the group closes.
    pub(super) async fn release_log(self: Arc<Self>) {
        let mut released = self.view.released();
        loop {
            let upto = *released.borrow_and_update();
            let done = if upto > 0 { self.release_upto(upto).await } else { Ok(()) };
            match &done {
                Ok(()) => {}
                Err(ReleaseError::Log(CompactError::Stopped)) => return,
                Err(ReleaseError::Log(CompactError::Postponed)) => {
                    tracing::info!(group = %self.id(), upto, "the log is purged later: a follower reads it");
                }
                Err(error) => tracing::error!(group = %self.id(), upto, %error, "the log cannot be purged"),
            }
            let changed = match done {
                Ok(()) => Ok(released.changed().await),
                Err(_) => timeout(TRY_AGAIN, released.changed()).await,
            };
            if let Ok(Err(_)) = changed {
                return;
            }
        }
    }

    async fn release_upto(self: &Arc<Self>, upto: u64) -> Result<(), ReleaseError> {
        self.group.purge_upto(upto).await?;
        let (view, log) = (Arc::clone(&self.view), self.group.log().clone());
        let keys = self.keys.clone();
        let forget = move || forget_files(&view, &log, keys.as_deref());
        if self.threaded {
            tokio::task::spawn_blocking(forget).await.map_err(io::Error::other)??
        } else {
            forget()?
        }
        tracing::info!(group = %self.id(), upto, "purged the log");
        Ok(())
    }
}

/// Removes ConsumeQueue files and IndexFiles whose messages are no longer in the log, and snapshots before the entry that it begins behind.
/// What a later purge point has given up already stays until the log goes there: a restart may need it.
pub(crate) fn forget_files(view: &MachineView, log: &CommitLog, keys: Option<&KeyIndex>) -> io::Result<()> {
    let Some((_, purged)) = log.purged() else { return Ok(()) };
    let begin = log.end_offset(purged).unwrap_or(PhysicalOffset(0));
    let queues: Vec<_> = {
        let state = view.state();
        state.queues().map(|(topic, queue, _)| (topic, queue, state.queue_min(topic, queue))).collect()
    };
    for (topic, queue, min) in queues {
        // A damaged unit can lead the search astray: what the state keeps stays in any case.
        let first = view.queues().lower_bound(topic, queue, begin)?.min(min);
        view.queues().forget_before(topic, queue, first)?;
    }
    if let Some(keys) = keys {
        keys.forget_before(begin)?;
    }
    view.snapshots().retain(|snapshot| snapshot >= purged)
}

#[derive(Debug, thiserror::Error)]
enum ReleaseError {
    #[error(transparent)]
    Log(#[from] CompactError),
    #[error(transparent)]
    Files(#[from] io::Error),
}
