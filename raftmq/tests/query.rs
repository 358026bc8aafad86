//! `raftmq message query` on a cluster of three processes and three broker groups: by key, id and time, through every node, without one
//! of them, and after the indexes are gone.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use serde_json::Value;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use support::Raftmq;
use support::client::send_keyed;

/// How long the cluster may take for anything that a test waits for.
const SOON: Duration = Duration::from_secs(60);
const COUNT: usize = 40;

/// Ids in the order of a report that is whole.
fn ids(report: &Value) -> Vec<String> {
    assert_eq!(
        (report["truncated"].as_bool(), report["incomplete"].as_array().map(Vec::len)),
        (Some(false), Some(0)),
        "{report}"
    );
    let messages = report["messages"].as_array().expect("messages");
    messages.iter().map(|message| message["message_id"].as_str().expect("id").to_owned()).collect()
}

fn query(raftmq: &Raftmq, arguments: &[&str]) -> Value {
    raftmq.json(&[&["message", "query", "--topic", "orders"], arguments].concat())
}

/// Asks until the answer is whole: while a group has no leader, or is building its index, it is not.
fn until_whole(raftmq: &Raftmq, arguments: &[&str]) -> Value {
    let arguments = [&["message", "query", "--topic", "orders", "-o", "json"], arguments].concat();
    let deadline = Instant::now() + SOON;
    loop {
        let ended = raftmq.run(&arguments);
        if ended.code == 0 {
            let report: Value = serde_json::from_str(&ended.stdout).expect("JSON");
            if report["incomplete"].as_array().expect("sentences").is_empty() {
                return report;
            }
        }
        assert!(Instant::now() < deadline, "{}", ended.stderr);
    }
}

/// Message n has the key `order-n` and one of three others; some are sent to one node, some to another.
async fn send(clients: &[String]) -> Vec<String> {
    let mut sent = Vec::new();
    for number in 0..COUNT {
        let keys = [format!("order-{number}"), format!("customer-{}", number % 3)];
        let through = &clients[number % clients.len()..];
        sent.push(send_keyed(through, "orders", &keys, |id| format!("body of {id}").into_bytes()).await);
    }
    sent
}

fn found_by_everything(raftmq: &Raftmq, sent: &[String], arguments: &[&str]) {
    let ask = |by: &[&str]| until_whole(raftmq, &[by, arguments].concat());
    let of_customer: BTreeSet<&String> = sent.iter().skip(1).step_by(3).collect();
    let customer = ids(&ask(&["--key", "customer-1"]));
    assert_eq!(customer.iter().collect::<BTreeSet<_>>(), of_customer);
    assert_eq!(customer.len(), of_customer.len());
    assert_eq!(ids(&ask(&["--key", "order-7"])), [sent[7].clone()]);
    assert_eq!(ids(&ask(&["--id", &sent[8]])), [sent[8].clone()]);
    let all = ask(&["--from", "1970-01-02T00:00:00Z", "--max", "1000"]);
    assert_eq!(ids(&all).iter().collect::<BTreeSet<_>>(), sent.iter().collect());
    let times: Vec<i64> =
        all["messages"].as_array().unwrap().iter().map(|one| one["stored_at_ms"].as_i64().unwrap()).collect();
    assert!(times.is_sorted(), "oldest first: {times:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_are_found_by_key_id_and_time_through_every_node() {
    let raftmq = Raftmq::new();
    let started = raftmq.json(&["playground", "--nodes", "3", "--groups", "3", "--port", "0", "--detach"]);
    let nodes = started["nodes"].as_array().expect("nodes");
    let clients: Vec<String> = nodes.iter().map(|node| node["client"].as_str().expect("client").to_owned()).collect();
    let sent = send(&clients).await;
    for node in nodes {
        found_by_everything(&raftmq, &sent, &["--endpoints", node["admin"].as_str().expect("admin")]);
    }

    let one = query(&raftmq, &["--id", &sent[5], "--body"])["messages"][0].clone();
    assert_eq!(one["keys"], serde_json::json!(["order-5", "customer-2"]));
    assert_eq!((one["body"].as_str(), one["body_bytes"].as_u64()), (Some(&*format!("body of {}", sent[5])), Some(42)));
    let stored_at = one["stored_at"].as_str().expect("a time");
    assert_eq!(ids(&query(&raftmq, &["--key", "order-5", "--from", stored_at, "--to", stored_at])), [sent[5].clone()]);
    assert_eq!(ids(&query(&raftmq, &["--key", "order-5", "--to", "2020-01-01T00:00:00Z"])), Vec::<String>::new());
    let few = query(&raftmq, &["--key", "customer-0", "--max", "2"]);
    assert_eq!((few["truncated"].as_bool(), few["messages"].as_array().map(Vec::len)), (Some(true), Some(2)));
    let groups = query(&raftmq, &["--from", "0", "--to", "4000000000000", "--max", "1000"]);
    let groups: BTreeSet<&str> =
        groups["messages"].as_array().unwrap().iter().map(|one| one["broker_group"].as_str().unwrap()).collect();
    assert!(groups.len() > 1, "several broker groups have messages: {groups:?}");
    let table = raftmq.run(&["message", "query", "--topic", "orders", "--key", "order-5"]).ok().stdout;
    assert!(table.contains(&sent[5]) && table.ends_with("orders: 1 found\n"), "{table}");

    assert_eq!(raftmq.run(&["message", "query", "--topic", "nothing", "--key", "k"]).code, 4);
    for wrong in
        [&["--key", ""][..], &["--from", "noon"], &["--from", "5", "--to", "4"], &["--key", "k", "--max", "1001"]]
    {
        let ended = raftmq.run(&[&["message", "query", "--topic", "orders"], wrong].concat());
        assert_eq!(ended.code, 2, "{wrong:?}: {}", ended.stderr);
    }

    raftmq.run(&["playground", "kill", "3"]).ok();
    found_by_everything(&raftmq, &sent, &[]);
    raftmq.run(&["playground", "stop"]).ok();

    for node in ["node-1", "node-2", "node-3"] {
        let folder = raftmq.dir().join(node).join("data");
        let report = raftmq.json(&["store", "verify", folder.to_str().expect("path")]);
        assert_eq!(report["damages"].as_u64(), Some(0), "{report}");
        let stats = raftmq.json(&["store", "stats", folder.to_str().expect("path"), "--group", "broker-1"]);
        assert!(stats["groups"][0]["keys"]["next"].is_u64(), "{stats}");
        for group in 1..=3 {
            let keys = folder.join(format!("groups/{group}/keyindex"));
            if keys.exists() {
                std::fs::remove_dir_all(keys).expect("remove");
            }
        }
    }
    raftmq.json(&["playground", "--detach"]);
    found_by_everything(&raftmq, &sent, &[]);
}
