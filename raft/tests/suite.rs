//! The Raft library's own storage suite on the real log, with completions as they come and late and out of order.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use openraft::storage::{IOFlushed, LogState, RaftLogReader, RaftLogStorage};
use openraft::testing::log::{StoreBuilder, Suite};
use openraft::type_config::TypeConfigExt;
use openraft::type_config::alias::{EntryOf, LogIdOf, OneshotReceiverOf, VoteOf};
use openraft::{OptionalSend, StorageError};
use raftmq_model::ids::{GroupId, PhysicalOffset};
use raftmq_raft::internals::{Adaptor, LogStore, TypeConfig};
use raftmq_store::commit_log::CommitLog;
use std::fmt::Debug;
use std::io;
use std::ops::RangeBounds;
use std::time::Duration;
use support::machine::TestMachine;
use tempfile::TempDir;
use tokio::sync::mpsc;

type Appended = OneshotReceiverOf<TypeConfig, io::Result<()>>;

fn open() -> (TempDir, LogStore, Adaptor) {
    let dir = tempfile::tempdir().unwrap();
    let (log, recovered) = CommitLog::open(support::log_options(dir.path())).unwrap();
    let store = LogStore::new(log, &recovered).unwrap();
    // The suite purges beyond the end of the log and thinks of a snapshot.
    store.expect_restart_at(PhysicalOffset(1 << 20));
    let (machine, _) = TestMachine::fresh();
    let adaptor = Adaptor::detached(GroupId(1), Box::new(machine), store.clone()).unwrap();
    (dir, store, adaptor)
}

struct Plain;

impl StoreBuilder<TypeConfig, LogStore, Adaptor, TempDir> for Plain {
    async fn build(&self) -> Result<(TempDir, LogStore, Adaptor), StorageError<TypeConfig>> {
        Ok(open())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_storage_suite_passes() {
    Suite::<TypeConfig, LogStore, Adaptor, _, TempDir>::test_all(Plain).await.unwrap();
}

/// Reports each append's completion late, and of those that wait together the newest first.
struct Late {
    inner: LogStore,
    completions: mpsc::Sender<(Appended, IOFlushed<TypeConfig>)>,
}

impl Late {
    fn new(inner: LogStore) -> Late {
        let (completions, mut waiting) = mpsc::channel(1024);
        tokio::spawn(async move {
            let mut batch = Vec::new();
            while waiting.recv_many(&mut batch, 8).await > 0 {
                tokio::time::sleep(Duration::from_micros(500)).await;
                for (done, callback) in batch.drain(..).rev() {
                    let done: Appended = done;
                    let callback: IOFlushed<TypeConfig> = callback;
                    callback.io_completed(done.await.unwrap());
                }
            }
        });
        Late { inner, completions }
    }
}

impl RaftLogReader<TypeConfig> for Late {
    async fn try_get_log_entries<RB>(&mut self, range: RB) -> io::Result<Vec<EntryOf<TypeConfig>>>
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        self.inner.try_get_log_entries(range).await
    }

    async fn read_vote(&mut self) -> io::Result<Option<VoteOf<TypeConfig>>> {
        self.inner.read_vote().await
    }
}

impl RaftLogStorage<TypeConfig> for Late {
    type LogReader = LogStore;

    async fn get_log_state(&mut self) -> io::Result<LogState<TypeConfig>> {
        self.inner.get_log_state().await
    }

    async fn get_log_reader(&mut self) -> LogStore {
        self.inner.clone()
    }

    async fn save_vote(&mut self, vote: &VoteOf<TypeConfig>) -> io::Result<()> {
        self.inner.save_vote(vote).await
    }

    async fn save_committed(&mut self, committed: Option<LogIdOf<TypeConfig>>) -> io::Result<()> {
        self.inner.save_committed(committed).await
    }

    async fn read_committed(&mut self) -> io::Result<Option<LogIdOf<TypeConfig>>> {
        self.inner.read_committed().await
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<TypeConfig>) -> io::Result<()>
    where
        I: IntoIterator<Item = EntryOf<TypeConfig>> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let (signal, done) = TypeConfig::oneshot();
        self.inner.append(entries, IOFlushed::signal(signal)).await?;
        self.completions.send((done, callback)).await.map_err(io::Error::other)
    }

    async fn truncate_after(&mut self, last: Option<LogIdOf<TypeConfig>>) -> io::Result<()> {
        self.inner.truncate_after(last).await
    }

    async fn purge(&mut self, upto: LogIdOf<TypeConfig>) -> io::Result<()> {
        self.inner.purge(upto).await
    }
}

struct LateBuilder;

impl StoreBuilder<TypeConfig, Late, Adaptor, TempDir> for LateBuilder {
    async fn build(&self) -> Result<(TempDir, Late, Adaptor), StorageError<TypeConfig>> {
        let (dir, store, adaptor) = open();
        Ok((dir, Late::new(store), adaptor))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_storage_suite_passes_when_completions_are_late_and_out_of_order() {
    Suite::<TypeConfig, Late, Adaptor, _, TempDir>::test_all(LateBuilder).await.unwrap();
}
