//! Ties a [`Machine`] to the Raft library.

use crate::bookkeeping::{Bookkeeping, unwrap_snapshot, wrap_snapshot};
use crate::codec::{damaged, split_entry};
use crate::durable::DurableWatch;
use crate::fatal::FatalReport;
use crate::log_store::LogStore;
use crate::machine::{Entry, Machine};
use crate::types::{LogId, RaftEntry, Snapshot, SnapshotMeta, StoredMembership, TypeConfig};
use bytes::Bytes;
use futures::{Stream, StreamExt};
use openraft::storage::{ApplyResponder, EntryResponder, RaftSnapshotBuilder, RaftStateMachine};
use openraft::{EntryPayload, OptionalSend};
use parking_lot::Mutex;
use raftmq_model::ids::{GroupId, PhysicalOffset};
use std::io;
use std::sync::Arc;
use tokio::sync::watch;

/// Entries in one run, which is one write of the state.
const RUN_ENTRIES_MAX: usize = 64;
/// Bytes of entries in one run.
const RUN_BYTES_MAX: usize = 1 << 20;

/// A group's machine as the Raft library's state machine. Clones are not possible: there is one.
pub struct Adaptor {
    group: GroupId,
    /// Only the Raft library's apply task takes it; the lock makes it `Sync`, which the library asks for.
    machine: Mutex<Box<dyn Machine>>,
    log: LogStore,
    durable: DurableWatch,
    books: Bookkeeping,
    membership_json: Bytes,
    snapshot: Arc<Mutex<Option<Snapshot>>>,
    /// Taken by [`Adaptor::prepare_snapshot`] for the next builder.
    prepared: Option<Snapshot>,
    applied_term: watch::Sender<u64>,
    fatal: FatalReport,
}

/// A run of applied entries that are not written yet.
#[derive(Default)]
struct Run {
    answers: Vec<(ApplyResponder<TypeConfig>, Vec<Bytes>)>,
    entries_count: usize,
    bytes: usize,
}

impl Adaptor {
    /// Restores what the machine keeps. Blocks on the machine's IO.
    ///
    /// # Errors
    /// When the state cannot be read, or is ahead of the log (then one of them is from another disk, or a write was lost
    /// after it was reported durable).
    pub fn restore(
        group: GroupId,
        mut machine: Box<dyn Machine>,
        log: LogStore,
        fatal: FatalReport,
    ) -> io::Result<Adaptor> {
        let books = machine.restored()?.map(Bookkeeping::decode).transpose()?.unwrap_or_default();
        check_against_log(&books, &log)?;
        if let Some(next_offset) = books.installed_next_offset {
            log.expect_restart_at(PhysicalOffset(next_offset));
        }
        let applied_term = watch::Sender::new(books.applied.map_or(0, |id| id.leader_id.term));
        let mut adaptor = Adaptor {
            group,
            machine: Mutex::new(machine),
            durable: log.durable(),
            log,
            membership_json: books.membership_json()?,
            books,
            snapshot: Arc::default(),
            prepared: None,
            applied_term,
            fatal,
        };
        if let Some(index) = adaptor.log_begins_behind() {
            let kept = adaptor.take_kept_snapshot(index)?;
            *adaptor.snapshot.lock() = kept;
        }
        Ok(adaptor)
    }

    /// The entry that the log begins behind, or will when an installed snapshot has taken its effect on it.
    fn log_begins_behind(&self) -> Option<u64> {
        let installed = self.books.installed_next_offset.and(self.books.applied).map(|id| id.index);
        installed.or_else(|| self.log.purged().map(|(_, index)| index))
    }

    /// An adaptor that does not wait for the log: for the storage test suite, which applies entries that no log has.
    ///
    /// # Errors
    /// As for [`Adaptor::restore`].
    #[doc(hidden)]
    pub fn detached(group: GroupId, machine: Box<dyn Machine>, log: LogStore) -> io::Result<Adaptor> {
        let mut adaptor = Adaptor::restore(group, machine, log, FatalReport::default())?;
        adaptor.durable = DurableWatch::everything();
        Ok(adaptor)
    }

    /// The term of the last applied entry, 0 before the first.
    pub(crate) fn applied_term(&self) -> watch::Receiver<u64> {
        self.applied_term.subscribe()
    }

