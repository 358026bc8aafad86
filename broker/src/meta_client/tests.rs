//! The parts that need no network.

use super::caught_up::caught_up;
use super::reports::LeaderReports;
use super::*;
use raftmq_model::meta::{BrokerGroupRecord, MetaRecord, MetaRecordBox, NodeRecord, ReportLeader};

fn view(revision: u64, records: impl IntoIterator<Item = MetaRecord>) -> MetaView {
    let mut view = MetaView::default();
    view.take(&change(revision, true, records));
    view
}

fn change(revision: u64, reset: bool, records: impl IntoIterator<Item = MetaRecord>) -> MetaChange {
    let records = records.into_iter().map(|record| MetaRecordBox { record: Some(record) }).collect();
    MetaChange { revision, reset, cluster_id: if reset { "c1".to_owned() } else { String::new() }, records }
}

fn topic(uid: u64, version: u64) -> TopicConfig {
    TopicConfig { uid, version, name: format!("topic-{uid}"), ..TopicConfig::default() }
}

fn broker_group(leader_term: u64) -> MetaRecord {
    MetaRecord::BrokerGroup(BrokerGroupRecord { id: 1, leader_node: 1, leader_term, ..Default::default() })
}

#[test]
fn a_view_has_caught_up_with_a_topic_when_it_has_that_version_or_is_past_it() {
    let op = MetaOp::CreateTopic(CreateTopic::default());
    let answer = MetaAnswer::Topic(topic(5, 7));
    let caught_up = |view: MetaView| caught_up(&view, &op, &answer);
    assert!(!caught_up(view(4, [])));
    assert!(!caught_up(view(6, [MetaRecord::Topic(topic(5, 5))])));
    assert!(caught_up(view(7, [MetaRecord::Topic(topic(5, 7))])));
    assert!(caught_up(view(9, [MetaRecord::Topic(topic(5, 9))])));
    assert!(caught_up(view(9, [])), "deleted since");
}

#[test]
fn a_view_has_caught_up_with_the_other_commands() {
    let done = MetaAnswer::Done(true);
    let report = |term| MetaOp::ReportLeader(ReportLeader { group: 1, term, node: 1 });
    assert!(caught_up(&view(3, [broker_group(4)]), &report(4), &done));
    assert!(!caught_up(&view(3, [broker_group(4)]), &report(5), &done));
    assert!(!caught_up(&view(3, [MetaRecord::Topic(topic(2, 2))]), &MetaOp::DeleteTopic(2), &done));
    assert!(caught_up(&view(3, []), &MetaOp::DeleteTopic(2), &done));
    let node = NodeRecord { id: 4, incarnation: 1, alive: true, ..NodeRecord::default() };
    let put = MetaOp::PutNode(NodeRecord { alive: false, ..node.clone() });
    assert!(!caught_up(&view(3, []), &put, &done));
    assert!(caught_up(&view(3, [MetaRecord::Node(node)]), &put, &done));
}

#[test]
fn the_newest_report_of_a_group_waits_until_the_view_knows_the_group() {
    let reports = LeaderReports::default();
    reports.put(GroupId(1), 3, NodeId(1));
    reports.put(GroupId(1), 2, NodeId(2));
    assert_eq!(reports.due(&view(1, [])), []);
    assert_eq!(reports.due(&view(2, [broker_group(0)])), [ReportLeader { group: 1, term: 3, node: 1 }]);
    reports.put(GroupId(1), 4, NodeId(2));
    assert_eq!(reports.due(&view(2, [broker_group(3)])), [ReportLeader { group: 1, term: 4, node: 2 }]);
    assert_eq!(reports.due(&view(2, [broker_group(4)])), [], "the meta group is past it");
    assert_eq!(reports.due(&view(2, [broker_group(0)])), [], "and it is forgotten");
}

#[test]
fn statuses_of_servers_and_of_broken_connections_are_told_apart() {
    use super::propose::{Failure, failure};
    use tonic::Status;
    let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
    let broken = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
    assert!(matches!(failure(&Status::unavailable("no leader")), Failure::NotProposed));
    assert!(matches!(failure(&Status::resource_exhausted("")), Failure::NotProposed));
    assert!(matches!(failure(&Status::deadline_exceeded("")), Failure::MaybeProposed));
    assert!(matches!(failure(&Status::invalid_argument("")), Failure::Final(MetaError::Refused(_))));
    let from = |error: std::io::Error| {
        let mut status = Status::unavailable("");
        status.set_source(Arc::new(error));
        status
    };
    assert!(matches!(failure(&from(refused)), Failure::NotProposed));
    assert!(matches!(failure(&from(broken)), Failure::MaybeProposed));
}
