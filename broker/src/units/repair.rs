//! A damaged unit is found in the log, with those beside it that are damaged, too, and written anew.

use super::{UnitDamage, each_record};
use crate::machine::{self, MachineView};
use bytes::Bytes;
use raftmq_model::ids::{GroupId, PhysicalOffset, QueueId, QueueOffset, TopicUid};
use raftmq_store::consume_queue::{ConsumeQueues, Unit};
use raftmq_store::{CommitLog, Snapshots};
use std::collections::BTreeSet;
use std::io;

/// Bytes of log that are read at once.
const STEP_BYTES_MAX: usize = 8 << 20;
/// Bytes of log that one repair reads: between the neighbours of what is damaged there may lie much of other queues.
const SCAN_BYTES_MAX: u64 = 4 << 30;
/// Bytes of log before the first neighbour in which the first copy of a repeated message is looked for.
const LOOK_BACK_BYTES_MAX: u64 = 64 << 20;
/// Units on each side that are looked at for one that leads somewhere.
const REACH_COUNT_MAX: u64 = 1_000_000;
/// Units that are read at once.
const BLOCK_COUNT: u64 = 512;
/// So many times neighbours that do not fit what lies between them are taken for damaged, too, each time twice as many.
const WIDEN_COUNT_MAX: u32 = 12;

/// One queue of a replica and the log that it follows, as of one moment.
pub(crate) struct Units<'a> {
    pub(crate) group: GroupId,
    pub(crate) log: &'a CommitLog,
    pub(crate) queues: &'a ConsumeQueues,
    pub(crate) snapshots: &'a Snapshots,
    pub(crate) topic: TopicUid,
    pub(crate) queue: QueueId,
    /// The last entry whose records have their units ...
    pub(crate) applied: u64,
    /// ... and where the queue ends then.
    pub(crate) max: QueueOffset,
}

/// A record of the queue, as its unit.
struct Found {
    unit: Unit,
    /// `None`: never a repeat.
    message_id: Option<Bytes>,
}

/// Where in the log the records between two neighbours lie.
#[derive(Clone, Copy, Debug)]
struct Gap {
    from: u64,
    upto: u64,
}

