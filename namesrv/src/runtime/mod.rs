//! The meta group's machine as the Raft runtime drives it: decodes entries, applies them, keeps the state in a state
//! store and publishes changes.
//!
//! The state store needs no sync on this path: what it loses in a crash is applied again from the log. A *checkpoint*
//! (a flush) is made when enough bytes wait for it, at most a while after the first change, and before a snapshot.

mod hub;
mod keys;
#[cfg(test)]
mod tests;

pub use hub::{CHANGE_BYTES_MAX, CHANGE_COUNT_MAX, Hub, Watcher};

use crate::machine::MetaState;
use bytes::Bytes;
use keys::{BOOKKEEPING, HEAD, Head, Loading};
use prost::Message;
use raftmq_model::batch::Batch;
use raftmq_model::clock::Clock;
use raftmq_model::ids::Timestamp;
use raftmq_model::meta::{MetaAnswer, MetaChange, MetaCommand, MetaOutcome, MetaRecord};
use raftmq_raft::{Entry, Machine, stored_applied};
use raftmq_store::EntryKind;
use raftmq_store::inspect::Checkpoint;
use raftmq_store::state::{StateStore, WriteBatch};
use std::io;
use std::sync::Arc;

/// When a checkpoint is due.
#[derive(Clone, Copy, Debug)]
pub struct CheckpointOptions {
    /// Bytes of changes that wait for a flush.
    pub unflushed_bytes_max: usize,
    /// Time since the last checkpoint, looked at when something is applied.
    pub interval_ms: u64,
}

impl Default for CheckpointOptions {
    fn default() -> CheckpointOptions {
        CheckpointOptions { unflushed_bytes_max: 4 << 20, interval_ms: 5_000 }
    }
}

/// The meta state on one replica. See the module.
pub struct MetaMachine {
    state: MetaState,
    store: Arc<dyn StateStore>,
    hub: Arc<Hub>,
    clock: Arc<dyn Clock>,
    checkpoint: CheckpointOptions,
    checkpoint_at: Timestamp,
    /// Changes since the last `apply_end`, one for each entry that changed something.
    changes: Vec<MetaChange>,
}

impl MetaMachine {
    /// A machine over `store`, which holds nothing or what an earlier machine wrote.
    #[must_use]
    pub fn new(store: Arc<dyn StateStore>, clock: Arc<dyn Clock>, checkpoint: CheckpointOptions) -> MetaMachine {
        let checkpoint_at = clock.now();
        let (state, hub) = (MetaState::default(), Hub::new());
        MetaMachine { state, store, hub, clock, checkpoint, checkpoint_at, changes: Vec::new() }
    }

    /// What has been applied, for readers and watchers.
    #[must_use]
    pub fn hub(&self) -> Arc<Hub> {
        Arc::clone(&self.hub)
    }

    /// Applies all commands of one entry. Their changes become one change, since a revision is an entry.
    fn apply_batch(&mut self, index: u64, payload: Bytes) -> io::Result<Vec<Bytes>> {
        let batch = Batch::decode(payload).map_err(|error| invalid(index, &error))?;
        let mut outcomes = Vec::new();
        let mut merged = MetaChange { revision: index, ..MetaChange::default() };
        for (_, command) in batch.commands() {
            // What this version cannot read it refuses, as every replica of this version does.
            let outcome = match MetaCommand::decode(command) {
                Ok(command) => {
                    let (outcome, change) = self.state.apply(index, &command);
                    merge(&mut merged, change);
                    outcome
                }
                Err(error) => MetaOutcome { answer: Some(MetaAnswer::Refused(format!("no meta command: {error}"))) },
            };
            outcomes.push(Bytes::from(outcome.encode_to_vec()));
        }
        if merged.reset || !merged.records.is_empty() {
            self.changes.push(merged);
        }
        Ok(outcomes)
    }

    fn records(&self) -> impl Iterator<Item = &MetaRecord> {
        self.changes.iter().flat_map(|change| &change.records).filter_map(|boxed| boxed.record.as_ref())
    }

