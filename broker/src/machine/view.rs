//! The applied state as readers see it.

use super::digests::Digests;
use crate::units::{UnitDamage, is_of_queue};
use bytes::Bytes;
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use raftmq_model::ids::{PhysicalOffset, QueueId, QueueOffset, TopicUid};
use raftmq_model::machine::GroupState;
use raftmq_store::consume_queue::ConsumeQueues;
use raftmq_store::{CommitLog, Snapshots};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::watch;

/// One replica's applied state and ConsumeQueues; shared between its machine and its readers.
pub struct MachineView {
    state: RwLock<GroupState>,
    queues: Arc<ConsumeQueues>,
    snapshots: Snapshots,
    released: watch::Receiver<u64>,
    /// Index of the last entry in the state. Invariant: written under the state's write lock only, so that it belongs to the
    /// state for whoever holds either lock.
    applied: AtomicU64,
    digests: Digests,
    installed_count: AtomicU64,
}

impl MachineView {
    pub(crate) fn new(
        state: GroupState,
        applied: u64,
        queues: Arc<ConsumeQueues>,
        snapshots: Snapshots,
        released: watch::Receiver<u64>,
    ) -> MachineView {
        let (state, applied, digests) = (RwLock::new(state), AtomicU64::new(applied), Digests::default());
        MachineView { state, queues, snapshots, released, applied, digests, installed_count: AtomicU64::new(0) }
    }

    /// The entry up to which this replica needs its log no more, 0: none; what of that is durable.
    pub(crate) fn released(&self) -> watch::Receiver<u64> {
        self.released.clone()
    }

    /// The snapshots that this replica keeps.
    pub(crate) fn snapshots(&self) -> &Snapshots {
        &self.snapshots
    }

    /// The applied state. Hold it briefly: apply waits for it, and never across an await.
    pub fn state(&self) -> RwLockReadGuard<'_, GroupState> {
        self.state.read()
    }

    /// The ConsumeQueues.
    #[must_use]
    pub fn queues(&self) -> &ConsumeQueues {
        &self.queues
    }

    pub(crate) fn state_mut(&self) -> RwLockWriteGuard<'_, GroupState> {
        self.state.write()
    }

    /// Index of the last entry in the state, for who holds its lock.
    pub(crate) fn applied(&self) -> u64 {
        self.applied.load(Ordering::Relaxed)
    }

    pub(super) fn digests(&self) -> &Digests {
        &self.digests
    }

    /// `state` is that of this view and has all of the entry `index`.
    pub(super) fn reached(&self, index: u64, state: &RwLockWriteGuard<'_, GroupState>) {
        self.applied.store(index, Ordering::Relaxed);
        self.digests.reached(index, state, &self.queues);
    }

    /// `state` has taken the place of that of this view, and has all of the entry `index`.
    pub(super) fn installed(&self, index: u64, state: &RwLockWriteGuard<'_, GroupState>) {
        self.reached(index, state);
        self.installed_count.fetch_add(1, Ordering::Relaxed);
    }

    /// Snapshots that were installed since this replica was opened.
    pub(crate) fn installed_count(&self) -> u64 {
        self.installed_count.load(Ordering::Relaxed)
    }

    /// The record of one message and where it lies; `known` is its bytes when they were read before.
    ///
    /// # Errors
    /// When the queue has no such message or it cannot be read.
    pub(crate) fn record(
        &self,
        log: &CommitLog,
        topic: TopicUid,
        queue: QueueId,
        offset: QueueOffset,
        known: Option<&Bytes>,
    ) -> io::Result<(PhysicalOffset, Bytes)> {
        let units = self.queues.read(topic, queue, offset, 1)?;
        let unit = units.first().ok_or_else(|| {
            let what = format!("queue {queue} of topic {topic} has no message {offset}");
            io::Error::new(io::ErrorKind::NotFound, what)
        })?;
        let record = known.cloned().map_or_else(|| log.record(unit.physical, unit.size), Ok)?;
        Ok((unit.physical, record))
    }

    /// As [`MachineView::record`], for a message that is handed out: units have no checksum, so what a unit leads to is checked.
    /// Between the records of its neighbours there is one of its queue.
    ///
    /// # Errors
    /// As for [`MachineView::record`], and [`UnitDamage`] when the unit does not lead to a message of its queue, in its place.
    pub(crate) fn message(
        &self,
        log: &CommitLog,
        topic: TopicUid,
        queue: QueueId,
        offset: QueueOffset,
        known: Option<&Bytes>,
    ) -> io::Result<(PhysicalOffset, Bytes)> {
        let damage = || UnitDamage::error(&self.queues, topic, queue, offset);
        let (physical, record) = match self.record(log, topic, queue, offset, known) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.keeps(topic, queue, offset) => {
                return Err(damage());
            }
            read => read?,
        };
        let name = self.state().topic(topic).map(|config| config.name.clone());
        if !is_of_queue(&record, name.as_deref(), queue) || !self.is_in_place(topic, queue, offset, physical)? {
            return Err(damage());
        }
        Ok((physical, record))
    }

    /// Whether the state says that a queue has a message of that offset.
    fn keeps(&self, topic: TopicUid, queue: QueueId, offset: QueueOffset) -> bool {
        let state = self.state();
        state.queue_max(topic, queue).is_some_and(|max| (state.queue_min(topic, queue)..max).contains(&offset))
    }

    /// Whether the units before and behind one lead to where they must.
    fn is_in_place(
        &self,
        topic: TopicUid,
        queue: QueueId,
        offset: QueueOffset,
        physical: PhysicalOffset,
    ) -> io::Result<bool> {
        let at =
            |offset: u64| self.queues.read(topic, queue, QueueOffset(offset), 1).map(|units| units.first().copied());
        let before = offset.0.checked_sub(1).map_or(Ok(None), at)?;
        let behind = at(offset.0 + 1)?;
        Ok(before.is_none_or(|unit| unit.physical < physical) && behind.is_none_or(|unit| unit.physical > physical))
    }
}
