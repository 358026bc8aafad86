//! Which messages of a queue to take next: plans made ahead of apply (architecture §7.7).
//!
//! Several plans of one (consumer group, queue) may be under way at a time: each starts where the one before it ends.
//! Apply checks them in log order; the first whose premise does not hold is answered `Stale`, and all behind it. The
//! lane then starts over from the applied cursor. A lane without a plan under way always starts from the applied
//! cursor, so nothing here has to be right for the log to stay right.
//!
//! Threading: one mutex per lane, held while a plan is made (reads of the ConsumeQueue and, for tag filters, of
//! records); never across an await. Lock order: a lane, then the applied state; never a lane while the state is held
//! (a waiting apply blocks new readers, and would close the circle).

use crate::machine::MachineView;
use crate::units::{UnitDamage, is_of_queue};
use bytes::Bytes;
use parking_lot::Mutex;
use raftmq_model::command::{Pop, PopAgain};
use raftmq_model::filter::TagFilter;
use raftmq_model::ids::{ConsumerGroupUid, PhysicalOffset, QueueId, QueueOffset, Timestamp, TopicUid};
use raftmq_model::machine::{ConsumedQueue, GroupState};
use raftmq_model::record::{RecordView, property};
use raftmq_store::consume_queue::Unit;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

/// Where records are read from.
pub(super) trait Records {
    /// The `len` bytes of the record at `at`.
    fn record(&self, at: PhysicalOffset, len: u32) -> io::Result<Bytes>;
}

impl Records for raftmq_store::CommitLog {
    fn record(&self, at: PhysicalOffset, len: u32) -> io::Result<Bytes> {
        raftmq_store::CommitLog::record(self, at, len)
    }
}

/// What one receive asks of one queue.
pub(super) struct Ask<'a> {
    pub(super) consumer_group: ConsumerGroupUid,
    pub(super) topic: TopicUid,
    pub(super) queue: QueueId,
    pub(super) fifo: bool,
    pub(super) filter: &'a TagFilter,
    pub(super) invisible_ms: u64,
    /// Empty: none.
    pub(super) attempt_id: String,
    /// Most messages to take.
    pub(super) count_max: usize,
    /// Most bytes of records to take; one message is always taken.
    pub(super) bytes_max: usize,
    /// Most units to look at.
    pub(super) scan_count_max: usize,
    pub(super) now: Timestamp,
}

/// All lanes of a replica.
#[derive(Default)]
pub(super) struct Planner {
    lanes: Mutex<Lanes>,
}

#[derive(Default)]
struct Lanes {
    term: u64,
    by_queue: BTreeMap<ConsumedQueue, Arc<Mutex<Lane>>>,
}

/// The plans of one consumer group in one queue.
#[derive(Default)]
struct Lane {
    /// Grows each time the lane starts over; a plan of an earlier epoch has nothing to say any more.
    epoch: u64,
    /// Plans proposed and not answered yet.
    under_way: usize,
    /// Where the next plan starts while some are under way.
    next: QueueOffset,
    /// Offsets that plans under way take again.
    again: BTreeSet<u64>,
}

/// A plan, to be settled when its proposal is answered; dropping it settles it as lost.
pub(super) struct Plan {
    pub(super) pop: Pop,
    /// Records that the filter has read already, by offset.
    pub(super) records: BTreeMap<u64, Bytes>,
    /// Bytes of the records that it takes.
    pub(super) bytes: usize,
    lane: Arc<Mutex<Lane>>,
    epoch: u64,
    settled: bool,
}

impl Planner {
    /// Forgets the plans of earlier terms.
    pub(super) fn enter_term(&self, term: u64) {
        let mut lanes = self.lanes.lock();
        if lanes.term != term {
            *lanes = Lanes { term, by_queue: BTreeMap::new() };
        }
    }

