//! The binary as a person uses it: a playground of three real processes, from birth through the death of a leader to a
//! restart with its data.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::time::Instant;
use support::client::{Sent, receive_all, send};
use support::{Cli, Raftmq, SOON};

fn groups(status: &Value) -> impl Iterator<Item = &Value> {
    status["groups"].as_array().expect("groups").iter()
}

fn leader(status: &Value, group: &str) -> Option<u64> {
    groups(status).find(|found| found["name"] == group).expect("group")["leader"].as_u64()
}

fn alive(status: &Value) -> Vec<u64> {
    let nodes = status["nodes"].as_array().expect("nodes").iter();
    nodes.filter(|node| node["alive"] == true).map(|node| node["id"].as_u64().expect("id")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_born_survives_its_leader_and_keeps_its_messages() {
    let raftmq = Raftmq::new();
    let clients = raftmq.three_nodes();
    assert_eq!(clients.len(), 3);

    let status = raftmq.json(&["cluster", "status"]);
    assert_eq!(alive(&status), [1, 2, 3]);
    assert_eq!(groups(&status).map(|group| group["name"].clone()).collect::<Vec<_>>(), ["namesrv", "broker-1"]);
    assert!(
        groups(&status)
            .all(|group| group["ready"] == true && group["replicas"].as_array().expect("replicas").len() == 3)
    );

    topics_and_groups(&raftmq);
    mistakes_have_exit_codes(&raftmq);
    let cluster_id = raftmq.json(&["cluster", "init"])["cluster_id"].clone();
    assert_eq!(cluster_id, status["cluster_id"], "a second birth is the first one");

    let mut sent = Sent::default();
    for client in &clients {
        send(std::slice::from_ref(client), "orders", 10, &mut sent).await;
    }
    let received = receive_all(&clients[1..], "orders", "first", sent.ids.len()).await;
    assert_eq!(received, sent.ids);

    let old = leader(&raftmq.status_when(|status| leader(status, "broker-1").is_some()), "broker-1").expect("leader");
    raftmq.run(&["playground", "kill", &old.to_string()]).ok();
    let survivors: Vec<String> =
        (1..).zip(&clients).filter(|(id, _)| *id != old).map(|(_, client)| client.clone()).collect();
    send(&survivors, "orders", 10, &mut sent).await;
    let status = raftmq.status_when(|status| alive(status).len() == 2);
    assert_ne!(leader(&status, "broker-1"), Some(old));

    raftmq.run(&["playground", "start", &old.to_string()]).ok();
    raftmq.status_when(|status| alive(status).len() == 3 && caught_up(status));
    let moved = raftmq.json(&["raft", "transfer", "broker-1", "--to", &old.to_string()]);
    assert_eq!(moved["leader"], old);
    send(&clients, "orders", 1, &mut sent).await;

    raftmq.run(&["playground", "stop"]).ok();
    assert_eq!(raftmq.run(&["cluster", "status"]).code, 3);
    raftmq.json(&["playground", "--detach"]);
    let received = receive_all(&clients, "orders", "second", sent.ids.len()).await;
    assert_eq!(received, sent.ids, "a restart keeps every acknowledged message");
    raftmq.run(&["playground", "stop"]).ok();
}

fn caught_up(status: &Value) -> bool {
    groups(status).all(|group| {
        group["leader"].is_u64()
            && group["replicas"]
                .as_array()
                .expect("replicas")
                .iter()
                .all(|replica| replica["lag"] == 0 && replica["role"] != "unreachable")
    })
}

fn topics_and_groups(raftmq: &Raftmq) {
    let topic = raftmq.json(&["topic", "create", "orders", "--queues", "4"]);
    assert_eq!(topic["queues"].as_array().expect("queues").len(), 4);
    assert_eq!(raftmq.run(&["topic", "create", "orders"]).code, 5);
    let topic = raftmq.json(&["topic", "alter", "orders", "--queues", "6", "--permission", "read"]);
    assert_eq!((topic["queues"].as_array().expect("queues").len(), topic["permission"].as_str()), (6, Some("READ")));
    raftmq.json(&["topic", "alter", "orders", "--permission", "read-write"]);
    raftmq.json(&["topic", "create", "gone", "--type", "fifo"]);
    raftmq.json(&["topic", "delete", "gone"]);
    let names: BTreeSet<String> = raftmq.json(&["topic", "list"])["topics"]
        .as_array()
        .expect("topics")
        .iter()
        .map(|topic| topic["name"].as_str().expect("name").to_string())
        .collect();
    assert!(names.contains("orders") && !names.contains("gone"), "{names:?}");

    raftmq.json(&["group", "create", "billing", "--attempts-max", "5"]);
    let group = raftmq.json(&["group", "alter", "billing", "--fifo", "true"]);
    assert_eq!((group["fifo"].as_bool(), group["attempts_max"].as_u64()), (Some(true), Some(5)));
    assert_eq!(raftmq.json(&["group", "lag", "billing"])["ready"], 0);
    assert!(raftmq.run(&["group", "list"]).ok().stdout.contains("billing"));
    raftmq.json(&["group", "delete", "billing"]);
}

fn mistakes_have_exit_codes(raftmq: &Raftmq) {
    for (arguments, code) in [
        (&["topic", "describe", "nothing"][..], 4),
        (&["group", "describe", "nothing"], 4),
        (&["raft", "transfer", "nothing"], 4),
        (&["raft", "transfer", "broker-1", "--to", "9"], 4),
        (&["playground", "kill", "9"], 4),
        (&["playground", "start", "1"], 5),
        (&["playground", "--detach"], 5),
        (&["topic", "create", "no spaces"], 2),
        (&["topic", "create"], 2),
        (&["cluster", "init", "--broker-groups", "7"], 5),
    ] {
        let ended = raftmq.run(arguments);
        assert_eq!(ended.code, code, "{arguments:?}: {}", ended.stderr);
        assert!(ended.stdout.is_empty(), "{arguments:?} printed a result");
    }
    // A second process of one node: the folder is locked. One sentence.
    let config = raftmq.dir().join("node-1/node.toml");
    let ended = raftmq.run(&["serve", "--config", config.to_str().expect("path")]);
    assert_eq!(ended.code, 2, "{}", ended.stderr);
    assert_eq!(ended.stderr.trim().lines().count(), 1, "{}", ended.stderr);
    assert!(ended.stderr.contains("in use by another process"), "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_alone_is_born_told_to_stop_and_starts_again() {
    let raftmq = Raftmq::new();
    let [client, admin, peer] = [support::free_address(), support::free_address(), support::free_address()];
    let config = raftmq.dir().join("alone.toml");
    let data = raftmq.dir().join("alone");
    let text = format!(
        "client_listen = \"{client}\"\nadmin_listen = \"{admin}\"\npeer_listen = \"{peer}\"\ndata_dir = \"{}\"\nsegment_bytes_max = 67108864\n",
        data.display()
    );
    std::fs::write(&config, text).expect("write");
    let serve = || raftmq.spawn(&["serve", "--config", config.to_str().expect("path")]);
    let ended = |arguments: &[&str], code: i32| {
        let deadline = Instant::now() + SOON;
        let arguments = [arguments, &["--endpoints", &admin]].concat();
        loop {
            let ended = raftmq.run(&arguments);
            if ended.code == code {
                return ended;
            }
            assert!(Instant::now() < deadline, "{arguments:?}: {}", ended.stderr);
        }
    };
    let mut sent = Sent::default();
    for life in 0..3 {
        let mut node = serve();
        if life == 0 {
            ended(&["topic", "list"], 5);
            ended(&["cluster", "init"], 0);
            ended(&["topic", "create", "kept"], 0);
        }
        send(std::slice::from_ref(&client), "kept", 5, &mut sent).await;
        raftmq.terminate(&node);
        assert_eq!(node.wait().expect("child").code(), Some(0), "life {life}");
    }
    let mut node = serve();
    assert_eq!(receive_all(std::slice::from_ref(&client), "kept", "group", sent.ids.len()).await, sent.ids);
    raftmq.terminate(&node);
    assert!(node.wait().expect("child").success());
}

#[test]
fn a_node_without_a_majority_closes_its_client_port_and_opens_it_again() {
    let raftmq = Raftmq::new();
    let started = raftmq.json(&["playground", "--nodes", "3", "--port", "0", "--detach"]);
    let client = started["nodes"][0]["client"].as_str().expect("client").to_string();
    let open = || std::net::TcpStream::connect(&client).is_ok();
    let until = |wanted: bool| {
        let deadline = Instant::now() + SOON;
        while open() != wanted {
            assert!(Instant::now() < deadline, "the client port should be open: {wanted}");
        }
    };
    until(true);
    let mut idle = std::net::TcpStream::connect(&client).expect("connect");
    idle.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").expect("write");
    raftmq.run(&["playground", "pause", "2"]).ok();
    raftmq.run(&["playground", "pause", "3"]).ok();
    until(false);
    // What was open is cut, too.
    let _ = idle.read_to_end(&mut Vec::new());
    raftmq.run(&["playground", "resume", "2"]).ok();
    until(true);
    raftmq.run(&["playground", "resume", "3"]).ok();
    raftmq.run(&["playground", "stop"]).ok();
}

#[test]
fn an_interrupted_playground_leaves_no_process() {
    let raftmq = Raftmq::new();
    let mut foreground = raftmq.spawn(&["playground", "--nodes", "1", "--port", "0"]);
    // The table of nodes is printed when the cluster serves.
    let mut header = String::new();
    let stdout = foreground.stdout.take().expect("stdout");
    BufReader::new(stdout).read_line(&mut header).expect("table");
    assert!(header.starts_with("NODE"), "{header}");
    assert_eq!(raftmq.running(), 1);
    raftmq.interrupt(&foreground);
    assert!(foreground.wait().expect("child").success());
    assert_eq!(raftmq.running(), 0);
}

#[test]
fn a_busy_port_is_one_sentence() {
    let raftmq = Raftmq::new();
    let held = std::net::TcpListener::bind("127.0.0.1:0").expect("port");
    let address = held.local_addr().expect("address");
    let config = raftmq.dir().join("node.toml");
    for key in ["client_listen", "admin_listen", "peer_listen"] {
        let text = format!("{key} = \"{address}\"\ndata_dir = \"{}\"\n", raftmq.dir().join("data").display());
        let free = ["client_listen", "admin_listen", "peer_listen"].into_iter().filter(|other| *other != key);
        let rest: String = free.map(|other| format!("{other} = \"{}\"\n", support::free_address())).collect();
        std::fs::write(&config, text + &rest).expect("write");
        let ended = raftmq.run(&["serve", "--config", config.to_str().expect("path")]);
        assert_eq!(ended.code, 2, "{}", ended.stderr);
        assert_eq!(ended.stderr.trim().lines().count(), 1, "{}", ended.stderr);
        assert!(ended.stderr.contains(key) && ended.stderr.contains("in use"), "{}", ended.stderr);
    }
}

#[test]
fn the_default_configuration_is_printed_and_a_wrong_key_is_refused() {
    let raftmq = Raftmq::new();
    let printed = raftmq.run(&["config", "default"]).ok().stdout;
    assert!(printed.contains("segment_bytes_max"));
    let config = raftmq.dir().join("node.toml");
    std::fs::write(&config, printed.replace("drain_ms", "drian_ms")).expect("write");
    let Cli { code, stderr, .. } = raftmq.run(&["serve", "--config", config.to_str().expect("path")]);
    assert_eq!(code, 2);
    assert!(stderr.contains("unknown key \"limits.drian_ms\"; the nearest key is \"limits.drain_ms\""), "{stderr}");
    assert_eq!(stderr.trim().lines().count(), 1, "{stderr}");
}
