//! From a key to the records that may have it, newest first.

use super::active::{read_entry, read_slot};
use super::{Header, KeyIndex};
use crate::io::{IoFile, OpenMode};
use raftmq_model::ids::{PhysicalOffset, Timestamp};
use raftmq_model::record::key_hash;
use std::io::{Error, ErrorKind, Result};
use std::sync::Arc;

/// Entries of one chain that are looked at before the caller is heard again.
const BATCH_COUNT: usize = 1024;
/// Times in entries are whole seconds, so that a message can be this much younger, in milliseconds.
const RESOLUTION_MS: i64 = 999;

/// A record whose key has the hash that is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Where the record lies.
    pub physical: PhysicalOffset,
}

/// A search under way. It sees what was indexed when it began, but for what is forgotten meanwhile.
pub struct KeySearch<'a> {
    index: &'a KeyIndex,
    hash: u32,
    from: Timestamp,
    to: Timestamp,
    /// Files that are still to come, the next one last.
    ahead: Vec<Header>,
    /// Where in a chain it goes on.
    place: Option<(Header, u32)>,
    looked_at: u64,
}

/// Where entries are read.
enum Source<'a> {
    Active(&'a super::Active),
    Complete(Arc<dyn IoFile>),
}

impl KeyIndex {
    /// Searches the records of a topic with a key or a message id whose log time lies in `from..=to`, to a second: the
    /// caller has to look at the records.
    #[must_use]
    pub fn search(&self, topic: &str, key: &str, from: Timestamp, to: Timestamp) -> KeySearch<'_> {
        let shared = self.shared.read();
        let files = shared.complete.values().chain(shared.active.as_ref().map(|active| active.header()));
        let may_have = |header: &&Header| {
            header.count > 1 && header.begin_time <= to && header.end_time.0.saturating_add(RESOLUTION_MS) >= from.0
        };
        let ahead = files.filter(may_have).copied().collect();
        drop(shared);
        let (hash, place, looked_at) = (key_hash(topic, key), None, 0);
        KeySearch { index: self, hash, from, to, ahead, place, looked_at }
    }
}

impl KeySearch<'_> {
    /// Entries that were looked at so far.
    #[must_use]
    pub fn looked_at(&self) -> u64 {
        self.looked_at
    }

    /// The next candidates, newest first; none of them may be there although more follow. `None` at the end.
    ///
    /// # Errors
    /// What the file system says; `InvalidData` when a file is damaged: the next [`KeyIndex::restore`] removes it.
    pub fn next_batch(&mut self) -> Result<Option<Vec<Candidate>>> {
        let (header, number) = match self.place.take() {
            Some((header, number)) => (header, Some(number)),
            None => match self.ahead.pop() {
                Some(header) => (header, None),
                None => return Ok(None),
            },
        };
        match self.chain(&header, number) {
            // Forgotten since the search began.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Some(Vec::new())),
            Err(error) if matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::UnexpectedEof) => {
                self.index.distrust(header.base);
                let path = self.index.path(header.base);
                Err(Error::new(ErrorKind::InvalidData, format!("{} is damaged: {error}", path.display())))
            }
            found => found.map(Some),
        }
    }

    fn chain(&mut self, header: &Header, number: Option<u32>) -> Result<Vec<Candidate>> {
        let index = self.index;
        let shared = index.shared.read();
        match shared.active.as_ref().filter(|active| active.header().base == header.base) {
            Some(active) => {
                let number = number.unwrap_or_else(|| active.newest(self.hash));
                self.walk(header, number, &Source::Active(active))
            }
            None => {
                drop(shared);
                let file = index.io.open(&index.path(header.base), OpenMode::Read)?;
                let number = match number {
                    Some(number) => number,
                    None => read_slot(&*file, header, self.hash)?,
                };
                self.walk(header, number, &Source::Complete(file))
            }
        }
    }

    fn walk(&mut self, header: &Header, mut number: u32, source: &Source<'_>) -> Result<Vec<Candidate>> {
        let mut found = Vec::new();
        for _ in 0..BATCH_COUNT {
            if number == 0 {
                return Ok(found);
            }
            let entry = match source {
                Source::Active(active) => active.entry(number)?,
                Source::Complete(file) => read_entry(&**file, header, number)?,
            };
            self.looked_at += 1;
            if entry.previous >= number || entry.hash % header.slots != self.hash % header.slots {
                return Err(Error::new(ErrorKind::InvalidData, format!("entry {number} is not in its chain")));
            }
            // Log time never runs backwards, and the chain leads back.
            if entry.time(header.begin_time).0.saturating_add(RESOLUTION_MS) < self.from.0 {
                return Ok(found);
            }
            if entry.hash == self.hash && entry.time(header.begin_time) <= self.to {
                found.push(Candidate { physical: entry.physical });
            }
            number = entry.previous;
        }
        self.place = (number != 0).then_some((*header, number));
        Ok(found)
    }
}

impl KeyIndex {
    /// Lets the next restore remove a file that turned out to be damaged.
    fn distrust(&self, base: u64) {
        let mut feeding = self.feeding.lock();
        feeding.ready = false;
        feeding.distrusted = Some(feeding.distrusted.map_or(base, |other| other.min(base)));
    }
}
