//! The ConsumeQueues of a group against its log.
//!
//! Both are in order of physical offsets, so one walk over the log checks all queues: each queue keeps the unit that it
//! expects next, and each record in the log either is that unit's or was not enqueued (a repeated message). A record
//! knows its queue offset only from its unit, and the state says how many units there must be: together these find
//! units that are missing, doubled, out of order or wrong. Memory is a block of units for each queue.

use super::finding::Findings;
use crate::consume_queue::{ConsumeQueues, Unit};
use raftmq_model::ids::{PhysicalOffset, QueueId, QueueOffset, TopicUid};
use raftmq_model::machine::Carried;
use std::collections::BTreeMap;

/// Units that are read at once.
const BLOCK_COUNT: usize = 512;
/// How far behind units that fit no record the one is looked for that fits.
const SKIP_COUNT_MAX: u64 = BLOCK_COUNT as u64;
/// So many units in a row that ascend and lie behind a record say that the record is in no queue.
const ASCENDING_COUNT: u32 = 8;

type Place = (TopicUid, QueueId);

/// What was checked.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct QueuesReport {
    /// Queues that the state knows.
    pub queues: u64,
    /// Units up to where the state says that its queues end.
    pub units: u64,
    /// Units behind that: written before a crash, and cut by the next start.
    pub units_beyond: u64,
    /// Records in the log that are in no queue.
    pub records_without_unit: u64,
    /// Units whose records lie in a part of the log that cannot be read.
    pub units_in_gaps: u64,
}

struct Cursor {
    /// Offset of the unit that is expected next.
    next: u64,
    /// Where the state says that the queue ends, or where its files do.
    end: u64,
    /// Units from `first` on.
    first: u64,
    block: Vec<Unit>,
}

/// The check. Feed it every record of the log in order, then call [`QueuesCheck::finish`].
pub struct QueuesCheck {
    queues: ConsumeQueues,
    cursors: BTreeMap<Place, Cursor>,
    report: QueuesReport,
}

impl QueuesCheck {
    /// Compares the ends of the queues with the state's, and begins. `state` has the next offset of each queue, `start` says
    /// where the log begins: units of what was purged are not looked at.
    pub fn begin(
        queues: ConsumeQueues,
        state: &[(TopicUid, QueueId, QueueOffset)],
        start: PhysicalOffset,
        findings: &mut Findings,
    ) -> QueuesCheck {
        let mut report = QueuesReport::default();
        let mut cursors = BTreeMap::new();
        for (topic, queue, next) in state {
            let (min, max) = (queues.min(*topic, *queue).0, queues.max(*topic, *queue).0);
            report.queues += 1;
            if max < next.0 {
                let (file, at) = queues.place(*topic, *queue, QueueOffset(max));
                findings.damage(file, at, format!("the queue ends at {max}, its state at {next}"));
            }
            let end = next.0.min(max).max(min);
            let min = match queues.lower_bound(*topic, *queue, start) {
                Ok(first) => first.0.min(end),
                Err(error) => {
                    let (file, at) = queues.place(*topic, *queue, QueueOffset(min));
                    findings.damage(file, at, format!("the queue cannot be read: {error}"));
                    continue;
                }
            };
            report.units += end - min;
            report.units_beyond += max - end;
            cursors.insert((*topic, *queue), Cursor { next: min, end, first: min, block: Vec::new() });
        }
        for range in queues.queues() {
            if !cursors.contains_key(&(range.topic, range.queue)) {
                report.units_beyond += range.max.0 - range.min.0;
            }
        }
        QueuesCheck { queues, cursors, report }
    }

    /// The next record of the log.
    pub fn record(&mut self, carried: &Carried<'_>, findings: &mut Findings) {
        let place = (carried.topic, carried.queue);
        let Some(cursor) = self.cursors.get_mut(&place) else {
            self.report.records_without_unit += 1;
            return;
        };
        let Some(offset) = cursor.find(&self.queues, place, carried.physical, findings) else {
            self.report.records_without_unit += 1;
            return;
        };
        // What lies between belongs to no record; `finish` and this tell apart what cannot be known.
        for stray in cursor.next..offset {
            let physical = cursor.unit(&self.queues, place, stray, findings).map(|unit| unit.physical);
            stray_unit(&self.queues, place, stray, physical, findings);
        }
        cursor.next = offset + 1;
        let Some(unit) = cursor.unit(&self.queues, place, offset, findings) else { return };
        let size = carried.record.len() as u64;
        let (file, at) = self.queues.place(place.0, place.1, QueueOffset(offset));
        if u64::from(unit.size) != size {
            let what = format!("unit {offset} says {} bytes, the message in the log has {size}", unit.size);
            findings.damage(file, at, what);
        } else if unit.tags_code != carried.tags_code {
            let (says, is) = (unit.tags_code, carried.tags_code);
            findings.damage(file, at, format!("unit {offset} has the tag hash {says}, the message in the log {is}"));
        }
    }

