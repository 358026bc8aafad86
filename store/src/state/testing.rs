//! What every [`StateStore`] has to do, as one suite that runs over each implementation.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::{StateStore, WriteBatch};

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// All pairs under `prefix`, in the order in which the store yields them.
///
/// # Panics
/// When the store cannot be read.
#[must_use]
pub fn pairs(store: &dyn StateStore, prefix: &[u8]) -> Pairs {
    let mut pairs = Vec::new();
    store.scan(prefix, &mut |key, value| pairs.push((key.to_vec(), value.to_vec()))).expect("the store can be read");
    pairs
}

/// Runs the suite. `open` yields a new, empty store; `crash` makes of a store what a restart after a crash finds.
///
/// # Panics
/// When the implementation breaks a rule.
pub fn conformance<S: StateStore>(mut open: impl FnMut() -> S, mut crash: impl FnMut(S) -> S) {
    reads_see_writes(&open());
    scans_are_ordered_and_bounded_by_prefix(&open());
    later_writes_stand(&open());
    let store = crash(unflushed_is_lost(open()));
    assert_eq!(pairs(&store, &[]), [], "nothing was flushed");
    flushed_survives(open(), &mut crash);
    replaced_is_all_or_nothing(open(), &mut crash);
    random_runs(&mut open, &mut crash);
}

fn batch(writes: &[(&[u8], Option<&[u8]>)]) -> WriteBatch {
    let mut batch = WriteBatch::new();
    for (key, value) in writes {
        match value {
            Some(value) => batch.put(*key, *value),
            None => batch.delete(*key),
        }
    }
    batch
}

fn reads_see_writes(store: &dyn StateStore) {
    assert_eq!(store.get(b"a").unwrap(), None);
    assert_eq!(store.unflushed_bytes(), 0);
    store.write(batch(&[(b"a", Some(b"1"))])).unwrap();
    assert_eq!(store.get(b"a").unwrap(), Some(b"1".to_vec()));
    assert!(store.unflushed_bytes() >= 2, "keys and values are counted");
    store.flush().unwrap();
    assert_eq!(store.unflushed_bytes(), 0);
    assert_eq!(store.get(b"a").unwrap(), Some(b"1".to_vec()));
    store.write(batch(&[(b"a", None)])).unwrap();
    assert_eq!(store.get(b"a").unwrap(), None, "a deletion hides what was flushed");
}

fn scans_are_ordered_and_bounded_by_prefix(store: &dyn StateStore) {
    store.write(batch(&[(b"b2", Some(b"")), (b"\xff", Some(b"f")), (b"b", Some(b"0"))])).unwrap();
    store.flush().unwrap();
    store.write(batch(&[(b"b1", Some(b"1")), (b"a", Some(b"a")), (b"c", Some(b"c")), (b"b2", Some(b"2"))])).unwrap();
    let of = |pairs: Pairs| pairs.into_iter().map(|(key, _)| key).collect::<Vec<_>>();
    assert_eq!(of(pairs(store, b"b")), [b"b".to_vec(), b"b1".to_vec(), b"b2".to_vec()]);
    assert_eq!(pairs(store, b"b2"), [(b"b2".to_vec(), b"2".to_vec())]);
    assert_eq!(of(pairs(store, &[])).len(), 6);
    assert_eq!(of(pairs(store, b"\xff")), [b"\xff".to_vec()]);
    assert_eq!(pairs(store, b"x"), []);
}

fn later_writes_stand(store: &dyn StateStore) {
    store
        .write(batch(&[(b"k", Some(b"1")), (b"k", None), (b"k", Some(b"2")), (b"l", Some(b"1")), (b"l", None)]))
        .unwrap();
    assert_eq!(pairs(store, &[]), [(b"k".to_vec(), b"2".to_vec())]);
    store.flush().unwrap();
    assert_eq!(pairs(store, &[]), [(b"k".to_vec(), b"2".to_vec())]);
}

fn unflushed_is_lost<S: StateStore>(store: S) -> S {
    store.write(batch(&[(b"a", Some(b"1"))])).unwrap();
    store
}

fn flushed_survives<S: StateStore>(store: S, crash: &mut impl FnMut(S) -> S) {
    store.write(batch(&[(b"a", Some(b"1")), (b"b", Some(b"1"))])).unwrap();
    store.flush().unwrap();
    store.write(batch(&[(b"a", Some(b"2")), (b"b", None), (b"c", Some(b"2"))])).unwrap();
    let store = crash(store);
    assert_eq!(pairs(&store, &[]), [(b"a".to_vec(), b"1".to_vec()), (b"b".to_vec(), b"1".to_vec())]);
    assert_eq!(store.unflushed_bytes(), 0);
}

fn replaced_is_all_or_nothing<S: StateStore>(store: S, crash: &mut impl FnMut(S) -> S) {
    store.write(batch(&[(b"a", Some(b"1")), (b"b", Some(b"1"))])).unwrap();
    store.flush().unwrap();
    store.replace(batch(&[(b"b", Some(b"2")), (b"c", Some(b"2"))])).unwrap();
    let replaced = [(b"b".to_vec(), b"2".to_vec()), (b"c".to_vec(), b"2".to_vec())];
    assert_eq!(pairs(&store, &[]), replaced);
    let store = crash(store);
    assert_eq!(pairs(&store, &[]).first(), Some(&(b"a".to_vec(), b"1".to_vec())));
    store.replace(batch(&[(b"b", Some(b"2")), (b"c", Some(b"2"))])).unwrap();
    store.flush().unwrap();
    assert_eq!(pairs(&crash(store), &[]), replaced);
}

/// Random writes, flushes and crashes against two plain maps.
fn random_runs<S: StateStore>(open: &mut impl FnMut() -> S, crash: &mut impl FnMut(S) -> S) {
    const STEPS_COUNT: u64 = 300;
    let mut store = open();
    let mut durable = std::collections::BTreeMap::new();
    let mut visible = durable.clone();
    for step in 0..STEPS_COUNT {
        // A multiplicative walk: enough disorder for this, and the same in each run.
        let dice = step.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let key = vec![(dice % 13) as u8];
        match dice / 13 % 16 {
            0 => {
                store = crash(store);
                visible.clone_from(&durable);
            }
            1..=3 => {
                store.flush().unwrap();
                durable.clone_from(&visible);
            }
            4..=7 => {
                store.write(batch(&[(&key, None)])).unwrap();
                visible.remove(&key);
            }
            _ => {
                let value = step.to_be_bytes().to_vec();
                store.write(batch(&[(&key, Some(&value))])).unwrap();
                visible.insert(key, value);
            }
        }
        assert_eq!(pairs(&store, &[]), visible.clone().into_iter().collect::<Pairs>(), "step {step}");
    }
}
