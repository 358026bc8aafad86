//! What the committed log of a broker group means on this replica.
//!
//! [`BrokerMachine`] ties the pure rules (`raftmq_model::machine::GroupState`) to the disk: it decodes entries, applies
//! their commands, appends to the ConsumeQueues and keeps the key-value changes for the next local checkpoint.
//!
//! **Disk.** The Raft log is the write-ahead log. Nothing is synced on the apply path: `checkpoint.rs` has a thread that
//! now and then syncs the ConsumeQueues and then writes the collected changes, together with Raft's bookkeeping, as one
//! atomic and durable batch; it writes the snapshots that the log asks for, too. After a restart the state is what that
//! batch says, the ConsumeQueues are cut to it, and Raft applies the rest again. Since apply only sees what is durable in the
//! local log, the state is never ahead of it.
//!
//! **Threads.** The Raft runtime drives the machine; planners read through [`MachineView`] under a read lock. Waiters are
//! woken behind `apply_end` only, so nobody sees what is not committed (law 5).

mod checkpoint;
mod digests;
mod offline;
mod open;
mod rebuild;
mod snapshot;
mod view;

pub(crate) use checkpoint::CheckpointBounds;
pub use digests::{DIGESTS_COUNT_MAX, DigestRefusal, StateDigest};
pub use offline::stored_checkpoint;
pub(crate) use open::MachineOptions;
pub(crate) use rebuild::{finish_rebuild, rebuild, snapshot_state};
pub use view::MachineView;

use crate::leader::WaitTable;
use crate::log_clock::LogClock;
use bytes::Bytes;
use checkpoint::{Checkpoints, Horizon, Installed, Kept, Taken};
use raftmq_model::batch::Batch;
use raftmq_model::command::{Command, Outcome};
use raftmq_model::ids::{ConsumerGroupUid, Position, TopicUid};
use raftmq_model::machine::{Changes, Limits};
use raftmq_raft::{Entry, KeptSnapshot, Machine};
use raftmq_store::EntryKind;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// The machine of one replica. See the module.
pub struct BrokerMachine {
    view: Arc<MachineView>,
    rules: Limits,
    waits: Arc<WaitTable>,
    checkpoints: Checkpoints,
    restored: Option<Bytes>,
    clock: Arc<LogClock>,
    /// Changes of the run that is under way.
    changes: Changes,
    /// Index of the last applied entry.
    applied: u64,
    /// Entries of the run.
    entries_count: u64,
    /// The run ends here, and its state is to be kept as a snapshot.
    snapshot_asked: bool,
    hints: Hints,
}

/// Whom to wake at the end of a run.
#[derive(Default)]
struct Hints {
    appended: BTreeMap<TopicUid, usize>,
    changed: BTreeMap<(TopicUid, ConsumerGroupUid), usize>,
}

impl Machine for BrokerMachine {
    fn restored(&mut self) -> io::Result<Option<Bytes>> {
        Ok(self.restored.take())
    }

    fn apply(&mut self, entry: &Entry) -> io::Result<Vec<Bytes>> {
        assert!(entry.index > self.applied || self.applied == 0, "entry {} is applied again", entry.index);
        self.applied = entry.index;
        self.entries_count += 1;
        if entry.kind != EntryKind::Batch {
            self.view.reached(entry.index, &self.view.state_mut());
            return Ok(Vec::new());
        }
        let batch = Batch::decode(entry.payload.clone()).map_err(|error| damaged(entry, &error))?;
        let at = Position { term: entry.term, index: entry.index, payload_offset: entry.payload_offset };
        self.clock.applied(batch.now);
        let enqueued_before = self.changes.enqueues.len();
        let mut outcomes = Vec::with_capacity(batch.count() as usize);
        let mut state = self.view.state_mut();
        for (command_at, bytes) in batch.commands() {
            let outcome = match Command::decode(bytes) {
                Ok(command) => {
                    let outcome = state.apply(at, command_at, batch.now, &command, &mut self.changes);
                    self.hints.note(&command);
                    outcome
                }
                // Every replica answers the same: the bytes are equal, and so is the build's knowledge once all run it.
                Err(error) => Outcome::Refused(error.to_string()),
            };
            outcomes.push(outcome.encode());
        }
        self.snapshot_asked = state.end_entry(at, &mut self.changes);
        // Under the lock, so that a reader who sees an offset in the state finds its unit.
        self.view.queues().append_all(&self.changes.enqueues[enqueued_before..])?;
        self.view.reached(entry.index, &state);
        Ok(outcomes)
    }