    fn apply_one(&mut self, entry: RaftEntry) -> io::Result<Vec<Bytes>> {
        let (kind, payload) = split_entry(&entry)?;
        let payload_offset = match &entry.payload {
            EntryPayload::Normal(payload) => payload.payload_offset,
            _ => 0,
        };
        let stored = Entry {
            term: entry.log_id.leader_id.term,
            index: entry.log_id.index,
            kind,
            payload,
            payload_offset: PhysicalOffset(payload_offset),
        };
        let outcomes = self.machine.get_mut().apply(&stored)?;
        if let EntryPayload::Membership(membership) = entry.payload {
            self.books.membership = StoredMembership::new(Some(entry.log_id), membership);
            self.membership_json = self.books.membership_json()?;
        }
        self.books.applied = Some(entry.log_id);
        // From here on the log is known to go on behind the snapshot.
        self.books.installed_next_offset = None;
        Ok(outcomes)
    }

    /// Writes the run, then answers: who reads after an answer sees what it says.
    fn end_run(&mut self, run: &mut Run) -> io::Result<()> {
        if run.entries_count == 0 {
            return Ok(());
        }
        let bookkeeping = self.books.encode(&self.membership_json);
        self.machine.get_mut().apply_end(bookkeeping)?;
        let term = self.books.applied.map_or(0, |id| id.leader_id.term);
        self.applied_term.send_if_modified(|applied| std::mem::replace(applied, term) != term);
        for (responder, outcomes) in run.answers.drain(..) {
            responder.send(outcomes);
        }
        *run = Run::default();
        Ok(())
    }

    async fn apply_all<S>(&mut self, mut entries: S) -> io::Result<()>
    where
        S: Stream<Item = io::Result<EntryResponder<TypeConfig>>> + Unpin + OptionalSend,
    {
        let mut run = Run::default();
        while let Some(item) = entries.next().await {
            let (entry, responder) = item?;
            if !self.durable.reached(entry.log_id.index) {
                self.end_run(&mut run)?;
                self.durable.wait(entry.log_id.index).await?;
            }
            run.entries_count += 1;
            run.bytes += payload_bytes(&entry);
            let outcomes = self.apply_one(entry)?;
            run.answers.extend(responder.map(|responder| (responder, outcomes)));
            let ends = self.machine.get_mut().ends_run();
            if ends || run.entries_count >= RUN_ENTRIES_MAX || run.bytes >= RUN_BYTES_MAX {
                self.end_run(&mut run)?;
                tokio::task::yield_now().await;
            }
        }
        self.end_run(&mut run)
    }

    /// Takes the snapshot that the next builder hands out, and answers what it covers. A failure harms nothing, where one
    /// of a builder would stop the group.
    pub(crate) fn prepare_snapshot(&mut self) -> io::Result<Option<LogId>> {
        let snapshot = self.take_snapshot()?;
        let covers = snapshot.meta.last_log_id;
        self.prepared = Some(snapshot);
        Ok(covers)
    }

    /// As [`Adaptor::prepare_snapshot`] with the snapshot that the machine kept behind the entry at `index`.
    pub(crate) fn prepare_kept_snapshot(&mut self, index: u64) -> io::Result<Option<LogId>> {
        let snapshot = self.take_kept_snapshot(index)?;
        let covers = snapshot.as_ref().and_then(|snapshot| snapshot.meta.last_log_id);
        self.prepared = snapshot;
        Ok(covers)
    }

    fn take_kept_snapshot(&mut self, index: u64) -> io::Result<Option<Snapshot>> {
        if self.log.purged().is_some_and(|(_, purged)| index < purged) {
            return Ok(None);
        }
        let Some(kept) = self.machine.get_mut().kept_snapshot(index)? else { return Ok(None) };
        let books = Bookkeeping::decode(kept.bookkeeping)?;
        if books.applied.map(|id| id.index) != Some(index) {
            return Err(damaged(&format!("the snapshot behind entry {index} says that it holds {:?}", books.applied)));
        }
        let next_offset = self.log.offset_after(index)?;
        let meta = SnapshotMeta { last_log_id: books.applied, last_membership: books.membership };
        Ok(Some(Snapshot { meta, snapshot: wrap_snapshot(next_offset.0, &kept.data) }))
    }

    /// See [`LogStore::spare`].
    pub(crate) fn spare(&self, index: u64) {
        self.log.spare(index);
    }

