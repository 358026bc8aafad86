//! A node whose data folder was put back from an older copy does not run on it, and is replaced by one command.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use raftmq_model::ids::{NodeId, ReplicaId};
use raftmq_store::{RealIo, Stamps};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::client::{Sent, receive_all, send};
use support::{Raftmq, SOON};

/// Whether the replicas on `node` are in sync.
fn in_sync(status: &Value, node: u64) -> bool {
    let groups = status["groups"].as_array().expect("groups").iter();
    let mut replicas = groups.flat_map(|group| group["replicas"].as_array().expect("replicas"));
    replicas.all(|replica| replica["node"] != node || replica["lag"] == 0 && replica["role"] != "unreachable")
}

/// The stamp of node 3 that the folder of `node` has.
fn stamp(raftmq: &Raftmq, node: u32) -> u64 {
    let id = |node| ReplicaId { node: NodeId(node), incarnation: 1 };
    let dir = raftmq.dir().join(format!("node-{node}/data"));
    Stamps::open(Arc::new(RealIo), &dir, id(node)).expect("stamps").of(id(3))
}

fn until_all_know(raftmq: &Raftmq, wanted: u64) {
    let deadline = Instant::now() + SOON;
    while [1, 2].into_iter().any(|node| stamp(raftmq, node) < wanted) {
        assert!(Instant::now() < deadline, "nobody hears of stamp {wanted}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-a").arg(from).arg(to).status().expect("cp").success());
}

/// Puts the copy in the place of the folder of node 3, and starts the node.
async fn put_back_and_refused(raftmq: &Raftmq, data: &Path, aside: &Path, old: u64) {
    std::fs::remove_dir_all(data).expect("the disk");
    copy(aside, data);
    raftmq.run(&["playground", "start", "3"]).ok();
    let log = raftmq.dir().join("node-3/log");
    let said = format!("{} is an older copy of the disk of node 3: it has stamp {old}, and node ", data.display());
    let deadline = Instant::now() + SOON;
    let ended =
        |log: &str| log.contains(&said) && log.contains("raftmq: ") && log.contains("`raftmq replica replace 3`");
    while !std::fs::read_to_string(&log).is_ok_and(|log| ended(&log)) {
        assert!(Instant::now() < deadline, "{}", std::fs::read_to_string(&log).unwrap());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    raftmq.status_when(|status| status["nodes"][2]["alive"] == false);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_was_put_back_is_not_run_on_and_its_node_is_replaced() {
    let raftmq = Raftmq::new();
    let clients = raftmq.three_nodes();
    raftmq.json(&["topic", "create", "orders", "--queues", "4"]);
    let mut sent = Sent::default();
    send(&clients, "orders", 20, &mut sent).await;
    until_all_know(&raftmq, 1);
    raftmq.run(&["playground", "kill", "3"]).ok();
    let (data, aside) = (raftmq.dir().join("node-3/data"), raftmq.dir().join("aside"));
    copy(&data, &aside);
    let old = stamp(&raftmq, 3);
    assert_eq!(stamp(&raftmq, 3), stamp(&raftmq, 1), "the interval is a minute");

    // Past a start.
    raftmq.run(&["playground", "start", "3"]).ok();
    until_all_know(&raftmq, old + 1);
    raftmq.status_when(|status| in_sync(status, 3));
    send(&clients, "orders", 20, &mut sent).await;
    raftmq.run(&["playground", "kill", "3"]).ok();
    let newest = raftmq.dir().join("newest");
    copy(&data, &newest);
    put_back_and_refused(&raftmq, &data, &aside, old).await;

    // The newest copy is good. And past the interval.
    std::fs::remove_dir_all(&data).expect("the disk");
    copy(&newest, &data);
    let config = raftmq.dir().join("node-3/node.toml");
    let text = std::fs::read_to_string(&config).expect("config");
    assert!(text.contains("stamp_ms = 60000"), "{text}");
    std::fs::write(&config, text.replace("stamp_ms = 60000", "stamp_ms = 100")).expect("config");
    raftmq.run(&["playground", "start", "3"]).ok();
    until_all_know(&raftmq, old + 5);
    raftmq.status_when(|status| in_sync(status, 3));
    send(&clients, "orders", 20, &mut sent).await;
    raftmq.run(&["playground", "kill", "3"]).ok();
    put_back_and_refused(&raftmq, &data, &newest, old + 1).await;

    send(&clients[..2], "orders", 20, &mut sent).await;
    raftmq.run(&["playground", "wipe", "3"]).ok();
    raftmq.run(&["playground", "start", "3"]).ok();
    raftmq.status_when(|status| status["nodes"][2]["alive"] == true);
    let replaced = raftmq.json(&["replica", "replace", "3"]);
    assert_eq!((replaced["incarnation"].as_u64(), replaced["complete"].as_bool()), (Some(2), Some(true)));
    raftmq.status_when(|status| in_sync(status, 3));
    assert_eq!(receive_all(&clients[2..], "orders", "all", sent.ids.len()).await, sent.ids);
    raftmq.run(&["playground", "stop"]).ok();
}
