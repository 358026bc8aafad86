//! Prints how fast a log takes batches of 1 KiB records, each batch synced before the next one, next to how fast the disk takes
//! the same batches written and synced by nothing but that: `cargo run --release -p raftmq-store --example append_rate -- DIR`.
//!
//! Both write into blocks that were written before, in turns, so that a disk whose pace changes is fair to both.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    clippy::print_stdout
)]

use bytes::Bytes;
use raftmq_store::{CommitLog, CommitLogOptions, EntryKind, NewEntry};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

const RECORD_BYTES: usize = 1024;
const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_secs(2);
/// Bytes of the plain file; it is written again from its start.
const FILE_BYTES: u64 = 1 << 30;

/// A plain file whose blocks exist.
struct Plain {
    file: File,
    at: u64,
}

impl Plain {
    fn new(dir: &Path) -> Plain {
        let file = File::options().create(true).truncate(true).write(true).open(dir.join("plain")).unwrap();
        let zeros = vec![0; 1 << 20];
        for at in (0..FILE_BYTES).step_by(zeros.len()) {
            file.write_all_at(&zeros, at).unwrap();
        }
        file.sync_all().unwrap();
        Plain { file, at: 0 }
    }

    fn batch(&mut self, bytes: &[u8]) {
        if self.at + bytes.len() as u64 > FILE_BYTES {
            self.at = 0;
        }
        self.file.write_all_at(bytes, self.at).unwrap();
        self.file.sync_data().unwrap();
        self.at += bytes.len() as u64;
    }
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
    for records in [1, 16, 64, 256, 1024] {
        let work = dir.join(format!("append-rate-{records}"));
        std::fs::create_dir_all(&work).unwrap();
        let payload = Bytes::from(vec![7; records * RECORD_BYTES]);
        let (mut plain, mut log) = (Plain::new(&work), Log::new(&work));
        let (mut plain_rate, mut log_rate) = (0.0, 0.0);
        for _ in 0..ROUNDS {
            plain_rate += measure(payload.len(), || plain.batch(&payload)) / ROUNDS as f64;
            log_rate += measure(payload.len(), || log.batch(&payload)) / ROUNDS as f64;
        }
        let mib = |rate: f64| rate / f64::from(1 << 20);
        println!(
            "{records:>5} records a batch: disk {:>7.1} MiB/s, log {:>7.1} MiB/s, ratio {:.2}",
            mib(plain_rate),
            mib(log_rate),
            log_rate / plain_rate
        );
        drop((plain, log));
        std::fs::remove_dir_all(&work).unwrap();
    }
}
