//! From the files back to an index that can go on.

use super::active::{Active, read_header};
use super::{Feeding, Header, KeyIndex, Shared, bases};
use crate::io::OpenMode;
use raftmq_model::ids::PhysicalOffset;
use std::io::{ErrorKind, Result};

/// What [`KeyIndex::restore`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// The index goes on with this log entry, or with the first one of the log when that has forgotten it.
    pub next_index: u64,
    /// Why files were removed, to be built again from the log; `None`: they were not.
    pub dropped: Option<String>,
}

impl KeyIndex {
    /// Reads what is there and cuts it to the log entry `applied`, which ends at `end` in the CommitLog: nothing behind it is
    /// certain. The first call behind [`KeyIndex::new`], and the one behind each failure. Files that are not as they were
    /// written are removed with all behind them. Reads the headers, and of the last file all entries.
    ///
    /// # Errors
    /// What the file system says; it can be called again.
    pub fn restore(&self, applied: u64, end: PhysicalOffset) -> Result<Restored> {
        let mut feeding = self.feeding.lock();
        self.io.create_dir_all(&self.dir)?;
        let bases = bases(&*self.io, &self.dir)?;
        let mut shared = Shared::default();
        let mut dropped = None;
        let mut kept = 0;
        for (at, base) in bases.iter().enumerate() {
            match self.take_up(&mut shared, &feeding, *base, at + 1 == bases.len(), applied, end) {
                Ok(true) => kept = at + 1,
                Ok(false) => {}
                Err(error) if is_damage(error.kind()) => dropped = Some(error.to_string()),
                Err(error) => return Err(error),
            }
            if kept <= at || shared.active.is_some() {
                break;
            }
        }
        for base in &bases[kept..] {
            self.io.remove(&self.path(*base))?;
        }
        if kept < bases.len() {
            self.io.sync_dir(&self.dir)?;
        }
        let next_index = shared.last().map_or(0, |header| header.next_index.min(applied.saturating_add(1)));
        shared.next_index = next_index;
        *self.shared.write() = shared;
        // Names that were there may be as unsynced as new ones.
        *feeding = Feeding { ready: true, distrusted: None, names_unsynced: true, synced_next_index: u64::MAX };
        Ok(Restored { next_index, dropped })
    }

    /// Takes the next file into `shared`; false when nothing of it counts.
    fn take_up(
        &self,
        shared: &mut Shared,
        feeding: &Feeding,
        base: u64,
        is_last: bool,
        applied: u64,
        end: PhysicalOffset,
    ) -> Result<bool> {
        let path = self.path(base);
        if feeding.distrusted == Some(base) {
            let what = format!("{} was not written or synced as a whole, or is damaged", path.display());
            return Err(std::io::Error::new(ErrorKind::InvalidData, what));
        }
        if base >= end.0 {
            return Ok(false);
        }
        let header = read_header(&*self.io.open(&path, OpenMode::Read)?, &path, base)?;
        let follows =
            shared.last().is_none_or(|before: &Header| before.end.0 < base && before.next_index <= header.next_index);
        if !follows || (!header.complete && !is_last) {
            let what = format!("{} is damaged: it does not follow the file before", path.display());
            return Err(std::io::Error::new(ErrorKind::InvalidData, what));
        }
        if header.complete && header.end < end && header.next_index <= applied.saturating_add(1) {
            shared.complete.insert(base, header);
            return Ok(true);
        }
        shared.active = Active::open(&*self.io, &path, header, end, applied.saturating_add(1))?;
        Ok(shared.active.is_some())
    }
}

fn is_damage(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::InvalidData | ErrorKind::UnexpectedEof | ErrorKind::NotFound)
}
