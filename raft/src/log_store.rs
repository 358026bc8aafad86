//! The Raft library's log storage over a [`CommitLog`].
//!
//! Everything that writes goes through the CommitLog's IO thread in the order of the calls: that is what keeps votes and
//! entries in one order on disk.

use crate::codec::{damaged, decode_vote, encode_vote, from_stored, to_new_entry};
use crate::durable::{DurableEnd, DurableWatch};
use crate::integrity::Repairs;
use crate::types::{LogId, RaftEntry, TypeConfig, Vote, log_id, term_index};
use futures::stream::{self, Stream};
use openraft::storage::{IOFlushed, LogState, RaftLogReader, RaftLogStorage};
use openraft::{OptionalSend, RaftTypeConfig};
use parking_lot::Mutex;
use raftmq_model::ids::PhysicalOffset;
use raftmq_store::commit_log::{CommitLog, Done, Recovered};
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::{Arc, OnceLock};
use tokio::sync::oneshot;

/// Bytes of entries that one append to a follower carries, and one step of apply reads.
pub(crate) const READ_BYTES_MAX: usize = 1 << 20;

/// One group's log. Clones share everything.
#[derive(Clone)]
pub struct LogStore {
    log: CommitLog,
    shared: Arc<Shared>,
}

struct Shared {
    /// The last vote that is durable.
    vote: Mutex<Option<Vote>>,
    durable: DurableEnd,
    /// An installed snapshot's CommitLog offset: where the log goes on when it is purged beyond its end.
    restart_at: Mutex<Option<PhysicalOffset>>,
    /// Who repairs damaged entries, once there is somebody.
    repairs: OnceLock<Repairs>,
    /// The last purge, which may name an entry before the first that the log ever had.
    purged: Mutex<Option<LogId>>,
    /// What the Raft library is asked to purge that is no snapshot's end (see `purge.rs`): the log stays as it is.
    spared: Mutex<BTreeSet<u64>>,
}

impl LogStore {
    /// Wraps an open log and what its recovery found.
    ///
    /// # Errors
    /// When the stored vote cannot be read.
    pub fn new(log: CommitLog, recovered: &Recovered) -> io::Result<LogStore> {
        let vote = recovered.vote.as_ref().map(|bytes| decode_vote(bytes)).transpose()?;
        let next = recovered.last.map_or(0, |(_, index)| index + 1);
        let shared = Shared {
            vote: Mutex::new(vote),
            durable: DurableEnd::new(next),
            restart_at: Mutex::default(),
            purged: Mutex::default(),
            spared: Mutex::default(),
            repairs: OnceLock::new(),
        };
        Ok(LogStore { log, shared: Arc::new(shared) })
    }

    /// Follows how far the log is on disk.
    #[must_use]
    pub fn durable(&self) -> DurableWatch {
        self.shared.durable.watch()
    }

    /// Term and index of the last entry, or of the last purged one when the log is empty.
    pub(crate) fn last(&self) -> Option<(u64, u64)> {
        self.log.last()
    }

    pub(crate) fn purged(&self) -> Option<(u64, u64)> {
        self.log.purged()
    }

    /// Lets the next purge up to that entry leave the log as it is.
    pub(crate) fn spare(&self, index: u64) {
        let purged = self.log.purged().map_or(0, |(_, purged)| purged);
        let mut spared = self.shared.spared.lock();
        *spared = spared.split_off(&purged);
        spared.insert(index);
    }

    /// Where the entry after `index` goes on all replicas. Beyond the end of the log that is known from the snapshot that
    /// the state came from.
    pub(crate) fn offset_after(&self, index: u64) -> io::Result<PhysicalOffset> {
        let beyond = self.log.last().is_none_or(|(_, last)| index > last);
        let restart_at = || self.shared.restart_at.lock().filter(|_| beyond);
        let offset = self.log.end_offset(index).or_else(restart_at);
        offset.ok_or_else(|| damaged(&format!("the log does not know where entry {index} ends")))
    }

    /// A snapshot was installed: when the log is purged beyond its end it goes on here.
    pub fn expect_restart_at(&self, offset: PhysicalOffset) {
        *self.shared.restart_at.lock() = Some(offset);
        self.shared.spared.lock().clear();
    }

    /// From now on, reads wait for the repair of damaged entries.
    pub(crate) fn set_repairs(&self, repairs: Repairs) {
        let _ = self.shared.repairs.set(repairs);
    }

    async fn read(&self, from: u64, to: u64, bytes_max: usize) -> io::Result<Vec<RaftEntry>> {
        let read = || self.log.read(from, to, bytes_max);
        let stored = match self.shared.repairs.get() {
            Some(repairs) => repairs.read(read).await?,
            None => read()?,
        };
        stored.into_iter().map(from_stored).collect()
    }

    /// Runs one operation of the log and waits until its IO is done.
    async fn done<F>(&self, start: F) -> io::Result<()>
    where
        F: FnOnce(&CommitLog, Done),
    {
        let (sender, receiver) = oneshot::channel();
        start(&self.log, Box::new(move |result| drop(sender.send(result))));
        receiver.await.map_err(|_| io::Error::other("the log was closed"))?
    }
}

