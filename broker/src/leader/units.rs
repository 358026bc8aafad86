//! Damaged ConsumeQueue units: repaired when a call meets them, and looked for in the background.

use super::failure::{failure, of_read};
use super::{Replica, Replicas};
use crate::units::{UnitDamage, Units};
use bytes::Bytes;
use raftmq_model::ids::{GroupId, PhysicalOffset, QueueId, QueueOffset, TopicUid};
use raftmq_proto::forward::{Failure, failure::Kind};
use raftmq_store::CommitLog;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};

/// Steps of the scrubber in a second, when a step takes no more than its share.
const STEPS_PER_SECOND: u32 = 4;
/// Repairs that one call waits for.
const REPAIRS_COUNT_MAX: usize = 2;

/// How whole a replica's ConsumeQueues are. Counts are of the time since it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UnitIntegrity {
    /// Units that were damaged and written anew from the log.
    pub repaired_count: u64,
    /// Units that are damaged and that the log does not say, by the last pass of the scrubber.
    pub unrepaired_count: u64,
    /// Times that the scrubber has compared all units with the log.
    pub scrub_passes_count: u64,
}

impl Replica {
    /// How whole the ConsumeQueues of this replica are.
    #[must_use]
    pub fn unit_integrity(&self) -> UnitIntegrity {
        UnitIntegrity { repaired_count: self.view.queues().rewritten_count(), ..*self.unit_integrity.lock() }
    }

    /// The stored record of one message, for the caller of a call. What is damaged here is repaired first: an entry of the log by a
    /// peer, a unit from the log.
    ///
    /// # Errors
    /// `kind` when it cannot be read; UNKNOWN when the time was over before.
    pub(super) async fn message(
        &self,
        (topic, queue, offset): (TopicUid, QueueId, QueueOffset),
        known: Option<&Bytes>,
        kind: Kind,
        deadline: Instant,
    ) -> Result<(PhysicalOffset, Bytes), Failure> {
        let mut repairs = 0;
        loop {
            // What was read by way of a damaged unit is not kept.
            let known = known.filter(|_| repairs == 0);
            let read = |log: &CommitLog| self.view.message(log, topic, queue, offset, known);
            let error = match timeout_at(deadline, self.group.read_repaired(read)).await {
                Ok(Ok(message)) => return Ok(message),
                Ok(Err(error)) => error,
                Err(_) => {
                    return Err(failure(Kind::Unknown, "the time was over before a damaged message was repaired"));
                }
            };
            match UnitDamage::of(&error) {
                Some(damage) if repairs < REPAIRS_COUNT_MAX => {
                    repairs += 1;
                    self.repair_unit(damage, kind, deadline).await?;
                }
                _ => {
                    tracing::error!(group = %self.id(), %topic, %queue, %offset, %error, "a message cannot be read");
                    return Err(of_read(kind, &format!("message {offset} of queue {queue}"), &error));
                }
            }
        }
    }

    /// Writes a damaged unit anew. One repair of a replica at a time; it goes on when the caller's time is over.
    pub(super) async fn repair_unit(&self, damage: &UnitDamage, kind: Kind, deadline: Instant) -> Result<(), Failure> {
        let over = |_| failure(Kind::Unknown, "the time was over before a damaged ConsumeQueue was repaired");
        let turn = Arc::clone(&self.unit_repairs).lock_owned();
        let turn = timeout_at(deadline, turn).await.map_err(over)?;
        let (view, log) = (Arc::clone(&self.view), self.group.log().clone());
        let UnitDamage { topic, queue, offset, .. } = *damage;
        let repair = self.blocking(move || {
            let _turn = turn;
            Units::of(&view, &log, topic, queue).repair(offset)
        });
        let repaired = timeout_at(deadline, repair).await.map_err(over)?;
        repaired.map(drop).map_err(|error| {
            tracing::error!(group = %self.id(), %error, "a ConsumeQueue unit is not repaired");
            of_read(kind, &format!("message {offset} of queue {queue}"), &error)
        })
    }

    fn units_are_due(&self, interval: Duration) -> bool {
        // One step of a replica at a time.
        self.unit_scrub.try_lock().is_some_and(|scrub| scrub.is_due(interval))
    }

    async fn scrub_step(self: &Arc<Self>, bytes_max: usize) -> io::Result<u64> {
        let replica = Arc::clone(self);
        let step = move || {
            let mut scrub = replica.unit_scrub.lock();
            let read = scrub.step(&replica.view, replica.group.log(), bytes_max);
            let (unrepaired_count, scrub_passes_count) = (scrub.unrepaired_count, scrub.passes_count);
            *replica.unit_integrity.lock() = UnitIntegrity { repaired_count: 0, unrepaired_count, scrub_passes_count };
            read
        };
        self.blocking(step).await
    }
}

/// Checks the units of all replicas of a node, one after the other, within a budget of bytes of log per second; until it is dropped.
/// At once when the budget is 0.
pub(crate) async fn scrub_units(replicas: Arc<Replicas>, bytes_per_second_max: u64, interval: Duration) {
    if bytes_per_second_max == 0 {
        return;
    }
    let step = Duration::from_secs(1) / STEPS_PER_SECOND;
    let budget = usize::try_from(bytes_per_second_max / u64::from(STEPS_PER_SECOND)).unwrap_or(usize::MAX).max(1);
    let mut last = None;
    loop {
        sleep(step).await;
        let Some(replica) = next(&replicas, last, interval) else { continue };
        last = Some(replica.id());
        let read = replica.scrub_step(budget).await.unwrap_or_else(|error| {
            tracing::warn!(group = %replica.id(), %error, "the ConsumeQueues cannot be checked now");
            0
        });
        drop(replica);
        // One entry can be larger than a step's share.
        sleep(Duration::from_millis(read.saturating_mul(1000) / bytes_per_second_max).saturating_sub(step)).await;
    }
}

/// The replica after `last` whose turn it is, in the order of group ids.
fn next(replicas: &Replicas, last: Option<GroupId>, interval: Duration) -> Option<Arc<Replica>> {
    let mut all = replicas.all();
    all.sort_by_key(|replica| (Some(replica.id()) <= last, replica.id()));
    all.into_iter().find(|replica| replica.units_are_due(interval))
}
