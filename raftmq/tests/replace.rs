//! A node that lost its disk comes back, by one command, and only by it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use serde_json::Value;
use std::time::{Duration, Instant};
use support::client::{Sent, receive_all, send};
use support::{Raftmq, SOON};

/// Each group's replica on `node`: role, incarnation, lag.
fn replicas(status: &Value, node: u64) -> Vec<(String, u64, u64)> {
    let groups = status["groups"].as_array().expect("groups").iter();
    let replicas = groups.map(|group| {
        let mut replicas = group["replicas"].as_array().expect("replicas").iter();
        let replica = replicas.rfind(|replica| replica["node"] == node).expect("replica");
        let number = |key: &str| replica[key].as_u64().expect("number");
        (replica["role"].as_str().expect("role").to_owned(), number("incarnation"), number("lag"))
    });
    replicas.collect()
}

fn equal(raftmq: &Raftmq) {
    let digests = raftmq.json(&["raft", "digest"]);
    assert!(digests["groups"].as_array().expect("groups").iter().all(|group| group["equal"] == true), "{digests}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wiped_node_comes_back_by_one_command_and_only_by_it() {
    let raftmq = Raftmq::new();
    let clients = raftmq.three_nodes();
    raftmq.json(&["topic", "create", "orders", "--queues", "4"]);
    let mut sent = Sent::default();
    send(&clients, "orders", 50, &mut sent).await;

    let refused = raftmq.run(&["replica", "replace", "3"]);
    assert_eq!(refused.code, 5, "{}", refused.stderr);
    assert!(refused.stderr.contains("node 3 runs and has its data"), "{}", refused.stderr);
    assert_eq!(raftmq.run(&["replica", "replace", "9"]).code, 4);
    assert_eq!(raftmq.run(&["playground", "wipe", "3"]).code, 5, "it runs");

    raftmq.run(&["playground", "kill", "3"]).ok();
    raftmq.run(&["playground", "wipe", "3"]).ok();
    assert_eq!(raftmq.run(&["replica", "replace", "3"]).code, 3, "it does not answer");
    send(&clients[..2], "orders", 50, &mut sent).await;
    raftmq.run(&["playground", "start", "3"]).ok();
    raftmq.status_when(|status| status["nodes"][2]["alive"] == true && replicas(status, 3)[0].0 == "missing");
    let init = raftmq.run(&["cluster", "init"]);
    // Asked at a member, the cluster exists; asked at the blank node, its disk counts as lost.
    assert!(init.code == 0 || init.stderr.contains("raftmq replica replace 3"), "{} {}", init.code, init.stderr);
    assert!(replicas(&raftmq.status_when(|_| true), 3).iter().all(|(role, ..)| role == "missing"));

    let replaced = raftmq.json(&["replica", "replace", "3"]);
    assert_eq!((replaced["incarnation"].as_u64(), replaced["complete"].as_bool()), (Some(2), Some(true)));
    let status = raftmq.status_when(|status| replicas(status, 3).iter().all(|(_, _, lag)| *lag == 0));
    let votes =
        |(role, incarnation, _): &(String, u64, u64)| ["leader", "follower"].contains(&&**role) && *incarnation == 2;
    assert!(replicas(&status, 3).iter().all(votes), "{status}");
    equal(&raftmq);

    // Its vote counts: with it and one other there is a majority. And it has all that was acknowledged.
    raftmq.run(&["playground", "kill", "1"]).ok();
    send(&clients[1..], "orders", 10, &mut sent).await;
    raftmq.run(&["playground", "start", "1"]).ok();
    raftmq.status_when(|status| replicas(status, 1).iter().all(|(role, _, lag)| *lag == 0 && role != "unreachable"));
    assert_eq!(receive_all(&clients[2..], "orders", "all", sent.ids.len()).await, sent.ids);

    // A restart keeps it.
    raftmq.run(&["playground", "stop"]).ok();
    raftmq.json(&["playground", "--detach"]);
    equal(&raftmq);
    raftmq.run(&["playground", "stop"]).ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_was_replaced_is_refused_when_it_turns_up_again_and_one_replica_cannot_be_replaced() {
    let raftmq = Raftmq::new();
    raftmq.json(&["playground", "--nodes", "3", "--port", "0", "--detach"]);
    raftmq.json(&["topic", "create", "orders"]);
    raftmq.run(&["playground", "kill", "2"]).ok();
    let (data, aside) = (raftmq.dir().join("node-2/data"), raftmq.dir().join("aside"));
    std::fs::rename(&data, &aside).expect("move the disk");
    raftmq.run(&["playground", "start", "2"]).ok();
    raftmq.status_when(|status| status["nodes"][1]["alive"] == true);
    raftmq.json(&["replica", "replace", "2"]);

    raftmq.run(&["playground", "kill", "2"]).ok();
    let replaced = raftmq.dir().join("replaced");
    std::fs::rename(&data, &replaced).expect("move the new disk");
    std::fs::rename(&aside, &data).expect("the old disk");
    raftmq.run(&["playground", "start", "2"]).ok();
    let log = raftmq.dir().join("node-2/log");
    let deadline = Instant::now() + SOON;
    let said = "the cluster knows it as incarnation 2, and";
    while !std::fs::read_to_string(&log).is_ok_and(|log| log.contains(said)) {
        assert!(Instant::now() < deadline, "{}", std::fs::read_to_string(&log).unwrap());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    raftmq.status_when(|status| status["nodes"][1]["alive"] == false);

    // The disk that took its place goes on.
    std::fs::rename(&data, &aside).expect("away with it");
    std::fs::rename(&replaced, &data).expect("the new disk again");
    raftmq.run(&["playground", "start", "2"]).ok();
    raftmq.status_when(|status| replicas(status, 2).iter().all(|(role, _, lag)| role == "follower" && *lag == 0));
    equal(&raftmq);
    raftmq.run(&["playground", "stop"]).ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_only_replica_cannot_be_replaced() {
    let raftmq = Raftmq::new();
    raftmq.json(&["playground", "--nodes", "2", "--groups", "2", "--port", "0", "--detach"]);
    raftmq.run(&["playground", "kill", "2"]).ok();
    raftmq.run(&["playground", "wipe", "2"]).ok();
    raftmq.run(&["playground", "start", "2"]).ok();
    raftmq.status_when(|status| status["nodes"][1]["alive"] == true);
    let refused = raftmq.run(&["replica", "replace", "2"]);
    assert_eq!(refused.code, 5, "{}", refused.stderr);
    assert!(refused.stderr.contains("broker-2 had its only replica on node 2"), "{}", refused.stderr);
    raftmq.run(&["playground", "stop"]).ok();
}
