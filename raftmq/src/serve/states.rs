//! The state stores of this process: opened here, so that the process can wait until all of them are closed. RocksDB must
//! not run any more when the process ends, or its threads meet what the end has torn down already.

use raftmq_broker::options::OpenState;
use raftmq_store::state::{RocksState, StateStore, WriteBatch};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Opens stores and counts the open ones. Clones share the count.
#[derive(Clone)]
pub(super) struct States(Arc<watch::Sender<usize>>);

/// An open store. Fields are dropped in order: the store is closed when the count goes down.
struct Counted {
    store: RocksState,
    _open: Open,
}

struct Open(Arc<watch::Sender<usize>>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

impl States {
    /// None are open.
    pub(super) fn new() -> States {
        States(Arc::new(watch::Sender::new(0)))
    }

    /// Opens the store in `dir`, with its parents.
    pub(super) fn open(&self, dir: &Path) -> io::Result<impl StateStore + 'static> {
        let store = RocksState::open(dir)?;
        self.0.send_modify(|count| *count += 1);
        Ok(Counted { store, _open: Open(Arc::clone(&self.0)) })
    }

    /// [`States::open`] for the broker.
    pub(super) fn opener(&self) -> OpenState {
        let states = self.clone();
        Arc::new(move |_, dir| Ok(Arc::new(states.open(dir)?)))
    }

    /// Waits until all are closed, for at most `bound`.
    pub(super) async fn closed(&self, bound: Duration) {
        let mut count = self.0.subscribe();
        if tokio::time::timeout(bound, count.wait_for(|count| *count == 0)).await.is_err() {
            tracing::warn!(open = *count.borrow(), "state stores are still open at the end");
        }
    }
}

impl StateStore for Counted {
    fn get(&self, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        self.store.get(key)
    }

    fn scan(&self, prefix: &[u8], visit: &mut dyn FnMut(&[u8], &[u8])) -> io::Result<()> {
        self.store.scan(prefix, visit)
    }

    fn write(&self, batch: WriteBatch) -> io::Result<()> {
        self.store.write(batch)
    }

    fn flush(&self) -> io::Result<()> {
        self.store.flush()
    }

    fn unflushed_bytes(&self) -> usize {
        self.store.unflushed_bytes()
    }

    fn replace(&self, batch: WriteBatch) -> io::Result<()> {
        self.store.replace(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_end_waits_for_the_last_store() {
        let dir = tempfile::tempdir().expect("dir");
        let states = States::new();
        states.closed(Duration::ZERO).await;
        let store = states.open(&dir.path().join("state")).expect("open");
        let mut batch = WriteBatch::new();
        batch.put(b"k".to_vec(), b"v".to_vec());
        store.write(batch).expect("write");
        store.flush().expect("flush");
        assert_eq!(*states.0.borrow(), 1);
        let waiting = states.clone();
        let end = tokio::spawn(async move { waiting.closed(Duration::from_secs(30)).await });
        drop(store);
        end.await.expect("end");
        let store = states.open(&dir.path().join("state")).expect("open again: it was closed");
        assert_eq!(store.get(b"k").expect("get"), Some(b"v".to_vec()));
    }
}
