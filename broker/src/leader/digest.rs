//! The digest of a replica at a log index, made while it serves: equal on all replicas (law 6).
//!
//! Whoever compares replicas picks an index that none of them has passed, usually a little beyond the leader's last entry,
//! and asks all of them. A busy group comes by it anyway. In a quiet one the leader adds entries that change nothing (an ack
//! of no message) until the index is reached.

use super::Replica;
use crate::machine::{DigestRefusal, StateDigest};
use raftmq_model::command::{Ack, Command};
use raftmq_model::ids::PhysicalOffset;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

/// How far beyond the last applied entry an index may be for the leader to add what is missing.
pub const DIGEST_AHEAD_COUNT_MAX: u64 = 8192;
/// How long a group may take to come by an index before its leader adds entries.
const BY_ITSELF: Duration = Duration::from_millis(100);
/// How long after a refused proposal the next one is tried: another replica leads, or none.
const AGAIN: Duration = Duration::from_millis(100);

/// A replica right behind one entry of its log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplicaDigest {
    /// What the log was made to.
    pub state: StateDigest,
    /// The entry's term; 0 when the log does not reach back that far any more.
    pub term: u64,
    /// Where the entry ends in the CommitLog; 0 as for `term`.
    pub end: PhysicalOffset,
}

/// Why there is no digest.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DigestError {
    /// The machine does not make it.
    #[error(transparent)]
    Refused(#[from] DigestRefusal),
    /// The entry was not applied in time.
    #[error("the replica has applied entry {applied} and did not come to {index} in time")]
    Late {
        /// The entry that was asked for.
        index: u64,
        /// What it has applied.
        applied: u64,
    },
    /// The replica was closed.
    #[error("the replica is closed")]
    Closed,
}

impl Replica {
    /// The digest right behind the entry `index`, which is not passed yet. Waits at most until `deadline`.
    ///
    /// # Errors
    /// [`DigestError`].
    pub async fn digest_at(&self, index: u64, deadline: Instant) -> Result<ReplicaDigest, DigestError> {
        let view = Arc::clone(&self.view);
        // When the index was just applied this walks over the state.
        let asked = tokio::task::spawn_blocking(move || view.digest_at(index)).await;
        let mut answer = asked.map_err(|_| DigestError::Closed)??;
        let answered = match timeout_at(deadline.min(Instant::now() + BY_ITSELF), &mut answer).await {
            Ok(answered) => answered,
            Err(_) => self.reached(index, answer, deadline).await?,
        };
        let state = answered.map_err(|_| DigestError::Closed)?;
        let log = self.group.log();
        let term = log.entry_id(index).map_or(0, |(term, _)| term);
        Ok(ReplicaDigest { state, term, end: log.end_offset(index).unwrap_or_default() })
    }

    /// Waits for `answer`, and as leader sees to it that the index is reached.
    async fn reached(
        &self,
        index: u64,
        mut answer: oneshot::Receiver<StateDigest>,
        deadline: Instant,
    ) -> Result<Result<StateDigest, oneshot::error::RecvError>, DigestError> {
        tokio::select! {
            answered = &mut answer => Ok(answered),
            never = self.add_entries(index) => match never {},
            () = sleep_until(deadline) => Err(DigestError::Late { index, applied: self.applied() }),
        }
    }

    /// Adds entries that change nothing, one after the other, as long as this replica leads; until it is dropped.
    async fn add_entries(&self, index: u64) -> std::convert::Infallible {
        let nothing = Command::Ack(Ack::default()).encode();
        let mut missing = index.saturating_sub(self.applied());
        if missing > DIGEST_AHEAD_COUNT_MAX {
            missing = 0;
        }
        while missing > 0 {
            match self.propose(vec![nothing.clone()]).await {
                Ok(_) => missing -= 1,
                Err(_) => sleep(AGAIN).await,
            }
        }
        std::future::pending().await
    }

    /// Index of the last entry that is applied.
    pub(super) fn applied(&self) -> u64 {
        self.group.status().applied.map_or(0, |(_, index)| index)
    }
}