    /// A plan for one queue, or `None` when there is nothing to propose.
    ///
    /// # Errors
    /// When a record that the filter has to look at cannot be read.
    pub(super) fn plan(&self, view: &MachineView, records: &dyn Records, ask: &Ask<'_>) -> io::Result<Option<Plan>> {
        let key = ConsumedQueue { consumer_group: ask.consumer_group, topic: ask.topic, queue: ask.queue };
        let lane = Arc::clone(self.lanes.lock().by_queue.entry(key).or_default());
        let mut held = lane.lock();
        let Some(mut look) = held.look(&view.state(), key, ask) else { return Ok(None) };
        let bytes = look.bound_again(view, ask)?;
        let fresh_max = (ask.count_max - look.again.len()).min(look.room);
        let mut scan = Scan { next: look.from, fresh: Vec::new(), records: BTreeMap::new(), bytes };
        if fresh_max > 0 && look.max > look.from && bytes < ask.bytes_max {
            scan.run(view, records, ask, look.max, fresh_max)?;
        }
        if scan.next == look.from && look.again.is_empty() {
            return Ok(None);
        }
        held.under_way += 1;
        held.next = scan.next;
        held.again.extend(look.again.iter().map(|again| again.offset));
        let pop = Pop {
            consumer_group: ask.consumer_group.0,
            topic: ask.topic.0,
            queue: ask.queue.0,
            from: look.from.0,
            next: scan.next.0,
            fresh: scan.fresh,
            again: look.again,
            invisible_ms: ask.invisible_ms,
            attempt_id: ask.attempt_id.clone(),
        };
        let epoch = held.epoch;
        drop(held);
        Ok(Some(Plan { pop, records: scan.records, bytes: scan.bytes, lane, epoch, settled: false }))
    }

    /// Whether a plan for this queue could find something; `false` only when it surely finds nothing.
    pub(super) fn may_yield(&self, view: &MachineView, key: ConsumedQueue, now: Timestamp) -> bool {
        let ConsumedQueue { consumer_group, topic, queue } = key;
        // Lock order: a lane, then the state.
        let (planned, again) = self.under_way(key);
        let state = view.state();
        let Some(max) = state.queue_max(topic, queue) else { return false };
        let due = state.due(consumer_group, topic, queue, now, again + 1).len() > again;
        let fifo = state.consumer_group(consumer_group).is_some_and(|group| group.fifo);
        if fifo && state.in_flight_count(consumer_group, topic, queue) > 0 {
            return due && again == 0 && head_is_due(&state, key, now);
        }
        let fresh = state.cursor(consumer_group, topic, queue).max(planned) < max
            && state.in_flight_room(consumer_group, topic, queue) > 0;
        fresh || due
    }

    /// Where the plans under way end, and how many messages they take again.
    fn under_way(&self, key: ConsumedQueue) -> (QueueOffset, usize) {
        let lane = self.lanes.lock().by_queue.get(&key).cloned();
        let planned = lane.and_then(|lane| {
            let lane = lane.lock();
            (lane.under_way > 0).then(|| (lane.next, lane.again.len()))
        });
        planned.unwrap_or_default()
    }
}

/// What the applied state and the plans under way leave to take.
struct Look {
    from: QueueOffset,
    max: QueueOffset,
    /// Fresh messages that may still be in flight beside what is.
    room: usize,
    again: Vec<PopAgain>,
}

impl Look {
    /// Cuts what is taken again to the bound on bytes; the bytes of the rest.
    fn bound_again(&mut self, view: &MachineView, ask: &Ask<'_>) -> io::Result<usize> {
        let mut bytes = 0;
        for (count, again) in self.again.iter().enumerate() {
            let units = view.queues().read(ask.topic, ask.queue, QueueOffset(again.offset), 1)?;
            bytes += units.first().map_or(0, |unit| unit.size as usize);
            if bytes >= ask.bytes_max {
                self.again.truncate(count + 1);
                break;
            }
        }
        Ok(bytes)
    }
}

impl Lane {
    fn look(&mut self, state: &GroupState, key: ConsumedQueue, ask: &Ask<'_>) -> Option<Look> {
        let ConsumedQueue { consumer_group, topic, queue } = key;
        let max = state.queue_max(topic, queue)?;
        let cursor = state.cursor(consumer_group, topic, queue);
        if self.under_way == 0 {
            self.again.clear();
            self.next = cursor;
        }
        let from = self.next.max(cursor);
        if ask.fifo && state.in_flight_count(consumer_group, topic, queue) > 0 {
            let again = fifo_again(state, key, ask);
            // One batch at a time: what is behind the first unfinished message waits for it.
            return (self.under_way == 0).then_some(Look { from, max, room: 0, again });
        }
        if ask.fifo && self.under_way > 0 {
            return None;
        }
        let due = state.due(consumer_group, topic, queue, ask.now, ask.count_max + self.again.len());
        let again = due
            .into_iter()
            .filter(|(offset, _)| !self.again.contains(&offset.0))
            .take(ask.count_max)
            .map(|(offset, attempt)| PopAgain { offset: offset.0, attempt })
            .collect();
        Some(Look { from, max, room: state.in_flight_room(consumer_group, topic, queue), again })
    }

    fn start_over(&mut self) {
        self.epoch += 1;
        self.under_way = 0;
        self.again.clear();
    }
}

