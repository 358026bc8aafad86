//! What every outcome must be, by the plainest possible bookkeeping, and the promises behind it.
//!
//! * A message is never in flight for two holders inside its invisible time.
//! * What was acked or dead-lettered never comes back.
//! * Attempts grow by one, and never past the consumer group's maximum.
//! * A message id is stored once while the window remembers it.
//! * What lies before the purge point is neither in flight nor taken again.

use raftmq_model::command::{
    AppendEntry, AppendOutcome, Command, DeadLetter, HandleKey, HandleOutcome, Outcome, Pop, PopOutcome, PoppedMessage,
};
use raftmq_model::ids::{PhysicalOffset, QueueId, QueueOffset, Timestamp};
use raftmq_model::machine::Limits;
use std::collections::{BTreeMap, BTreeSet};

/// Consumer group, topic, queue.
type Consumed = (u64, u64, u32);

#[derive(Clone, Debug)]
struct Held {
    attempt: u32,
    popped_at: u64,
    visible_at: i64,
    /// Attempt id, its log time, and the place in the batch.
    attempt_id: Option<(String, i64, usize)>,
    /// Request that changed its time last.
    changed_by: u64,
}

struct Stored {
    topic: u64,
    id: Vec<u8>,
    queue: u32,
    offset: u64,
    physical: PhysicalOffset,
    at: i64,
}

pub(crate) struct Oracle {
    limits: Limits,
    now: i64,
    /// Hosted queues and their next offsets.
    queues: BTreeMap<(u64, u32), u64>,
    topics: BTreeMap<u64, u64>,
    attempts_max: BTreeMap<u64, (u64, u32)>,
    removed: BTreeSet<u64>,
    window: Vec<Stored>,
    cursors: BTreeMap<Consumed, u64>,
    held: BTreeMap<(Consumed, u64), Held>,
    finished: BTreeSet<(Consumed, u64)>,
    /// Next offsets of the queues at each kept snapshot, by log index.
    points: BTreeMap<u64, BTreeMap<(u64, u32), u64>>,
    purged: u64,
    mins: BTreeMap<(u64, u32), u64>,
}

impl Oracle {
    pub(crate) fn new(limits: Limits) -> Oracle {
        Oracle {
            limits,
            now: 0,
            queues: BTreeMap::new(),
            topics: BTreeMap::new(),
            attempts_max: BTreeMap::new(),
            removed: BTreeSet::new(),
            window: Vec::new(),
            cursors: BTreeMap::new(),
            held: BTreeMap::new(),
            finished: BTreeSet::new(),
            points: BTreeMap::new(),
            purged: 0,
            mins: BTreeMap::new(),
        }
    }

