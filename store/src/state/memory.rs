//! The state store of the simulation: ordered, and it loses what was not flushed.

use super::overlay::Overlay;
use super::{StateStore, WriteBatch};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::ops::Bound;

/// A [`StateStore`] without a disk.
#[derive(Debug, Default)]
pub struct MemoryState {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    durable: BTreeMap<Vec<u8>, Vec<u8>>,
    overlay: Overlay,
    fails_next_flush: bool,
}

impl MemoryState {
    /// A store without pairs.
    #[must_use]
    pub fn new() -> MemoryState {
        MemoryState::default()
    }

    /// Loses what was not flushed, as a crash does; the store is then as a restart finds it.
    pub fn crash(&self) {
        let mut inner = self.inner.lock();
        inner.overlay = Overlay::default();
        inner.fails_next_flush = false;
    }

    /// A store of its own with what a crash now would leave of this one.
    #[must_use]
    pub fn image(&self) -> MemoryState {
        let durable = self.inner.lock().durable.clone();
        MemoryState { inner: Mutex::new(Inner { durable, ..Inner::default() }) }
    }

    /// Lets the next flush fail without making anything durable.
    pub fn fail_next_flush(&self) {
        self.inner.lock().fails_next_flush = true;
    }
}

impl StateStore for MemoryState {
    fn get(&self, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        let inner = self.inner.lock();
        inner.overlay.check()?;
        Ok(match inner.overlay.get(key) {
            Some(value) => value.cloned(),
            None => inner.durable.get(key).cloned(),
        })
    }

    fn scan(&self, prefix: &[u8], visit: &mut dyn FnMut(&[u8], &[u8])) -> io::Result<()> {
        let inner = self.inner.lock();
        inner.overlay.check()?;
        let durable = inner.durable.range::<[u8], _>((Bound::Included(prefix), Bound::Unbounded));
        inner.overlay.merge(prefix, durable.map(Ok), visit)
    }

    fn write(&self, batch: WriteBatch) -> io::Result<()> {
        let mut inner = self.inner.lock();
        inner.overlay.check()?;
        inner.overlay.write(batch);
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        let mut inner = self.inner.lock();
        inner.overlay.check()?;
        if std::mem::take(&mut inner.fails_next_flush) {
            inner.overlay.fail();
            return Err(io::Error::other("the flush was planned to fail"));
        }
        for (key, value) in inner.overlay.take() {
            match value {
                Some(value) => inner.durable.insert(key, value),
                None => inner.durable.remove(&key),
            };
        }
        Ok(())
    }

    fn unflushed_bytes(&self) -> usize {
        self.inner.lock().overlay.bytes()
    }
}
