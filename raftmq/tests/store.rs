//! `raftmq store` on the folders of real nodes: what a running node holds is refused, what a stopped one left is intact
//! and stays as it is, replicas have equal digests, and a flipped bit is found in every kind of file.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use serde_json::Value;
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use support::Raftmq;
use support::client::{Sent, receive_all, send};

/// All files below `dir` with length and checksum.
fn files(dir: &Path) -> BTreeMap<PathBuf, (usize, u32)> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(dir).expect("folder").map(|entry| entry.expect("entry").path()) {
        if entry.is_dir() {
            found.extend(files(&entry));
        } else {
            let bytes = std::fs::read(&entry).expect("file");
            found.insert(entry, (bytes.len(), crc32fast::hash(&bytes)));
        }
    }
    found
}

/// Flips a bit.
fn flip(file: &Path, at: u64) {
    let opened = std::fs::OpenOptions::new().read(true).write(true).open(file).expect("file");
    let mut byte = [0];
    opened.read_exact_at(&mut byte, at).expect("read");
    opened.write_all_at(&[byte[0] ^ 1], at).expect("write");
}

fn group<'a>(report: &'a Value, name: &str) -> &'a Value {
    report["groups"].as_array().expect("groups").iter().find(|group| group["name"] == name).expect("group")
}

/// A cluster of three that took messages and was stopped; its nodes' folders.
async fn stopped_cluster(raftmq: &Raftmq) -> (Sent, Vec<String>) {
    let started = raftmq.json(&["playground", "--nodes", "3", "--port", "0", "--detach"]);
    let nodes = started["nodes"].as_array().expect("nodes");
    let text = |node: &Value, key: &str| node[key].as_str().expect("text").to_owned();
    let clients: Vec<String> = nodes.iter().map(|node| text(node, "client")).collect();
    let folders: Vec<String> =
        (1..=3).map(|node| raftmq.dir().join(format!("node-{node}/data")).display().to_string()).collect();
    let mut sent = Sent::default();
    send(&clients, "orders", 30, &mut sent).await;
    assert_eq!(receive_all(&clients, "orders", "readers", 30).await, sent.ids);

    let refused = raftmq.run(&["store", "verify", &folders[0]]);
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    assert!(refused.stderr.contains("a node runs on") && refused.stdout.is_empty(), "{}", refused.stderr);
    raftmq.run(&["playground", "stop"]).ok();
    (sent, folders)
}

#[tokio::test(flavor = "multi_thread")]
async fn folders_of_a_stopped_cluster_are_intact_and_equal_and_damage_is_named() {
    let raftmq = Raftmq::new();
    let (sent, folders) = stopped_cluster(&raftmq).await;
    let before = files(Path::new(&folders[0]));
    for folder in &folders {
        let report = raftmq.json(&["store", "verify", folder]);
        assert_eq!((report["intact"].as_bool(), report["damages"].as_u64()), (Some(true), Some(0)), "{report}");
        let broker = group(&report, "broker-1");
        assert_eq!(broker["queues"]["units"], 30, "{report}");
        assert!(broker["messages"].as_u64() >= Some(30) && broker["applied"].is_u64(), "{report}");
        assert!(group(&report, "namesrv")["entries"].as_u64() > Some(1), "{report}");
    }
    assert!(raftmq.run(&["store", "verify", &folders[0]]).ok().stdout.ends_with("intact\n"));
    digests_are_equal(&raftmq, &folders);
    every_message_is_dumped(&raftmq, &sent, &folders[0]);
    assert_eq!(files(Path::new(&folders[0])), before, "nothing was changed, no file was made");

    flips_are_found(&raftmq, &folders[0], &before);
    a_cut_replica_gets_everything_again(&raftmq, &folders);
    assert_eq!(raftmq.run(&["store", "verify", &folders[0], "--group", "broker-9"]).code, 4);
    let foreign = raftmq.run(&["store", "verify", raftmq.dir().to_str().expect("path")]);
    assert_eq!((foreign.code, foreign.stderr.contains("DIR/node-N/data")), (2, true), "{}", foreign.stderr);
}

fn digests_are_equal(raftmq: &Raftmq, folders: &[String]) {
    for name in ["namesrv", "broker-1"] {
        let stats = |folder: &str, at: u64| {
            let report = raftmq.json(&["store", "stats", folder, "--group", name, "--at", &at.to_string()]);
            group(&report, name).clone()
        };
        let ends = folders.iter().map(|folder| stats(folder, u64::MAX)["last"].as_u64().expect("last"));
        let at = ends.min().expect("folders");
        let all: Vec<Value> = folders.iter().map(|folder| stats(folder, at)).collect();
        assert!(all.iter().all(|stats| stats["digest"] == all[0]["digest"] && stats["last"] == at), "{all:?}");
        assert_ne!(stats(&folders[0], at - 1)["digest"], all[0]["digest"]);
    }
    let table = raftmq.run(&["store", "stats", &folders[0]]).ok().stdout;
    assert!(table.contains("orders") && table.contains("append"), "{table}");
}

