//! The dependency table of ARCHITECTURE.md, checked against `cargo metadata`: which crate may use which.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// Crate -> the crates of ours that it may use (dev-dependencies of tests included) and the foreign ones that it must not.
const TABLE: [(&str, &[&str], &[&str]); 10] = [
    ("raftmq-proto", &[], &["openraft", "rocksdb", "memmap2"]),
    ("raftmq-model", &[], &["tokio", "tonic", "rocksdb", "memmap2", "openraft", "rand", "uuid", "rustix"]),
    ("raftmq-store", &["raftmq-model"], &["tonic", "openraft", "tokio"]),
    ("raftmq-raft", &["raftmq-model", "raftmq-store", "raftmq-proto"], &["rocksdb"]),
    ("raftmq-namesrv", &["raftmq-model", "raftmq-raft", "raftmq-store", "raftmq-proto"], &["openraft", "rocksdb"]),
    ("raftmq-broker", &["raftmq-model", "raftmq-raft", "raftmq-store", "raftmq-proto"], &["openraft", "rocksdb"]),
    ("raftmq-client", &["raftmq-model", "raftmq-proto"], &["openraft", "rocksdb", "memmap2"]),
    (
        "raftmq-jepsen",
        &[
            "raftmq-proto",
            "raftmq-model",
            "raftmq-store",
            "raftmq-raft",
            "raftmq-namesrv",
            "raftmq-broker",
            "raftmq-client",
        ],
        &["rocksdb", "memmap2", "openraft"],
    ),
    // Loaded into nodes of the harness; it is nothing of theirs.
    ("raftmq-jepsen-clock", &[], &["openraft", "rocksdb", "memmap2", "tokio", "tonic"]),
    (
        "raftmq",
        &[
            "raftmq-proto",
            "raftmq-model",
            "raftmq-store",
            "raftmq-raft",
            "raftmq-namesrv",
            "raftmq-broker",
            "raftmq-client",
        ],
        &["openraft", "rocksdb", "memmap2"],
    ),
];

/// Only these use openraft and RocksDB at all.
const SOLE_USERS: [(&str, &str); 3] =
    [("openraft", "raftmq-raft"), ("rocksdb", "raftmq-store"), ("memmap2", "raftmq-store")];

fn dependencies() -> BTreeMap<String, BTreeSet<(String, bool)>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let out = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(root)
        .output()
        .expect("cargo runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    packages
        .iter()
        .map(|package| {
            let used = package["dependencies"].as_array().expect("dependencies").iter();
            let used =
                used.map(|d| (d["name"].as_str().expect("a name").to_string(), d["kind"].as_str() == Some("dev")));
            (package["name"].as_str().expect("a name").to_string(), used.collect())
        })
        .collect()
}

#[test]
fn every_crate_keeps_to_its_row() {
    let found = dependencies();
    let names: BTreeSet<&str> = TABLE.iter().map(|(name, ..)| *name).collect();
    assert_eq!(found.keys().map(String::as_str).collect::<BTreeSet<_>>(), names, "the table has a row for every crate");
    for (name, may, never) in TABLE {
        for (used, dev) in &found[name] {
            // A test may act as a server of the API, whatever its crate.
            let ours = used.starts_with("raftmq") && !(*dev && used == "raftmq-proto");
            assert!(!ours || may.contains(&used.as_str()), "{name} uses {used}, which its row does not allow");
            assert!(*dev || !never.contains(&used.as_str()), "{name} must never use {used}");
        }
    }
    for (foreign, owner) in SOLE_USERS {
        for (name, used) in &found {
            let uses = used.contains(&(foreign.to_string(), false));
            assert!(!uses || name == owner, "only {owner} may use {foreign}, {name} does");
        }
    }
}
