//! A log of real payloads, and replicas that apply it as a runtime does.

use bytes::Bytes;
use raftmq_model::batch::{Batch, BatchWriter};
use raftmq_model::command::{Append, AppendEntry, Command, Outcome};
use raftmq_model::config::{ConsumerGroupConfig, TopicConfig};
use raftmq_model::ids::{GroupId, PhysicalOffset, Position, QueueId, QueueOffset, Timestamp, TopicUid};
use raftmq_model::machine::{Changes, Enqueue, GroupState, Limits, Loader, Write};
use std::collections::BTreeMap;
use std::convert::Infallible;

pub(crate) const GROUP: GroupId = GroupId(1);
/// Bytes before a payload in the log, so that positions are not small numbers.
const FRAME_BYTES: u64 = 48;

pub(crate) struct Entry {
    pub(crate) at: Position,
    pub(crate) payload: Bytes,
}

#[derive(Default)]
pub(crate) struct Log {
    pub(crate) entries: Vec<Entry>,
    end: u64,
}

impl Log {
    /// Appends one entry and returns its index, from 1.
    pub(crate) fn push(&mut self, now: i64, commands: &[Command]) -> u64 {
        let mut batch = BatchWriter::new(Timestamp(now));
        commands.iter().for_each(|command| batch.push(&command.encode()));
        let payload = batch.finish();
        let index = self.entries.len() as u64 + 1;
        let payload_offset = PhysicalOffset(self.end + FRAME_BYTES);
        self.end = payload_offset.0 + payload.len() as u64;
        self.entries.push(Entry { at: Position { term: 1, index, payload_offset }, payload });
        index
    }
}

/// A group's state with the stores that a runtime keeps beside it.
pub(crate) struct Replica {
    pub(crate) state: GroupState,
    pub(crate) limits: Limits,
    pub(crate) pairs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(crate) units: BTreeMap<(TopicUid, QueueId), Vec<Enqueue>>,
    pub(crate) applied: usize,
    /// Entries before this one are not in the replica's log.
    pub(crate) first: usize,
    /// The snapshots that were to be kept, by log index.
    pub(crate) snapshots: BTreeMap<u64, Snapshot>,
    changes: Changes,
}

/// What a replica needs to start without the log before; the units only as far as later ones follow them.
#[derive(Clone)]
pub(crate) struct Snapshot {
    pairs: BTreeMap<Vec<u8>, Vec<u8>>,
    applied: usize,
}

impl Replica {
    pub(crate) fn new(limits: Limits) -> Replica {
        let state = GroupState::with_limits(GROUP, limits);
        let (pairs, units, snapshots) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Replica { state, limits, pairs, units, applied: 0, first: 0, snapshots, changes: Changes::default() }
    }

    /// Applies the next entry.
    pub(crate) fn apply(&mut self, log: &Log) -> Vec<Outcome> {
        let entry = &log.entries[self.applied];
        self.applied += 1;
        let batch = Batch::decode(entry.payload.clone()).unwrap();
        let apply = |(at, bytes)| {
            let command = Command::decode(bytes).unwrap();
            self.state.apply(entry.at, at, batch.now, &command, &mut self.changes)
        };
        let outcomes = batch.commands().map(apply).collect();
        for enqueue in self.changes.enqueues.drain(..) {
            let units = self.units.entry((enqueue.topic, enqueue.queue)).or_default();
            let begins =
                units.last().map_or(if self.first == 0 { 0 } else { enqueue.offset.0 }, |last| last.offset.0 + 1);
            assert_eq!(enqueue.offset.0, begins, "offsets of a queue are consecutive");
            units.push(enqueue);
            // The unit points at a record of this entry.
            let at = (enqueue.physical.0 - entry.at.payload_offset.0) as usize;
            assert!(entry.payload[at..at + enqueue.size as usize].starts_with(b"record "));
        }
        if self.state.end_entry(entry.at, &mut self.changes) {
            self.apply_end();
            let snapshot = Snapshot { pairs: self.exported(), applied: self.applied };
            self.snapshots.insert(entry.at.index, snapshot);
        }
        outcomes
    }

    fn exported(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let mut pairs = BTreeMap::new();
        self.state.export(|key, value| {
            let last = pairs.last_key_value().map(|(last, _): (&Vec<u8>, _)| last.clone());
            assert!(last.is_none_or(|last| last < key), "pairs come in key order");
            pairs.insert(key, value);
        });
        pairs
    }

