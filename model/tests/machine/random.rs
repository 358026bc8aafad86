//! Random logs: each outcome is judged by the oracle, and every way of getting through the log ends in one state.

use crate::harness::{Log, Replica, append, consumer_group, topic};
use crate::oracle::Oracle;
use bytes::Bytes;
use proptest::prelude::*;
use raftmq_model::command::{
    Ack, ChangeInvisible, Command, DeadLetter, HandleKey, HandleOutcome, Outcome, Pop, PopAgain, PopOutcome, Release,
    ReleaseEntry,
};
use raftmq_model::ids::{ConsumerGroupUid, QueueId, Timestamp, TopicUid};
use raftmq_model::machine::{GroupState, Limits};

const LIMITS: Limits = Limits {
    stored_once_count_max: 12,
    stored_once_ms: 60,
    stored_once_id_bytes_max: 1 << 20,
    attempt_ids_count_max: 1000,
    attempt_ids_ms: 40,
    attempt_id_bytes_max: 16,
    in_flight_count_max: 5,
    pop_count_max: 100,
};
const LETTERS: u64 = 9;
const QUEUES: u32 = 2;

/// One step, made into a command when it is its turn, by what the state is then.
#[derive(Clone, Debug)]
enum Step {
    Append {
        topic: u64,
        queues: Vec<u32>,
        id: u32,
    },
    Pop {
        group: u64,
        topic: u64,
        queue: u32,
        count: u64,
        skip: u64,
        off: u64,
        invisible: u64,
        attempt: u8,
        blind: bool,
    },
    Ack {
        nth: usize,
        more: usize,
    },
    Change {
        nth: usize,
        invisible: u64,
        request: u64,
    },
    Release {
        nth: usize,
        more: usize,
        after: u64,
        off: i64,
    },
    Letter {
        nth: usize,
        driver: bool,
    },
    Tick(u8),
    Backwards,
    Attempts {
        group: u64,
        attempts: u32,
    },
    Delete {
        topic: bool,
        which: u64,
    },
    Grow,
    Restart,
    Snapshot,
    Purge {
        nth: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let pop =
        (1..3u64, 1..3u64, 0..QUEUES, 0..4u64, 0..3u64, prop::bool::weighted(0.1), 0..30u64, 0..5u8, any::<bool>());
    prop_oneof![
        8 => (1..3u64, prop::collection::vec(0..QUEUES + 1, 1..4), 0..30u32)
            .prop_map(|(topic, queues, id)| Step::Append { topic, queues, id }),
        10 => pop.prop_map(|(group, topic, queue, count, skip, off, invisible, attempt, blind)| {
            Step::Pop { group, topic, queue, count, skip, off: off.into(), invisible, attempt, blind }
        }),
        6 => (any::<usize>(), 0..3usize).prop_map(|(nth, more)| Step::Ack { nth, more }),
        3 => (any::<usize>(), 0..20u64, 0..4u64)
            .prop_map(|(nth, invisible, request)| Step::Change { nth, invisible, request }),
        3 => (any::<usize>(), 0..3usize, 0..20u64, prop::bool::weighted(0.2))
            .prop_map(|(nth, more, after, off)| Step::Release { nth, more, after, off: off.into() }),
        3 => (any::<usize>(), any::<bool>()).prop_map(|(nth, driver)| Step::Letter { nth, driver }),
        6 => (0..20u8).prop_map(Step::Tick),
        1 => Just(Step::Backwards),
        1 => (1..3u64, 1..4u32).prop_map(|(group, attempts)| Step::Attempts { group, attempts }),
        1 => (prop::bool::weighted(0.5), 0..40u64).prop_map(|(topic, which)| Step::Delete { topic, which }),
        1 => Just(Step::Grow),
        2 => Just(Step::Restart),
        2 => Just(Step::Snapshot),
        1 => any::<usize>().prop_map(|nth| Step::Purge { nth }),
    ]
}

struct Run {
    log: Log,
    replica: Replica,
    oracle: Oracle,
    handles: Vec<HandleKey>,
    now: i64,
    versions: u64,
}

impl Run {
    fn new() -> Run {
        let mut run = Run {
            log: Log::default(),
            replica: Replica::new(LIMITS),
            oracle: Oracle::new(LIMITS),
            handles: Vec::new(),
            now: 100,
            versions: 10,
        };
        run.apply(topic(1, 1, &[1, 1]));
        run.apply(topic(2, 1, &[1, 1]));
        run.apply(topic(LETTERS, 1, &[1]));
        run.apply(consumer_group(101, 1, 3));
        run.apply(consumer_group(102, 1, 2));
        run
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Append { topic, queues, id } => {
                let ids: Vec<String> = (0..queues.len()).map(|n| format!("{:04X}", (*id as usize + n) % 30)).collect();
                let entries: Vec<_> =
                    queues.iter().zip(&ids).map(|(queue, id)| (*topic, *queue, id.as_str())).collect();
                self.apply(append(&entries));
            }
            Step::Pop { .. } => {
                let pop = plan(&self.replica.state, step, Timestamp(self.now));
                self.apply(Command::Pop(pop));
            }
            Step::Ack { nth, more } => {
                let handles = (0..=*more).filter_map(|n| self.handle(nth.wrapping_add(n * 7))).collect();
                self.apply(Command::Ack(Ack { handles }));
            }
            Step::Change { nth, invisible, request } => {
                if let Some(handle) = self.handle(*nth) {
                    let (invisible_ms, request) = (*invisible, *request);
                    let change = ChangeInvisible { handle: Some(handle), invisible_ms, request };
                    self.apply(Command::ChangeInvisible(change));
                }
            }
            Step::Release { nth, more, after, off } => {
                let handles = (0..=*more).filter_map(|n| self.handle(nth.wrapping_add(n * 7)));
                let messages = handles
                    .map(|handle| ReleaseEntry { handle: Some(handle), visible_at_ms: self.visible_at(&handle) + off });
                let messages = messages.collect();
                self.apply(Command::Release(Release { messages, after_ms: *after }));
            }
            Step::Letter { nth, driver } => self.letter(*nth, *driver),
            Step::Tick(ms) => self.now += i64::from(*ms),
            Step::Backwards => {
                self.now -= 30;
                self.apply(append(&[(1, 0, "")]));
                self.now += 30;
            }
            Step::Attempts { group, attempts } => {
                self.versions += 1;
                self.apply(consumer_group(100 + group, self.versions, *attempts));
            }
            Step::Delete { topic: true, which } if *which < 2 => self.apply(Command::DeleteTopic { uid: 1 + which }),
            Step::Delete { topic: false, which } if *which < 2 => {
                self.apply(Command::DeleteConsumerGroup { uid: 101 + which });
            }
            Step::Delete { .. } => {}
            Step::Grow => {
                self.versions += 1;
                self.apply(topic(1, self.versions, &[1, 1, 1]));
            }
            Step::Snapshot => self.apply(Command::Snapshot),
            Step::Purge { nth } => {
                let points: Vec<u64> = self.replica.state.snapshot_points().iter().map(|point| point.index).collect();
                // Now and then one that is none.
                let upto_index = points.get(nth % (points.len() + 1)).copied().unwrap_or(7);
                self.apply(Command::Purge { upto_index });
            }
            Step::Restart => {
                self.replica.apply_end();
                self.replica = self.replica.restart(&self.log);
            }
        }
    }