fn bounds(range: &impl RangeBounds<u64>) -> (u64, u64) {
    let from = match range.start_bound() {
        Bound::Included(index) => *index,
        Bound::Excluded(index) => index.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let to = match range.end_bound() {
        Bound::Included(index) => index.saturating_add(1),
        Bound::Excluded(index) => *index,
        Bound::Unbounded => u64::MAX,
    };
    (from, to)
}

impl RaftLogReader<TypeConfig> for LogStore {
    async fn try_get_log_entries<RB>(&mut self, range: RB) -> io::Result<Vec<RaftEntry>>
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        let (from, to) = bounds(&range);
        self.read(from, to, usize::MAX).await
    }

    async fn limited_get_log_entries(&mut self, from: u64, to: u64) -> io::Result<Vec<RaftEntry>> {
        self.read(from, to, READ_BYTES_MAX).await
    }

    /// Reads ahead by at most [`READ_BYTES_MAX`]: a replica that starts with a long log applies it piece by piece.
    async fn entries_stream<RB>(&mut self, range: RB) -> impl Stream<Item = io::Result<RaftEntry>> + OptionalSend
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        let (from, to) = bounds(&range);
        stream::unfold((self.clone(), from, Vec::new().into_iter()), move |(store, mut from, mut ahead)| async move {
            if ahead.len() == 0 && from < to {
                match store.read(from, to, READ_BYTES_MAX).await {
                    Ok(entries) => ahead = entries.into_iter(),
                    Err(error) => return Some((Err(error), (store, to, ahead))),
                }
            }
            let entry: RaftEntry = ahead.next()?;
            from = entry.log_id.index + 1;
            Some((Ok(entry), (store, from, ahead)))
        })
    }

    async fn read_vote(&mut self) -> io::Result<Option<Vote>> {
        Ok(*self.shared.vote.lock())
    }
}

impl RaftLogStorage<TypeConfig> for LogStore {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> io::Result<LogState<TypeConfig>> {
        let purged = (*self.shared.purged.lock()).max(self.log.purged().map(log_id));
        Ok(LogState { last_purged_log_id: purged, last_log_id: self.log.last().map(log_id).max(purged) })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> io::Result<()> {
        let bytes = encode_vote(vote);
        self.done(|log, done| log.save_vote(bytes, done)).await?;
        *self.shared.vote.lock() = Some(*vote);
        Ok(())
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> io::Result<()> {
        if let Some(id) = &committed {
            self.log.save_committed(term_index(id));
        }
        Ok(())
    }

    /// A hint that the log never gives back beyond its durable end.
    async fn read_committed(&mut self) -> io::Result<Option<LogId>> {
        Ok(self.log.committed().map(log_id))
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<TypeConfig>) -> io::Result<()>
    where
        I: IntoIterator<Item = <TypeConfig as RaftTypeConfig>::Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries = entries.into_iter().map(|entry| to_new_entry(&entry)).collect::<io::Result<Vec<_>>>()?;
        let Some(next) = entries.last().map(|entry| entry.index + 1) else {
            callback.io_completed(Ok(()));
            return Ok(());
        };
        let shared = Arc::clone(&self.shared);
        self.log.append(
            entries,
            Box::new(move |result| {
                match &result {
                    Ok(()) => shared.durable.advance(next),
                    Err(_) => shared.durable.fail(),
                }
                callback.io_completed(result);
            }),
        )
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> io::Result<()> {
        let keep = last.map(|id| id.index);
        if let Some((_, end)) = self.log.last().filter(|(_, end)| keep.is_none_or(|keep| *end > keep)) {
            tracing::info!(after = keep, upto = end, "cut uncommitted entries off the log: another leader has others");
        }
        let shared = Arc::clone(&self.shared);
        self.done(move |log, done| {
            log.truncate_after(
                keep,
                Box::new(move |result| {
                    shared.durable.cut(keep.map_or(0, |index| index + 1));
                    done(result);
                }),
            )
        })
        .await
    }

    async fn purge(&mut self, upto: LogId) -> io::Result<()> {
        let id = term_index(&upto);
        if self.shared.spared.lock().contains(&id.1) && self.log.last().is_some_and(|(_, last)| last >= id.1) {
            return Ok(());
        }
        if self.log.last().is_some_and(|(_, last)| last >= id.1) {
            self.done(|log, done| log.purge(id.1, done)).await?;
        } else {
            // The state came from a snapshot beyond the end of this log.
            let offset = *self.shared.restart_at.lock();
            let offset = offset.ok_or_else(|| damaged("the log would be purged beyond its end without a snapshot"))?;
            self.done(|log, done| log.reset(id, offset, done)).await?;
        }
        self.shared.durable.advance(id.1 + 1);
        let mut purged = self.shared.purged.lock();
        *purged = (*purged).max(Some(upto));
        Ok(())
    }
}
