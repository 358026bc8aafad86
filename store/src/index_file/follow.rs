//! From entries of the log to entries of the index.

use super::KeyIndex;
use crate::commit_log::{CommitLog, StoredEntry};
use crate::inspect;
use raftmq_model::ids::{PhysicalOffset, Timestamp};
use raftmq_model::machine::carried;
use raftmq_model::record::RecordView;
use std::io::{Error, ErrorKind, Result};

/// Payload bytes of the log that are read at once.
const READ_BYTES_MAX: usize = 4 << 20;

/// How far the index is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Followed {
    /// All log entries before this one are indexed.
    pub next_index: u64,
    /// There is nothing more to index now.
    pub up_to_date: bool,
}

impl KeyIndex {
    /// Goes on behind the last log entry that is indexed, up to and with `applied`, which must be committed; what the log has
    /// forgotten is left out. Stops behind the entry that brings it to `bytes_max` bytes. Does nothing while
    /// [`KeyIndex::needs_restore`].
    ///
    /// # Errors
    /// What the file system says; then [`KeyIndex::restore`] has to be called. When the log cannot be read, the index stays as it is.
    pub fn follow(&self, log: &CommitLog, applied: u64, bytes_max: usize) -> Result<Followed> {
        let mut feeding = self.feeding.lock();
        let mut next_index = self.shared.read().next_index;
        if !feeding.ready {
            return Ok(Followed { next_index, up_to_date: false });
        }
        let mut bytes = 0;
        while bytes < bytes_max {
            let from = next_index.max(log.first_index());
            let entries = log.read(from, applied.saturating_add(1), READ_BYTES_MAX.min(bytes_max - bytes))?;
            if entries.is_empty() {
                return Ok(Followed { next_index, up_to_date: true });
            }
            for entry in &entries {
                bytes += entry.payload.len().max(1);
                if let Some((now, keys)) = keys_of(entry).map_err(|what| Error::new(ErrorKind::InvalidData, what))? {
                    let added = self.add(&mut feeding, entry.index, entry.payload_offset, now, &keys);
                    self.settle(&mut feeding, added)?;
                }
                next_index = entry.index + 1;
                self.shared.write().next_index = next_index;
            }
        }
        Ok(Followed { next_index, up_to_date: next_index > applied })
    }
}

/// The hash of a key, and where the record lies that has it.
pub(crate) type Key = (u32, PhysicalOffset);

/// Log time and keys of the records in an entry, in order; `None` when it carries no batch. A record that cannot be read has
/// none.
///
/// # Errors
/// A sentence when the payload is no batch.
pub(crate) fn keys_of(entry: &StoredEntry) -> std::result::Result<Option<(Timestamp, Vec<Key>)>, String> {
    let Some(commands) = inspect::commands(entry)? else { return Ok(None) };
    let at = inspect::position(entry);
    let (mut keys, mut hashes) = (Vec::new(), Vec::new());
    for (command_at, command) in &commands.commands {
        let Some(command) = command else { continue };
        for record in carried(at, *command_at, command) {
            let Ok(view) = RecordView::parse(record.record) else { continue };
            view.key_hashes(&mut hashes);
            keys.extend(hashes.iter().map(|hash| (*hash, record.physical)));
        }
    }
    Ok(Some((commands.now, keys)))
}
