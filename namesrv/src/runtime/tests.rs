//! The machine over a state store that forgets what was not flushed.

use super::*;
use raftmq_model::batch::BatchWriter;
use raftmq_model::ids::PhysicalOffset;
use raftmq_model::meta::{Birth, CreateTopic, MetaOp, NodeRecord};
use raftmq_store::state::MemoryState;
use std::sync::atomic::{AtomicI64, Ordering};

#[derive(Default)]
struct HandClock(AtomicI64);

impl Clock for HandClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::Relaxed))
    }
}

struct Bench {
    machine: MetaMachine,
    store: Arc<MemoryState>,
    clock: Arc<HandClock>,
}

fn bench(store: Arc<MemoryState>) -> (Bench, Option<Bytes>) {
    let clock = Arc::new(HandClock::default());
    let options = CheckpointOptions { unflushed_bytes_max: 1 << 20, interval_ms: 5_000 };
    let mut machine = MetaMachine::new(store.clone(), clock.clone(), options);
    let bookkeeping = machine.restored().unwrap();
    (Bench { machine, store, clock }, bookkeeping)
}

fn entry(index: u64, ops: impl IntoIterator<Item = MetaOp>) -> Entry {
    let mut batch = BatchWriter::new(Timestamp(0));
    for op in ops {
        batch.push(&MetaCommand { op: Some(op) }.encode_to_vec());
    }
    let payload = batch.finish();
    Entry { term: 1, index, kind: EntryKind::Batch, payload, payload_offset: PhysicalOffset(0) }
}

fn birth() -> MetaOp {
    let address = "node-1:1".to_owned();
    let node = NodeRecord {
        id: 1,
        incarnation: 1,
        namesrv: true,
        broker: true,
        client_address: address.clone(),
        peer_address: address,
        ..NodeRecord::default()
    };
    let replica = raftmq_model::ids::ReplicaId { node: raftmq_model::ids::NodeId(1), incarnation: 1 };
    let group = raftmq_model::meta::BrokerGroupRecord {
        id: 1,
        name: "broker-1".to_owned(),
        replicas: vec![replica.to_u64()],
        ..Default::default()
    };
    MetaOp::Birth(Birth { cluster_id: "c1".to_owned(), nodes: vec![node], broker_groups: vec![group] })
}

fn topic(name: &str) -> MetaOp {
    MetaOp::CreateTopic(CreateTopic { name: name.to_owned(), topic_type: 1, permission: 6, queue_count: 2 })
}

fn run(machine: &mut MetaMachine, entries: &[Entry], bookkeeping: &'static str) -> Vec<MetaAnswer> {
    let mut answers = Vec::new();
    for entry in entries {
        let outcomes = machine.apply(entry).unwrap();
        answers.extend(outcomes.into_iter().map(|bytes| MetaOutcome::decode(bytes).unwrap().answer.unwrap()));
    }
    machine.apply_end(Bytes::from_static(bookkeeping.as_bytes())).unwrap();
    answers
}

#[test]
fn a_restart_finds_the_last_checkpoint_and_its_bookkeeping() {
    let (mut bench, found) = bench(Arc::default());
    assert_eq!(found, None);
    run(&mut bench.machine, &[entry(1, [birth()]), entry(2, [topic("one"), topic("two")])], "two");
    bench.machine.store.flush().unwrap();
    let at_checkpoint = bench.machine.state.clone();
    run(&mut bench.machine, &[entry(3, [topic("three")])], "three");
    let after = bench.machine.state.clone();
    bench.store.crash();

    let (mut bench, found) = self::bench(bench.store);
    assert_eq!(found.as_deref(), Some(b"two".as_slice()));
    assert_eq!(bench.machine.state, at_checkpoint);
    assert_eq!(*bench.machine.hub().view(), at_checkpoint.view());
    run(&mut bench.machine, &[entry(3, [topic("three")])], "three");
    assert_eq!(bench.machine.state, after, "applied again, the log gives the same state");
}

#[test]
fn a_deleted_topic_stays_deleted_over_a_restart() {
    let (mut bench, _) = bench(Arc::default());
    run(&mut bench.machine, &[entry(1, [birth()]), entry(2, [topic("one"), MetaOp::DeleteTopic(2)])], "x");
    bench.machine.store.flush().unwrap();
    bench.store.crash();
    let (mut bench, _) = self::bench(bench.store);
    assert!(bench.machine.state.topic_by_name("one").is_none());
    let answers = run(&mut bench.machine, &[entry(3, [topic("one")])], "y");
    assert!(matches!(&answers[..], [MetaAnswer::Topic(topic)] if topic.uid == 3));
}

#[test]
fn commands_of_one_entry_are_one_change_and_readers_see_it_after_apply_end() {
    let (mut bench, _) = bench(Arc::default());
    run(&mut bench.machine, &[entry(1, [birth()])], "x");
    let hub = bench.machine.hub();
    bench.machine.apply(&entry(2, [topic("one"), topic("two"), topic("one")])).unwrap();
    assert!(hub.view().topics.is_empty());
    bench.machine.apply_end(Bytes::new()).unwrap();
    assert_eq!(hub.view().topics.len(), 2);
    assert_eq!(*hub.view(), bench.machine.state.view());
}

#[test]
fn a_checkpoint_is_made_after_its_interval() {
    let (mut bench, _) = bench(Arc::default());
    run(&mut bench.machine, &[entry(1, [birth()])], "x");
    assert!(bench.store.unflushed_bytes() > 0);
    bench.clock.0.store(4_999, Ordering::Relaxed);
    run(&mut bench.machine, &[entry(2, [topic("one")])], "x");
    assert!(bench.store.unflushed_bytes() > 0);
    bench.clock.0.store(5_000, Ordering::Relaxed);
    run(&mut bench.machine, &[entry(3, [])], "x");
    assert_eq!(bench.store.unflushed_bytes(), 0);
}

#[test]
fn an_installed_snapshot_replaces_everything_and_is_durable() {
    let (mut source, _) = bench(Arc::default());
    run(&mut source.machine, &[entry(1, [birth()]), entry(2, [topic("one")])], "x");
    let snapshot = source.machine.snapshot().unwrap();

    let (mut bench, _) = bench(Arc::default());
    run(&mut bench.machine, &[entry(1, [birth()]), entry(2, [topic("other"), topic("more")])], "old");
    bench.machine.install(snapshot, Bytes::from_static(b"new")).unwrap();
    assert_eq!(*bench.machine.hub().view(), source.machine.state.view());
    bench.store.crash();
    let (bench, found) = self::bench(bench.store);
    assert_eq!(found.as_deref(), Some(b"new".as_slice()));
    assert_eq!(bench.machine.state, source.machine.state);
    assert!(bench.machine.install_refuses_damage());
}

impl MetaMachine {
    fn install_refuses_damage(mut self) -> bool {
        self.install(Bytes::from_static(b"\x01\xff"), Bytes::new()).is_err()
    }
}

#[test]
fn what_is_no_command_is_refused_and_what_is_no_batch_stops() {
    let (mut bench, _) = bench(Arc::default());
    let mut batch = BatchWriter::new(Timestamp(0));
    batch.push(b"\xff\xff");
    let payload = batch.finish();
    let damaged = Entry { payload, ..entry(1, []) };
    let answers = run(&mut bench.machine, &[damaged], "x");
    assert!(matches!(&answers[..], [MetaAnswer::Refused(_)]));
    let no_batch = Entry { payload: Bytes::from_static(b"no batch"), ..entry(2, []) };
    assert!(bench.machine.apply(&no_batch).is_err());
}
