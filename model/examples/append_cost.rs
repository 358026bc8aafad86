//! Prints what the produce path costs in this crate, in nanoseconds per message:
//! `cargo run --release -p raftmq-model --example append_cost`.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::disallowed_macros)]

use bytes::Bytes;
use raftmq_model::batch::{Batch, BatchWriter};
use raftmq_model::command::{AppendWriter, Command};
use raftmq_model::filter::tags_code;
use raftmq_model::ids::{QueueId, Timestamp, TopicUid};
use raftmq_model::record::{Record, RecordView, property};
use std::hint::black_box;
use std::net::SocketAddr;
use std::time::Instant;

const ROUNDS: u32 = 200_000;
const MESSAGE_ID: &str = "0156F7E71C361B21BC024CCDBE00000000";

fn main() {
    for body_bytes in [100, 1024, 10_240] {
        println!("body of {body_bytes} bytes");
        run(&record(body_bytes));
    }
}

fn record(body_bytes: usize) -> Record {
    Record {
        topic: "orders".to_owned(),
        queue_id: 3,
        flag: 0,
        sys_flag: 0,
        born_timestamp: 1_700_000_000_000,
        born_host: SocketAddr::from(([127, 0, 0, 1], 4242)),
        store_timestamp: 1_700_000_000_123,
        store_host: SocketAddr::from(([127, 0, 0, 1], 8081)),
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body: Bytes::from(vec![b'x'; body_bytes]),
        properties: [(property::UNIQ_KEY, MESSAGE_ID), (property::TAGS, "created"), (property::KEYS, "order-7")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec(),
    }
}

fn run(record: &Record) {
    let append = || {
        let mut writer = AppendWriter::with_capacity(record.encoded_len().unwrap() + 64);
        let code = tags_code("created");
        writer.push_record(TopicUid(1), QueueId(3), code, MESSAGE_ID.as_bytes(), record).unwrap();
        writer.finish()
    };
    let encoded = record.encode().unwrap();
    let command = append();
    let batch = |command: &[u8]| {
        let mut writer = BatchWriter::with_capacity(Timestamp(1), 64 * (command.len() + 4));
        (0..64).for_each(|_| writer.push(command));
        writer.finish()
    };
    let payload = batch(&command);
    measure("record encode", 1, || record.encode().unwrap());
    measure("append encode (record in place)", 1, append);
    measure("batch encode, 64 commands", 64, || batch(&command));
    measure("batch decode and append decode", 64, || {
        let batch = Batch::decode(payload.clone()).unwrap();
        batch.commands().map(|(at, command)| u64::from(at) + appended(command)).sum::<u64>()
    });
    measure("append decode", 1, || Command::decode(command.clone()).unwrap());
    measure("record view, one property", 1, || RecordView::parse(&encoded).unwrap().property("TAGS").is_some());
    measure("record decode with checksum", 1, || Record::decode(encoded.clone()).unwrap());
}

fn appended(command: Bytes) -> u64 {
    match Command::decode(command).unwrap() {
        Command::Append(append) => append.entries.len() as u64,
        _ => 0,
    }
}

fn measure<T>(what: &str, messages: u32, mut run: impl FnMut() -> T) {
    let rounds = ROUNDS / messages;
    let start = Instant::now();
    for _ in 0..rounds {
        black_box(run());
    }
    let ns = start.elapsed().as_nanos() / u128::from(rounds * messages);
    println!("  {what:<34} {ns:>6} ns");
}