    /// Judges one outcome. Topic and consumer group uids are different numbers here.
    pub(crate) fn check(&mut self, index: u64, now: i64, command: &Command, outcome: &Outcome) {
        self.now = self.now.max(now);
        self.window.retain(|stored| self.now - stored.at < self.limits.stored_once_ms as i64);
        match (command, outcome) {
            (Command::Append(append), Outcome::Append(outcomes)) => {
                assert_eq!(append.entries.len(), outcomes.len());
                append.entries.iter().zip(outcomes).for_each(|(entry, outcome)| self.append(entry, *outcome));
            }
            (Command::PutTopic(config), _) => self.put_topic(config.uid, config.version, &config.queue_groups),
            (Command::PutConsumerGroup(config), _) => {
                let known = self.attempts_max.get(&config.uid).map_or(0, |(version, _)| *version);
                if !self.removed.contains(&config.uid) && config.version > known {
                    self.attempts_max.insert(config.uid, (config.version, config.attempts_max));
                }
            }
            (Command::DeleteTopic { uid }, Outcome::Done) => {
                self.removed.insert(*uid);
                self.topics.remove(uid);
                self.queues.retain(|(topic, _), _| topic != uid);
                self.window.retain(|stored| stored.topic != *uid);
                self.forget(|(_, topic, _)| topic == *uid);
            }
            (Command::DeleteConsumerGroup { uid }, Outcome::Done) => {
                self.removed.insert(*uid);
                self.attempts_max.remove(uid);
                self.forget(|(group, ..)| group == *uid);
            }
            (Command::Pop(pop), outcome) => self.pop(index, pop, outcome),
            (Command::Ack(ack), Outcome::Handles(outcomes)) => {
                assert_eq!(ack.handles.len(), outcomes.len());
                for (handle, outcome) in ack.handles.iter().zip(outcomes) {
                    let expected = self.judge(handle);
                    assert_eq!(*outcome, expected, "{handle:?}");
                    if expected == HandleOutcome::Done {
                        self.finish(handle);
                    }
                }
            }
            (Command::ChangeInvisible(change), Outcome::Handles(outcomes)) => {
                let handle = change.handle.unwrap();
                let mut expected = self.judge(&handle);
                let held = self.held.get(&(consumed(&handle), handle.offset));
                let repeated = held.filter(|held| {
                    change.request != 0 && (held.attempt, held.changed_by) == (handle.attempt, change.request)
                });
                if let Some(held) = repeated {
                    expected = HandleOutcome::Renewed { popped_at: held.popped_at };
                } else if expected == HandleOutcome::Done {
                    expected = HandleOutcome::Renewed { popped_at: index };
                    let visible_at = self.now + change.invisible_ms as i64;
                    let held = self.held.get_mut(&(consumed(&handle), handle.offset)).unwrap();
                    let (attempt, changed_by) = (held.attempt, change.request);
                    *held = Held { attempt, popped_at: index, visible_at, attempt_id: None, changed_by };
                }
                assert_eq!(*outcomes, [expected], "{handle:?}");
            }
            (Command::Release(release), Outcome::Handles(outcomes)) => {
                assert_eq!(release.messages.len(), outcomes.len());
                let soon = self.now + release.after_ms as i64;
                for (entry, outcome) in release.messages.iter().zip(outcomes) {
                    let handle = entry.handle.unwrap();
                    let mut expected = self.judge(&handle);
                    if expected == HandleOutcome::Done {
                        let held = self.held.get_mut(&(consumed(&handle), handle.offset)).unwrap();
                        if held.visible_at == entry.visible_at_ms {
                            held.visible_at = held.visible_at.min(soon);
                        } else {
                            expected = HandleOutcome::Superseded;
                        }
                    }
                    assert_eq!(*outcome, expected, "{handle:?}");
                }
            }
            (Command::DeadLetter(letter), outcome) => self.dead_letter(letter, outcome),
            (Command::Snapshot, Outcome::Done) => {
                self.points.insert(index, self.queues.clone());
            }
            (Command::Purge { upto_index }, Outcome::Done) => self.purge(*upto_index),
            (Command::Purge { upto_index }, Outcome::Refused(_)) => {
                assert!(*upto_index > self.purged && !self.points.contains_key(upto_index));
            }
            other => panic!("no outcome of this command: {other:?}"),
        }
    }

    fn purge(&mut self, upto_index: u64) {
        if upto_index <= self.purged {
            return;
        }
        self.purged = upto_index;
        let mins = self.points[&upto_index].clone();
        self.points.retain(|index, _| *index > upto_index);
        for (queue, min) in mins {
            self.mins.insert(queue, min);
            self.held.retain(|((_, topic, id), offset), _| (*topic, *id) != queue || *offset >= min);
            let of_queue = self.cursors.iter_mut().filter(|((_, topic, id), _)| (*topic, *id) == queue);
            of_queue.for_each(|(_, cursor)| *cursor = min.max(*cursor));
        }
    }

