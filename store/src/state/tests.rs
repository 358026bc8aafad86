//! Tests of the state stores beside the conformance suite.

use super::testing::{conformance, pairs};
use super::{MemoryState, RocksState, StateStore, WriteBatch};
use std::cell::Cell;

#[test]
fn memory_state_conforms() {
    conformance(MemoryState::new, |store| {
        store.crash();
        store
    });
}

#[test]
fn rocks_state_conforms() {
    let root = tempfile::tempdir().unwrap();
    let opened = Cell::new(0);
    let dir = || root.path().join(opened.get().to_string());
    let open = || {
        opened.set(opened.get() + 1);
        RocksState::open(&dir()).unwrap()
    };
    // Closing must not flush either, so a close is as good as a crash here.
    conformance(open, |store| {
        drop(store);
        RocksState::open(&dir()).unwrap()
    });
}

#[test]
fn a_failed_flush_is_final() {
    let store = MemoryState::new();
    let mut batch = WriteBatch::new();
    batch.put("a", "1");
    store.write(batch.clone()).unwrap();
    store.fail_next_flush();
    assert!(store.flush().is_err());
    assert!(store.flush().is_err());
    assert!(store.write(batch).is_err());
    store.crash();
    assert_eq!(pairs(&store, &[]), []);
}

#[test]
fn a_large_checkpoint_is_one_step() {
    let root = tempfile::tempdir().unwrap();
    let store = RocksState::open(root.path()).unwrap();
    for round in 0..3u8 {
        let mut batch = WriteBatch::new();
        for key in 0..2000u32 {
            batch.put(key.to_be_bytes(), vec![round; 4096]);
        }
        store.write(batch).unwrap();
        assert!(store.unflushed_bytes() > 2000 * 4096);
        if round < 2 {
            store.flush().unwrap();
        }
    }
    drop(store);
    let store = RocksState::open(root.path()).unwrap();
    let found = pairs(&store, &[]);
    assert_eq!(found.len(), 2000);
    assert!(found.iter().all(|(_, value)| value == &[1; 4096]));
}