    /// Tells of units that no record was found for. `gaps` are the parts of the log that cannot be read.
    pub fn finish(mut self, gaps: &[(u64, u64)], findings: &mut Findings) -> QueuesReport {
        for (place, cursor) in &mut self.cursors {
            for offset in cursor.next..cursor.end {
                let Some(unit) = cursor.unit(&self.queues, *place, offset, findings) else { break };
                if in_gap(gaps, unit.physical) {
                    self.report.units_in_gaps += 1;
                } else {
                    stray_unit(&self.queues, *place, offset, Some(unit.physical), findings);
                }
            }
        }
        self.report
    }

    /// The log cannot be read from `from` to `to`: units that point there are passed over, not wrong.
    pub fn gap(&mut self, gap: (u64, u64), findings: &mut Findings) {
        for (place, cursor) in &mut self.cursors {
            while cursor.next < cursor.end {
                let Some(unit) = cursor.unit(&self.queues, *place, cursor.next, findings) else { break };
                if !in_gap(&[gap], unit.physical) {
                    break;
                }
                self.report.units_in_gaps += 1;
                cursor.next += 1;
            }
        }
    }
}

impl Cursor {
    /// The offset of the unit of the record at `physical`, among those that are expected next.
    fn find(
        &mut self,
        queues: &ConsumeQueues,
        place: Place,
        physical: PhysicalOffset,
        findings: &mut Findings,
    ) -> Option<u64> {
        let (mut ascending, mut before) = (0, PhysicalOffset(0));
        let until = self.end.min(self.next.saturating_add(SKIP_COUNT_MAX));
        // Mostly the next one. Units before the record that fit nothing are passed; one that lies behind it is right,
        // and the record is in no queue, or wrong, and the record's own unit comes soon.
        for offset in self.next..until {
            let unit = self.unit(queues, place, offset, findings)?;
            if unit.physical == physical {
                return Some(offset);
            }
            ascending = if unit.physical > physical.max(before) { ascending + 1 } else { 0 };
            if ascending == ASCENDING_COUNT {
                return None;
            }
            before = unit.physical;
        }
        None
    }

    fn unit(
        &mut self,
        queues: &ConsumeQueues,
        (topic, queue): Place,
        offset: u64,
        findings: &mut Findings,
    ) -> Option<Unit> {
        if offset >= self.end {
            return None;
        }
        let within = offset.checked_sub(self.first).and_then(|within| self.block.get(within as usize));
        if let Some(unit) = within {
            return Some(*unit);
        }
        // From the unit that is expected next, so that looking ahead does not move the block to and fro.
        let first = if offset - self.next < BLOCK_COUNT as u64 { self.next } else { offset };
        match queues.read(topic, queue, QueueOffset(first), BLOCK_COUNT) {
            Ok(block) => {
                (self.first, self.block) = (first, block);
                self.block.get((offset - first) as usize).copied()
            }
            Err(error) => {
                let (file, at) = queues.place(topic, queue, QueueOffset(offset));
                findings.damage(file, at, format!("unit {offset} cannot be read: {error}"));
                self.end = self.next;
                None
            }
        }
    }
}

fn in_gap(gaps: &[(u64, u64)], physical: PhysicalOffset) -> bool {
    gaps.iter().any(|(from, to)| (*from..*to).contains(&physical.0))
}

fn stray_unit(
    queues: &ConsumeQueues,
    place: Place,
    offset: u64,
    physical: Option<PhysicalOffset>,
    findings: &mut Findings,
) {
    let (file, at) = queues.place(place.0, place.1, QueueOffset(offset));
    let points = physical.map_or_else(String::new, |physical| format!(" {physical}"));
    findings.damage(file, at, format!("unit {offset} points to{points}, where no message of its queue lies"));
}
