//! What was written since the last flush, in memory and in order.

use super::WriteBatch;
use raftmq_model::machine::Write;
use std::collections::BTreeMap;
use std::io;
use std::ops::Bound;

/// Writes on top of a durable store; `None` hides a durable pair.
#[derive(Debug, Default)]
pub(super) struct Overlay {
    writes: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    bytes: usize,
    failed: bool,
}

impl Overlay {
    /// Refuses every call once a flush has failed.
    pub(super) fn check(&self) -> io::Result<()> {
        if self.failed { Err(io::Error::other("the state store failed to flush before")) } else { Ok(()) }
    }

    pub(super) fn fail(&mut self) {
        self.failed = true;
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<Option<&Vec<u8>>> {
        self.writes.get(key).map(Option::as_ref)
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    pub(super) fn write(&mut self, batch: WriteBatch) {
        for write in batch.writes {
            let (key, value) = match write {
                Write::Put { key, value } => (key, Some(value)),
                Write::Delete { key } => (key, None),
            };
            let key_bytes = key.len();
            self.bytes += value.as_ref().map_or(0, Vec::len);
            match self.writes.insert(key, value) {
                Some(old) => self.bytes -= old.map_or(0, |value| value.len()),
                None => self.bytes += key_bytes,
            }
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Vec<u8>, &Option<Vec<u8>>)> {
        self.writes.iter()
    }

    pub(super) fn take(&mut self) -> BTreeMap<Vec<u8>, Option<Vec<u8>>> {
        self.bytes = 0;
        std::mem::take(&mut self.writes)
    }

    /// Visits the durable pairs under `prefix`, ascending, as this overlay changes them.
    pub(super) fn merge<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        prefix: &[u8],
        durable: impl Iterator<Item = io::Result<(K, V)>>,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> io::Result<()> {
        let from = (Bound::Included(prefix), Bound::Unbounded);
        let mut newer = self.writes.range::<[u8], _>(from).take_while(|(key, _)| key.starts_with(prefix)).peekable();
        for pair in durable {
            let (key, value) = pair?;
            let key = key.as_ref();
            if !key.starts_with(prefix) {
                break;
            }
            while let Some((newer_key, newer_value)) = newer.next_if(|(newer_key, _)| newer_key.as_slice() < key) {
                newer_value.as_ref().inspect(|value| visit(newer_key, value));
            }
            match newer.next_if(|(newer_key, _)| newer_key.as_slice() == key) {
                Some((_, Some(value))) => visit(key, value),
                Some((_, None)) => {}
                None => visit(key, value.as_ref()),
            }
        }
        for (key, value) in newer {
            value.as_ref().inspect(|value| visit(key, value));
        }
        Ok(())
    }
}
