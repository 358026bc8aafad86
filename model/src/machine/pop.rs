//! `Pop`: the plan's premise is checked again, then its messages are in flight (law 3).

use super::GroupState;
use super::attempts::{Attempt, AttemptKey};
use super::changes::Changes;
use super::consumption::{ConsumedQueue, Consumption, Flight, InFlight};
use crate::command::{Outcome, Pop, PopOutcome, PoppedMessage};
use crate::ids::{ConsumerGroupUid, Position, QueueId, QueueOffset, Timestamp, TopicUid};

impl GroupState {
    pub(super) fn pop(&mut self, at: Position, command_at: u32, pop: &Pop, changes: &mut Changes) -> Outcome {
        let consumed = consumed_queue(pop);
        if let Err(outcome) = self.check_names(consumed) {
            return outcome;
        }
        if !pop.attempt_id.is_empty()
            && let Some(taken) = self.pop_again(consumed, pop, changes)
        {
            return Outcome::Pop(taken);
        }
        let max = self.queue_max(consumed.topic, consumed.queue);
        if let Err(reason) = self.check_plan(pop, max) {
            return Outcome::Refused(reason);
        }
        let cursor = self.cursor(consumed.consumer_group, consumed.topic, consumed.queue);
        if QueueOffset(pop.from) != cursor {
            return Outcome::Pop(PopOutcome::Stale { cursor });
        }
        let key = AttemptKey { popped_at: at.index, command_at };
        Outcome::Pop(self.take(consumed, key, pop, changes))
    }

    /// The answer to an attempt id that was used before: what of its batch is still in flight under the same handle,
    /// with its time renewed. `None` when nothing is: the attempt is a new one.
    fn pop_again(&mut self, consumed: ConsumedQueue, pop: &Pop, changes: &mut Changes) -> Option<PopOutcome> {
        let visible_at = self.now.plus_ms(pop.invisible_ms);
        let group = self.consumer_groups.get_mut(&consumed.consumer_group)?;
        group.attempts.evict(consumed.consumer_group, self.now, &self.limits, changes);
        let (key, attempt) = group.attempts.find(consumed.topic, &pop.attempt_id)?;
        let (queue, offsets) = (attempt.queue, attempt.offsets.clone());
        let mut flight = self.flight(ConsumedQueue { queue, ..consumed })?;
        let mut messages = Vec::with_capacity(offsets.len());
        for offset in offsets {
            let Some(record) = flight.queue.in_flight.get(&offset).copied() else { continue };
            if record.attempt_key() == Some(key) {
                flight.set(offset, InFlight { visible_at, ..record }, changes);
                messages.push(PoppedMessage { offset, attempt: record.attempt });
            }
        }
        assert!(!messages.is_empty(), "an attempt id is forgotten with its last message");
        Some(PopOutcome::Taken { popped_at: key.popped_at, visible_at, queue, messages })
    }

    fn take(&mut self, consumed: ConsumedQueue, key: AttemptKey, pop: &Pop, changes: &mut Changes) -> PopOutcome {
        let visible_at = self.now.plus_ms(pop.invisible_ms);
        let command_at = if pop.attempt_id.is_empty() { InFlight::NO_ATTEMPT_ID } else { key.command_at };
        let record = InFlight { attempt: 1, popped_at: key.popped_at, command_at, visible_at, changed_by: 0 };
        let (now, limits) = (self.now, self.limits);
        let cursor = self.cursor(consumed.consumer_group, consumed.topic, consumed.queue);
        self.consumptions.entry(consumed).or_insert_with(|| Consumption { cursor, ..Consumption::default() });
        let mut messages = Vec::with_capacity(pop.again.len() + pop.fresh.len());
        if let Some(mut flight) = self.flight(consumed) {
            take_again(&mut flight, pop, now, record, &mut messages, changes);
            let cursor = take_fresh(&mut flight, pop, limits.in_flight_count_max, record, &mut messages, changes);
            flight.queue.cursor = cursor;
            if !pop.attempt_id.is_empty() && !messages.is_empty() {
                let offsets: Vec<QueueOffset> = messages.iter().map(|message| message.offset).collect();
                let (topic, queue, id) = (consumed.topic, consumed.queue, pop.attempt_id.as_str().into());
                let attempt = Attempt { topic, queue, id, at: now, left: offsets.len(), offsets };
                flight.attempts.insert(consumed.consumer_group, key, attempt, &limits, changes);
            }
            if !std::mem::replace(&mut flight.queue.dirty, true) {
                self.dirty.cursors.push(consumed);
            }
        }
        PopOutcome::Taken { popped_at: key.popped_at, visible_at, queue: consumed.queue, messages }
    }

