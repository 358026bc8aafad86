//! How full the volume of this node's data folder is, and what follows from it: a full disk is met before a write fails,
//! since a failed write ends the process (law 8).
//!
//! ```text
//!  check, every disk_check_ms ─▶ decision ─▶ status ─┬▶ peers (an echo of the Raft ping says it)
//!                                                    └▶ succession, one per group: what its leader admits, who leads next
//! ```
//! Files: `decision` when a volume is full, `succession` what a leader does about it. Soft state all of it: nothing here
//! is in a log.

mod decision;
mod succession;

use parking_lot::Mutex;
use raftmq_model::ids::NodeId;
use raftmq_raft::RaftNode;
use raftmq_store::{Io, Volume};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

pub use decision::{VolumeLimits, VolumeState};
pub use succession::Admission;
pub(crate) use succession::{Succession, Volumes};

/// A mebibyte.
const MIB: u64 = 1 << 20;

/// A volume as it was last seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VolumeStatus {
    /// Its size.
    pub volume: Volume,
    /// Whether messages may be stored on it.
    pub state: VolumeState,
}

impl VolumeStatus {
    /// Whether messages must not be stored on it.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.state == VolumeState::Full
    }
}

/// Follows one volume. One per node.
pub(crate) struct VolumeWatch {
    node: NodeId,
    io: Arc<dyn Io>,
    dir: PathBuf,
    limits: VolumeLimits,
    raft: Arc<RaftNode>,
    /// Notifies on a change of the state only.
    status: watch::Sender<VolumeStatus>,
    /// The last check failed; said once.
    blind: Mutex<bool>,
}

impl VolumeWatch {
    /// A watch that has not looked yet: the volume counts as writable.
    pub(crate) fn new(raft: Arc<RaftNode>, node: NodeId, io: Arc<dyn Io>, dir: PathBuf, limits: VolumeLimits) -> Self {
        let status = VolumeStatus { volume: Volume::BOUNDLESS, state: VolumeState::Writable };
        VolumeWatch { node, io, dir, limits, raft, status: watch::Sender::new(status), blind: Mutex::default() }
    }

    /// The last look.
    pub(crate) fn status(&self) -> VolumeStatus {
        *self.status.borrow()
    }

    /// This volume and those of the peers.
    pub(crate) fn volumes(&self) -> Volumes {
        Volumes {
            node: self.node,
            own: self.status.subscribe(),
            peers_full: self.raft.peers_full(),
            peers_alive: self.raft.peers_alive(),
        }
    }

    /// Looks every `interval`, until its task is stopped.
    pub(crate) async fn run(self: Arc<Self>, interval: Duration) {
        loop {
            tokio::time::sleep(interval).await;
            self.check().await;
        }
    }

    /// Looks once. A volume that does not answer keeps its state: its next write tells.
    pub(crate) async fn check(self: &Arc<Self>) {
        let look = {
            let watch = Arc::clone(self);
            move || watch.io.volume(&watch.dir)
        };
        let said = if self.io.allows_threads() {
            // A device that hangs holds this call, and nothing else.
            tokio::task::spawn_blocking(look).await.unwrap_or_else(|error| Err(std::io::Error::other(error)))
        } else {
            look()
        };
        let was_blind = std::mem::replace(&mut *self.blind.lock(), said.is_err());
        match said {
            Ok(volume) => self.note(volume),
            Err(error) if !was_blind => {
                tracing::warn!(dir = %self.dir.display(), %error, "the disk does not say how full it is");
            }
            Err(_) => {}
        }
    }

    fn note(&self, volume: Volume) {
        let state = self.limits.next(self.status().state, volume);
        self.raft.set_volume_full(state == VolumeState::Full);
        let changed = self.status.send_if_modified(|status| {
            let changed = status.state != state;
            *status = VolumeStatus { volume, state };
            changed
        });
        if !changed {
            return;
        }
        let (available_mib, total_mib) = (volume.available_bytes / MIB, volume.total_bytes / MIB);
        let dir = self.dir.display();
        match state {
            VolumeState::Full => {
                tracing::warn!(%dir, available_mib, total_mib, "the disk is full: sends are refused, all else goes on");
            }
            VolumeState::Writable => {
                tracing::info!(%dir, available_mib, total_mib, "the disk has room again: sends go on")
            }
        }
    }
}
