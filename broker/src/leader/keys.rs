//! The IndexFiles of a replica follow its log, behind apply.
//!
//! ```text
//! log ──▶ apply (answers, ConsumeQueues)        every key_index_check_ms:  applied entries ──▶ IndexFiles
//!                                               every key_index_sync_ms:   durable
//! ```
//! Nothing waits for the index but queries, and the index is nobody's truth: when its files cannot be written, the node goes
//! on, says so, and tries again.

use super::Replica;
use raftmq_model::ids::PhysicalOffset;
use raftmq_store::index_file::Followed;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Bytes of log that are indexed before it is looked whether a sync is due or the replica is closed.
const STEP_BYTES_MAX: usize = 16 << 20;
/// After this, what failed is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(10);

impl Replica {
    /// Keeps the index; runs until the group closes.
    pub(super) async fn index_keys(self: Arc<Self>) {
        let pause = Duration::from_millis(self.limits.key_index_check_ms);
        let sync_every = Duration::from_millis(self.limits.key_index_sync_ms);
        let mut synced = Instant::now();
        loop {
            let sync = synced.elapsed() >= sync_every;
            if sync {
                synced = Instant::now();
            }
            let replica = Arc::clone(&self);
            match self.blocking(move || replica.index_step(sync)).await {
                Ok(Followed { up_to_date: true, .. }) => sleep(pause).await,
                Ok(_) => tokio::task::yield_now().await,
                Err(error) => {
                    tracing::error!(group = %self.id(), %error, "the key index is not kept");
                    sleep(TRY_AGAIN).await;
                }
            }
        }
    }

    fn index_step(&self, sync: bool) -> io::Result<Followed> {
        let Some(keys) = &self.keys else { return Err(io::ErrorKind::Unsupported.into()) };
        if keys.needs_restore() {
            let (applied, end) = self.certain();
            let restored = keys.restore(applied, end)?;
            match restored.dropped {
                Some(reason) => tracing::warn!(group = %self.id(), reason, "a part of the key index is built again"),
                None => tracing::info!(group = %self.id(), next = restored.next_index, "the key index follows the log"),
            }
        }
        let followed = keys.follow(self.group.log(), self.applied(), STEP_BYTES_MAX)?;
        if sync {
            keys.sync()?;
        }
        Ok(followed)
    }

    /// The last entry that the state had applied when it was opened, and where it ends: the index may have more only of a log
    /// that is not this one any more. When the log has forgotten the entry, nothing is certain.
    fn certain(&self) -> (u64, PhysicalOffset) {
        let applied = self.applied_at_open;
        match self.group.log().end_offset(applied) {
            Some(end) => (applied, end),
            None => (0, PhysicalOffset(0)),
        }
    }

    /// Runs what reads or writes files where it holds nobody up.
    pub(super) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        if self.threaded { tokio::task::spawn_blocking(work).await.map_err(io::Error::other)? } else { work() }
    }
}
