//! From physical offsets to queue offsets.

use super::{ConsumeQueues, Place, Unit};
use raftmq_model::ids::{PhysicalOffset, QueueId, QueueOffset, TopicUid};
use std::collections::BTreeMap;
use std::io::Result;

/// Units that are read at once.
const BLOCK_COUNT: usize = 1024;

/// Finds the queue offset of records by where they lie. Fast when asked in ascending order of physical offsets, as a
/// replay of the log does; right in any order. Queues must not be cut while it is used.
pub struct OffsetFinder<'a> {
    queues: &'a ConsumeQueues,
    blocks: BTreeMap<Place, Block>,
}

/// Consecutive units of a queue.
struct Block {
    first: QueueOffset,
    units: Vec<Unit>,
}

impl<'a> OffsetFinder<'a> {
    pub(super) fn new(queues: &'a ConsumeQueues) -> OffsetFinder<'a> {
        OffsetFinder { queues, blocks: BTreeMap::new() }
    }

    /// The offset of the unit whose record lies at `physical`, if the queue has one.
    ///
    /// # Errors
    /// What the file system says.
    pub fn find(&mut self, topic: TopicUid, queue: QueueId, physical: PhysicalOffset) -> Result<Option<QueueOffset>> {
        let next = match self.blocks.get(&(topic, queue)) {
            Some(block) if block.covers(physical) => return Ok(block.find(physical)),
            // Just behind the block, or far away from it.
            Some(block) if block.units.last().is_some_and(|last| last.physical < physical) => block.next(),
            _ => self.queues.lower_bound(topic, queue, physical)?,
        };
        let mut block = self.block(topic, queue, next)?;
        if !block.covers(physical) {
            block = self.block(topic, queue, self.queues.lower_bound(topic, queue, physical)?)?;
        }
        let found = block.find(physical);
        self.blocks.insert((topic, queue), block);
        Ok(found)
    }

    fn block(&self, topic: TopicUid, queue: QueueId, first: QueueOffset) -> Result<Block> {
        Ok(Block { first, units: self.queues.read(topic, queue, first, BLOCK_COUNT)? })
    }
}

impl Block {
    fn covers(&self, physical: PhysicalOffset) -> bool {
        matches!((self.units.first(), self.units.last()),
            (Some(first), Some(last)) if first.physical <= physical && physical <= last.physical)
    }

    fn next(&self) -> QueueOffset {
        QueueOffset(self.first.0 + self.units.len() as u64)
    }

    fn find(&self, physical: PhysicalOffset) -> Option<QueueOffset> {
        let at = self.units.binary_search_by_key(&physical, |unit| unit.physical).ok()?;
        Some(QueueOffset(self.first.0 + at as u64))
    }
}
