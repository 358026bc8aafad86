//! Plans over a state that a script of commands made.

use super::*;
use raftmq_model::command::{Append, AppendEntry, Command, Outcome, PopOutcome};
use raftmq_model::config::{ConsumerGroupConfig, TopicConfig};
use raftmq_model::filter::tags_code;
use raftmq_model::ids::{GroupId, Position};
use raftmq_model::machine::Changes;
use raftmq_model::record::Record;
use raftmq_store::consume_queue::ConsumeQueues;
use raftmq_store::{RealIo, Snapshots};
use std::cell::Cell;

const CONSUMERS: ConsumerGroupUid = ConsumerGroupUid(8);
const TOPIC: TopicUid = TopicUid(7);
const QUEUE: QueueId = QueueId(0);
const KEY: ConsumedQueue = ConsumedQueue { consumer_group: CONSUMERS, topic: TOPIC, queue: QUEUE };

/// A group with one queue and one consumer group; records are kept by where they lie.
struct Bench {
    _dir: tempfile::TempDir,
    view: MachineView,
    planner: Planner,
    index: u64,
    now: i64,
    records: BTreeMap<u64, Bytes>,
    reads: Cell<usize>,
    bytes_max: usize,
}

impl Records for Bench {
    fn record(&self, at: PhysicalOffset, len: u32) -> io::Result<Bytes> {
        self.reads.set(self.reads.get() + 1);
        let record = self.records.get(&at.0).ok_or(io::ErrorKind::NotFound)?;
        assert_eq!(record.len(), len as usize);
        Ok(record.clone())
    }
}

impl Bench {
    fn new(fifo: bool) -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let queues = Arc::new(ConsumeQueues::open(dir.path(), Arc::new(RealIo)).unwrap());
        let snapshots = Snapshots::new(dir.path(), Arc::new(RealIo));
        let released = tokio::sync::watch::channel(0).1;
        let view = MachineView::new(GroupState::new(GroupId(1)), 0, queues, snapshots, released);
        let (records, reads) = (BTreeMap::new(), Cell::new(0));
        let mut bench = Bench {
            _dir: dir,
            view,
            planner: Planner::default(),
            index: 0,
            now: 1_000,
            records,
            reads,
            bytes_max: usize::MAX,
        };
        let (name, version) = ("orders".to_owned(), 1);
        let topic = TopicConfig { uid: TOPIC.0, version, name, topic_type: 1, permission: 6, queue_groups: vec![1] };
        bench.apply(&Command::PutTopic(topic));
        let (name, attempts_max) = ("billing".to_owned(), 3);
        let group = ConsumerGroupConfig { uid: CONSUMERS.0, version, name, fifo, attempts_max, consume_enabled: true };
        bench.apply(&Command::PutConsumerGroup(group));
        bench
    }

    fn apply(&mut self, command: &Command) -> Outcome {
        self.index += 1;
        let at = Position { term: 1, index: self.index, payload_offset: PhysicalOffset(self.index * 100_000) };
        let encoded = command.encode();
        let command = Command::decode(encoded).unwrap();
        let mut changes = Changes::default();
        let outcome = self.view.state_mut().apply(at, 16, Timestamp(self.now), &command, &mut changes);
        self.view.queues().append_all(&changes.enqueues).unwrap();
        if let Command::Append(append) = &command {
            for (entry, enqueue) in append.entries.iter().zip(&changes.enqueues) {
                self.records.insert(enqueue.physical.0, entry.record.clone());
            }
        }
        outcome
    }

    fn send(&mut self, tags: &[&str]) {
        let entries = tags.iter().map(|tag| AppendEntry {
            topic: TOPIC,
            queue: QUEUE,
            tags_code: tags_code(tag),
            message_id: Bytes::new(),
            record: record(tag),
            record_at: 0,
        });
        let append = Append { entries: entries.collect() };
        self.apply(&Command::Append(append));
    }

    fn plan(&self, filter: &TagFilter, count_max: usize) -> Option<Plan> {
        let fifo = self.view.state().consumer_group(CONSUMERS).unwrap().fifo;
        let ask = Ask {
            consumer_group: CONSUMERS,
            topic: TOPIC,
            queue: QUEUE,
            fifo,
            filter,
            invisible_ms: 100,
            attempt_id: String::new(),
            count_max,
            bytes_max: self.bytes_max,
            scan_count_max: 4,
            now: Timestamp(self.now),
        };
        self.planner.plan(&self.view, self, &ask).unwrap()
    }

    /// Applies a plan and settles it; whether it was taken.
    fn commit(&mut self, plan: Plan) -> bool {
        let outcome = self.apply(&Command::Pop(plan.pop.clone()));
        let taken = matches!(outcome, Outcome::Pop(PopOutcome::Taken { .. }));
        plan.settle(if taken { &Fate::Applied } else { &Fate::Stale });
        taken
    }
}

fn record(tag: &str) -> Bytes {
    let host = "127.0.0.1:80".parse().unwrap();
    let properties = if tag.is_empty() { Vec::new() } else { vec![(property::TAGS.to_owned(), tag.to_owned())] };
    let record = Record {
        topic: "orders".to_owned(),
        queue_id: 0,
        flag: 0,
        sys_flag: 0,
        born_timestamp: 1,
        born_host: host,
        store_timestamp: 2,
        store_host: host,
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body: Bytes::from_static(b"body"),
        properties,
    };
    record.encode().unwrap()
}