    /// A blank replica that starts from a snapshot, with the log behind it.
    pub(crate) fn started_from(snapshot: &Snapshot, limits: Limits) -> Replica {
        let mut loader = Loader::with_limits(GROUP, limits);
        snapshot.pairs.iter().for_each(|(key, value)| loader.add(key, value).unwrap());
        let (pairs, applied) = (snapshot.pairs.clone(), snapshot.applied);
        Replica { state: loader.finish(), pairs, applied, first: applied, ..Replica::new(limits) }
    }

    /// Ends a run of entries.
    pub(crate) fn apply_end(&mut self) {
        self.state.flush_dirty(&mut self.changes);
        for write in self.changes.writes.drain(..) {
            match write {
                Write::Put { key, value } => self.pairs.insert(key, value),
                Write::Delete { key } => self.pairs.remove(&key),
            };
        }
        self.units.retain(|(topic, _), _| !self.changes.topics_removed.contains(topic));
        self.changes.clear();
    }

    /// What a restart makes of the pairs, the units and the log.
    pub(crate) fn restart(&self, log: &Log) -> Replica {
        let mut loader = Loader::with_limits(GROUP, self.limits);
        self.pairs.iter().for_each(|(key, value)| loader.add(key, value).unwrap());
        let mut state = loader.finish();
        let from = state.window_replay_from().unwrap_or(u64::MAX);
        for entry in log.entries[self.first..self.applied].iter().filter(|entry| entry.at.index >= from) {
            let batch = Batch::decode(entry.payload.clone()).unwrap();
            for (at, bytes) in batch.commands() {
                let command = Command::decode(bytes).unwrap();
                let offset_of = |topic, queue, physical| Ok::<_, Infallible>(self.offset_of(topic, queue, physical));
                state.remember_append(entry.at, at, batch.now, &command, offset_of).unwrap();
            }
        }
        let changes = Changes::default();
        let (pairs, units, applied) = (self.pairs.clone(), self.units.clone(), self.applied);
        let snapshots = self.snapshots.clone();
        Replica { state, limits: self.limits, pairs, units, applied, first: self.first, snapshots, changes }
    }

    /// A new replica from a snapshot of this one; its log begins behind.
    pub(crate) fn installed(&self) -> Replica {
        let pairs = self.exported();
        let mut loader = Loader::with_limits(GROUP, self.limits);
        pairs.iter().for_each(|(key, value)| loader.add(key, value).unwrap());
        let (units, applied) = (self.units.clone(), self.applied);
        let (state, changes, snapshots) = (loader.finish(), Changes::default(), self.snapshots.clone());
        Replica { state, limits: self.limits, pairs, units, applied, first: applied, snapshots, changes }
    }

    fn offset_of(&self, topic: TopicUid, queue: QueueId, physical: PhysicalOffset) -> Option<QueueOffset> {
        let units = self.units.get(&(topic, queue))?;
        units.iter().find(|unit| unit.physical == physical).map(|unit| unit.offset)
    }
}

pub(crate) fn topic(uid: u64, version: u64, queue_groups: &[u32]) -> Command {
    let (name, topic_type, permission) = (format!("topic-{uid}"), 1, 6);
    Command::PutTopic(TopicConfig { uid, version, name, topic_type, permission, queue_groups: queue_groups.to_vec() })
}

pub(crate) fn consumer_group(uid: u64, version: u64, attempts_max: u32) -> Command {
    let name = format!("group-{uid}");
    let (fifo, consume_enabled) = (false, true);
    Command::PutConsumerGroup(ConsumerGroupConfig { uid, version, name, fifo, attempts_max, consume_enabled })
}

/// `entries`: topic, queue and message id of each.
pub(crate) fn append(entries: &[(u64, u32, &str)]) -> Command {
    let entries = entries.iter().map(|(topic, queue, id)| AppendEntry {
        topic: TopicUid(*topic),
        queue: QueueId(*queue),
        tags_code: 7,
        message_id: Bytes::copy_from_slice(id.as_bytes()),
        record: Bytes::from(format!("record {id}")),
        record_at: 0,
    });
    Command::Append(Append { entries: entries.collect() })
}