impl<'a> Units<'a> {
    /// The queue as it is now.
    pub(crate) fn of(view: &'a MachineView, log: &'a CommitLog, topic: TopicUid, queue: QueueId) -> Units<'a> {
        // Units are appended under the state's write lock.
        let state = view.state();
        let (group, applied, max) = (state.group(), view.applied(), view.queues().max(topic, queue));
        drop(state);
        Units { group, log, queues: view.queues(), snapshots: view.snapshots(), topic, queue, applied, max }
    }

    /// Writes the unit of `offset` anew, and damaged ones beside it, if they are not what the log says. How many it were.
    ///
    /// # Errors
    /// [`UnitDamage`] when the log does not say what the unit must be; what reading the log gives, damage of it among that.
    pub(crate) fn repair(&self, offset: QueueOffset) -> io::Result<u64> {
        let unknown = || UnitDamage::error(self.queues, self.topic, self.queue, offset);
        let min = self.queues.min(self.topic, self.queue).0;
        if !(min..self.max.0).contains(&offset.0) {
            return Err(unknown());
        }
        let (mut low, mut high) = (offset.0, offset.0 + 1);
        for widened in 0..WIDEN_COUNT_MAX {
            let (first, from) = self.before(low, min)?.ok_or_else(unknown)?;
            let (end, upto) = self.behind(high)?.ok_or_else(unknown)?;
            let gap = Gap { from, upto };
            // What lies before the first record of the log is not needed.
            let Some(count) = end.checked_sub(first) else { return Ok(0) };
            let mut found = self.records(gap)?;
            if found.len() as u64 > count {
                self.drop_repeats(gap, &mut found)?;
            }
            if found.len() as u64 == count {
                return self.rewrite(first, &found);
            }
            // A neighbour leads to a record of this queue and not to its own; so may those beside it.
            let step = 1 << widened;
            (low, high) = (first.saturating_sub(step), end.saturating_add(step));
        }
        Err(unknown())
    }

    /// The unit of an offset.
    pub(crate) fn read(&self, offset: u64) -> io::Result<Option<Unit>> {
        let units = self.queues.read(self.topic, self.queue, QueueOffset(offset), 1)?;
        Ok(units.first().copied())
    }

    /// Repairs the unit of `offset` if it does not lead to a record of its queue between those of its neighbours; how many units
    /// were written anew. One whose record is purged is not needed.
    ///
    /// # Errors
    /// As [`Units::repair`].
    pub(crate) fn check(&self, offset: QueueOffset) -> io::Result<u64> {
        let Some(unit) = self.read(offset.0)? else { return Ok(0) };
        let before = offset.0.checked_sub(1).map_or(Ok(None), |before| self.read(before))?;
        let behind = self.read(offset.0 + 1)?;
        let is_in_place = before.is_none_or(|before| before.physical < unit.physical)
            && behind.is_none_or(|behind| behind.physical > unit.physical);
        let is_purged = unit.size != 0 && unit.physical < self.begin();
        if is_in_place && (is_purged || self.leads(&unit)?) { Ok(0) } else { self.repair(offset) }
    }

    /// Whether a unit is that of a record of this queue.
    pub(super) fn leads(&self, unit: &Unit) -> io::Result<bool> {
        if unit.size == 0 {
            return Ok(false);
        }
        let Some(index) = self.log.index_at(unit.physical).filter(|index| *index <= self.applied) else {
            return Ok(false);
        };
        let mut leads = false;
        for entry in self.log.read(index, index + 1, 1)? {
            each_record(&entry, |record| {
                leads |= (record.topic, record.queue, record.physical) == (self.topic, self.queue, unit.physical)
                    && (record.record.len() as u64, record.tags_code) == (u64::from(unit.size), unit.tags_code);
            })?;
        }
        Ok(leads)
    }

    /// The first unit behind the nearest one before `low` that can be trusted, and from where its record lies on. One whose record is
    /// purged is trusted: the numbers have to agree anyway.
    fn before(&self, low: u64, min: u64) -> io::Result<Option<(u64, u64)>> {
        let begin = self.begin();
        let floor = min.max(low.saturating_sub(REACH_COUNT_MAX));
        let mut end = low;
        while end > floor {
            let first = floor.max(end.saturating_sub(BLOCK_COUNT));
            let units = self.queues.read(self.topic, self.queue, QueueOffset(first), (end - first) as usize)?;
            for (behind, unit) in units.iter().enumerate().rev() {
                let offset = first + behind as u64;
                let is_purged = unit.size != 0 && unit.physical < begin;
                if is_purged || self.leads(unit)? {
                    return Ok(Some((offset + 1, unit.physical.0 + 1)));
                }
            }
            end = first;
        }
        if floor > min {
            return Ok(None);
        }
        Ok(Some(self.base()?.map_or((min, 0), |base| (base.max(min), begin.0))))
    }

    /// The offset of the queue's first record in a log that was purged: the snapshot that the log begins behind says it.
    fn base(&self) -> io::Result<Option<u64>> {
        let Some((_, purged)) = self.log.purged() else { return Ok(None) };
        let Some(state) = machine::snapshot_state(self.group, self.snapshots, purged)? else { return Ok(None) };
        Ok(Some(state.queue_max(self.topic, self.queue).unwrap_or_default().0))
    }

    /// The nearest unit at or behind `high` that leads to a record of the queue, and where that lies; the end of the queue if none does.
    fn behind(&self, high: u64) -> io::Result<Option<(u64, u64)>> {
        let ceiling = self.max.0.min(high.saturating_add(REACH_COUNT_MAX));
        let mut first = high;
        while first < ceiling {
            let count = BLOCK_COUNT.min(ceiling - first);
            let units = self.queues.read(self.topic, self.queue, QueueOffset(first), count as usize)?;
            for (offset, unit) in (first..).zip(&units) {
                if self.leads(unit)? {
                    return Ok(Some((offset, unit.physical.0)));
                }
            }
            first += count;
        }
        Ok((ceiling == self.max.0 || high >= self.max.0).then_some((self.max.0, u64::MAX)))
    }

    /// Where what can be read of the log begins.
    fn begin(&self) -> PhysicalOffset {
        self.log.purged().and_then(|(_, index)| self.log.end_offset(index)).unwrap_or_default()
    }

    /// The records of the queue in a gap.
    fn records(&self, gap: Gap) -> io::Result<Vec<Found>> {
        let mut found = Vec::new();
        self.scan(gap.from, gap.upto, |topic, queue, record| {
            if (topic, queue) == (self.topic, self.queue) && (gap.from..gap.upto).contains(&record.unit.physical.0) {
                found.push(record);
            }
        })?;
        Ok(found)
    }

    /// Takes out the records whose message id came before, as far as that is looked for: they were repeats, and have no units.
    fn drop_repeats(&self, gap: Gap, found: &mut Vec<Found>) -> io::Result<()> {
        let (mut seen, mut repeats) = (BTreeSet::new(), BTreeSet::new());
        self.scan(gap.from.saturating_sub(LOOK_BACK_BYTES_MAX), gap.upto, |topic, _, record| {
            if topic == self.topic
                && let Some(id) = record.message_id
                && !seen.insert(id)
            {
                repeats.insert(record.unit.physical.0);
            }
        })?;
        found.retain(|record| !repeats.contains(&record.unit.physical.0));
        Ok(())
    }

    /// Shows the records of all entries that lie, also partly, in a range of the log.
    fn scan(&self, from: u64, upto: u64, mut visit: impl FnMut(TopicUid, QueueId, Found)) -> io::Result<()> {
        let first = self.log.index_at(PhysicalOffset(from)).unwrap_or(0).max(self.log.first_index());
        let last = self.log.index_at(PhysicalOffset(upto)).unwrap_or(0).min(self.applied);
        let (mut next, mut bytes) = (first, 0);
        while next <= last {
            let entries = self.log.read(next, last + 1, STEP_BYTES_MAX)?;
            let Some(read) = entries.last() else {
                return Err(io::Error::other(format!("the log was purged behind entry {next} while it was read")));
            };
            next = read.index + 1;
            for entry in &entries {
                bytes += entry.payload.len() as u64;
                each_record(entry, |record| {
                    let (size, physical) = (record.record.len() as u32, record.physical);
                    let unit = Unit { physical, size, tags_code: record.tags_code };
                    let message_id = record.message_id.filter(|id| !id.is_empty()).cloned();
                    visit(record.topic, record.queue, Found { unit, message_id });
                })?;
            }
            if bytes > SCAN_BYTES_MAX {
                let what = format!("more than {SCAN_BYTES_MAX} bytes of log lie between the units that are whole");
                return Err(io::Error::other(what));
            }
        }
        Ok(())
    }

    fn rewrite(&self, first: u64, found: &[Found]) -> io::Result<u64> {
        let units = self.queues.read(self.topic, self.queue, QueueOffset(first), found.len())?;
        let mut count = 0;
        for ((offset, was), is) in (first..).zip(&units).zip(found) {
            count += u64::from(*was != is.unit && self.write(QueueOffset(offset), was, is.unit)?);
        }
        Ok(count)
    }

    /// Writes one unit, and says so.
    pub(super) fn write(&self, offset: QueueOffset, was: &Unit, is: Unit) -> io::Result<bool> {
        let written = self.queues.rewrite(self.topic, self.queue, offset, is)?;
        if written {
            let (file, at) = self.queues.place(self.topic, self.queue, offset);
            tracing::warn!(
                "repaired from the log: {} at byte {at} (unit {offset} of queue {}, topic {}): it was {was:?} and is {is:?}",
                file.display(),
                self.queue,
                self.topic
            );
        }
        Ok(written)
    }
}
