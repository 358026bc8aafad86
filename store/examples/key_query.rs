//! How long it takes to index messages, and to find one by its key or its id.
//!
//! `key_query [dir] [messages] [queries]`: writes a log of small messages under `dir` (default: the system's temporary folder), which is
//! removed at the end, indexes it, and asks for random keys. A query reads the records and compares their keys, as a
//! broker does. Each message has an id, a key of its own and one that a thousandth of all have.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use raftmq_model::batch::BatchWriter;
use raftmq_model::command::{Append, AppendEntry, Command};
use raftmq_model::ids::{PhysicalOffset, QueueId, Timestamp, TopicUid};
use raftmq_model::record::{Record, RecordView};
use raftmq_store::index_file::{KeyIndex, Layout};
use raftmq_store::{CommitLog, CommitLogOptions, Durability, EntryKind, NewEntry, RealIo};

const PER_ENTRY: u64 = 256;
const CUSTOMERS: u64 = 1000;
const BODY_BYTES: usize = 64;
/// What a query wants of a key that many messages have.
const WANTED: usize = 32;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let parent = arguments.next().map_or_else(std::env::temp_dir, Into::into);
    let messages: u64 = arguments.next().map_or(10_000_000, |text| text.parse().expect("messages"));
    let queries: u64 = arguments.next().map_or(20_000, |text| text.parse().expect("queries"));
    let dir = parent.join(format!("key-query-{}", std::process::id()));
    run(&dir, messages, queries);
    std::fs::remove_dir_all(&dir).expect("the folder is removed");
}

fn run(dir: &Path, messages: u64, queries: u64) {
    let options = CommitLogOptions { durability: Durability::Memory, ..CommitLogOptions::new(dir.join("log")) };
    let layout = Layout::for_segments(options.segment_bytes_max);
    let (log, _) = CommitLog::open(options).expect("opens");
    let begun = Instant::now();
    write(&log, messages);
    let (_, last) = log.last().expect("entries");
    println!("log: {messages} messages in {:.1} s", begun.elapsed().as_secs_f64());

    let index = KeyIndex::new(dir.join("keyindex"), Arc::new(RealIo), layout);
    index.restore(0, PhysicalOffset(0)).expect("restores");
    let begun = Instant::now();
    while !index.follow(&log, last, 16 << 20).expect("follows").up_to_date {}
    index.sync().expect("syncs");
    let (took, stats) = (begun.elapsed().as_secs_f64(), index.stats());
    println!(
        "index: {} entries, {} files, {} MB in {took:.1} s: {:.0} messages/s, {} KiB of memory at most",
        stats.entries,
        stats.files,
        stats.bytes / 1_000_000,
        messages as f64 / took,
        layout.memory_bytes() / 1024,
    );
    let begun = Instant::now();
    let again = KeyIndex::new(dir.join("keyindex"), Arc::new(RealIo), layout);
    again.restore(last, log.end_offset(last).expect("end")).expect("restores");
    println!("restart: {:.0} ms", begun.elapsed().as_secs_f64() * 1000.0);
    for round in ["first queries", "warm"] {
        println!("{round}:");
        measure("key of one message", queries, |n| found(&index, &log, &format!("order-{}", n % messages)), 1);
        measure("message id", queries, |n| found(&index, &log, &id(n % messages)), 1);
        measure("key that is not there", queries, |n| found(&index, &log, &format!("none-{n}")), 0);
        let least = WANTED.min((messages / CUSTOMERS) as usize);
        measure(
            "key of many, 32 wanted",
            queries,
            |n| found(&index, &log, &format!("customer-{}", n % CUSTOMERS)),
            least,
        );
    }
}

fn id(number: u64) -> String {
    format!("01{:032X}", u128::from(number) * 0x9E37_79B9_7F4A_7C15)
}

fn write(log: &CommitLog, messages: u64) {
    let (sender, receiver) = mpsc::sync_channel(64);
    let mut under_way = 0;
    for (index, first) in (0..messages).step_by(PER_ENTRY as usize).enumerate() {
        let entries = (first..messages.min(first + PER_ENTRY)).map(message).collect();
        let mut batch = BatchWriter::new(Timestamp(1_000 + index as i64));
        batch.push(&Command::Append(Append { entries }).encode());
        let entry = NewEntry { term: 1, index: index as u64, kind: EntryKind::Batch, payload: batch.finish() };
        let sender = sender.clone();
        let done = move |outcome: std::io::Result<()>| sender.send(outcome).expect("the bench listens");
        log.append(vec![entry], Box::new(done)).expect("appends");
        under_way += 1;
        if under_way == 32 {
            receiver.recv().expect("a callback").expect("written");
            under_way -= 1;
        }
    }
    (0..under_way).for_each(|_| receiver.recv().expect("a callback").expect("written"));
}

fn message(number: u64) -> AppendEntry {
    let host = "10.0.0.1:9".parse().expect("an address");
    let record = Record {
        topic: "orders".into(),
        queue_id: 0,
        flag: 0,
        sys_flag: 0,
        born_timestamp: 1,
        born_host: host,
        store_timestamp: 2,
        store_host: host,
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body: Bytes::from(vec![b'.'; BODY_BYTES]),
        properties: vec![
            ("UNIQ_KEY".into(), id(number)),
            ("KEYS".into(), format!("order-{number} customer-{}", number % CUSTOMERS)),
        ],
    };
    AppendEntry {
        topic: TopicUid(1),
        queue: QueueId(0),
        tags_code: 0,
        message_id: Bytes::new(),
        record: record.encode().expect("a record"),
        record_at: 0,
    }
}

/// As many messages as are wanted.
fn found(index: &KeyIndex, log: &CommitLog, key: &str) -> usize {
    let mut search = index.search("orders", key, Timestamp(0), Timestamp(i64::MAX));
    let mut count = 0;
    while let Some(batch) = search.next_batch().expect("searches") {
        for candidate in batch {
            let size = log.record(candidate.physical, 4).expect("a size");
            let size = u32::from_be_bytes(size.as_ref().try_into().expect("4 bytes"));
            let record = log.record(candidate.physical, size).expect("a record");
            let view = RecordView::parse(&record).expect("a record");
            count += usize::from(view.message_id() == Some(key) || view.keys().any(|one| one == key));
            if count == WANTED {
                return count;
            }
        }
    }
    count
}

fn measure(what: &str, queries: u64, query: impl Fn(u64) -> usize, least: usize) {
    let mut number = 88_172_645_463_325_252_u64;
    let mut took: Vec<Duration> = Vec::with_capacity(queries as usize);
    for _ in 0..queries {
        number ^= number << 13;
        number ^= number >> 7;
        number ^= number << 17;
        let begun = Instant::now();
        let count = query(number);
        took.push(begun.elapsed());
        assert!(count >= least && (least > 0 || count == 0), "{what}: {count} found");
    }
    took.sort_unstable();
    let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize].as_secs_f64() * 1000.0;
    println!("  {what:<24} p50 {:.3} ms  p99 {:.3} ms  max {:.3} ms", at(0.5), at(0.99), at(1.0));
}
