//! Snapshots and what is purged: both are decisions of the log, so that every replica forgets the same messages.
//!
//! ```text
//!   purged            kept snapshots               log end
//!     |   messages      |            |  messages     |
//! ----S---------------- S ---------- S --------------
//!     first offsets of queues: what their next offset was at the purge point
//! ```
//! `Snapshot` makes the entry it is in a [`SnapshotPoint`]: the runtime keeps the state as it is behind that entry.
//! `Purge` makes one of these the purge point: queues begin at the offsets that were next there, cursors move up to them and
//! what was in flight before them is forgotten, as RocketMQ does with messages that have expired. A replica without the
//! log before the purge point starts from its snapshot and ends with the same messages as the others.

use super::changes::Changes;
use super::{ConsumedQueue, GroupState, key};
use crate::command::Outcome;
use crate::ids::{PhysicalOffset, Position, QueueId, QueueOffset, Timestamp, TopicUid};
use std::collections::BTreeMap;

/// Snapshots that are kept behind the purge point; beyond it the one that adds least is given up.
pub const SNAPSHOT_POINTS_COUNT_MAX: usize = 16;

/// An entry at which replicas keep a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotPoint {
    /// Log index of the entry.
    pub index: u64,
    /// Where its payload lies.
    pub offset: PhysicalOffset,
    /// The log clock there: what lies before is not younger.
    pub at: Timestamp,
    /// Next offsets of all queues behind the entry, by topic and queue.
    pub queues: Vec<(TopicUid, QueueId, QueueOffset)>,
}

/// The purge point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Purged {
    /// Log index of the last entry that is forgotten; 0: nothing is.
    pub index: u64,
    /// Where its payload lay.
    pub offset: PhysicalOffset,
}

impl GroupState {
    /// The kept snapshots behind the purge point, oldest first.
    #[must_use]
    pub fn snapshot_points(&self) -> &[SnapshotPoint] {
        &self.retention.points
    }

    /// The purge point.
    #[must_use]
    pub fn purged(&self) -> Purged {
        self.retention.purged
    }

    /// The first offset of a queue that was not purged; 0 for a queue that this group does not host.
    #[must_use]
    pub fn queue_min(&self, topic: TopicUid, queue: QueueId) -> QueueOffset {
        let known = self.topics.get(&topic).and_then(|topic| topic.queues.get(&queue));
        known.map_or(QueueOffset(0), |queue| queue.min)
    }

    pub(super) fn snapshot(&mut self) -> Outcome {
        self.retention.asked = true;
        Outcome::Done
    }

    /// To be called when all commands of the entry at `at` are applied. True when a snapshot of the state is to be kept
    /// that holds exactly the entries up to this one: then nothing may be applied before [`GroupState::flush_dirty`] and
    /// [`GroupState::export`].
    pub fn end_entry(&mut self, at: Position, changes: &mut Changes) -> bool {
        if !std::mem::take(&mut self.retention.asked) {
            return false;
        }
        let queues = self.queues().collect();
        let point = SnapshotPoint { index: at.index, offset: at.payload_offset, at: self.now, queues };
        changes.put(key::snapshot_point::key(point.index), key::snapshot_point::value(&point));
        self.retention.points.push(point);
        if self.retention.points.len() > SNAPSHOT_POINTS_COUNT_MAX {
            let least = self.retention.least_useful();
            let given_up = self.retention.points.remove(least);
            changes.delete(key::snapshot_point::key(given_up.index));
        }
        true
    }

    pub(super) fn purge(&mut self, upto_index: u64, changes: &mut Changes) -> Outcome {
        if upto_index <= self.retention.purged.index {
            return Outcome::Done;
        }
        let Some(at) = self.retention.points.iter().position(|point| point.index == upto_index) else {
            return Outcome::Refused(format!("entry {upto_index} is no snapshot, so nothing can be purged up to it"));
        };
        let gone: Vec<SnapshotPoint> = self.retention.points.drain(..=at).collect();
        for point in &gone {
            changes.delete(key::snapshot_point::key(point.index));
        }
        let Some(point) = gone.last() else { return Outcome::Done };
        self.retention.purged = Purged { index: point.index, offset: point.offset };
        changes.put(key::purged::key(), key::purged::value(self.retention.purged));
        let mut moved = BTreeMap::new();
        for (topic, queue, min) in &point.queues {
            let known = self.topics.get_mut(topic).and_then(|topic| topic.queues.get_mut(queue));
            // A topic that was deleted since has no queue any more.
            let Some(known) = known.filter(|known| known.min < *min) else { continue };
            known.min = *min;
            changes.put(key::queue_min::key(*topic, *queue), key::queue_min::value(*min));
            moved.insert((*topic, *queue), *min);
        }
        let consumed: Vec<ConsumedQueue> = self.consumptions.keys().copied().collect();
        for consumed in consumed {
            if let Some(min) = moved.get(&(consumed.topic, consumed.queue)) {
                self.purge_consumption(consumed, *min, changes);
            }
        }
        Outcome::Done
    }

    fn purge_consumption(&mut self, consumed: ConsumedQueue, min: QueueOffset, changes: &mut Changes) {
        let Some(mut flight) = self.flight(consumed) else { return };
        let gone: Vec<QueueOffset> = flight.queue.in_flight.range(..min).map(|(offset, _)| *offset).collect();
        for offset in gone {
            flight.finish(offset, changes);
        }
        if flight.queue.cursor < min {
            flight.queue.cursor = min;
            if !std::mem::replace(&mut flight.queue.dirty, true) {
                self.dirty.cursors.push(consumed);
            }
        }
    }
}

/// Purge point and snapshots of a state.
#[derive(Clone, Debug, Default)]
pub(super) struct Retention {
    pub(super) purged: Purged,
    pub(super) points: Vec<SnapshotPoint>,
    /// A command of the entry that is being applied asked for a snapshot.
    asked: bool,
}

impl Retention {
    /// The point between two others whose neighbours are closest to each other: without it the steps in which the log can be
    /// purged stay as even as they can. Never the oldest or the newest one.
    fn least_useful(&self) -> usize {
        let gap = |at: usize| self.points[at + 1].offset.0 - self.points[at - 1].offset.0;
        (1..self.points.len() - 1).min_by_key(|at| gap(*at)).unwrap_or(0)
    }
}
