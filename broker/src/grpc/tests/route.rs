//! `QueryRoute` and `QueryAssignment`.

use super::*;
use crate::meta_client::MetaError;
use fake::topic;
use raftmq_model::config::{Permission, TopicConfig, TopicType};
use raftmq_model::meta::{MetaRecord, NodeRecord};
use v2::Code;

fn route_request(name: &str) -> v2::QueryRouteRequest {
    v2::QueryRouteRequest { topic: resource(name), endpoints: None }
}

/// `name/id: port-less hosts`, one line per queue.
fn lines<'a>(queues: impl Iterator<Item = &'a v2::MessageQueue>) -> Vec<String> {
    queues
        .map(|queue| {
            let broker = queue.broker.as_ref().unwrap();
            assert_eq!(broker.id, 0);
            assert_eq!(queue.accept_message_types, [v2::MessageType::Normal as i32]);
            let endpoints = broker.endpoints.as_ref().unwrap();
            assert_eq!(endpoints.scheme, v2::AddressScheme::IPv4 as i32);
            let hosts: Vec<&str> =
                endpoints.addresses.iter().map(|address| address.host.rsplit('.').next().unwrap()).collect();
            format!("{}/{}: {}", broker.name, queue.id, hosts.join(" "))
        })
        .collect()
}

async fn routed(harness: &Harness, language: &str) -> Vec<String> {
    let request = call_as(language, "5.1.2", route_request("orders"));
    let answer = harness.client().query_route(request).await.unwrap().into_inner();
    assert_eq!(code(answer.status), Code::Ok);
    for queue in &answer.message_queues {
        assert_eq!(queue.permission, v2::Permission::ReadWrite as i32);
        assert_eq!(queue.topic, resource("orders"));
    }
    lines(answer.message_queues.iter())
}

async fn assigned(harness: &Harness, language: &str) -> Vec<String> {
    let request = v2::QueryAssignmentRequest { topic: resource("orders"), group: resource("billing"), endpoints: None };
    let answer = harness.client().query_assignment(call_as(language, "5.1.2", request)).await.unwrap().into_inner();
    assert_eq!(code(answer.status), Code::Ok);
    lines(answer.assignments.iter().filter_map(|assignment| assignment.message_queue.as_ref()))
}

#[tokio::test]
async fn each_sdk_gets_its_lanes() {
    let harness = Harness::new();
    let rotated = ["lane-1/0: 1 2 3", "lane-2/0: 2 3 1", "lane-3/0: 3 1 2"];
    assert_eq!(routed(&harness, "JAVA").await, rotated);
    assert_eq!(routed(&harness, "CPP").await, rotated);
    assert_eq!(routed(&harness, "GO").await, ["lane-1/0: 1 2", "lane-2/0: 2 3", "lane-3/0: 3 1"]);
    assert_eq!(routed(&harness, "PYTHON").await, ["lane-1/0: 1 2 3", "lane-2/0: 2 3", "lane-3/0: 3"]);
    assert_eq!(routed(&harness, "HTTP").await, ["lane-1/0: 1", "lane-2/0: 2", "lane-3/0: 3"]);
    assert_eq!(routed(&harness, "RUST").await, ["lane-1/0: 1 2 3"]);
    assert_eq!(routed(&harness, "DOTNET").await, ["lane-1/0: 1 2 3"]);
}

#[tokio::test]
async fn assignments_have_the_same_lanes() {
    let harness = Harness::new();
    assert_eq!(assigned(&harness, "JAVA").await, ["lane-1/-1: 1 2 3", "lane-2/-1: 2 3 1", "lane-3/-1: 3 1 2"]);
    assert_eq!(assigned(&harness, "HTTP").await, ["lane-1/-1: 1", "lane-2/-1: 2", "lane-3/-1: 3"]);
}

fn dead(harness: &Harness, ids: &[u32]) {
    use crate::service::Cluster;
    let view = harness.fake.view();
    let record = |id: &u32| MetaRecord::Node(NodeRecord { alive: false, ..view.nodes[id].as_ref().clone() });
    harness.fake.change(ids.iter().map(record).collect());
}

