//! The data folder of a node, written by a build of format version 1 and kept in `tests/golden/node-v1`: the present build
//! checks it, reads it, starts on it, and serves what is in it.
//!
//! The node was alone in its cluster and was killed. Its folder has an identity and a birth record, a meta group, and a broker
//! group with a log that has rolled (bodies of zeros, which cost nothing to keep), a vote, ConsumeQueues, and a state whose
//! last checkpoint is behind the log, with messages in flight. RocksDB's own logs and options are left out.
//! `tests/golden/node-v1.json` is what an operator and a client saw of it then. When a format changes on purpose, the format
//! version grows, this folder and its test stay, and a new one is made beside it:
//! `cargo test --release -p raftmq --test golden -- --ignored`. Ids and times are new each time.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use raftmq_store::data_dir::FORMAT_VERSION;
use raftmq_store::state::{RocksState, StateStore, WriteBatch};
use raftmq_store::testing::golden;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};
use support::client::{Sent, receive_all, send, send_bodies, take};
use support::{Cli, Raftmq};

/// How long a node may take for anything that a test waits for.
const SOON: Duration = Duration::from_secs(30);
/// The smallest segments that a configuration may ask for.
const SEGMENT_BYTES: u64 = 16 << 20;
/// Five of them are more than one segment holds.
const ZEROS_BYTES: usize = 4_000_000;

fn kept() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/node-v1")
}

/// A copy of the kept folder, as it was.
fn copy(raftmq: &Raftmq) -> PathBuf {
    let folder = raftmq.dir().join("copy");
    golden::unpack(&kept(), &folder).expect("the kept folder");
    folder
}

/// A node that runs on a folder; killed when dropped.
struct Node {
    child: Child,
    client: Vec<String>,
    admin: String,
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn config(raftmq: &Raftmq, data: &Path) -> (PathBuf, String, String) {
    let [client, admin, peer] = [support::free_address(), support::free_address(), support::free_address()];
    let file = raftmq.dir().join("golden.toml");
    let ports = format!("client_listen = \"{client}\"\nadmin_listen = \"{admin}\"\npeer_listen = \"{peer}\"\n");
    let text = format!("{ports}data_dir = \"{}\"\nsegment_bytes_max = {SEGMENT_BYTES}\n", data.display());
    std::fs::write(&file, text).expect("write");
    (file, client, admin)
}

impl Node {
    fn start(raftmq: &Raftmq, data: &Path) -> Node {
        let (config, client, admin) = config(raftmq, data);
        let child = raftmq.spawn(&["serve", "--config", config.to_str().expect("path")]);
        Node { child, client: vec![client], admin }
    }

    /// Runs an admin command until it ends with `code`.
    fn until(&self, raftmq: &Raftmq, arguments: &[&str], code: i32) -> Cli {
        let arguments = [arguments, &["--endpoints", &self.admin, "-o", "json"]].concat();
        let deadline = Instant::now() + SOON;
        loop {
            let ended = raftmq.run(&arguments);
            if ended.code == code {
                return ended;
            }
            assert!(Instant::now() < deadline, "{arguments:?}: {}", ended.stderr);
        }
    }

    fn json(&self, raftmq: &Raftmq, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.until(raftmq, arguments, 0).stdout).expect("JSON")
    }

    /// Waits until all groups are served.
    fn ready(&self, raftmq: &Raftmq) {
        let deadline = Instant::now() + SOON;
        loop {
            let status = self.json(raftmq, &["cluster", "status"]);
            let groups = status["groups"].as_array().expect("groups");
            if groups.len() == 2 && groups.iter().all(|group| group["ready"] == true) {
                return;
            }
            assert!(Instant::now() < deadline, "{status}");
        }
    }
}

/// Removes what is about this copy and not about the folder.
fn without_paths(mut value: Value) -> Value {
    match &mut value {
        Value::Object(fields) => {
            fields.retain(|key, _| key != "file" && key != "folder");
            fields.values_mut().for_each(|field| *field = without_paths(field.take()));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| *item = without_paths(item.take())),
        _ => {}
    }
    value
}

/// What the tools for a stopped node say.
fn at_rest(raftmq: &Raftmq, folder: &Path) -> Value {
    let folder = folder.to_str().expect("path");
    let dump = raftmq.run(&["store", "dump", folder, "--group", "broker-1", "-o", "json"]).ok().stdout;
    let entries: Vec<Value> = dump.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    without_paths(json!({
        "verify": raftmq.json(&["store", "verify", folder]),
        "stats": raftmq.json(&["store", "stats", folder]),
        "entries": entries,
    }))
}