    fn letter(&mut self, nth: usize, driver: bool) {
        let over = self.replica.state.exhausted(Timestamp(self.now), 3);
        let Some(handle) = (if driver { over.first().copied() } else { self.handle(nth) }) else { return };
        let (letter_topic, letter_queue) = (LETTERS, 0);
        let letter = Bytes::from_static(b"record of a dead letter");
        let letter = DeadLetter { handle: Some(handle), letter_topic, letter_queue, letter_tags_code: -3, letter };
        self.apply(Command::DeadLetter(letter));
    }

    /// One of the handles that were given out, mostly a late one.
    fn handle(&self, nth: usize) -> Option<HandleKey> {
        let last = self.handles.len().checked_sub(1)?;
        let at = if nth.is_multiple_of(4) { nth % (last + 1) } else { last - nth % (last.min(5) + 1) };
        self.handles.get(at).copied()
    }

    /// When the message of a handle becomes visible again; 0 when it is not in flight.
    fn visible_at(&self, handle: &HandleKey) -> i64 {
        let place = (ConsumerGroupUid(handle.consumer_group), TopicUid(handle.topic), QueueId(handle.queue));
        let mut in_flight = self.replica.state.in_flight(place.0, place.1, place.2);
        in_flight.find(|(offset, _)| offset.0 == handle.offset).map_or(0, |(_, record)| record.visible_at.0)
    }

    fn apply(&mut self, command: Command) {
        let index = self.log.push(self.now, std::slice::from_ref(&command));
        let outcome = self.replica.apply(&self.log).remove(0);
        self.oracle.check(index, self.now, &command, &outcome);
        self.note_handles(&command, &outcome);
    }

    fn note_handles(&mut self, command: &Command, outcome: &Outcome) {
        match (command, outcome) {
            (Command::Pop(pop), Outcome::Pop(PopOutcome::Taken { popped_at, queue, messages, .. })) => {
                self.handles.extend(messages.iter().map(|message| HandleKey {
                    consumer_group: pop.consumer_group,
                    topic: pop.topic,
                    queue: queue.0,
                    offset: message.offset.0,
                    attempt: message.attempt,
                    popped_at: *popped_at,
                }));
            }
            (Command::ChangeInvisible(change), Outcome::Handles(outcomes)) => {
                if let [HandleOutcome::Renewed { popped_at }] = outcomes[..] {
                    self.handles.push(HandleKey { popped_at, ..change.handle.unwrap() });
                }
            }
            _ => {}
        }
    }
}