    fn apply_end(&mut self, bookkeeping: Bytes) -> io::Result<()> {
        let (horizon, snapshot) = {
            let mut state = self.view.state_mut();
            state.flush_dirty(&mut self.changes);
            let asked = std::mem::take(&mut self.snapshot_asked);
            let snapshot = asked.then(|| (self.applied, snapshot::encode(&bookkeeping, &state)));
            (Horizon::of(&state), snapshot)
        };
        for enqueue in &self.changes.enqueues {
            *self.hints.appended.entry(enqueue.topic).or_default() += 1;
        }
        let kept = Kept { applied: self.applied, bookkeeping };
        let entries = std::mem::take(&mut self.entries_count);
        self.checkpoints.take(&mut self.changes, Taken { entries, kept, snapshot, horizon })?;
        self.changes.clear();
        self.hints.give(&self.waits);
        Ok(())
    }

    fn ends_run(&self) -> bool {
        self.snapshot_asked
    }

    fn kept_snapshot(&mut self, index: u64) -> io::Result<Option<KeptSnapshot>> {
        self.checkpoints.needs(index);
        let snapshots = self.view.snapshots();
        let Some(body) = snapshots.read(index)? else {
            let path = snapshots.path(index);
            return Err(io::Error::new(io::ErrorKind::NotFound, format!("{} is missing", path.display())));
        };
        snapshot::decode(body).map(Some)
    }

    /// Raft asks for one only where the log is purged and there is none, and a purge leaves one.
    fn snapshot(&mut self) -> io::Result<Bytes> {
        let what = "a broker group keeps the snapshots that its log asks for, and makes no others";
        Err(io::Error::new(io::ErrorKind::Unsupported, what))
    }

    fn install(&mut self, data: Bytes, bookkeeping: Bytes) -> io::Result<()> {
        let group = self.view.state().group();
        let (state, pairs) = snapshot::load(group, self.rules, data.clone())?;
        let applied = raftmq_raft::stored_applied(bookkeeping.clone())?.map_or(0, |(_, index)| index);
        let body = snapshot::join(&bookkeeping, &data);
        let kept = Kept { applied, bookkeeping };
        self.clock.applied(state.now());
        // Under the lock, so that no reader finds the new queues beside the old state.
        let mut known = self.view.state_mut();
        self.checkpoints.install(Installed { kept, body, pairs, state: &state })?;
        *known = state;
        self.view.installed(applied, &known);
        drop(known);
        tracing::info!(%group, applied, "started over from a snapshot of the leader");
        self.applied = applied;
        self.changes.clear();
        self.entries_count = 0;
        self.snapshot_asked = false;
        Ok(())
    }
}

impl Hints {
    /// Only what can make a message visible sooner than its waiters know.
    fn note(&mut self, command: &Command) {
        let mut changed = |topic, group| {
            *self.changed.entry((TopicUid(topic), ConsumerGroupUid(group))).or_default() += 1;
        };
        match command {
            Command::ChangeInvisible(change) => {
                if let Some(handle) = &change.handle {
                    changed(handle.topic, handle.consumer_group);
                }
            }
            Command::Release(release) => {
                for handle in release.messages.iter().filter_map(|entry| entry.handle.as_ref()) {
                    changed(handle.topic, handle.consumer_group);
                }
            }
            // In order, a finished message lets the next one go.
            Command::Ack(ack) => ack.handles.iter().for_each(|handle| changed(handle.topic, handle.consumer_group)),
            Command::DeadLetter(letter) => {
                if let Some(handle) = &letter.handle {
                    changed(handle.topic, handle.consumer_group);
                }
            }
            Command::Append(_)
            | Command::Pop(_)
            | Command::PutTopic(_)
            | Command::PutConsumerGroup(_)
            | Command::DeleteTopic { .. }
            | Command::DeleteConsumerGroup { .. }
            | Command::Snapshot
            | Command::Purge { .. } => {}
        }
    }

    fn give(&mut self, waits: &WaitTable) {
        for (topic, count) in std::mem::take(&mut self.appended) {
            waits.appended(topic, count);
        }
        for ((topic, consumer_group), count) in std::mem::take(&mut self.changed) {
            waits.changed(topic, consumer_group, count);
        }
    }
}

fn damaged(entry: &Entry, error: &dyn std::fmt::Display) -> io::Error {
    let (index, at) = (entry.index, entry.payload_offset);
    io::Error::new(io::ErrorKind::InvalidData, format!("entry {index} at offset {at} is no batch: {error}"))
}

#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod tests;