/// What operators and a new consumer group see of a node that runs on the folder.
async fn running(raftmq: &Raftmq, folder: &Path) -> Value {
    let node = Node::start(raftmq, folder);
    node.ready(raftmq);
    let digest = node.json(raftmq, &["raft", "digest"]);
    let replica = &digest["groups"][0]["replicas"][0];
    let state = ["digest", "queues", "messages", "problem"].map(|field| (field, replica[field].clone()));
    let lag = node.json(raftmq, &["group", "lag", "billing"]);
    let topics = node.json(raftmq, &["topic", "list"]);
    let groups = node.json(raftmq, &["group", "list"]);
    let count = usize::try_from(replica["messages"].as_u64().expect("messages")).expect("few");
    let received = receive_all(&node.client, "orders", "readers", count).await;
    json!({
        "state": state.into_iter().collect::<std::collections::BTreeMap<_, _>>(),
        "lag": lag,
        "topics": topics,
        "groups": groups,
        "received": received,
    })
}

/// Stops a node as a service manager does, and waits for its last checkpoint.
fn stop(raftmq: &Raftmq, mut node: Node) {
    raftmq.terminate(&node.child);
    assert!(node.child.wait().expect("child").success());
}

async fn write(raftmq: &Raftmq, folder: &Path) -> BTreeSet<String> {
    let node = Node::start(raftmq, folder);
    node.until(raftmq, &["topic", "list"], 5);
    node.until(raftmq, &["cluster", "init"], 0);
    node.ready(raftmq);
    node.json(raftmq, &["topic", "create", "orders", "--queues", "4"]);
    node.json(raftmq, &["topic", "create", "gone", "--type", "fifo"]);
    node.json(raftmq, &["topic", "delete", "gone"]);
    node.json(raftmq, &["group", "create", "billing", "--attempts-max", "5"]);
    let mut sent = Sent::default();
    send(&node.client, "orders", 12, &mut sent).await;
    assert_eq!(receive_all(&node.client, "orders", "billing", 12).await, sent.ids);
    send_bodies(&node.client, "orders", 5, |_| vec![0; ZEROS_BYTES], &mut sent).await;
    send(&node.client, "orders", 12, &mut sent).await;
    take(&node.client[0], "orders", "billing", 3).await.expect("taken");
    stop(raftmq, node);

    let node = Node::start(raftmq, folder);
    node.ready(raftmq);
    send(&node.client, "orders", 12, &mut sent).await;
    take(&node.client[0], "orders", "billing", 2).await.expect("taken");
    // Killed, before the next checkpoint.
    drop(node);
    sent.ids
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "makes the kept folder; see the module"]
async fn make_the_folder_of_this_version() {
    assert_eq!(FORMAT_VERSION, 1, "a new version has a folder of its own");
    let raftmq = Raftmq::new();
    let folder = raftmq.dir().join("node");
    let sent = write(&raftmq, &folder).await;
    let wanted = |path: &Path| {
        let name = path.file_name().and_then(|name| name.to_str()).expect("name");
        !name.starts_with("LOG") && !name.starts_with("OPTIONS-") && name != "LOCK"
    };
    golden::pack(&folder, &kept(), wanted).expect("pack");
    let folder = copy(&raftmq);
    let at_rest = at_rest(&raftmq, &folder);
    let broker = &at_rest["verify"]["groups"][1];
    assert!(broker["applied"].as_u64() < broker["last"].as_u64(), "log behind the checkpoint: {broker}");
    assert!(broker["segments"].as_u64() > Some(1), "{broker}");
    let running = running(&raftmq, &folder).await;
    assert_eq!(running["received"], json!(sent));
    assert!(running["lag"]["in_flight"].as_u64() > Some(0), "{running}");
    let seen = serde_json::to_string_pretty(&json!({ "at_rest": at_rest, "running": running })).expect("JSON");
    std::fs::write(kept().with_extension("json"), seen + "\n").expect("write");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_of_version_1_is_intact_and_served() {
    let raftmq = Raftmq::new();
    let folder = copy(&raftmq);
    let expected = std::fs::read_to_string(kept().with_extension("json")).expect("what was seen");
    let expected: Value = serde_json::from_str(&expected).expect("JSON");
    let same = |seen: &Value, expected: &Value, what: &str| {
        assert_eq!(seen, expected, "{what} is not what it was");
    };
    let at_rest = at_rest(&raftmq, &folder);
    for part in ["verify", "stats", "entries"] {
        same(&at_rest[part], &expected["at_rest"][part], part);
    }
    let running = running(&raftmq, &folder).await;
    for part in ["state", "lag", "topics", "groups", "received"] {
        same(&running[part], &expected["running"][part], part);
    }
    // Killed again, with what the readers did: still a folder that is intact.
    raftmq.run(&["store", "verify", folder.to_str().expect("path")]).ok();
}

/// Everything in the folder but the lock.
fn contents(folder: &Path) -> impl PartialEq + std::fmt::Debug {
    let mut files = golden::files(folder).expect("files");
    files.retain(|path, _| path.file_name().is_some_and(|name| name != "LOCK"));
    files.into_iter().map(|(path, bytes)| (path, bytes.len(), crc32fast::hash(&bytes))).collect::<Vec<_>>()
}

/// Runs `serve` on a folder that it must refuse.
fn refused(raftmq: &Raftmq, folder: &Path) -> Cli {
    let (config, ..) = config(raftmq, folder);
    raftmq.run(&["serve", "--config", config.to_str().expect("path")])
}

#[test]
fn a_folder_of_a_newer_version_is_refused_with_one_sentence_and_stays_as_it_is() {
    let raftmq = Raftmq::new();
    let folder = copy(&raftmq);
    let format = folder.join("FORMAT");
    let text = std::fs::read_to_string(&format).expect("FORMAT");
    assert!(text.contains("\nversion 1\n"), "{text}");
    std::fs::write(&format, text.replace("\nversion 1\n", "\nversion 2\nstripes 7\n")).expect("write");
    let before = contents(&folder);
    let path = folder.to_str().expect("path");
    let expected =
        format!("{path} has the format version 2, and this program knows up to {FORMAT_VERSION}: use a newer one");
    let cut = ["store", "cut", path, "--group", "broker-1", "--others-are-in-sync"];
    for ended in [
        refused(&raftmq, &folder),
        raftmq.run(&["store", "verify", path]),
        raftmq.run(&["store", "stats", path]),
        raftmq.run(&["store", "dump", path]),
        raftmq.run(&cut),
    ] {
        assert_eq!((ended.code, ended.stdout.as_str()), (2, ""), "{}", ended.stderr);
        assert_eq!(ended.stderr.trim().lines().count(), 1, "{}", ended.stderr);
        assert!(ended.stderr.contains(&expected), "{}", ended.stderr);
    }
    assert_eq!(contents(&folder), before, "nothing was changed");
}

/// Gives the values under a prefix of a state another version. The meta group's state was not written yet.
fn make_newer(state: &Path, prefix: u8) {
    let store = RocksState::open(state).expect("state");
    let mut batch = WriteBatch::new();
    let mut changed = 0;
    let mut visit = |key: &[u8], value: &[u8]| {
        assert_eq!(value[0], 1, "the version comes first");
        batch.put(key.to_vec(), [&[2], &value[1..]].concat());
        changed += 1;
    };
    store.scan(&[prefix], &mut visit).expect("scan");
    assert!(changed > 0, "{prefix:?}");
    store.write(batch).expect("write");
    store.flush().expect("flush");
}

/// Ends a node that does not start, with what it says last.
fn fatal(raftmq: &Raftmq, folder: &Path) -> String {
    let ended = refused(raftmq, folder);
    assert_eq!(ended.code, 70, "{}", ended.stderr);
    ended.stderr.trim().lines().last().expect("a sentence").to_owned()
}

#[test]
fn units_of_a_newer_version_in_a_folder_stop_the_node_with_a_sentence() {
    let raftmq = Raftmq::new();
    // Keys of cursors, and of the bookkeeping.
    for prefix in [0x07, 0xF0] {
        let folder = copy(&raftmq);
        make_newer(&folder.join("groups/1/state"), prefix);
        let sentence = fatal(&raftmq, &folder);
        assert!(sentence.contains("groups/1/state") && sentence.contains("format version 2"), "{sentence}");
        std::fs::remove_dir_all(&folder).expect("remove");
    }
    let folder = copy(&raftmq);
    let placement = folder.join("placement");
    let mut bytes = std::fs::read(&placement).expect("placement");
    bytes[7] = 2;
    std::fs::write(&placement, bytes).expect("write");
    let ended = refused(&raftmq, &folder);
    assert_eq!(ended.code, 2, "{}", ended.stderr);
    assert!(ended.stderr.contains("placement") && ended.stderr.contains("its version is 2"), "{}", ended.stderr);
}
