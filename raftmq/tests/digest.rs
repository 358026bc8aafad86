//! `raftmq raft digest` on a cluster that serves: equal under load and at rest, a silent node is named, and one replica
//! whose state is not what the log says is found.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use raftmq_store::state::{RocksState, StateStore, WriteBatch};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};
use support::Raftmq;
use support::client::{Sent, receive_all, send};

/// How long the cluster may take for anything that a test waits for.
const SOON: Duration = Duration::from_secs(60);
/// Digests taken while messages come in.
const UNDER_LOAD_COUNT: usize = 8;
/// Senders at the same time.
const SENDERS_COUNT: usize = 8;

/// Keys of cursors in the state store begin with it (`model/src/machine/key/cursor.rs`).
const CURSOR_PREFIX: u8 = 0x07;

/// The one broker group of a report, with a check of what must hold in each.
fn group(report: &Value) -> &Value {
    let groups = report["groups"].as_array().expect("groups");
    assert_eq!((groups.len(), groups[0]["name"].as_str()), (1, Some("broker-1")), "{report}");
    assert_eq!(groups[0]["replicas"].as_array().map(Vec::len), Some(3), "{report}");
    &groups[0]
}

/// A digest that all three replicas tell and that is the same.
fn equal(raftmq: &Raftmq) -> Value {
    let report = raftmq.json(&["raft", "digest"]);
    assert_eq!((report["equal"].as_bool(), report["complete"].as_bool()), (Some(true), Some(true)), "{report}");
    let group = group(&report).clone();
    for field in ["term", "digest", "log_end_offset", "queues", "messages"] {
        let values: BTreeSet<String> =
            group["replicas"].as_array().expect("replicas").iter().map(|replica| replica[field].to_string()).collect();
        assert!(values.len() == 1 && !values.contains("null"), "{field}: {group}");
    }
    group
}

async fn under_load(raftmq: &Raftmq, clients: &[String]) {
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let senders: Vec<_> = (0..SENDERS_COUNT)
        .map(|_| {
            let (clients, stopped) = (clients.to_vec(), stopped.clone());
            tokio::spawn(async move {
                let mut sent = Sent::default();
                while !*stopped.borrow() {
                    send(&clients, "orders", 1, &mut sent).await;
                }
                sent
            })
        })
        .collect();
    receive_all(clients, "orders", "billing", 20).await;
    let indexes: Vec<u64> = (0..UNDER_LOAD_COUNT)
        .map(|_| tokio::task::block_in_place(|| equal(raftmq))["index"].as_u64().expect("index"))
        .collect();
    assert!(indexes.windows(2).all(|pair| pair[0] < pair[1]), "messages came in all the time: {indexes:?}");
    stop.send_replace(true);
    let mut sent = 0;
    for sender in senders {
        sent += sender.await.expect("sender").ids.len();
    }
    // The index of a digest may lie before the last message; the next one tells of all.
    assert_eq!(tokio::task::block_in_place(|| equal(raftmq))["replicas"][0]["messages"], sent);
}

/// Starts what was stopped, and waits until the group has a leader that serves and all replicas are there.
fn start_again(raftmq: &Raftmq) {
    raftmq.json(&["playground", "--detach"]);
    let deadline = Instant::now() + SOON;
    loop {
        let status = raftmq.json(&["cluster", "status"]);
        let groups = status["groups"].as_array().expect("groups");
        let absent = |replica: &Value| ["unreachable", "missing"].contains(&replica["role"].as_str().expect("role"));
        if groups
            .iter()
            .all(|group| group["ready"] == true && !group["replicas"].as_array().expect("replicas").iter().any(absent))
        {
            return;
        }
        assert!(Instant::now() < deadline, "{status}");
    }
}

/// Changes every cursor in a stopped replica's state by one message.
fn tamper(state: &Path) {
    let store = RocksState::open(state).expect("state");
    let mut batch = WriteBatch::new();
    let mut changed = 0;
    let mut visit = |key: &[u8], value: &[u8]| {
        let (last, head) = value.split_last().expect("a cursor is a number");
        batch.put(key.to_vec(), [head, &[last ^ 1]].concat());
        changed += 1;
    };
    store.scan(&[CURSOR_PREFIX], &mut visit).expect("scan");
    assert!(changed > 0, "a consumer group took messages");
    store.write(batch).expect("write");
    store.flush().expect("flush");
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_are_compared_at_one_index_while_they_serve() {
    let raftmq = Raftmq::new();
    let clients = raftmq.three_nodes();
    under_load(&raftmq, &clients).await;

    let table = raftmq.run(&["raft", "digest", "--group", "broker-1"]).ok().stdout;
    assert!(table.ends_with("broker-1: 3 of 3 replicas, equal\n"), "{table}");
    assert_eq!(raftmq.run(&["raft", "digest", "--group", "namesrv"]).code, 4);
    let at_rest = equal(&raftmq);
    assert_eq!(equal(&raftmq), at_rest, "a digest of a group at rest adds nothing to its log");

    raftmq.run(&["playground", "kill", "3"]).ok();
    let ended = raftmq.run(&["raft", "digest", "-o", "json"]);
    assert_eq!(ended.code, 3, "{}", ended.stderr);
    assert!(ended.stderr.contains("broker-1 on node 3: its node does not answer"), "{}", ended.stderr);
    let report: Value = serde_json::from_str(&ended.stdout).expect("json");
    assert_eq!((report["equal"].as_bool(), report["complete"].as_bool()), (Some(true), Some(false)), "{report}");

    raftmq.run(&["playground", "stop"]).ok();
    tamper(&raftmq.dir().join("node-2/data/groups/1/state"));
    start_again(&raftmq);
    let ended = raftmq.run(&["raft", "digest", "-o", "json"]);
    assert_eq!(ended.code, 1, "{} {}", ended.stdout, ended.stderr);
    assert_eq!(ended.stderr, "raftmq: the replicas differ: broker-1\n");
    let report: Value = serde_json::from_str(&ended.stdout).expect("json");
    let digests: Vec<&Value> =
        group(&report)["replicas"].as_array().expect("replicas").iter().map(|replica| &replica["digest"]).collect();
    assert!(digests[0] == digests[2] && digests[0] != digests[1], "{report}");
}