/// In order: the longest run from the first message in flight whose time is over.
fn fifo_again(state: &GroupState, key: ConsumedQueue, ask: &Ask<'_>) -> Vec<PopAgain> {
    let now = ask.now.max(state.now());
    let attempts_max = state.consumer_group(key.consumer_group).map_or(1, |group| group.attempts_max.max(1));
    state
        .in_flight(key.consumer_group, key.topic, key.queue)
        .take_while(|(_, record)| record.visible_at <= now && record.attempt < attempts_max)
        .take(ask.count_max)
        .map(|(offset, record)| PopAgain { offset: offset.0, attempt: record.attempt })
        .collect()
}

fn head_is_due(state: &GroupState, key: ConsumedQueue, now: Timestamp) -> bool {
    let now = now.max(state.now());
    let attempts_max = state.consumer_group(key.consumer_group).map_or(1, |group| group.attempts_max.max(1));
    let head = state.in_flight(key.consumer_group, key.topic, key.queue).next();
    head.is_some_and(|(_, record)| record.visible_at <= now && record.attempt < attempts_max)
}

/// What a scan of fresh messages found.
struct Scan {
    next: QueueOffset,
    fresh: Vec<u64>,
    records: BTreeMap<u64, Bytes>,
    bytes: usize,
}

impl Scan {
    /// Looks at units until `fresh_max` match, a bound is reached or the queue ends at `max`.
    fn run(
        &mut self,
        view: &MachineView,
        records: &dyn Records,
        ask: &Ask<'_>,
        max: QueueOffset,
        fresh_max: usize,
    ) -> io::Result<()> {
        assert!(self.next < max, "a scan of {}..{max}", self.next);
        let count_max = if ask.filter.is_all() { fresh_max } else { ask.scan_count_max };
        let count_max = count_max.min(usize::try_from(max.0 - self.next.0).unwrap_or(usize::MAX));
        let name = view.state().topic(ask.topic).map(|topic| topic.name.clone());
        let mut before = None;
        for unit in view.queues().read(ask.topic, ask.queue, self.next, count_max)? {
            let offset = self.next.0;
            let damage = || UnitDamage::error(view.queues(), ask.topic, ask.queue, QueueOffset(offset));
            if before.replace(unit.physical).is_some_and(|before| before >= unit.physical) {
                return Err(damage());
            }
            if ask.filter.is_all() || self.matches(records, ask, name.as_deref(), offset, &unit)?.ok_or_else(damage)? {
                self.fresh.push(offset);
                self.bytes += unit.size as usize;
            }
            self.next = QueueOffset(offset + 1);
            if self.fresh.len() >= fresh_max || self.bytes >= ask.bytes_max {
                break;
            }
        }
        Ok(())
    }

    /// By the hash in the unit, then by the tag in the record, which is kept for the answer. `None` when the unit does not lead to a
    /// message of its queue.
    fn matches(
        &mut self,
        records: &dyn Records,
        ask: &Ask<'_>,
        topic: Option<&str>,
        offset: u64,
        unit: &Unit,
    ) -> io::Result<Option<bool>> {
        if !ask.filter.matches_code(unit.tags_code) {
            return Ok(Some(false));
        }
        let record = match records.record(unit.physical, unit.size) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            record => record?,
        };
        if !is_of_queue(&record, topic, ask.queue) {
            return Ok(None);
        }
        let parsed = RecordView::parse(&record).map_err(io::Error::other)?;
        let matches = ask.filter.matches_tag(parsed.property(property::TAGS));
        if matches {
            self.records.insert(offset, record);
        }
        Ok(Some(matches))
    }
}

/// How a plan ended.
pub(super) enum Fate {
    /// Apply took it.
    Applied,
    /// Its premise did not hold.
    Stale,
    /// It was not proposed, or its answer is not known.
    Lost,
}

impl Plan {
    /// Takes the plan off its lane.
    pub(super) fn settle(mut self, fate: &Fate) {
        self.leave(fate);
    }

    fn leave(&mut self, fate: &Fate) {
        if std::mem::replace(&mut self.settled, true) {
            return;
        }
        let mut lane = self.lane.lock();
        if lane.epoch != self.epoch {
            return;
        }
        assert!(lane.under_way > 0, "a plan of this epoch is counted");
        lane.under_way -= 1;
        for again in &self.pop.again {
            lane.again.remove(&again.offset);
        }
        // Behind a plan that is not in the log every other one is stale: start over at once instead of one by one.
        if !matches!(fate, Fate::Applied) {
            lane.start_over();
        }
    }
}

impl Drop for Plan {
    fn drop(&mut self) {
        self.leave(&Fate::Lost);
    }
}

#[cfg(test)]
mod tests;