#[test]
fn plans_are_chained_ahead_of_apply() {
    let mut bench = Bench::new(false);
    bench.send(&["", "", "", "", ""]);
    let all = TagFilter::all();
    let first = bench.plan(&all, 2).unwrap();
    let second = bench.plan(&all, 2).unwrap();
    let third = bench.plan(&all, 2).unwrap();
    assert!(bench.plan(&all, 2).is_none(), "everything is planned");
    assert!(!bench.planner.may_yield(&bench.view, KEY, Timestamp(bench.now)));
    assert_eq!((first.pop.from, first.pop.next), (0, 2));
    assert_eq!((second.pop.from, second.pop.fresh.clone()), (2, vec![2, 3]));
    assert_eq!((third.pop.from, third.pop.fresh.clone()), (4, vec![4]));
    assert!(bench.commit(first) && bench.commit(second) && bench.commit(third));
    assert!(bench.plan(&all, 2).is_none());
    assert_eq!(bench.reads.get(), 0, "no filter, no record is read");
}

#[test]
fn behind_a_lost_plan_the_others_are_stale_and_the_lane_starts_over() {
    let mut bench = Bench::new(false);
    bench.send(&["", "", "", ""]);
    let all = TagFilter::all();
    let lost = bench.plan(&all, 2).unwrap();
    let behind = bench.plan(&all, 2).unwrap();
    drop(lost);
    assert!(!bench.commit(behind));
    let again = bench.plan(&all, 4).unwrap();
    assert_eq!(again.pop.fresh, [0, 1, 2, 3]);
    assert!(bench.commit(again));
}

#[test]
fn a_filter_skips_by_hash_and_then_by_the_tag_itself() {
    let mut bench = Bench::new(false);
    // "Aa" and "BB" have one hash.
    assert_eq!(tags_code("Aa"), tags_code("BB"));
    bench.send(&["x", "BB", "Aa", "x", "x", "x", "Aa"]);
    let filter = TagFilter::parse("Aa").unwrap();
    let first = bench.plan(&filter, 8).unwrap();
    assert_eq!((first.pop.next, first.pop.fresh.clone()), (4, vec![2]), "the scan bound is four units");
    assert_eq!(first.records.keys().copied().collect::<Vec<_>>(), [2]);
    assert_eq!(bench.reads.get(), 2);
    assert!(bench.commit(first));
    let second = bench.plan(&filter, 8).unwrap();
    assert_eq!((second.pop.from, second.pop.next, second.pop.fresh.clone()), (4, 7, vec![6]));
}

#[test]
fn timed_out_messages_come_first_and_are_planned_once() {
    let mut bench = Bench::new(false);
    bench.send(&["", "", ""]);
    let all = TagFilter::all();
    let plan = bench.plan(&all, 2).unwrap();
    assert!(bench.commit(plan));
    bench.now += 100;
    let again = bench.plan(&all, 3).unwrap();
    assert_eq!(again.pop.again.iter().map(|again| (again.offset, again.attempt)).collect::<Vec<_>>(), [(0, 1), (1, 1)]);
    assert_eq!(again.pop.fresh, [2]);
    assert!(bench.plan(&all, 3).is_none());
    assert!(!bench.planner.may_yield(&bench.view, KEY, Timestamp(bench.now)));
    assert!(bench.commit(again));
}

#[test]
fn in_order_nothing_passes_a_message_that_is_not_finished() {
    let mut bench = Bench::new(true);
    bench.send(&["", "", ""]);
    let all = TagFilter::all();
    let plan = bench.plan(&all, 2).unwrap();
    assert!(bench.plan(&all, 2).is_none(), "one batch at a time");
    assert!(bench.commit(plan));
    assert!(bench.plan(&all, 2).is_none());
    assert!(!bench.planner.may_yield(&bench.view, KEY, Timestamp(bench.now)));
    bench.now += 100;
    assert!(bench.planner.may_yield(&bench.view, KEY, Timestamp(bench.now)));
    let again = bench.plan(&all, 2).unwrap();
    assert_eq!((again.pop.again.len(), again.pop.fresh.len()), (2, 0));
}

#[test]
fn a_plan_is_bounded_by_bytes_and_takes_at_least_one_message() {
    let mut bench = Bench::new(false);
    bench.send(&["", "", ""]);
    bench.bytes_max = 1;
    let all = TagFilter::all();
    let plan = bench.plan(&all, 8).unwrap();
    assert_eq!(plan.pop.fresh, [0]);
    assert!(bench.commit(plan));
    let plan = bench.plan(&all, 8).unwrap();
    assert!(bench.commit(plan));
    bench.now += 100;
    let plan = bench.plan(&all, 8).unwrap();
    assert_eq!((plan.pop.again.len(), plan.pop.fresh.len()), (1, 0));
}

#[test]
fn a_new_term_forgets_the_plans() {
    let mut bench = Bench::new(false);
    bench.send(&["", ""]);
    let all = TagFilter::all();
    let old = bench.plan(&all, 2).unwrap();
    bench.planner.enter_term(2);
    let new = bench.plan(&all, 2).unwrap();
    assert_eq!(new.pop.fresh, old.pop.fresh);
    assert!(bench.commit(new));
    assert!(!bench.commit(old));
}