    fn append(&mut self, entry: &AppendEntry, outcome: AppendOutcome) {
        let (topic, queue, id) = (entry.topic.0, entry.queue.0, entry.message_id.to_vec());
        if !self.topics.contains_key(&topic) {
            return assert_eq!(outcome, AppendOutcome::UnknownTopic);
        }
        if let Some(first) = self.window.iter().find(|s| s.topic == topic && s.id == id && !id.is_empty()) {
            let Stored { queue, offset, physical, .. } = *first;
            let (queue, offset) = (QueueId(queue), QueueOffset(offset));
            return assert_eq!(outcome, AppendOutcome::Stored { queue, offset, physical, repeated: true });
        }
        let Some(next) = self.queues.get_mut(&(topic, queue)) else {
            return assert_eq!(outcome, AppendOutcome::UnknownQueue);
        };
        let AppendOutcome::Stored { queue: in_queue, offset, physical, repeated } = outcome else {
            panic!("not stored: {outcome:?}");
        };
        assert_eq!((in_queue.0, offset.0, repeated), (queue, *next, false));
        *next += 1;
        if !id.is_empty() {
            self.window.push(Stored { topic, id, queue, offset: offset.0, physical, at: self.now });
        }
        let over = self.window.len().saturating_sub(self.limits.stored_once_count_max);
        self.window.drain(..over);
    }

    fn put_topic(&mut self, uid: u64, version: u64, groups: &[u32]) {
        let known = self.topics.get(&uid).copied().unwrap_or(0);
        if !self.removed.contains(&uid) && version > known {
            self.topics.insert(uid, version);
            for (queue, _) in (0u32..).zip(groups).filter(|(_, group)| **group == crate::harness::GROUP.0) {
                self.queues.entry((uid, queue)).or_insert(0);
            }
        }
    }

    fn pop(&mut self, index: u64, pop: &Pop, outcome: &Outcome) {
        let Some((_, attempts_max)) = self.attempts_max.get(&pop.consumer_group).copied() else {
            return assert_eq!(*outcome, Outcome::UnknownConsumerGroup);
        };
        if !self.topics.contains_key(&pop.topic) {
            return assert_eq!(*outcome, Outcome::UnknownTopic);
        }
        let visible_at = self.now + pop.invisible_ms as i64;
        let batch = self.batch_of(pop);
        if let Some((queue, popped_at)) = batch.first().map(|(place, held)| (place.0.2, held.popped_at)) {
            let messages = batch.iter().map(|((_, offset), held)| message(*offset, held.attempt)).collect();
            batch.into_iter().for_each(|(place, held)| {
                self.held.insert(place, Held { visible_at, ..held });
            });
            return assert_taken(outcome, popped_at, visible_at, queue, messages);
        }
        let place = (pop.consumer_group, pop.topic, pop.queue);
        let min = self.mins.get(&(pop.topic, pop.queue)).copied().unwrap_or(0);
        let cursor = self.cursors.get(&place).copied().unwrap_or(min);
        assert!(cursor >= min, "what was purged is not taken");
        if cursor != pop.from {
            let cursor = QueueOffset(cursor);
            return assert_eq!(*outcome, Outcome::Pop(PopOutcome::Stale { cursor }));
        }
        let messages = self.take(index, place, attempts_max, pop, visible_at);
        assert_taken(outcome, index, visible_at, pop.queue, messages);
    }

    /// What an attempt id still holds, in the order in which it was handed out.
    fn batch_of(&self, pop: &Pop) -> Vec<((Consumed, u64), Held)> {
        let limit = self.limits.attempt_ids_ms as i64;
        let same = |((place, _), held): &(&(Consumed, u64), &Held)| {
            (place.0, place.1) == (pop.consumer_group, pop.topic)
                && held.attempt_id.as_ref().is_some_and(|(id, at, _)| *id == pop.attempt_id && self.now - at < limit)
        };
        let mut batch: Vec<_> = self.held.iter().filter(same).map(|(place, held)| (*place, held.clone())).collect();
        batch.sort_by_key(|(_, held)| held.attempt_id.as_ref().map(|(_, _, order)| *order));
        if pop.attempt_id.is_empty() { Vec::new() } else { batch }
    }