/// A plan as a leader makes it, sometimes from an old cursor or for messages that are not due.
fn plan(state: &GroupState, step: &Step, now: Timestamp) -> Pop {
    let Step::Pop { group, topic, queue, count, skip, off, invisible, attempt, blind } = *step else {
        panic!("no pop: {step:?}");
    };
    let (consumer_group, topic_uid, queue_id) = (ConsumerGroupUid(100 + group), TopicUid(topic), QueueId(queue));
    let max = state.queue_max(topic_uid, queue_id).map_or(0, |max| max.0);
    let from = state.cursor(consumer_group, topic_uid, queue_id).0.saturating_sub(off);
    let next = max.min(from + count * (skip + 1));
    let fresh = (from..next).filter(|offset| (offset - from) % (skip + 1) == 0).collect();
    let again = if blind {
        state.in_flight(consumer_group, topic_uid, queue_id).map(|(offset, record)| (offset, record.attempt)).collect()
    } else {
        state.due(consumer_group, topic_uid, queue_id, now, 3)
    };
    let again = again.into_iter().map(|(offset, attempt)| PopAgain { offset: offset.0, attempt }).collect();
    let attempt_id = if attempt < 3 { format!("attempt-{attempt}") } else { String::new() };
    let consumer_group = consumer_group.0;
    Pop { consumer_group, topic, queue, from, next, fresh, again, invisible_ms: invisible, attempt_id }
}

/// Applies a whole log in runs of `run` entries, restarting after every `restart` runs (0: never).
fn replay(log: &Log, run: usize, restart: usize) -> Replica {
    let mut replica = Replica::new(LIMITS);
    let mut runs = 0;
    while replica.applied < log.entries.len() {
        for _ in 0..run.min(log.entries.len() - replica.applied) {
            replica.apply(log);
        }
        replica.apply_end();
        runs += 1;
        if restart > 0 && runs % restart == 0 {
            let restarted = replica.restart(log);
            assert_eq!(restarted.state.digest(), replica.state.digest(), "restarted behind entry {}", replica.applied);
            replica = restarted;
        }
    }
    replica
}

/// Applies a log and goes on from a snapshot in the middle, whose log begins behind it, with restarts.
fn replay_from_snapshot(log: &Log, at: usize) -> Replica {
    let mut replica = Replica::new(LIMITS);
    (0..at).for_each(|_| {
        replica.apply(log);
    });
    replica.apply_end();
    replica = replica.installed();
    while replica.applied < log.entries.len() {
        replica.apply(log);
        replica.apply_end();
        if replica.applied.is_multiple_of(5) {
            replica = replica.restart(log);
        }
    }
    replica
}

/// Starts blank from the snapshot of the purge point, as a replica does whose leader has no log before it.
fn replay_from_purge_point(log: &Log, whole: &Replica) -> Replica {
    let snapshot = &whole.snapshots[&whole.state.purged().index];
    let mut replica = Replica::started_from(snapshot, LIMITS);
    while replica.applied < log.entries.len() {
        replica.apply(log);
        replica.apply_end();
        if replica.applied.is_multiple_of(3) {
            replica = replica.restart(log);
        }
    }
    replica
}

fn assert_same_from_purge_point_on(log: &Log, whole: &Replica) {
    if whole.state.purged().index == 0 {
        return;
    }
    let late = replay_from_purge_point(log, whole);
    assert_eq!(late.state.digest(), whole.state.digest(), "started from the purge point");
    for (place, units) in &whole.units {
        let min = whole.state.queue_min(place.0, place.1);
        let kept: Vec<_> = units.iter().filter(|unit| unit.offset >= min).copied().collect();
        let late = late.units.get(place).cloned().unwrap_or_default();
        assert_eq!(late, kept, "a late replica has the messages of {place:?} that were not purged");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn outcomes_are_right_and_all_ways_lead_to_one_state(steps in prop::collection::vec(step(), 1..150)) {
        let mut run = Run::new();
        steps.iter().for_each(|step| run.step(step));
        run.replica.apply_end();
        let whole = replay(&run.log, usize::MAX, 0);
        prop_assert_eq!(whole.state.digest(), run.replica.state.digest(), "restarts change nothing");
        for (entries, restart) in [(1, 0), (3, 0), (1, 1), (7, 2)] {
            let replayed = replay(&run.log, entries, restart);
            prop_assert_eq!(replayed.state.digest(), whole.state.digest());
            prop_assert_eq!(&replayed.units, &whole.units);
        }
        let installed = replay_from_snapshot(&run.log, run.log.entries.len() / 2);
        prop_assert_eq!(installed.state.digest(), whole.state.digest());
        assert_same_from_purge_point_on(&run.log, &whole);
        // What is stored is the state, and nothing else.
        let mut exported = std::collections::BTreeMap::new();
        whole.state.export(|key, value| { exported.insert(key, value); });
        exported.retain(|key, _| !(0x0A..=0x0B).contains(&key[0]));
        let mut stored = whole.pairs.clone();
        stored.retain(|key, _| !(0x0A..=0x0B).contains(&key[0]));
        // A queue that never had a message has no key.
        exported.retain(|key, value| key[0] != 0x04 || stored.contains_key(key) || value[1..] != [0; 8]);
        prop_assert_eq!(exported, stored);
    }
}
