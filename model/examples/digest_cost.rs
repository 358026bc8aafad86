//! Prints how long a digest and a snapshot of a group's state take, which is for how long they hold apply up:
//! `cargo run --release -p raftmq-model --example digest_cost`.
//!
//! The state grows with the message ids that are stored once (at most `STORED_ONCE_COUNT_MAX`) and with what is in flight.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::disallowed_macros)]

use bytes::Bytes;
use raftmq_model::command::{Append, AppendEntry, Command, Pop};
use raftmq_model::config::{ConsumerGroupConfig, TopicConfig};
use raftmq_model::ids::{GroupId, PhysicalOffset, Position, QueueId, Timestamp, TopicUid};
use raftmq_model::machine::{Changes, GroupState, POP_COUNT_MAX, STORED_ONCE_COUNT_MAX};
use std::hint::black_box;
use std::time::Instant;

/// Messages of one command.
const BATCH_COUNT: u64 = 500;
/// As many as one consumer group may have of a queue.
const IN_FLIGHT_COUNT: u64 = 20_000;
const ROUNDS: u32 = 5;

struct Group {
    state: GroupState,
    index: u64,
}

impl Group {
    fn apply(&mut self, command: &Command) {
        self.index += 1;
        let at = Position { term: 1, index: self.index, payload_offset: PhysicalOffset(self.index << 20) };
        self.state.apply(at, 0, Timestamp(1_000), command, &mut Changes::default());
    }

    fn append(&mut self, messages: u64) {
        for first in (0..messages).step_by(BATCH_COUNT as usize) {
            let entry = |at: u64| AppendEntry {
                topic: TopicUid(7),
                queue: QueueId(0),
                tags_code: 0,
                message_id: Bytes::from(format!("0156F7E71C361B21BC024CCDBE{:08X}", first + at)),
                record: Bytes::from_static(b"record"),
                record_at: 8 * at as u32,
            };
            self.apply(&Command::Append(Append { entries: (0..BATCH_COUNT).map(entry).collect() }));
        }
    }

    fn take(&mut self, messages: u64) {
        for from in (0..messages).step_by(POP_COUNT_MAX) {
            let next = (from + POP_COUNT_MAX as u64).min(messages);
            let attempt_id = format!("attempt-{from}");
            let fresh = (from..next).collect();
            self.apply(&Command::Pop(Pop {
                consumer_group: 8,
                topic: 7,
                queue: 0,
                from,
                next,
                fresh,
                again: Vec::new(),
                invisible_ms: 60_000,
                attempt_id,
            }));
        }
    }
}

fn main() {
    for messages in [10_000, 100_000, STORED_ONCE_COUNT_MAX as u64] {
        let mut group = Group { state: GroupState::new(GroupId(1)), index: 0 };
        let (name, queue_groups) = ("orders".to_owned(), vec![1]);
        let topic = TopicConfig { uid: 7, version: 1, name, topic_type: 1, permission: 6, queue_groups };
        group.apply(&Command::PutTopic(topic));
        let (name, fifo, attempts_max, consume_enabled) = ("billing".to_owned(), false, 3, true);
        let consumers = ConsumerGroupConfig { uid: 8, version: 1, name, fifo, attempts_max, consume_enabled };
        group.apply(&Command::PutConsumerGroup(consumers));
        group.append(messages);
        let in_flight = IN_FLIGHT_COUNT.min(messages);
        group.take(in_flight);
        let start = Instant::now();
        for _ in 0..ROUNDS {
            black_box(group.state.digest());
        }
        let ms = start.elapsed().as_secs_f64() * 1_000.0 / f64::from(ROUNDS);
        let ids = group.state.stored_once_count();
        let start = Instant::now();
        let mut body: Vec<u8> = Vec::new();
        group.state.export(|key, value| {
            body.extend_from_slice(&key);
            body.extend_from_slice(&value);
        });
        let (snapshot_ms, bytes) = (start.elapsed().as_secs_f64() * 1_000.0, body.len());
        println!(
            "{ids:>9} message ids, {in_flight} in flight: digest {ms:.2} ms, snapshot {snapshot_ms:.2} ms and {bytes} bytes"
        );
    }
}