fn every_message_is_dumped(raftmq: &Raftmq, sent: &Sent, folder: &str) {
    let dump =
        |more: &[&str]| raftmq.run(&[&["store", "dump", folder, "--group", "broker-1"], more].concat()).ok().stdout;
    let lines: Vec<Value> =
        dump(&["-o", "json", "--body"]).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(lines.windows(2).all(|pair| pair[0]["index"].as_u64() < pair[1]["index"].as_u64()));
    let commands = lines.iter().flat_map(|line| line["commands"].as_array().cloned().unwrap_or_default());
    let messages = commands.flat_map(|command| command["messages"].as_array().cloned().unwrap_or_default());
    let messages: Vec<Value> = messages.filter(|message| message["name"] == "orders").collect();
    for id in &sent.ids {
        // A try that was refused, or one more than was needed, is in the log and has no place in a queue.
        let records: Vec<&Value> = messages.iter().filter(|message| message["message_id"] == **id).collect();
        assert_eq!(records.iter().filter(|message| message["queue_offset"].is_u64()).count(), 1, "{records:?}");
        assert!(records.iter().all(|message| message["body"] == **id), "{records:?}");
    }
    let two = dump(&["--from", "1", "--to", "9", "--limit", "2"]);
    assert_eq!(two.lines().filter(|line| line.starts_with("broker-1 ")).count(), 2, "{two}");
}

/// Rot in an entry that was committed: the log is cut by hand, and the others fill it in.
fn a_cut_replica_gets_everything_again(raftmq: &Raftmq, folders: &[String]) {
    let folder = &folders[1];
    let entries = raftmq.run(&["store", "dump", folder, "--group", "broker-1", "-o", "json"]).ok().stdout;
    let entries: Vec<Value> = entries.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let victim = &entries[entries.len() - 5];
    let (file, at) = (victim["file"].as_str().expect("file"), victim["at"].as_u64().expect("at"));
    flip(Path::new(file), at + 30);
    let cut = ["store", "cut", folder, "--group", "broker-1"];
    assert_eq!(raftmq.run(&cut).code, 2, "without a word about the others");
    let done = raftmq.json(&[&cut[..], &["--others-are-in-sync"]].concat());
    assert_eq!(done["last"].as_u64(), victim["index"].as_u64().map(|index| index - 1), "{done}");
    assert!(done["state_removed"] == true && done["cut_bytes"].as_u64() > Some(0), "{done}");
    raftmq.run(&["store", "verify", folder]).ok();
    for node in ["1", "2", "3"] {
        raftmq.run(&["playground", "start", node]).ok();
    }
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        let status = raftmq.json(&["cluster", "status"]);
        let replicas = group(&status, "broker-1")["replicas"].as_array().cloned().unwrap_or_default();
        let equal = replicas.windows(2).all(|two| two[0]["applied"] == two[1]["applied"]);
        if replicas.len() == 3 && equal && replicas[0]["applied"].as_u64() > victim["index"].as_u64() {
            break;
        }
        assert!(std::time::Instant::now() < until, "{status}");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    raftmq.run(&["playground", "stop"]).ok();
    digests_are_equal(raftmq, folders);
    folders.iter().for_each(|folder| drop(raftmq.run(&["store", "verify", folder]).ok()));
}

fn flips_are_found(raftmq: &Raftmq, folder: &str, before: &BTreeMap<PathBuf, (usize, u32)>) {
    let folder_path = Path::new(folder);
    let first = |part: &str| {
        let found = before.keys().find(|file| file.display().to_string().contains(part));
        found.unwrap_or_else(|| panic!("no file like {part}")).clone()
    };
    let states = before.keys().filter(|file| file.extension().is_some_and(|extension| extension == "sst"));
    let mut flipped: Vec<(PathBuf, u64)> = states.map(|file| (file.clone(), 40)).collect();
    assert!(!flipped.is_empty());
    flipped.push((folder_path.join("FORMAT"), 30));
    flipped.push((folder_path.join("placement"), 30));
    flipped.push((folder_path.join("stamps"), 20));
    flipped.push((first("groups/1/log/manifest"), 30));
    flipped.push((first("groups/1/log/commitlog/"), 100));
    flipped.push((first("meta/commitlog/"), 100));
    flipped.push((first("groups/1/consumequeue/"), 7));
    for (file, at) in flipped {
        flip(&file, at);
        let ended = raftmq.run(&["store", "verify", folder]);
        flip(&file, at);
        assert_eq!(ended.code, 1, "{} at {at}: {}", file.display(), ended.stdout);
        let named = ended.stdout.lines().any(|line| {
            line.starts_with("damage: ") && line.contains(&file.display().to_string()) && line.contains(" at byte ")
        });
        assert!(named, "{} at {at}: {}", file.display(), ended.stdout);
        assert_eq!(ended.stderr.trim().lines().count(), 1, "{}", ended.stderr);
    }
    raftmq.run(&["store", "verify", folder]).ok();
}
