//! Rules of the machine, one by one. Whole scenarios are in `golden.rs`.

use super::*;
use raftmq_model::ids::{GroupId, NodeId, ReplicaId};
use raftmq_model::meta::{AlterTopic, Birth, CreateTopic, ReplaceNode, ReportLeader, SetAlive};

pub(super) fn node(id: u32) -> NodeRecord {
    NodeRecord {
        id,
        incarnation: 1,
        namesrv: true,
        broker: true,
        client_address: format!("node-{id}:8081"),
        peer_address: format!("node-{id}:7081"),
        admin_address: format!("node-{id}:9081"),
        alive: true,
    }
}

pub(super) fn broker_group(id: u32) -> BrokerGroupRecord {
    let replicas = [1, 2, 3].map(|node| ReplicaId { node: NodeId(node), incarnation: 1 }.to_u64());
    let name = format!("broker-{id}");
    BrokerGroupRecord { id, name, replicas: replicas.to_vec(), leader_node: 0, leader_term: 0 }
}

pub(super) fn birth(groups: u32) -> MetaOp {
    MetaOp::Birth(Birth {
        cluster_id: "c1".to_owned(),
        nodes: (1..=3).map(node).collect(),
        broker_groups: (1..=groups).map(broker_group).collect(),
    })
}

fn born(groups: u32) -> MetaState {
    let mut state = MetaState::default();
    assert_eq!(apply(&mut state, 1, birth(groups)), MetaAnswer::Done(true));
    state
}

fn apply(state: &mut MetaState, index: u64, op: MetaOp) -> MetaAnswer {
    state.apply(index, &MetaCommand { op: Some(op) }).0.answer.expect("each outcome has an answer")
}

fn create(name: &str, queue_count: u32) -> MetaOp {
    MetaOp::CreateTopic(CreateTopic { name: name.to_owned(), topic_type: 1, permission: 6, queue_count })
}

fn consumer_group(name: &str) -> ConsumerGroupConfig {
    let name = name.to_owned();
    ConsumerGroupConfig { uid: 0, version: 0, name, fifo: false, attempts_max: 16, consume_enabled: true }
}

fn topic(answer: MetaAnswer) -> TopicConfig {
    match answer {
        MetaAnswer::Topic(topic) => topic,
        other => panic!("not a topic: {other:?}"),
    }
}

