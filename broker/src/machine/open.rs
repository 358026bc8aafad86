//! From the last checkpoint back to a machine.

use super::checkpoint::{BOOKKEEPING_KEY, CheckpointBounds, Checkpoints, Kept};
use super::{BrokerMachine, Hints, MachineView, damaged};
use crate::leader::WaitTable;
use bytes::Bytes;
use raftmq_model::batch::Batch;
use raftmq_model::command::Command;
use raftmq_model::ids::{GroupId, PhysicalOffset, Position, QueueId, QueueOffset, TopicUid};
use raftmq_model::machine::{Changes, GroupState, Loader};
use raftmq_store::consume_queue::ConsumeQueues;
use raftmq_store::state::StateStore;
use raftmq_store::{CommitLog, EntryKind, StoredEntry};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

/// Bytes of log that the refill of the stored-once window reads at a time.
const REPLAY_BYTES_MAX: usize = 8 << 20;

/// What a machine is made of.
pub(crate) struct MachineOptions {
    pub(crate) group: GroupId,
    pub(crate) store: Arc<dyn StateStore>,
    pub(crate) queues: Arc<ConsumeQueues>,
    pub(crate) waits: Arc<WaitTable>,
    pub(crate) checkpoints: CheckpointBounds,
}

impl BrokerMachine {
    /// Restores the state of the last checkpoint. `open_log` opens the group's log for reading; it is only called when
    /// there is a part of the log to go through again, and closed before this returns.
    ///
    /// # Errors
    /// When the state, the ConsumeQueues or the log cannot be read, or contradict each other.
    pub(crate) fn open(
        options: MachineOptions,
        open_log: impl FnOnce() -> io::Result<CommitLog>,
    ) -> io::Result<(BrokerMachine, Arc<MachineView>)> {
        let MachineOptions { group, store, queues, waits, checkpoints } = options;
        let mut state = load(group, store.as_ref())?;
        cut_queues(&state, &queues)?;
        let restored = store.get(BOOKKEEPING_KEY)?.map(|value| Kept::decode(Bytes::from(value))).transpose()?;
        if let Some(kept) = &restored
            && let Some(from) = state.window_replay_from()
        {
            refill_window(&mut state, &queues, &open_log()?, from, kept.applied)?;
        }
        let (applied, restored) = restored.map_or((0, None), |kept| (kept.applied, Some(kept.bookkeeping)));
        let name = format!("checkpoint-{group}");
        let checkpoints = Checkpoints::start(name, store, Arc::clone(&queues), checkpoints)?;
        let view = Arc::new(MachineView::new(state, queues));
        let machine = BrokerMachine {
            view: Arc::clone(&view),
            waits,
            checkpoints,
            restored,
            changes: Changes::default(),
            applied,
            entries_count: 0,
            hints: Hints::default(),
        };
        Ok((machine, view))
    }
}

fn load(group: GroupId, store: &dyn StateStore) -> io::Result<GroupState> {
    let mut loader = Loader::new(group);
    let mut failed = None;
    store.scan(&[], &mut |key, value| {
        if failed.is_none() {
            failed = loader.add(key, value).err();
        }
    })?;
    match failed {
        None => Ok(loader.finish()),
        Some(error) => Err(io::Error::new(io::ErrorKind::InvalidData, error)),
    }
}

/// Drops what lies behind the checkpoint: it is applied again. What is missing before it is damage.
fn cut_queues(state: &GroupState, queues: &ConsumeQueues) -> io::Result<()> {
    let mut hosted = BTreeSet::new();
    for (topic, queue, next) in state.queues() {
        hosted.insert((topic, queue));
        let max = queues.max(topic, queue);
        if max < next {
            let what = format!("ConsumeQueue {queue} of topic {topic} ends at {max}, its checkpoint at {next}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        queues.truncate(topic, queue, next)?;
    }
    for (topic, queue) in queues.queues() {
        if !hosted.contains(&(topic, queue)) {
            queues.truncate(topic, queue, QueueOffset(0))?;
        }
    }
    Ok(())
}

/// Reads the log from where the stored-once window begins up to the checkpoint.
fn refill_window(
    state: &mut GroupState,
    queues: &ConsumeQueues,
    log: &CommitLog,
    from: u64,
    applied: u64,
) -> io::Result<()> {
    let mut finder = OffsetFinder { queues, next: BTreeMap::new() };
    let mut next = from.max(log.first_index());
    while next <= applied {
        let entries = log.read(next, applied + 1, REPLAY_BYTES_MAX)?;
        let Some(last) = entries.last() else {
            let what = format!("the log ends before entry {next}, its state at {applied}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        };
        next = last.index + 1;
        for entry in &entries {
            remember(state, entry, &mut finder)?;
        }
    }
    Ok(())
}

fn remember(state: &mut GroupState, entry: &StoredEntry, finder: &mut OffsetFinder<'_>) -> io::Result<()> {
    if entry.kind != EntryKind::Batch {
        return Ok(());
    }
    let batch = Batch::decode(entry.payload.clone()).map_err(|error| damaged(entry, &error))?;
    let at = Position { term: entry.term, index: entry.index, payload_offset: entry.payload_offset };
    for (command_at, bytes) in batch.commands() {
        // What could not be decoded was refused, and stored nothing.
        let Ok(command) = Command::decode(bytes) else { continue };
        state.remember_append(at, command_at, batch.now, &command, |topic, queue, physical| {
            finder.find(topic, queue, physical)
        })?;
    }
    Ok(())
}

/// Finds the queue offset of a record by where it lies: units of a queue are in the order of the log.
struct OffsetFinder<'a> {
    queues: &'a ConsumeQueues,
    /// Where the next record of a queue is to be expected.
    next: BTreeMap<(TopicUid, QueueId), QueueOffset>,
}

impl OffsetFinder<'_> {
    /// `None`: no unit points there, so the record was a repeat that stored nothing.
    fn find(&mut self, topic: TopicUid, queue: QueueId, at: PhysicalOffset) -> io::Result<Option<QueueOffset>> {
        let offset = match self.next.get(&(topic, queue)) {
            Some(offset) => *offset,
            None => self.first_at_or_behind(topic, queue, at)?,
        };
        let found = self.physical(topic, queue, offset)? == Some(at);
        self.next.insert((topic, queue), if found { QueueOffset(offset.0 + 1) } else { offset });
        Ok(found.then_some(offset))
    }

    /// Binary search for the first unit that lies at `at` or behind it.
    fn first_at_or_behind(&self, topic: TopicUid, queue: QueueId, at: PhysicalOffset) -> io::Result<QueueOffset> {
        let (mut low, mut high) = (0, self.queues.max(topic, queue).0);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.physical(topic, queue, QueueOffset(middle))? {
                Some(physical) if physical >= at => high = middle,
                // Nothing there: before the queue's first unit.
                _ => low = middle + 1,
            }
        }
        Ok(QueueOffset(low))
    }

    fn physical(&self, topic: TopicUid, queue: QueueId, offset: QueueOffset) -> io::Result<Option<PhysicalOffset>> {
        Ok(self.queues.read(topic, queue, offset, 1)?.first().map(|unit| unit.physical))
    }
}