    /// The state as of now; taken between two applies, so it is one moment of the log.
    fn take_snapshot(&mut self) -> io::Result<Snapshot> {
        let applied = self.books.applied;
        let data = self.machine.get_mut().snapshot()?;
        let next_offset = match applied {
            Some(id) => self.log.offset_after(id.index)?,
            None => PhysicalOffset(0),
        };
        let meta = SnapshotMeta { last_log_id: applied, last_membership: self.books.membership.clone() };
        Ok(Snapshot { meta, snapshot: wrap_snapshot(next_offset.0, &data) })
    }

    fn install(&mut self, meta: &SnapshotMeta, snapshot: Bytes) -> io::Result<()> {
        let (next_offset, data) = unwrap_snapshot(snapshot.clone())?;
        let books = Bookkeeping {
            applied: meta.last_log_id,
            membership: meta.last_membership.clone(),
            installed_next_offset: Some(next_offset),
        };
        let membership_json = books.membership_json()?;
        self.machine.get_mut().install(data, books.encode(&membership_json))?;
        self.log.expect_restart_at(PhysicalOffset(next_offset));
        self.books = books;
        self.membership_json = membership_json;
        self.prepared = None;
        let term = self.books.applied.map_or(0, |id| id.leader_id.term);
        self.applied_term.send_replace(term);
        *self.snapshot.lock() = Some(Snapshot { meta: meta.clone(), snapshot });
        Ok(())
    }

    fn report<T>(&self, what: &str, result: io::Result<T>) -> io::Result<T> {
        if let Err(error) = &result {
            self.fatal.report(self.group, format!("{what}: {error}"));
        }
        result
    }
}

fn payload_bytes(entry: &RaftEntry) -> usize {
    match &entry.payload {
        EntryPayload::Normal(payload) => payload.bytes.len(),
        _ => 0,
    }
}

/// The state must lie between what was purged from the log and the log's end. The Raft library would throw the whole log
/// away when the state is ahead of it (it takes that for an installed snapshot), so only an installed snapshot may be.
fn check_against_log(books: &Bookkeeping, log: &LogStore) -> io::Result<()> {
    let applied = books.applied.map(|id| id.index);
    let (purged, last) = (log.purged().map(|(_, index)| index), log.last().map(|(_, index)| index));
    let upto = |index: Option<u64>| index.map_or_else(|| "nothing".to_owned(), |index| format!("entry {index}"));
    if applied > last && books.installed_next_offset.is_none() {
        let (applied, last) = (upto(applied), upto(last));
        return Err(damaged(&format!("the state contains {applied} but the log ends with {last}")));
    }
    if applied < purged {
        let (applied, purged) = (upto(applied), upto(purged));
        return Err(damaged(&format!("the state ends with {applied} but the log begins after {purged}")));
    }
    Ok(())
}

/// Carries a snapshot that was taken when the builder was made.
pub struct SnapshotBuilder {
    taken: Option<io::Result<Snapshot>>,
    kept: Arc<Mutex<Option<Snapshot>>>,
}

impl RaftSnapshotBuilder<TypeConfig> for SnapshotBuilder {
    type SnapshotData = Bytes;

    async fn build_snapshot(&mut self) -> io::Result<Snapshot> {
        let snapshot = self.taken.take().unwrap_or_else(|| Err(damaged("a snapshot builder was used twice")))?;
        let mut kept = self.kept.lock();
        // One that was installed meanwhile may reach further, and the log begins behind it.
        if kept.as_ref().is_none_or(|kept| kept.meta.last_log_id < snapshot.meta.last_log_id) {
            *kept = Some(snapshot.clone());
        }
        Ok(snapshot)
    }
}

impl RaftStateMachine<TypeConfig> for Adaptor {
    type SnapshotData = Bytes;
    type SnapshotBuilder = SnapshotBuilder;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, StoredMembership)> {
        Ok((self.books.applied, self.books.membership.clone()))
    }

    async fn apply<S>(&mut self, entries: S) -> io::Result<()>
    where
        S: Stream<Item = io::Result<EntryResponder<TypeConfig>>> + Unpin + OptionalSend,
    {
        let result = self.apply_all(entries).await;
        self.report("apply failed", result)
    }

    async fn get_snapshot_builder(&mut self) -> SnapshotBuilder {
        let taken = self.prepared.take().map_or_else(|| self.take_snapshot(), Ok);
        SnapshotBuilder { taken: Some(taken), kept: Arc::clone(&self.snapshot) }
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, snapshot: Bytes) -> io::Result<()> {
        let result = self.install(meta, snapshot);
        self.report("a snapshot cannot be installed", result)
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<Snapshot>> {
        Ok(self.snapshot.lock().clone())
    }
}
