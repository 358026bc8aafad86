//! Prints how fast a log takes batches of 1 KiB records, each batch synced before the next one, next to what fio gets from the disk
//! with blocks of that size and a `fdatasync` after each: `cargo run --release -p raftmq-store --example append_rate -- DIR`.
//! Needs `fio` (a package of Debian and of most others).
//!
//! Rounds in turns, so that a disk whose pace changes is fair to all: fio into a new file, as the log writes into new segments;
//! fio over a file that was written before, which no log can do that keeps what it was given; the log.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    clippy::print_stdout
)]

use bytes::Bytes;
use raftmq_store::{CommitLog, CommitLogOptions, EntryKind, NewEntry};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

const RECORD_BYTES: usize = 1024;
const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_secs(2);
/// Bytes that fio writes at most in one round, and the file that it writes over.
const NEW_FILE: &str = "8g";
const OLD_FILE: &str = "1g";
/// Bytes per second of a write job, in KiB, in fio's terse output.
const TERSE_WRITE_KIB_S: usize = 47;

/// What fio writes in a second, in bytes, with blocks of that size and a sync after each.
fn fio(dir: &Path, block_bytes: usize, arguments: &[&str]) -> f64 {
    let output = Command::new("fio")
        .args([
            "--name=append",
            "--rw=write",
            "--ioengine=psync",
            "--fdatasync=1",
            "--output-format=terse",
            "--terse-version=3",
        ])
        .arg(format!("--directory={}", dir.display()))
        .arg(format!("--bs={block_bytes}"))
        .arg(format!("--runtime={}", ROUND.as_secs()))
        .args(arguments)
        .output()
        .expect("fio is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_file() {
            std::fs::remove_file(entry.path()).unwrap();
        }
    }
    let line = String::from_utf8(output.stdout).unwrap();
    line.split(';').nth(TERSE_WRITE_KIB_S).unwrap().parse::<f64>().unwrap() * 1024.0
}

struct Log {
    log: CommitLog,
    next: u64,
}

impl Log {
    fn new(dir: &Path) -> Log {
        let (log, _) = CommitLog::open(CommitLogOptions::new(dir.join("log"))).unwrap();
        Log { log, next: 1 }
    }

    fn batch(&mut self, payload: &Bytes) {
        let entry = NewEntry { term: 1, index: self.next, kind: EntryKind::Batch, payload: payload.clone() };
        self.next += 1;
        let (done, durable) = sync_channel(1);
        self.log.append(vec![entry], Box::new(move |result| done.send(result).unwrap())).unwrap();
        durable.recv().unwrap().unwrap();
    }
}

/// Bytes in a second.
fn measure(batch_bytes: usize, mut batch: impl FnMut()) -> f64 {
    let (start, mut batches) = (Instant::now(), 0_u64);
    while start.elapsed() < ROUND {
        batch();
        batches += 1;
    }
    (batches * batch_bytes as u64) as f64 / start.elapsed().as_secs_f64()
}

fn main() {
    let dir = PathBuf::from(std::env::args().nth(1).expect("a folder to write in"));
    println!(
        "MiB/s            fio, new file   fio, over a file   log   log / fio, new file   least and most of the rounds"
    );
    for records in [1, 16, 64, 256, 1024] {
        let work = dir.join(format!("append-rate-{records}"));
        std::fs::create_dir_all(&work).unwrap();
        let payload = Bytes::from(vec![7; records * RECORD_BYTES]);
        let mut log = Log::new(&work);
        let (mut new, mut over, mut own, mut ratios) = (0.0, 0.0, 0.0, Vec::new());
        for _ in 0..ROUNDS {
            let new_file = fio(&work, payload.len(), &[&format!("--size={NEW_FILE}")]);
            over += fio(&work, payload.len(), &[&format!("--size={OLD_FILE}"), "--overwrite=1"]);
            let rate = measure(payload.len(), || log.batch(&payload));
            (new, own) = (new + new_file, own + rate);
            ratios.push(rate / new_file);
        }
        ratios.sort_by(f64::total_cmp);
        let mib = |rate: f64| rate / ROUNDS as f64 / f64::from(1 << 20);
        println!(
            "{records:>5} records    {:>10.1}   {:>10.1}   {:>10.1}   {:>6.2}   {:.2} to {:.2}",
            mib(new),
            mib(over),
            mib(own),
            own / new,
            ratios[0],
            ratios[ROUNDS - 1]
        );
        drop(log);
        std::fs::remove_dir_all(&work).unwrap();
    }
}
