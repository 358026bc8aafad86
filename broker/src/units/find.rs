//! Searches in a queue whose units may be damaged.
//!
//! A search that a damaged unit led astray ends beside that unit. So where it ends, the units on both sides are checked, and it is
//! searched again if one was damaged.

use super::{UnitDamage, Units};
use raftmq_model::ids::{GroupId, PhysicalOffset, QueueId, QueueOffset, TopicUid};
use raftmq_store::consume_queue::{ConsumeQueues, OffsetFinder, Unit};
use raftmq_store::{CommitLog, Snapshots};
use std::io;
use std::ops::Range;

/// Searches that end beside damage; each has some repaired.
const SEARCH_COUNT_MAX: usize = 16;

/// The first offset of `range` whose unit is behind what is looked for; its end when none is.
///
/// # Errors
/// As [`Units::repair`], and of `is_behind`.
pub(crate) fn first_behind(
    units: &Units<'_>,
    range: Range<u64>,
    is_behind: impl Fn(&Unit) -> io::Result<bool>,
) -> io::Result<QueueOffset> {
    for _ in 0..SEARCH_COUNT_MAX {
        let (mut low, mut high) = (range.start, range.end);
        while low < high {
            let middle = low + (high - low) / 2;
            let behind = units.read(middle)?.map(|unit| is_behind(&unit)).transpose()?;
            // What is not there any more was forgotten: it lies before.
            if behind.unwrap_or(false) { high = middle } else { low = middle + 1 }
        }
        let mut repaired = 0;
        for beside in [low.checked_sub(1), Some(low)].into_iter().flatten().filter(|at| range.contains(at)) {
            repaired += units.check(QueueOffset(beside))?;
        }
        if repaired == 0 {
            return Ok(QueueOffset(low));
        }
    }
    Err(UnitDamage::error(units.queues, units.topic, units.queue, QueueOffset(range.start)))
}

/// The offset of the unit whose record lies at `physical`; `None` when the record is in no queue, as a repeat is.
///
/// # Errors
/// As [`Units::repair`].
pub(crate) fn find(units: &Units<'_>, physical: PhysicalOffset) -> io::Result<Option<QueueOffset>> {
    let is_its = |offset: QueueOffset| {
        units.read(offset.0).map(|unit| unit.filter(|unit| unit.physical == physical).map(|_| offset))
    };
    let place = units.queues.lower_bound(units.topic, units.queue, physical)?;
    if let Some(offset) = is_its(place)? {
        return Ok(Some(offset));
    }
    let min = units.queues.min(units.topic, units.queue).0;
    let place = first_behind(units, min..units.max.0.max(min), |unit| Ok(unit.physical >= physical))?;
    is_its(place)
}

/// As [`OffsetFinder::find`], and as [`find`] where that finds nothing. What cannot be repaired is not found.
///
/// # Errors
/// What reading the log and the ConsumeQueues gives.
pub(crate) fn find_or_repaired(
    finder: &mut OffsetFinder<'_>,
    (group, log, queues, snapshots, applied): (GroupId, &CommitLog, &ConsumeQueues, &Snapshots, u64),
    topic: TopicUid,
    queue: QueueId,
    physical: PhysicalOffset,
) -> io::Result<Option<QueueOffset>> {
    if let Some(offset) = finder.find(topic, queue, physical)? {
        return Ok(Some(offset));
    }
    let max = queues.max(topic, queue);
    match find(&Units { group, log, queues, snapshots, topic, queue, applied, max }, physical) {
        Err(error) if UnitDamage::of(&error).is_some() => {
            tracing::error!(%error, "a message may be stored again when its producer repeats it");
            Ok(None)
        }
        found => found,
    }
}
