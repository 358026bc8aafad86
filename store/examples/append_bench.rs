//! How many entries of 1 KiB a second one log makes durable, with so many appends in flight.
//!
//! `append_bench [dir] [seconds per row]`: the folder is made under `dir` (default: the system's temporary folder) and
//! removed at the end.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use raftmq_store::{CommitLog, CommitLogOptions, EntryKind, NewEntry};

const ENTRY_BYTES: usize = 1024;
/// (1 KiB messages per entry, appends in flight)
const ROWS: [(usize, usize); 6] = [(1, 1), (1, 16), (1, 64), (1, 1024), (256, 1), (256, 4)];

fn main() {
    let mut arguments = std::env::args().skip(1);
    let parent = arguments.next().map_or_else(std::env::temp_dir, Into::into);
    let seconds = arguments.next().map_or(1.0, |text| text.parse().expect("seconds"));
    let dir = parent.join(format!("append-bench-{}", std::process::id()));
    for zero_ahead_bytes in [16 << 20, 0] {
        println!("zero_ahead_bytes {zero_ahead_bytes}");
        for (batch, in_flight) in ROWS {
            let took = Duration::from_secs_f64(seconds);
            run(&dir, zero_ahead_bytes, batch, in_flight, took);
            std::fs::remove_dir_all(&dir).expect("the folder is removed");
        }
    }
}

fn run(dir: &Path, zero_ahead_bytes: u64, batch: usize, in_flight: usize, took: Duration) {
    let (log, _) = CommitLog::open(CommitLogOptions { zero_ahead_bytes, ..CommitLogOptions::new(dir) }).expect("opens");
    let payload = Bytes::from(vec![7; ENTRY_BYTES * batch]);
    let (sender, receiver) = mpsc::sync_channel(in_flight);
    let (start, mut index, mut done, mut latencies) = (Instant::now(), 0, 0, Vec::new());
    while done < index || start.elapsed() < took {
        while index < done + in_flight as u64 && start.elapsed() < took {
            let (sender, begun) = (sender.clone(), Instant::now());
            let entry = NewEntry { term: 1, index, kind: EntryKind::Batch, payload: payload.clone() };
            let finish = move |outcome: std::io::Result<()>| {
                outcome.expect("durable");
                sender.send(begun.elapsed()).expect("the bench listens");
            };
            log.append(vec![entry], Box::new(finish)).expect("appends");
            index += 1;
        }
        if done < index {
            latencies.push(receiver.recv().expect("a callback"));
            done += 1;
        }
    }
    let elapsed = start.elapsed().as_secs_f64();
    latencies.sort_unstable();
    let at = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize];
    let messages = done as f64 * batch as f64 / elapsed;
    println!(
        "  {batch:>4} KiB x {in_flight:>4} in flight: {messages:>9.0} KiB/s in {:>8.0} entries/s, p50 {:?} p99 {:?} max {:?}",
        done as f64 / elapsed,
        at(0.5),
        at(0.99),
        at(1.0),
    );
}