fn refused(answer: MetaAnswer) -> String {
    match answer {
        MetaAnswer::Refused(sentence) => sentence,
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn law_7_a_lower_term_never_overwrites_and_a_term_has_one_leader() {
    let mut state = born(1);
    let report = |term, node| MetaOp::ReportLeader(ReportLeader { group: 1, term, node });
    assert_eq!(apply(&mut state, 2, report(5, 2)), MetaAnswer::Done(true));
    refused(apply(&mut state, 3, report(4, 1)));
    refused(apply(&mut state, 4, report(5, 1)));
    assert_eq!(apply(&mut state, 5, report(5, 2)), MetaAnswer::Done(true));
    assert_eq!(state.revision(), 2, "a repeated report changes nothing");
    assert_eq!(apply(&mut state, 6, report(6, 1)), MetaAnswer::Done(true));
    let group = state.broker_group(1).unwrap();
    assert_eq!((group.leader_term, group.leader_node), (6, 1));
    refused(apply(&mut state, 7, report(9, 4)));
    refused(apply(&mut state, 8, report(0, 1)));
}

#[test]
fn nothing_but_a_birth_before_the_birth_and_one_birth_only() {
    let mut state = MetaState::default();
    refused(apply(&mut state, 1, create("orders", 4)));
    assert_eq!(apply(&mut state, 2, birth(1)), MetaAnswer::Done(true));
    assert_eq!(apply(&mut state, 3, birth(1)), MetaAnswer::Done(true), "a repeat of the same birth");
    assert_eq!(state.revision(), 2);
    let MetaOp::Birth(other) = birth(1) else { unreachable!() };
    refused(apply(&mut state, 4, MetaOp::Birth(Birth { cluster_id: "c2".to_owned(), ..other })));
    assert_eq!(state.cluster_id(), "c1");
}

#[test]
fn a_birth_is_one_reset_and_nobody_leads() {
    let MetaOp::Birth(mut record) = birth(1) else { unreachable!() };
    record.broker_groups[0].leader_node = 3;
    record.broker_groups[0].leader_term = 9;
    record.nodes[0].alive = false;
    let mut state = MetaState::default();
    let (_, change) = state.apply(7, &MetaCommand { op: Some(MetaOp::Birth(record)) });
    assert!(change.reset);
    assert_eq!((change.revision, change.cluster_id.as_str()), (7, "c1"));
    assert_eq!(state.broker_group(1).unwrap().leader_term, 0);
    assert!(state.node(1).unwrap().alive);
}

#[test]
fn a_birth_with_impossible_groups_is_refused() {
    let spoil = |spoil: fn(&mut Birth)| {
        let MetaOp::Birth(mut record) = birth(2) else { unreachable!() };
        spoil(&mut record);
        refused(apply(&mut MetaState::default(), 1, MetaOp::Birth(record)))
    };
    spoil(|birth| birth.cluster_id.clear());
    spoil(|birth| birth.nodes[0].id = 0);
    spoil(|birth| birth.nodes[1].id = 1);
    spoil(|birth| birth.nodes.iter_mut().for_each(|node| node.namesrv = false));
    spoil(|birth| birth.nodes[2].incarnation = 2);
    spoil(|birth| birth.nodes[2].broker = false);
    spoil(|birth| birth.broker_groups[0].id = 0);
    spoil(|birth| birth.broker_groups[0].id = 2);
    spoil(|birth| birth.broker_groups[0].name = "broker-2".to_owned());
    spoil(|birth| birth.broker_groups[0].replicas.truncate(2));
    spoil(|birth| birth.broker_groups[0].replicas[1] = birth.broker_groups[0].replicas[0]);
}

#[test]
fn queues_go_round_over_the_groups_and_topics_begin_at_different_ones() {
    let mut state = born(3);
    let mut first = BTreeMap::new();
    for index in 2..302 {
        let topic = topic(apply(&mut state, index, create(&format!("topic-{index}"), 7)));
        for pair in topic.queue_groups.windows(2) {
            assert_eq!(pair[1], pair[0] % 3 + 1, "in the order of the group ids");
        }
        *first.entry(topic.queue_groups[0]).or_insert(0) += 1;
    }
    assert_eq!(first.len(), 3);
    assert!(first.values().all(|count| (80..=120).contains(count)), "uneven: {first:?}");
}

#[test]
fn a_topic_is_created_once_and_only_with_equal_settings_again() {
    let mut state = born(2);
    let one = topic(apply(&mut state, 5, create("orders", 4)));
    assert_eq!((one.uid, one.version), (5, 5));
    assert_eq!(topic(apply(&mut state, 9, create("orders", 4))), one);
    let sentence = refused(apply(&mut state, 10, create("orders", 5)));
    assert!(sentence.contains("queue count of 4, not 5"), "{sentence}");
    assert_eq!(state.revision(), 5);
}

#[test]
fn bounds_and_enum_fields_of_a_topic() {
    let mut state = born(1);
    let ask = |topic_type, permission, queue_count| {
        let name = "orders".to_owned();
        MetaOp::CreateTopic(CreateTopic { name, topic_type, permission, queue_count })
    };
    for op in [ask(0, 6, 1), ask(5, 6, 1), ask(1, 0, 1), ask(1, 1, 1), ask(1, 6, 0), ask(1, 6, 1025)] {
        refused(apply(&mut state, 2, op));
    }
    refused(apply(&mut state, 2, create("%DLQ%mine", 1)));
    refused(apply(&mut state, 2, create("", 1)));
    topic(apply(&mut state, 2, ask(4, 2, 1024)));
}

#[test]
fn uids_are_unique_inside_one_entry_and_never_given_again() {
    let mut state = born(1);
    let one = topic(apply(&mut state, 4, create("one", 1)));
    let two = topic(apply(&mut state, 4, create("two", 1)));
    let three = topic(apply(&mut state, 5, create("three", 1)));
    assert_eq!([one.uid, two.uid, three.uid], [4, 5, 6]);
    assert_eq!(apply(&mut state, 5, MetaOp::DeleteTopic(three.uid)), MetaAnswer::Done(true));
    let restored = MetaState::decode_snapshot(&state.encode_snapshot()).unwrap();
    assert_eq!(restored, state);
    state = restored;
    assert_eq!(topic(apply(&mut state, 6, create("three", 1))).uid, 7);
}

#[test]
fn a_topic_grows_and_never_shrinks() {
    let mut state = born(3);
    let before = topic(apply(&mut state, 2, create("orders", 4)));
    let alter = |permission, queue_count| MetaOp::AlterTopic(AlterTopic { uid: 2, permission, queue_count });
    let after = topic(apply(&mut state, 3, alter(None, Some(8))));
    assert_eq!(after.queue_groups[..4], before.queue_groups[..]);
    assert_eq!(after.queue_groups.len(), 8);
    assert_eq!((after.uid, after.version), (2, 3));
    assert_eq!(topic(apply(&mut state, 4, alter(None, Some(8)))).version, 3);
    refused(apply(&mut state, 5, alter(None, Some(7))));
    refused(apply(&mut state, 5, alter(Some(3), None)));
    assert_eq!(topic(apply(&mut state, 6, alter(Some(0), None))).permission, 0);
    assert!(matches!(
        apply(&mut state, 7, MetaOp::AlterTopic(AlterTopic { uid: 99, permission: None, queue_count: None })),
        MetaAnswer::NotFound(_)
    ));
}

#[test]
fn a_delete_again_is_done_and_one_of_nothing_is_not_found() {
    let mut state = born(1);
    let uid = topic(apply(&mut state, 2, create("orders", 1))).uid;
    assert_eq!(apply(&mut state, 3, MetaOp::DeleteTopic(uid)), MetaAnswer::Done(true));
    assert_eq!(apply(&mut state, 4, MetaOp::DeleteTopic(uid)), MetaAnswer::Done(true));
    assert_eq!(state.revision(), 3);
    assert!(state.topic_by_name("orders").is_none());
    assert!(matches!(apply(&mut state, 5, MetaOp::DeleteTopic(77)), MetaAnswer::NotFound(_)));
    assert!(matches!(apply(&mut state, 6, MetaOp::DeleteConsumerGroup(0)), MetaAnswer::NotFound(_)));
}

#[test]
fn a_consumer_group_brings_its_dead_letter_topic() {
    let mut state = born(3);
    let MetaAnswer::ConsumerGroup(group) = apply(&mut state, 2, MetaOp::CreateConsumerGroup(consumer_group("billing")))
    else {
        panic!("not created");
    };
    let letters = state.topic_by_name("%DLQ%billing").unwrap().clone();
    let mut hosts = letters.queue_groups.clone();
    hosts.sort_unstable();
    assert_eq!(hosts, [1, 2, 3]);
    assert_eq!((letters.permission, letters.topic_type), (6, 1));

    let again = apply(&mut state, 3, MetaOp::CreateConsumerGroup(consumer_group("billing")));
    assert_eq!(again, MetaAnswer::ConsumerGroup(group.clone()));
    let fifo = ConsumerGroupConfig { fifo: true, ..consumer_group("billing") };
    refused(apply(&mut state, 3, MetaOp::CreateConsumerGroup(fifo)));
    refused(apply(&mut state, 4, MetaOp::DeleteTopic(letters.uid)));

    assert_eq!(apply(&mut state, 5, MetaOp::DeleteConsumerGroup(group.uid)), MetaAnswer::Done(true));
    assert_eq!(state.topic_by_name("%DLQ%billing"), Some(&letters), "letters outlive their group");
    apply(&mut state, 6, MetaOp::CreateConsumerGroup(consumer_group("billing")));
    assert_eq!(state.topic_by_name("%DLQ%billing"), Some(&letters), "and are found again by the next one");
}

#[test]
fn a_consumer_group_is_altered_by_uid_and_keeps_its_name() {
    let mut state = born(1);
    apply(&mut state, 2, MetaOp::CreateConsumerGroup(consumer_group("billing")));
    let alter = |name: &str, attempts_max| {
        let group = ConsumerGroupConfig { uid: 2, version: 2, fifo: true, attempts_max, ..consumer_group(name) };
        MetaOp::AlterConsumerGroup(group)
    };
    let MetaAnswer::ConsumerGroup(group) = apply(&mut state, 3, alter("", 3)) else { panic!("not altered") };
    assert_eq!((group.version, group.fifo, group.attempts_max, group.name.as_str()), (3, true, 3, "billing"));
    apply(&mut state, 4, alter("billing", 3));
    assert_eq!(state.revision(), 3, "the same again changes nothing");
    refused(apply(&mut state, 5, alter("other", 3)));
    refused(apply(&mut state, 5, alter("", 0)));
}

#[test]
fn who_read_an_older_record_does_not_undo_what_came_after_it() {
    let mut state = born(1);
    apply(&mut state, 2, MetaOp::CreateConsumerGroup(consumer_group("billing")));
    let alter = |version, attempts_max| {
        MetaOp::AlterConsumerGroup(ConsumerGroupConfig { uid: 2, version, attempts_max, ..consumer_group("") })
    };
    let MetaAnswer::ConsumerGroup(first) = apply(&mut state, 3, alter(2, 3)) else { panic!("not altered") };
    let MetaAnswer::Conflict(now) = apply(&mut state, 4, alter(2, 5)) else { panic!("altered with an old version") };
    assert_eq!((&now, now.version, now.attempts_max), (&first, 3, 3));
    assert_eq!(apply(&mut state, 5, alter(2, 3)), MetaAnswer::ConsumerGroup(first), "the same command again is fine");
    let MetaAnswer::ConsumerGroup(last) = apply(&mut state, 6, alter(3, 5)) else { panic!("not altered") };
    assert_eq!((last.version, last.attempts_max), (6, 5));
    assert!(matches!(apply(&mut state, 7, alter(2, 3)), MetaAnswer::Conflict(_)), "the first command again, late");
}

#[test]
fn a_node_keeps_what_was_decided_about_it_and_its_incarnation_until_it_is_replaced() {
    let mut state = born(1);
    let set = |node, alive| MetaOp::SetAlive(SetAlive { node, alive });
    apply(&mut state, 2, set(2, false));
    let moved = NodeRecord { client_address: "elsewhere:1".to_owned(), ..node(2) };
    assert_eq!(apply(&mut state, 3, MetaOp::PutNode(moved.clone())), MetaAnswer::Done(true));
    assert_eq!(**state.node(2).unwrap(), NodeRecord { alive: false, ..moved.clone() });
    let next = NodeRecord { incarnation: 2, ..moved };
    refused(apply(&mut state, 3, MetaOp::PutNode(next.clone())));
    let replace = MetaOp::ReplaceNode(ReplaceNode { node: 2, incarnation: 2 });
    assert_eq!(apply(&mut state, 3, replace), MetaAnswer::Done(true));
    assert_eq!(apply(&mut state, 4, MetaOp::PutNode(next)), MetaAnswer::Done(true));
    refused(apply(&mut state, 4, MetaOp::PutNode(node(2))));
    let placed: Vec<String> = state.view().placed(GroupId(1)).iter().map(ToString::to_string).collect();
    assert_eq!(placed, ["1.1", "2.2", "3.1"]);
    assert_eq!(state.view().placed(GroupId::META).len(), 3);
    assert!(matches!(apply(&mut state, 5, set(9, true)), MetaAnswer::NotFound(_)));
    apply(&mut state, 6, MetaOp::PutNode(node(4)));
    assert!(state.node(4).unwrap().alive);
}

#[test]
fn an_empty_command_is_refused() {
    let (outcome, change) = born(1).apply(2, &MetaCommand { op: None });
    refused(outcome.answer.unwrap());
    assert!(change.records.is_empty() && !change.reset);
}

#[test]
fn foreign_snapshots_are_told_apart() {
    assert!(matches!(MetaState::decode_snapshot(&[]), Err(SnapshotError::Version(None))));
    assert!(matches!(MetaState::decode_snapshot(&[9, 1]), Err(SnapshotError::Version(Some(9)))));
    assert!(matches!(MetaState::decode_snapshot(&[1, 0xff]), Err(SnapshotError::Damaged(_))));
}
