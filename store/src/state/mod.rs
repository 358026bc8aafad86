//! The rest of a group's state (cursors, in-flight records, settings) as ordered key-value pairs.
//!
//! There is no write-ahead log: the Raft log is one. Writes stay in memory until [`StateStore::flush`], which makes all
//! of them durable or none, so that a store is always as it was at a checkpoint. The owner flushes when
//! [`StateStore::unflushed_bytes`] passes [`UNFLUSHED_BYTES_MAX`], ConsumeQueues first. One thread per group writes.

mod memory;
mod overlay;
mod rocks;
pub mod testing;
#[cfg(test)]
mod tests;

pub use memory::MemoryState;
pub use rocks::RocksState;

use raftmq_model::machine::Write;
use std::io;
use std::path::PathBuf;

/// Bytes of writes past which the owner has to make a checkpoint. A bound on memory and on what a restart replays.
pub const UNFLUSHED_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The files of a store are not as they were written. What a call fails with, see [`is_state_damage`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("cannot {what} the state in {}: {reason}", dir.display())]
pub struct StateDamage {
    /// The folder.
    pub dir: PathBuf,
    /// What was tried.
    pub what: &'static str,
    /// What the store says.
    pub reason: String,
}

/// Whether a store's call failed since its files are damaged.
#[must_use]
pub fn is_state_damage(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<StateDamage>())
}

/// Writes that take effect together, in order: of two writes of one key the later one stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteBatch {
    /// The writes.
    pub writes: Vec<Write>,
}

impl WriteBatch {
    /// A batch without writes.
    #[must_use]
    pub fn new() -> WriteBatch {
        WriteBatch::default()
    }

    /// Sets a key.
    pub fn put(&mut self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) {
        self.writes.push(Write::Put { key: key.into(), value: value.into() });
    }

    /// Removes a key; fine when it is not there.
    pub fn delete(&mut self, key: impl Into<Vec<u8>>) {
        self.writes.push(Write::Delete { key: key.into() });
    }
}

impl From<Vec<Write>> for WriteBatch {
    fn from(writes: Vec<Write>) -> WriteBatch {
        WriteBatch { writes }
    }
}

/// Ordered key-value pairs, durable by checkpoints only.
///
/// Readers see each batch as soon as [`StateStore::write`] returned. After a failed flush nobody knows what is durable:
/// the store then fails every later call, and the process has to exit (law 8).
pub trait StateStore: Send + Sync {
    /// The value of a key.
    ///
    /// # Errors
    /// The store cannot be read, or failed before.
    fn get(&self, key: &[u8]) -> io::Result<Option<Vec<u8>>>;

    /// Calls `visit` with each pair whose key begins with `prefix`, in ascending order of keys. `visit` must not call
    /// the store.
    ///
    /// # Errors
    /// The store cannot be read, or failed before; then some pairs may have been visited.
    fn scan(&self, prefix: &[u8], visit: &mut dyn FnMut(&[u8], &[u8])) -> io::Result<()>;

    /// Applies a batch in memory.
    ///
    /// # Errors
    /// The store failed before.
    fn write(&self, batch: WriteBatch) -> io::Result<()>;

    /// Makes everything written so far durable, all of it or none.
    ///
    /// # Errors
    /// It could not be written or synced. Final.
    fn flush(&self) -> io::Result<()>;

    /// Bytes of keys and values written since the last flush.
    fn unflushed_bytes(&self) -> usize;

    /// Drops all pairs and puts those of `batch` in their place, in memory: what installing a snapshot does. Durable
    /// with the next flush, together.
    ///
    /// # Errors
    /// The store cannot be read, or failed before.
    fn replace(&self, mut batch: WriteBatch) -> io::Result<()> {
        let mut writes = Vec::new();
        self.scan(&[], &mut |key, _| writes.push(Write::Delete { key: key.to_vec() }))?;
        writes.append(&mut batch.writes);
        self.write(WriteBatch { writes })
    }
}