    fn take(
        &mut self,
        index: u64,
        place: Consumed,
        attempts_max: u32,
        pop: &Pop,
        visible_at: i64,
    ) -> Vec<PoppedMessage> {
        let mut messages: Vec<PoppedMessage> = Vec::new();
        let mut hold = |oracle: &mut Oracle, offset: u64, attempt: u32| {
            assert!(!oracle.finished.contains(&(place, offset)), "{offset} was finished and came back");
            let attempt_id = (!pop.attempt_id.is_empty()).then(|| (pop.attempt_id.clone(), oracle.now, messages.len()));
            let held = Held { attempt, popped_at: index, visible_at, attempt_id, changed_by: 0 };
            let before = oracle.held.insert((place, offset), held);
            assert!(before.as_ref().is_none_or(|held| held.visible_at <= oracle.now), "{offset} has another holder");
            assert_eq!(before.map_or(0, |held| held.attempt) + 1, attempt);
            messages.push(message(offset, attempt));
        };
        for again in &pop.again {
            let Some(held) = self.held.get(&(place, again.offset)) else { continue };
            if held.attempt == again.attempt && held.visible_at <= self.now && held.attempt < attempts_max {
                let attempt = held.attempt + 1;
                hold(self, again.offset, attempt);
            }
        }
        let mut cursor = pop.next;
        for fresh in &pop.fresh {
            if self.held.range((place, 0)..=(place, u64::MAX)).count() == self.limits.in_flight_count_max {
                cursor = *fresh;
                break;
            }
            hold(self, *fresh, 1);
        }
        self.cursors.insert(place, cursor);
        // A new batch takes the id over from an older one that is forgotten by time.
        for ((of, _), held) in &mut self.held {
            let same = held.attempt_id.as_ref().is_some_and(|(id, ..)| *id == pop.attempt_id);
            if same && (of.0, of.1) == (place.0, place.1) && held.popped_at != index && !messages.is_empty() {
                held.attempt_id = None;
            }
        }
        messages
    }

    fn dead_letter(&mut self, letter: &DeadLetter, outcome: &Outcome) {
        let handle = letter.handle.unwrap();
        let mut expected = self.judge(&handle);
        if handle.popped_at == 0
            && let Some(held) = self.held.get(&(consumed(&handle), handle.offset))
        {
            let (_, attempts_max) = self.attempts_max[&handle.consumer_group];
            let over = held.attempt >= attempts_max && held.visible_at <= self.now && held.attempt == handle.attempt;
            expected = if over { HandleOutcome::Done } else { HandleOutcome::Superseded };
        }
        if expected == HandleOutcome::Done {
            let Some(next) = self.queues.get_mut(&(letter.letter_topic, letter.letter_queue)) else {
                return assert_eq!(*outcome, Outcome::UnknownTopic);
            };
            *next += 1;
            self.finish(&handle);
        }
        assert_eq!(*outcome, Outcome::Handles(vec![expected]), "{handle:?}");
    }

    fn judge(&self, handle: &HandleKey) -> HandleOutcome {
        let place = consumed(handle);
        let Some(cursor) = self.cursors.get(&place) else { return HandleOutcome::Gone };
        match self.held.get(&(place, handle.offset)) {
            Some(held) if (held.attempt, held.popped_at) == (handle.attempt, handle.popped_at) => HandleOutcome::Done,
            Some(_) => HandleOutcome::Superseded,
            None if handle.offset < *cursor => HandleOutcome::Gone,
            None => HandleOutcome::Superseded,
        }
    }

    fn finish(&mut self, handle: &HandleKey) {
        let place = (consumed(handle), handle.offset);
        assert!(self.held.remove(&place).is_some());
        self.finished.insert(place);
    }

    fn forget(&mut self, gone: impl Fn(Consumed) -> bool) {
        self.cursors.retain(|place, _| !gone(*place));
        self.held.retain(|(place, _), _| !gone(*place));
    }
}

fn consumed(handle: &HandleKey) -> Consumed {
    (handle.consumer_group, handle.topic, handle.queue)
}

fn message(offset: u64, attempt: u32) -> PoppedMessage {
    PoppedMessage { offset: QueueOffset(offset), attempt }
}

fn assert_taken(outcome: &Outcome, popped_at: u64, visible_at: i64, queue: u32, messages: Vec<PoppedMessage>) {
    let (visible_at, queue) = (Timestamp(visible_at), QueueId(queue));
    assert_eq!(*outcome, Outcome::Pop(PopOutcome::Taken { popped_at, visible_at, queue, messages }));
}