    fn checkpoint_if_due(&mut self) -> io::Result<()> {
        let now = self.clock.now();
        // A wall clock that was set back starts the interval anew.
        self.checkpoint_at = self.checkpoint_at.min(now);
        let bytes = self.store.unflushed_bytes();
        let full = bytes >= self.checkpoint.unflushed_bytes_max;
        if full || (bytes > 0 && now.ms_since(self.checkpoint_at) >= self.checkpoint.interval_ms) {
            self.store.flush()?;
            self.checkpoint_at = now;
        }
        Ok(())
    }

    fn load(&self) -> io::Result<Loading> {
        load(self.store.as_ref())
    }
}

fn load(store: &dyn StateStore) -> io::Result<Loading> {
    let (mut loading, mut failed) = (Loading::default(), None);
    store.scan(b"", &mut |key, value| {
        if let Err(error) = loading.put(key, value) {
            failed.get_or_insert(error);
        }
    })?;
    failed.map_or(Ok(loading), Err)
}

/// What the meta state in the folder of a node that does not run has applied, for tools: reads the whole state.
///
/// # Errors
/// When a pair of the state cannot be read.
pub fn stored_checkpoint(store: &dyn StateStore) -> io::Result<Checkpoint> {
    let (_, bookkeeping) = load(store)?.finish();
    let applied = bookkeeping.map(stored_applied).transpose()?.flatten();
    Ok(Checkpoint { applied, queues: Vec::new() })
}

/// Adds a command's change to that of its entry.
fn merge(merged: &mut MetaChange, change: MetaChange) {
    if change.reset {
        *merged = change;
    } else {
        merged.records.extend(change.records);
    }
}

fn put(batch: &mut WriteBatch, record: &MetaRecord) {
    match keys::encode(record) {
        (key, Some(value)) => batch.put(key, value),
        (key, None) => batch.delete(key),
    }
}

fn invalid(index: u64, why: &dyn std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("entry {index} of the meta group cannot be applied: {why}"))
}

impl Machine for MetaMachine {
    fn restored(&mut self) -> io::Result<Option<Bytes>> {
        let (state, bookkeeping) = self.load()?.finish();
        self.state = state;
        self.hub.replace(self.state.view());
        Ok(bookkeeping)
    }

    fn apply(&mut self, entry: &Entry) -> io::Result<Vec<Bytes>> {
        match entry.kind {
            EntryKind::Batch => self.apply_batch(entry.index, entry.payload.clone()),
            EntryKind::Blank | EntryKind::Membership => Ok(Vec::new()),
        }
    }

    fn apply_end(&mut self, bookkeeping: Bytes) -> io::Result<()> {
        let mut batch = WriteBatch::default();
        for record in self.records() {
            put(&mut batch, record);
        }
        if !self.changes.is_empty() {
            batch.put(HEAD.to_vec(), Head::of(&self.state).encode_to_vec());
        }
        batch.put(BOOKKEEPING.to_vec(), bookkeeping.to_vec());
        self.store.write(batch)?;
        self.hub.publish(&std::mem::take(&mut self.changes));
        self.checkpoint_if_due()
    }

    fn snapshot(&mut self) -> io::Result<Bytes> {
        // Whoever asks may purge the log up to here afterwards.
        self.store.flush()?;
        self.checkpoint_at = self.clock.now();
        Ok(self.state.encode_snapshot())
    }

    fn install(&mut self, snapshot: Bytes, bookkeeping: Bytes) -> io::Result<()> {
        let state = MetaState::decode_snapshot(&snapshot)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
        let mut batch = WriteBatch::default();
        for boxed in &state.full_change().records {
            if let Some(record) = &boxed.record {
                put(&mut batch, record);
            }
        }
        batch.put(HEAD.to_vec(), Head::of(&state).encode_to_vec());
        batch.put(BOOKKEEPING.to_vec(), bookkeeping.to_vec());
        self.store.replace(batch)?;
        self.store.flush()?;
        self.checkpoint_at = self.clock.now();
        self.changes.clear();
        self.state = state;
        self.hub.replace(self.state.view());
        Ok(())
    }
}
