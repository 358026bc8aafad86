//! Has the damaged entries of an open log repaired.

use super::source::{Asked, FrameSource};
use raftmq_model::ids::NodeId;
use raftmq_store::commit_log::{CommitLog, Damage, is_damage};
use std::future::poll_fn;
use std::io;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};

/// Between two rounds over what is damaged, at first and at most.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// A round begins no repair after this time.
const ROUND_MAX: Duration = Duration::from_secs(5);

/// Follows the repairs of one log. Clones follow the same.
#[derive(Clone)]
pub(crate) struct Repairs {
    source: FrameSource,
    /// Entries that are damaged now. Sent to also when the number is the same: something was repaired.
    damaged: watch::Receiver<u64>,
}

/// The task; ends when this is dropped.
pub(crate) struct RepairTask(AbortHandle);

impl RepairTask {
    /// Lets go of who waits for a repair: the log closes.
    pub(crate) fn stop(&self) {
        self.0.abort();
    }
}

impl Drop for RepairTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Repairs {
    /// Starts the task. `leader`: whom to ask first.
    pub(crate) fn start(
        log: CommitLog,
        source: FrameSource,
        leader: watch::Receiver<Option<NodeId>>,
    ) -> (Repairs, RepairTask) {
        let (told, damaged) = watch::channel(0);
        let task = tokio::spawn(run(log, source.clone(), leader, told));
        (Repairs { source, damaged }, RepairTask(task.abort_handle()))
    }

    /// Follows how many entries are damaged.
    pub(crate) fn damaged(&self) -> watch::Receiver<u64> {
        self.damaged.clone()
    }

    /// Whether damage can be repaired at all.
    pub(crate) fn has_peers(&self) -> bool {
        self.source.has_peers()
    }

    /// Reads until no entry that is read is damaged: waits for their repair. Without peers it is an error at once.
    ///
    /// # Errors
    /// As `read`; its damage also when the log is closed meanwhile.
    pub(crate) async fn read<T>(&self, read: impl Fn() -> io::Result<T>) -> io::Result<T> {
        let mut damaged = self.damaged.clone();
        loop {
            damaged.mark_unchanged();
            match read() {
                Err(error) if is_damage(&error) && self.has_peers() => {
                    if damaged.changed().await.is_err() {
                        return Err(error);
                    }
                }
                other => return other,
            }
        }
    }
}

async fn run(log: CommitLog, source: FrameSource, leader: watch::Receiver<Option<NodeId>>, told: watch::Sender<u64>) {
    let mut turn: usize = 0;
    loop {
        poll_fn(|context| log.poll_damage(context)).await;
        let mut pause = PAUSE_MIN;
        loop {
            let mut damaged = log.damaged();
            told.send_replace(damaged.len() as u64);
            if damaged.is_empty() {
                break;
            }
            // A round is short, since what was purged or truncated meanwhile is not asked for any more; the next one begins elsewhere.
            let count = damaged.len();
            damaged.rotate_left(turn % count);
            turn = turn.wrapping_add(1);
            let (mut repaired, started) = (false, Instant::now());
            for damage in &damaged {
                if started.elapsed() >= ROUND_MAX {
                    break;
                }
                let first = *leader.borrow();
                match repair(&log, &source, first, damage).await {
                    Ok(true) => {
                        repaired = true;
                        told.send_replace(log.integrity().damaged_count);
                    }
                    Ok(false) => {}
                    Err(error) => tracing::warn!(group = source.group.0, "{damage} is not repaired: {error}"),
                }
            }
            pause = if repaired { PAUSE_MIN } else { PAUSE_MAX.min(pause * 2) };
            if !repaired {
                sleep(pause).await;
            }
        }
    }
}

/// Whether it is repaired now.
async fn repair(log: &CommitLog, source: &FrameSource, leader: Option<NodeId>, damage: &Damage) -> io::Result<bool> {
    let (peer, frame) = match log.own_frame(damage)? {
        Some(frame) => (source.node, frame),
        None => match source.ask(leader, damage.offset).await {
            Asked::Frame(peer, frame) => (peer, frame),
            // When all others have purged it, this replica soon will.
            Asked::Purged(_) | Asked::Nobody { .. } => return Ok(false),
        },
    };
    let (sender, receiver) = oneshot::channel();
    log.repair(damage, frame, Box::new(move |outcome| drop(sender.send(outcome))));
    receiver.await.map_err(|_| io::Error::other("the log was closed"))??;
    tracing::info!(group = source.group.0, from = peer.0, "repaired: {damage}");
    Ok(true)
}
