//! Looks at every record of the log and at its unit: damaged units that nobody reads are found, and damaged tag hashes, which make
//! a filter pass a message over.
//!
//! A pass walks over the log from its first entry to what is applied, and beside it over all queues. A record without a unit is a
//! repeat; that is believed when the unit in its place leads to a later record of the queue.

use super::{UnitDamage, Units, each_record, find};
use crate::machine::MachineView;
use raftmq_model::ids::{QueueId, QueueOffset, TopicUid};
use raftmq_store::CommitLog;
use raftmq_store::consume_queue::Unit;
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;
use tokio::time::Instant;

/// Repairs for one record; then the check begins anew behind it.
const REPAIRS_COUNT_MAX: usize = 4;
/// Units that are read beyond those that are expected.
const AHEAD_COUNT: usize = 8;

type Place = (TopicUid, QueueId);

/// How far one replica's units are checked.
#[derive(Default)]
pub(crate) struct UnitScrub {
    next: u64,
    /// The unit that is expected next. Of queues that had a record in this pass.
    cursors: BTreeMap<Place, u64>,
    began: Option<Instant>,
    rests: bool,
    /// Passes that came to the end of the log.
    pub(crate) passes_count: u64,
    /// Units that the log does not say, in the last pass or this one.
    pub(crate) unrepaired_count: u64,
}

impl UnitScrub {
    /// Whether its turn has come: a pass is under way, or the last one began that long ago.
    pub(crate) fn is_due(&self, interval: Duration) -> bool {
        !self.rests || self.began.is_none_or(|began| began.elapsed() >= interval)
    }

    /// Goes on with a pass, or begins one; gives the bytes of log that were read. A pass that fails is begun again.
    ///
    /// # Errors
    /// What reading the log and the ConsumeQueues gives.
    pub(crate) fn step(&mut self, view: &MachineView, log: &CommitLog, bytes_max: usize) -> io::Result<u64> {
        if self.rests || self.began.is_none() {
            let passes_count = self.passes_count;
            *self = UnitScrub { passes_count, began: Some(Instant::now()), ..UnitScrub::default() };
        }
        let applied = {
            let state = view.state();
            let applied = view.applied();
            drop(state);
            applied
        };
        self.next = self.next.max(log.first_index());
        let read = log.read(self.next, applied + 1, bytes_max);
        let entries = read.inspect_err(|_| self.rests = true)?;
        let Some(last) = entries.last() else {
            (self.rests, self.passes_count) = (true, self.passes_count + 1);
            return Ok(0);
        };
        self.next = last.index + 1;
        let (mut records, mut bytes) = (BTreeMap::<Place, Vec<Unit>>::new(), 0);
        for entry in &entries {
            bytes += entry.payload.len() as u64;
            each_record(entry, |record| {
                let (physical, size) = (record.physical, record.record.len() as u32);
                let unit = Unit { physical, size, tags_code: record.tags_code };
                records.entry((record.topic, record.queue)).or_default().push(unit);
            })?;
        }
        for (place, records) in records {
            self.check(view, log, place, &records).inspect_err(|_| self.rests = true)?;
        }
        Ok(bytes)
    }

    /// Compares the records of one queue, in order, with its units.
    fn check(&mut self, view: &MachineView, log: &CommitLog, place: Place, records: &[Unit]) -> io::Result<()> {
        let units = Units::of(view, log, place.0, place.1);
        let mut cursor = self.cursors.get(&place).copied();
        let (mut block, mut at) = (Vec::new(), 0);
        for (i, record) in records.iter().enumerate() {
            let Some(mut offset) = cursor else {
                // The first one that has a unit says where to begin.
                cursor = self.begin(&units, record)?;
                continue;
            };
            for round in 0..=REPAIRS_COUNT_MAX {
                if at >= block.len() {
                    let count = records.len() - i + AHEAD_COUNT;
                    (block, at) = (units.queues.read(place.0, place.1, QueueOffset(offset), count)?, 0);
                }
                let Some(unit) = block.get(at) else { break };
                let follows = block.get(at + 1).is_none_or(|behind| behind.physical > unit.physical);
                if unit.physical == record.physical && follows {
                    if unit != record {
                        units.write(QueueOffset(offset), unit, *record)?;
                    }
                    (offset, at) = (offset + 1, at + 1);
                    break;
                }
                if follows && unit.physical > record.physical && units.leads(unit)? {
                    break;
                }
                block.clear();
                if round == REPAIRS_COUNT_MAX || !self.repair(&units, offset)? {
                    cursor = None;
                    break;
                }
            }
            cursor = cursor.map(|_| offset);
        }
        match cursor {
            Some(offset) => self.cursors.insert(place, offset),
            None => self.cursors.remove(&place),
        };
        Ok(())
    }

    /// The offset behind the unit of `record`; `None` when it has none.
    fn begin(&mut self, units: &Units<'_>, record: &Unit) -> io::Result<Option<u64>> {
        let Some(offset) = or_damaged(find(units, record.physical))?.flatten() else { return Ok(None) };
        let unit = units.read(offset.0)?;
        if let Some(unit) = unit.filter(|unit| unit != record) {
            units.write(offset, &unit, *record)?;
        }
        Ok(Some(offset.0 + 1))
    }

    /// Whether something was repaired.
    fn repair(&mut self, units: &Units<'_>, offset: u64) -> io::Result<bool> {
        let repaired = or_damaged(units.repair(QueueOffset(offset)))?.unwrap_or(0);
        self.unrepaired_count += u64::from(repaired == 0);
        Ok(repaired > 0)
    }
}

/// `None` when the log does not say what a unit must be.
fn or_damaged<T>(done: io::Result<T>) -> io::Result<Option<T>> {
    match done {
        Err(error) if UnitDamage::of(&error).is_some() => {
            tracing::error!(%error, "not repaired: the log has other messages there than the queue has units");
            Ok(None)
        }
        done => done.map(Some),
    }
}
