//! What a receipt handle can do: `Ack`, `ChangeInvisible`, and `Release` for a taker who went away.
//!
//! The newest handle of a message stays good until the message is taken again, even past its time.

use super::GroupState;
use super::changes::Changes;
use super::consumption::{ConsumedQueue, InFlight};
use crate::command::{Ack, ChangeInvisible, HandleKey, HandleOutcome, Outcome, Release, ReleaseEntry};
use crate::ids::{ConsumerGroupUid, Position, QueueId, QueueOffset, Timestamp, TopicUid};
use crate::planted::{self, Planted};

impl GroupState {
    pub(super) fn ack(&mut self, ack: &Ack, changes: &mut Changes) -> Outcome {
        Outcome::Handles(ack.handles.iter().map(|handle| self.ack_one(handle, changes)).collect())
    }

    fn ack_one(&mut self, handle: &HandleKey, changes: &mut Changes) -> HandleOutcome {
        match self.judge(handle) {
            Err(outcome) => outcome,
            Ok(_) => {
                self.finish(handle, changes);
                HandleOutcome::Done
            }
        }
    }

    pub(super) fn change_invisible(
        &mut self,
        at: Position,
        change: &ChangeInvisible,
        changes: &mut Changes,
    ) -> Outcome {
        let Some(handle) = &change.handle else { return Outcome::Refused("no handle".into()) };
        if let Some(popped_at) = self.changed_before(handle, change.request) {
            return Outcome::Handles(vec![HandleOutcome::Renewed { popped_at }]);
        }
        let record = match self.judge(handle) {
            Err(outcome) => return Outcome::Handles(vec![outcome]),
            Ok(record) => record,
        };
        let visible_at = self.now.plus_ms(change.invisible_ms);
        let command_at = InFlight::NO_ATTEMPT_ID;
        let (attempt, popped_at, changed_by) = (record.attempt, at.index, change.request);
        let record = InFlight { attempt, popped_at, command_at, visible_at, changed_by };
        if let Some(mut flight) = self.flight(consumed_queue(handle)) {
            flight.set(QueueOffset(handle.offset), record, changes);
        }
        Outcome::Handles(vec![HandleOutcome::Renewed { popped_at: at.index }])
    }

    pub(super) fn release(&mut self, release: &Release, changes: &mut Changes) -> Outcome {
        let soon = self.now.plus_ms(release.after_ms);
        Outcome::Handles(release.messages.iter().map(|entry| self.release_one(entry, soon, changes)).collect())
    }

    /// Only ever shortens the time, and only that which the taker was told: a batch that was asked for again since has
    /// another taker.
    fn release_one(&mut self, entry: &ReleaseEntry, soon: Timestamp, changes: &mut Changes) -> HandleOutcome {
        let Some(handle) = &entry.handle else { return HandleOutcome::Superseded };
        let record = match self.judge(handle) {
            Err(outcome) => return outcome,
            Ok(record) if record.visible_at.0 != entry.visible_at_ms => return HandleOutcome::Superseded,
            Ok(record) => record,
        };
        if soon < record.visible_at
            && let Some(mut flight) = self.flight(consumed_queue(handle))
        {
            flight.set(QueueOffset(handle.offset), InFlight { visible_at: soon, ..record }, changes);
        }
        HandleOutcome::Done
    }

    /// Whether the newest handle is the one that this very request gave out: it was proposed again, since whoever asked
    /// did not hear the outcome.
    fn changed_before(&self, handle: &HandleKey, request: u64) -> Option<u64> {
        let record = self.held(handle).ok()?;
        let same = request != 0 && record.changed_by == request && record.attempt == handle.attempt;
        same.then_some(record.popped_at)
    }

    /// The in-flight record that `handle` is the newest handle of, or what to answer instead.
    pub(super) fn judge(&self, handle: &HandleKey) -> Result<InFlight, HandleOutcome> {
        let record = self.held(handle)?;
        let newest = (record.attempt, record.popped_at) == (handle.attempt, handle.popped_at);
        if newest || planted::is(Planted::StaleHandleAccepted) { Ok(record) } else { Err(HandleOutcome::Superseded) }
    }

    /// The in-flight record of the message that `handle` names, whichever handle is its newest.
    pub(super) fn held(&self, handle: &HandleKey) -> Result<InFlight, HandleOutcome> {
        // No cursor: the topic or the consumer group is deleted, or nothing was ever taken.
        let Some(consumption) = self.consumptions.get(&consumed_queue(handle)) else {
            return Err(HandleOutcome::Gone);
        };
        let offset = QueueOffset(handle.offset);
        match consumption.in_flight.get(&offset) {
            Some(record) => Ok(*record),
            None if offset < consumption.cursor => Err(HandleOutcome::Gone),
            // Never taken, so nobody was given this handle: it must not pass for a finished message.
            None => Err(HandleOutcome::Superseded),
        }
    }

    pub(super) fn finish(&mut self, handle: &HandleKey, changes: &mut Changes) {
        if let Some(mut flight) = self.flight(consumed_queue(handle)) {
            flight.finish(QueueOffset(handle.offset), changes);
        }
    }
}

pub(super) fn consumed_queue(handle: &HandleKey) -> ConsumedQueue {
    ConsumedQueue {
        consumer_group: ConsumerGroupUid(handle.consumer_group),
        topic: TopicUid(handle.topic),
        queue: QueueId(handle.queue),
    }
}