    fn check_names(&self, consumed: ConsumedQueue) -> Result<(), Outcome> {
        if !self.consumer_groups.contains_key(&consumed.consumer_group) {
            return Err(Outcome::UnknownConsumerGroup);
        }
        let topic = self.topics.get(&consumed.topic).ok_or(Outcome::UnknownTopic)?;
        if !topic.queues.contains_key(&consumed.queue) {
            let ConsumedQueue { topic, queue, .. } = consumed;
            return Err(Outcome::Refused(format!("queue {queue} of topic {topic} is not in this group")));
        }
        Ok(())
    }

    /// Whether a plan could ever be right, whatever the cursor is.
    fn check_plan(&self, pop: &Pop, max: Option<QueueOffset>) -> Result<(), String> {
        let Pop { from, next, fresh, again, attempt_id, .. } = pop;
        if from > next || max.is_none_or(|max| *next > max.0) {
            return Err(format!("pop of {from}..{next} of a queue that ends at {max:?}"));
        }
        if fresh.len() + again.len() > self.limits.pop_count_max {
            return Err(format!(
                "pop of {} messages, {} at most",
                fresh.len() + again.len(),
                self.limits.pop_count_max
            ));
        }
        let ascending = fresh.windows(2).all(|pair| pair[0] < pair[1]);
        if !ascending || fresh.first().is_some_and(|o| o < from) || fresh.last().is_some_and(|o| o >= next) {
            return Err(format!("pop of {from}..{next} takes offsets that are not ascending within it"));
        }
        if attempt_id.len() > self.limits.attempt_id_bytes_max {
            return Err(format!("attempt id of {} bytes", attempt_id.len()));
        }
        Ok(())
    }
}

/// Takes timed-out messages again. What no longer is as the plan says is left out.
fn take_again(
    flight: &mut Flight<'_>,
    pop: &Pop,
    now: Timestamp,
    record: InFlight,
    messages: &mut Vec<PoppedMessage>,
    changes: &mut Changes,
) {
    for again in &pop.again {
        let offset = QueueOffset(again.offset);
        let Some(held) = flight.queue.in_flight.get(&offset) else { continue };
        if held.attempt == again.attempt && held.visible_at <= now && held.attempt < flight.attempts_max {
            let attempt = held.attempt + 1;
            flight.set(offset, InFlight { attempt, ..record }, changes);
            messages.push(PoppedMessage { offset, attempt });
        }
    }
}

/// Takes messages for the first time and returns the cursor afterwards: `next`, or the first message for which there
/// was no room.
fn take_fresh(
    flight: &mut Flight<'_>,
    pop: &Pop,
    in_flight_count_max: usize,
    record: InFlight,
    messages: &mut Vec<PoppedMessage>,
    changes: &mut Changes,
) -> QueueOffset {
    for fresh in &pop.fresh {
        let offset = QueueOffset(*fresh);
        if flight.queue.in_flight.len() >= in_flight_count_max {
            return offset;
        }
        assert!(!flight.queue.in_flight.contains_key(&offset), "what is in flight is below the cursor");
        flight.set(offset, record, changes);
        messages.push(PoppedMessage { offset, attempt: record.attempt });
    }
    QueueOffset(pop.next)
}

fn consumed_queue(pop: &Pop) -> ConsumedQueue {
    ConsumedQueue {
        consumer_group: ConsumerGroupUid(pop.consumer_group),
        topic: TopicUid(pop.topic),
        queue: QueueId(pop.queue),
    }
}
