//! A replica forgets the beginning of its log, up to a snapshot that its machine keeps.
//!
//! The Raft library purges at once on a follower. On a leader it puts a purge off while a follower reads there, and goes on with
//! it when that follower makes progress; when the leadership goes meanwhile it never comes back to it, and takes being asked
//! for the same index again for done. So the last [`SPARE_COUNT`] entries before the snapshot are not asked for at first:
//! they are what can be asked for again, one at a time. Our log itself goes from snapshot to snapshot: it takes no notice
//! of these ([`crate::log_store::LogStore::spare`]).

use crate::adaptor::Adaptor;
use crate::errors::CompactError;
use crate::group::Group;
use crate::types::LogId;
use openraft::async_runtime::WatchReceiver;
use std::io;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

/// How long a purge may be put off before its caller is told.
const PURGE_TIMEOUT: Duration = Duration::from_secs(10);
/// What is asked for and not put off is purged within this time.
const ASK_TIMEOUT: Duration = Duration::from_secs(2);
/// How often one purge can be asked for again.
const SPARE_COUNT: u64 = 4;

/// The purges of one replica, one at a time: the last index that the Raft library was asked for.
#[derive(Default)]
pub(crate) struct Purges(Mutex<Option<u64>>);

/// What a purge does next.
#[derive(PartialEq, Eq, Debug)]
enum Next {
    Done,
    Ask(u64),
    /// The Raft library goes on with what it was asked for.
    Wait,
}

/// `asked` of the Raft library last, which has `purged`; up to the snapshot `covers`.
fn next(asked: Option<u64>, purged: Option<u64>, covers: u64, leads: bool) -> Next {
    if purged >= Some(covers) {
        return Next::Done;
    }
    let first = covers.saturating_sub(SPARE_COUNT);
    match asked {
        Some(asked) if asked >= covers => Next::Wait,
        // Done, or forgotten.
        Some(asked) if asked >= first && (purged >= Some(asked) || !leads) => Next::Ask(asked + 1),
        Some(asked) if asked >= first => Next::Wait,
        _ => Next::Ask(first),
    }
}

impl Group {
    /// Takes a snapshot of what is applied here and forgets the log up to it, on this replica only. A replica that needs
    /// what was forgotten gets the snapshot.
    ///
    /// # Errors
    /// See [`CompactError`].
    pub async fn compact(&self) -> Result<(), CompactError> {
        let raft = &self.core().raft;
        let prepared = raft.with_state_machine(|adaptor| Box::pin(async move { adaptor.prepare_snapshot() })).await;
        let covers = prepared.map_err(|_| CompactError::Stopped)?.map_err(CompactError::NoSnapshot)?;
        self.forget(covers.ok_or(CompactError::NothingApplied)?).await
    }

    /// Forgets the log up to the entry at `index`, on this replica only, of which its machine keeps a snapshot: a replica that
    /// needs what was forgotten gets that. Nothing to do when the log begins behind it already.
    ///
    /// # Errors
    /// See [`CompactError`].
    pub async fn purge_upto(&self, index: u64) -> Result<(), CompactError> {
        if self.core().log.purged().is_some_and(|(_, purged)| purged >= index) {
            return Ok(());
        }
        let prepare = move |adaptor: &mut Adaptor| adaptor.prepare_kept_snapshot(index);
        let raft = &self.core().raft;
        let prepared = raft.with_state_machine(move |adaptor| Box::pin(async move { prepare(adaptor) })).await;
        let covers = prepared.map_err(|_| CompactError::Stopped)?.map_err(CompactError::NoSnapshot)?;
        let covers = covers.ok_or_else(|| {
            let what = format!("there is none behind entry {index}");
            CompactError::NoSnapshot(io::Error::new(io::ErrorKind::NotFound, what))
        })?;
        self.forget(covers).await
    }

    /// Lets the Raft library take the snapshot that is prepared, and purge the log up to it.
    async fn forget(&self, covers: LogId) -> Result<(), CompactError> {
        let core = self.core();
        let mut asked = core.purges.0.lock().await;
        core.raft.trigger().snapshot().await.map_err(|_| CompactError::Stopped)?;
        let mut metrics = core.raft.metrics();
        while metrics.borrow_and_update().snapshot < Some(covers) {
            metrics.changed().await.map_err(|_| CompactError::Stopped)?;
        }
        let deadline = Instant::now() + PURGE_TIMEOUT;
        loop {
            let (purged, leads) = {
                let now = metrics.borrow_and_update();
                (now.purged.map(|id| id.index), now.state.is_leader())
            };
            let (waits_for, until) = match next(*asked, purged, covers.index, leads) {
                Next::Done => return Ok(()),
                Next::Ask(index) => {
                    if index != covers.index {
                        let spare = move |adaptor: &mut Adaptor| adaptor.spare(index);
                        let spared =
                            core.raft.with_state_machine(move |adaptor| Box::pin(async move { spare(adaptor) }));
                        spared.await.map_err(|_| CompactError::Stopped)?;
                    }
                    *asked = Some(index);
                    core.raft.trigger().purge_log(index).await.map_err(|_| CompactError::Stopped)?;
                    (index, deadline.min(Instant::now() + ASK_TIMEOUT))
                }
                Next::Wait => (covers.index, deadline.min(Instant::now() + ASK_TIMEOUT)),
            };
            let waits = async {
                while metrics.borrow_and_update().purged.map(|id| id.index) < Some(waits_for) {
                    metrics.changed().await.map_err(|_| CompactError::Stopped)?;
                }
                Ok(())
            };
            match timeout_at(until, waits).await {
                Ok(stopped) => stopped?,
                Err(_) if Instant::now() >= deadline => return Err(CompactError::Postponed),
                Err(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_purge_that_was_put_off_is_asked_for_again_when_the_leadership_is_gone() {
        assert_eq!(next(None, None, 100, true), Next::Ask(96));
        // Put off: the leader goes on by itself.
        assert_eq!(next(Some(96), None, 100, true), Next::Wait);
        assert_eq!(next(Some(96), Some(96), 100, true), Next::Ask(97));
        assert_eq!(next(Some(99), Some(99), 100, true), Next::Ask(100));
        assert_eq!(next(Some(100), Some(100), 100, true), Next::Done);
        // Forgotten with the leadership.
        assert_eq!(next(Some(96), None, 100, false), Next::Ask(97));
        assert_eq!(next(Some(99), None, 100, false), Next::Ask(100));
        // There is nothing left to ask for until the next snapshot, and then there is.
        assert_eq!(next(Some(100), None, 100, false), Next::Wait);
        assert_eq!(next(Some(100), None, 200, false), Next::Ask(196));
    }

    #[test]
    fn a_purge_of_few_entries_is_asked_for_as_one_of_many() {
        assert_eq!(next(None, None, 3, false), Next::Ask(0));
        assert_eq!(next(Some(0), Some(0), 3, false), Next::Ask(1));
        // Something was purged before this process ran, or by an installed snapshot.
        assert_eq!(next(None, Some(98), 100, false), Next::Ask(96));
        assert_eq!(next(Some(96), Some(98), 100, true), Next::Ask(97));
        // Asked for something between the first and the last of the next one.
        assert_eq!(next(Some(100), Some(100), 102, true), Next::Ask(101));
        assert_eq!(next(Some(100), Some(50), 102, true), Next::Wait);
        assert_eq!(next(Some(100), Some(50), 102, false), Next::Ask(101));
    }
}
