//! Single rules that a script cannot show.

use crate::harness::{GROUP, Log, Replica, append, topic};
use bytes::Bytes;
use raftmq_model::command::{Append, AppendEntry, Command};
use raftmq_model::ids::{PhysicalOffset, Position, QueueId, Timestamp, TopicUid};
use raftmq_model::machine::{Changes, GroupState, Limits, LoadError, Write};

#[test]
fn producing_writes_no_key_per_message() {
    let mut state = GroupState::new(GROUP);
    let mut changes = Changes::default();
    let mut apply = |state: &mut GroupState, command: &Command| {
        let at = Position { term: 1, index: 1, payload_offset: PhysicalOffset(0) };
        state.apply(at, 16, Timestamp(1), command, &mut changes);
    };
    apply(&mut state, &topic(1, 1, &[1, 1]));
    for id in 0..100 {
        let id = id.to_string();
        apply(&mut state, &append(&[(1, 0, &id), (1, 1, &format!("{id}b"))]));
    }
    assert_eq!(changes.enqueues.len(), 200);
    assert_eq!(changes.writes.len(), 1, "the topic's record");
    state.flush_dirty(&mut changes);
    assert_eq!(changes.writes.len(), 1 + 2 + 1 + 1, "two queues, the clock, the window");
    let before = changes.clone();
    state.flush_dirty(&mut changes);
    assert_eq!(changes, before, "nothing changed since");
}

#[test]
fn a_newer_or_damaged_store_is_refused() {
    let load = |key: &[u8], value: &[u8]| GroupState::load(GROUP, [(key, value)]).map(|state| state.digest());
    let queue = [4, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];
    assert_eq!(load(&[0x70], &[1]), Err(LoadError::Prefix(0x70)));
    assert_eq!(load(&[], &[1]), Err(LoadError::Short));
    assert_eq!(load(&[1], &[2, 0]), Err(LoadError::Version(2)));
    assert_eq!(load(&[1], &[1, 0]), Err(LoadError::Short));
    assert_eq!(load(&[1], &[1, 0, 0, 0, 0, 0, 0, 0, 1, 9]), Err(LoadError::Long));
    assert_eq!(load(&queue, &[1, 0, 0, 0, 0, 0, 0, 0, 1]), Err(LoadError::Orphan));
    assert_eq!(load(&[2, 0, 0, 0, 0, 0, 0, 0, 1], &[1, 0xff]), Err(LoadError::Record));
    assert_eq!(load(&[0xF0, 1, 2, 3], b"the runtime's own"), Ok(GroupState::new(GROUP).digest()));
}

#[test]
fn a_snapshot_s_window_leaves_the_store_when_it_is_outlived() {
    let limits = Limits { stored_once_count_max: 3, ..Limits::default() };
    let mut log = Log::default();
    log.push(0, &[topic(1, 1, &[1])]);
    log.push(0, &[append(&[(1, 0, "A"), (1, 0, "B"), (1, 0, "C")])]);
    let mut replica = Replica::new(limits);
    (0..2).for_each(|_| drop(replica.apply(&log)));
    replica.apply_end();
    let mut replica = replica.installed();
    let chunks = |replica: &Replica| replica.pairs.keys().filter(|key| key[0] == 0x0B).count();
    for (id, expected) in [("D", 1), ("E", 1), ("A", 0), ("F", 0)] {
        log.push(0, &[append(&[(1, 0, id)])]);
        replica.apply(&log);
        replica.apply_end();
        assert_eq!(chunks(&replica), expected, "after {id}");
        let restarted = replica.restart(&log);
        assert_eq!(restarted.state.digest(), replica.state.digest(), "after {id}");
        replica = restarted;
    }
    assert_eq!(replica.units[&(TopicUid(1), QueueId(0))].len(), 7, "A was forgotten, and stored again");
}

#[test]
fn digests_tell_states_apart() {
    let digest = |commands: &[Command]| {
        let mut log = Log::default();
        let mut replica = Replica::new(Limits::default());
        log.push(5, commands);
        replica.apply(&log);
        replica.state.digest()
    };
    let digests = [
        digest(&[]),
        digest(&[topic(1, 1, &[1])]),
        digest(&[topic(1, 2, &[1])]),
        digest(&[topic(1, 1, &[1]), append(&[(1, 0, "A")])]),
        digest(&[topic(1, 1, &[1]), append(&[(1, 0, "B")])]),
        digest(&[topic(1, 1, &[1]), append(&[(1, 0, "")])]),
        digest(&[topic(1, 1, &[1]), Command::DeleteTopic { uid: 1 }]),
    ];
    let distinct: std::collections::BTreeSet<u64> = digests.into_iter().collect();
    assert_eq!(distinct.len(), digests.len());
}

/// Prints what the stored-once window takes when it is full, and what an append costs:
/// `cargo test --release -p raftmq-model --test machine -- --ignored --nocapture full_window`.
#[test]
#[ignore = "a measurement"]
#[allow(clippy::disallowed_methods, clippy::disallowed_macros)]
fn a_full_window_takes_less_than_100_mib() {
    const COUNT: u64 = 1_500_000;
    const BATCH: u64 = 64;
    let mut state = GroupState::new(GROUP);
    let mut changes = Changes::default();
    let at = Position { term: 1, index: 1, payload_offset: PhysicalOffset(0) };
    state.apply(at, 16, Timestamp(1), &topic(1, 1, &[1; 8]), &mut changes);
    let record = Bytes::from(vec![b'x'; 200]);
    let mut spent = std::time::Duration::ZERO;
    let mut slowest = std::time::Duration::ZERO;
    for index in 0..COUNT / BATCH {
        let entry = |n: u64| AppendEntry {
            topic: TopicUid(1),
            queue: QueueId((n % 8) as u32),
            tags_code: 0,
            message_id: Bytes::from(format!("0156F7E71C361B21BC{:016X}", n * 7919)),
            record: record.clone(),
            record_at: 40,
        };
        let entries = (index * BATCH..(index + 1) * BATCH).map(entry).collect();
        let command = Command::Append(Append { entries });
        let at = Position { index: index + 2, payload_offset: PhysicalOffset(index << 16), ..at };
        let begun = std::time::Instant::now();
        state.apply(at, 16, Timestamp(index as i64), &command, &mut changes);
        let took = begun.elapsed();
        spent += took;
        slowest = slowest.max(took);
        changes.clear();
    }
    let (count, bytes) = (state.stored_once_count(), state.stored_once_memory_bytes());
    println!("{count} message ids in {:.1} MiB", bytes as f64 / 1048576.0);
    println!("{:.0} ns per append, slowest batch of {BATCH}: {slowest:?}", spent.as_nanos() as f64 / COUNT as f64);
    let begun = std::time::Instant::now();
    let digest = state.digest();
    println!("digest {digest:016x} in {:?}", begun.elapsed());
    state.flush_dirty(&mut changes);
    assert!(changes.writes.iter().all(|write| matches!(write, Write::Put { .. })));
    assert_eq!(count, 1_000_000);
    assert!(bytes < 100 << 20);
}
