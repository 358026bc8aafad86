//! Prints how long a log takes to open, and how much memory that takes:
//! `cargo run --release -p raftmq-store --example open_time -- DIR GIB MESSAGES_PER_ENTRY [cold]`. Messages have 256 bytes.
//!
//! The log is made when `DIR/log` is not there, without syncing, and kept for the next run.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    clippy::print_stdout
)]

use bytes::Bytes;
use raftmq_store::{CommitLog, CommitLogOptions, Durability, EntryKind, NewEntry};
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;
use std::time::Instant;

const MESSAGE_BYTES: u64 = 256;
/// Entries of one append.
const APPEND_COUNT: u64 = 64;

fn make(options: CommitLogOptions, log_bytes: u64, messages_per_entry: u64) {
    let (log, _) = CommitLog::open(CommitLogOptions { durability: Durability::Memory, ..options }).unwrap();
    let payload = Bytes::from(vec![7; (messages_per_entry * MESSAGE_BYTES) as usize]);
    let entries = log_bytes / payload.len() as u64;
    for first in (1..=entries).step_by(APPEND_COUNT as usize) {
        let entry = |index| NewEntry { term: 1, index, kind: EntryKind::Batch, payload: payload.clone() };
        let (done, written) = sync_channel(1);
        let last = (first + APPEND_COUNT - 1).min(entries);
        log.append((first..=last).map(entry).collect(), Box::new(move |result| done.send(result).unwrap())).unwrap();
        written.recv().unwrap().unwrap();
    }
}

/// Kibibytes that are resident and not of a file.
fn resident_anonymous_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn drop_caches(dir: &Path) {
    let synced = std::process::Command::new("sync").status().unwrap();
    assert!(synced.success(), "{}", dir.display());
    std::fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
}

fn main() {
    let mut args = std::env::args().skip(1);
    let dir = PathBuf::from(args.next().expect("a folder to write in"));
    let gib: u64 = args.next().expect("gibibytes").parse().unwrap();
    let messages_per_entry: u64 = args.next().expect("messages per entry").parse().unwrap();
    let options = CommitLogOptions::new(dir.join("log"));
    if !dir.join("log").exists() {
        make(options.clone(), gib << 30, messages_per_entry);
    }
    if args.next().is_some() {
        drop_caches(&dir);
    }
    let before = resident_anonymous_kib();
    let start = Instant::now();
    let (log, recovered) = CommitLog::open(options).unwrap();
    let (elapsed, memory) = (start.elapsed(), resident_anonymous_kib() - before);
    let entries = recovered.last.map_or(0, |(_, index)| index);
    println!(
        "{gib} GiB, {entries} entries of {messages_per_entry} messages: open in {:.2} s, {} MiB",
        elapsed.as_secs_f64(),
        memory >> 10
    );
    drop(log);
}
