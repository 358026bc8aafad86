//! From the last checkpoint back to a machine.

use super::checkpoint::{BOOKKEEPING_KEY, CheckpointBounds, Checkpoints, Horizon, INSTALLED_KEY, Kept, finish_install};
use super::{BrokerMachine, Hints, MachineView, damaged};
use crate::leader::WaitTable;
use crate::log_clock::LogClock;
use crate::units::find_or_repaired;
use bytes::Bytes;
use raftmq_model::batch::Batch;
use raftmq_model::command::Command;
use raftmq_model::ids::{GroupId, PhysicalOffset, Position, QueueId, QueueOffset, TopicUid};
use raftmq_model::machine::{Changes, GroupState, Limits, Loader};
use raftmq_store::consume_queue::{ConsumeQueues, QueueRange};
use raftmq_store::state::StateStore;
use raftmq_store::{CommitLog, EntryKind, Snapshots, StoredEntry};
use std::io;
use std::sync::Arc;

/// Bytes of log that the refill of the stored-once window reads at a time.
const REPLAY_BYTES_MAX: usize = 8 << 20;

/// What a machine is made of.
pub(crate) struct MachineOptions {
    pub(crate) group: GroupId,
    pub(crate) rules: Limits,
    pub(crate) store: Arc<dyn StateStore>,
    pub(crate) queues: Arc<ConsumeQueues>,
    pub(crate) snapshots: Snapshots,
    pub(crate) waits: Arc<WaitTable>,
    pub(crate) checkpoints: CheckpointBounds,
    /// Told the log time of what is applied.
    pub(crate) clock: Arc<LogClock>,
    /// Whether checkpoints are made on a thread of their own, off the apply path.
    pub(crate) threaded: bool,
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
        let MachineOptions { group, rules, store, queues, snapshots, waits, checkpoints, clock, threaded } = options;
        let mut state = load(group, rules, store.as_ref())?;
        if store.get(INSTALLED_KEY)?.is_some() {
            finish_install(store.as_ref(), &queues, &state)?;
        } else {
            queues.refill(state.queues().map(|(topic, queue, max)| QueueRange {
                topic,
                queue,
                min: state.queue_min(topic, queue),
                max,
            }))?;
            // What lies behind the checkpoint is applied again.
            queues.restore(state.queues())?;
        }
        let restored = store.get(BOOKKEEPING_KEY)?.map(|value| Kept::decode(Bytes::from(value))).transpose()?;
        if let Some(kept) = &restored
            && let Some(from) = state.window_replay_from()
        {
            refill_window(&mut state, (&queues, &snapshots), &open_log()?, from, kept.applied)?;
        }
        let (applied, restored) = restored.map_or((0, None), |kept| (kept.applied, Some(kept.bookkeeping)));
        let name = format!("checkpoint-{group}");
        let (checkpoints, released) = {
            let (queues, snapshots) = (Arc::clone(&queues), snapshots.clone());
            Checkpoints::start(name, store, queues, snapshots, &Horizon::of(&state), checkpoints, threaded)?
        };
        clock.applied(state.now());
        let view = Arc::new(MachineView::new(state, applied, queues, snapshots, released));
        let machine = BrokerMachine {
            view: Arc::clone(&view),
            rules,
            waits,
            clock,
            checkpoints,
            restored,
            changes: Changes::default(),
            applied,
            entries_count: 0,
            snapshot_asked: false,
            hints: Hints::default(),
        };
        Ok((machine, view))
    }
}

pub(super) fn load(group: GroupId, rules: Limits, store: &dyn StateStore) -> io::Result<GroupState> {
    let mut loader = Loader::with_limits(group, rules);
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

/// Reads the log from where the stored-once window begins up to the checkpoint.
fn refill_window(
    state: &mut GroupState,
    (queues, snapshots): (&ConsumeQueues, &Snapshots),
    log: &CommitLog,
    from: u64,
    applied: u64,
) -> io::Result<()> {
    let (mut finder, group) = (queues.finder(), state.group());
    let mut next = from.max(log.first_index());
    while next <= applied {
        let entries = log.read(next, applied + 1, REPLAY_BYTES_MAX)?;
        let Some(last) = entries.last() else {
            if log.last().is_none_or(|(_, end)| end < next) {
                // An installed snapshot, which brought its window along, and a crash before the log followed. That the log may
                // end before the state for no other reason is checked where Raft takes both.
                return Ok(());
            }
            let what = format!("the log ends before entry {next}, its state at {applied}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        };
        next = last.index + 1;
        for entry in &entries {
            remember(state, entry, |topic, queue, physical| {
                find_or_repaired(&mut finder, (group, log, queues, snapshots, applied), topic, queue, physical)
            })?;
        }
    }
    Ok(())
}

fn remember(
    state: &mut GroupState,
    entry: &StoredEntry,
    mut find: impl FnMut(TopicUid, QueueId, PhysicalOffset) -> io::Result<Option<QueueOffset>>,
) -> io::Result<()> {
    if entry.kind != EntryKind::Batch {
        return Ok(());
    }
    let batch = Batch::decode(entry.payload.clone()).map_err(|error| damaged(entry, &error))?;
    let at = Position { term: entry.term, index: entry.index, payload_offset: entry.payload_offset };
    for (command_at, bytes) in batch.commands() {
        // What could not be decoded was refused, and stored nothing.
        let Ok(command) = Command::decode(bytes) else { continue };
        state.remember_append(at, command_at, batch.now, &command, &mut find)?;
    }
    Ok(())
}