#[tokio::test]
async fn dead_nodes() {
    let harness = Harness::new();
    dead(&harness, &[2, 3]);
    assert_eq!(routed(&harness, "HTTP").await, ["lane-1/0: 1"]);
    assert_eq!(routed(&harness, "PYTHON").await, ["lane-1/0: 1 2 3", "lane-2/0: 2 3"]);
    assert_eq!(routed(&harness, "GO").await, ["lane-1/0: 1 2", "lane-3/0: 3 1", "lane-2/0: 2 3"]);
    assert_eq!(assigned(&harness, "GO").await, ["lane-1/-1: 1 2", "lane-3/-1: 3 1"], "a dead lane leaves at once");
    assert_eq!(assigned(&harness, "PYTHON").await, ["lane-1/-1: 1 2 3"]);
    dead(&harness, &[1]);
    assert_eq!(routed(&harness, "HTTP").await, ["lane-1/0: 1"], "the node that answers is alive");
}

#[tokio::test]
async fn permission_and_type_are_the_topics() {
    let harness = Harness::new();
    for (permission, expected) in [
        (Permission::Read, v2::Permission::Read),
        (Permission::Write, v2::Permission::Write),
        (Permission::None, v2::Permission::None),
    ] {
        let changed = TopicConfig {
            permission: permission as i32,
            topic_type: TopicType::Fifo as i32,
            ..topic("orders", fake::TOPIC_UID, 1)
        };
        harness.fake.change(vec![MetaRecord::Topic(changed)]);
        let answer = harness.client().query_route(call(route_request("orders"))).await.unwrap().into_inner();
        assert_eq!(answer.message_queues[0].permission, expected as i32);
        assert_eq!(answer.message_queues[0].accept_message_types, [v2::MessageType::Fifo as i32]);
        let request =
            v2::QueryAssignmentRequest { topic: resource("orders"), group: resource("billing"), endpoints: None };
        let assigned = harness.client().query_assignment(call(request)).await.unwrap().into_inner();
        let expected = if permission == Permission::Read { Code::Ok } else { Code::Forbidden };
        assert_eq!(code(assigned.status), expected);
    }
}

async fn route_code(harness: &Harness, name: &str) -> Code {
    code(harness.client().query_route(call(route_request(name))).await.unwrap().into_inner().status)
}

#[tokio::test]
async fn unknown_topics() {
    let off = Harness::new();
    assert_eq!(route_code(&off, "new").await, Code::TopicNotFound);
    assert_eq!(route_code(&off, "a b").await, Code::IllegalTopic);
    let on = Harness::with(Fake::one_group(), |options| options.auto_create_topics = true);
    assert_eq!(route_code(&on, "new").await, Code::Ok);
    assert_eq!(route_code(&on, "%RETRY%g").await, Code::TopicNotFound);
    for (error, expected) in [
        (MetaError::Unavailable, Code::HaNotAvailable),
        (MetaError::Unknown, Code::ProxyTimeout),
        (MetaError::Refused("full".to_owned()), Code::BadRequest),
    ] {
        on.fake.state().meta_failure = Some(error);
        assert_eq!(route_code(&on, "newer").await, expected);
    }
}

/// Not ready is never "no such topic" (law 7).
#[tokio::test]
async fn a_node_that_knows_nothing_yet_holds_the_call() {
    let harness = Harness::with(Fake::unborn(), |_| {});
    let request = with_timeout(call(route_request("orders")), "400m");
    let answer = harness.client().query_route(request).await.unwrap().into_inner();
    assert_eq!(code(answer.status), Code::HaNotAvailable);

    let mut client = harness.client();
    let held = client.query_route(call(route_request("orders")));
    tokio::pin!(held);
    assert!(futures::poll!(&mut held).is_pending());
    harness.fake.change(vec![MetaRecord::Topic(topic("orders", 7, 1))]);
    let answer = held.await.unwrap().into_inner();
    assert_eq!(code(answer.status.clone()), Code::HaNotAvailable);
    let sentence = answer.status.unwrap().message;
    assert!(sentence.contains("client address"), "the topic is known now, but no node is: {sentence}");
}
