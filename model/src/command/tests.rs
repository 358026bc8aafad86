//! Tests of the codecs of commands and outcomes.

use super::append::MESSAGE_ID_BYTES_MAX;
use super::*;
use crate::ids::{PhysicalOffset, QueueId, QueueOffset, Timestamp, TopicUid};
use crate::record::{Record, RecordError};
use proptest::prelude::*;
use std::net::SocketAddr;

fn bytes(len: usize) -> impl Strategy<Value = Bytes> {
    prop::collection::vec(any::<u8>(), 0..=len).prop_map(Bytes::from)
}

prop_compose! {
    fn append_entry()(
        topic: u64, queue: u32, tags_code: i64, message_id in bytes(MESSAGE_ID_BYTES_MAX), record in bytes(300),
    ) -> AppendEntry {
        AppendEntry { topic: TopicUid(topic), queue: QueueId(queue), tags_code, message_id, record, record_at: 0 }
    }
}

prop_compose! {
    fn handle()(consumer_group: u64, topic: u64, queue: u32, offset: u64, attempt: u32, popped_at: u64) -> HandleKey {
        HandleKey { consumer_group, topic, queue, offset, attempt, popped_at }
    }
}

prop_compose! {
    fn pop()(
        uids: (u64, u64), queue: u32, range: (u64, u64), fresh: Vec<u64>, again: Vec<(u64, u32)>, invisible_ms: u64,
        attempt_id: String,
    ) -> Pop {
        Pop {
            consumer_group: uids.0, topic: uids.1, queue, from: range.0, next: range.1, fresh,
            again: again.into_iter().map(|(offset, attempt)| PopAgain { offset, attempt }).collect(),
            invisible_ms, attempt_id,
        }
    }
}

prop_compose! {
    fn topic()(uid: u64, version: u64, name: String, kind in 0..=4, permission in 0..=6, queue_groups: Vec<u32>)
        -> TopicConfig
    {
        TopicConfig { uid, version, name, topic_type: kind, permission, queue_groups }
    }
}

prop_compose! {
    fn consumer_group()(uid: u64, version: u64, name: String, flags: (bool, bool), attempts_max: u32)
        -> ConsumerGroupConfig
    {
        ConsumerGroupConfig { uid, version, name, fifo: flags.0, attempts_max, consume_enabled: flags.1 }
    }
}

fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        prop::collection::vec(append_entry(), 0..5).prop_map(|entries| Command::Append(Append { entries })),
        topic().prop_map(Command::PutTopic),
        any::<u64>().prop_map(|uid| Command::DeleteTopic { uid }),
        consumer_group().prop_map(Command::PutConsumerGroup),
        any::<u64>().prop_map(|uid| Command::DeleteConsumerGroup { uid }),
        pop().prop_map(Command::Pop),
        prop::collection::vec(handle(), 0..5).prop_map(|handles| Command::Ack(Ack { handles })),
        (handle(), any::<(u64, u64)>()).prop_map(|(handle, (invisible_ms, request))| {
            Command::ChangeInvisible(ChangeInvisible { handle: Some(handle), invisible_ms, request })
        }),
        (handle(), any::<(u64, u32, i64)>(), bytes(300)).prop_map(|(handle, to, letter)| {
            let (letter_topic, letter_queue, letter_tags_code) = to;
            let handle = Some(handle);
            Command::DeadLetter(DeadLetter { handle, letter_topic, letter_queue, letter_tags_code, letter })
        }),
        (prop::collection::vec((handle(), any::<i64>()), 0..5), any::<u64>()).prop_map(|(messages, after_ms)| {
            let entry = |(handle, visible_at_ms)| ReleaseEntry { handle: Some(handle), visible_at_ms };
            Command::Release(Release { messages: messages.into_iter().map(entry).collect(), after_ms })
        }),
        Just(Command::Snapshot),
        any::<u64>().prop_map(|upto_index| Command::Purge { upto_index }),
    ]
}

fn append_outcome() -> impl Strategy<Value = AppendOutcome> {
    prop_oneof![
        any::<(u32, u64, u64, bool)>().prop_map(|(queue, offset, physical, repeated)| AppendOutcome::Stored {
            queue: QueueId(queue),
            offset: QueueOffset(offset),
            physical: PhysicalOffset(physical),
            repeated,
        }),
        Just(AppendOutcome::UnknownTopic),
        Just(AppendOutcome::UnknownQueue),
    ]
}

fn handle_outcome() -> impl Strategy<Value = HandleOutcome> {
    prop_oneof![
        Just(HandleOutcome::Done),
        any::<u64>().prop_map(|popped_at| HandleOutcome::Renewed { popped_at }),
        Just(HandleOutcome::Superseded),
        Just(HandleOutcome::Gone),
    ]
}

fn taken() -> impl Strategy<Value = PopOutcome> {
    any::<(u64, i64, u32, Vec<(u64, u32)>)>().prop_map(|(popped_at, visible_at, queue, messages)| PopOutcome::Taken {
        popped_at,
        visible_at: Timestamp(visible_at),
        queue: QueueId(queue),
        messages: messages
            .into_iter()
            .map(|(offset, attempt)| PoppedMessage { offset: QueueOffset(offset), attempt })
            .collect(),
    })
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        prop::collection::vec(append_outcome(), 0..5).prop_map(Outcome::Append),
        Just(Outcome::Done),
        taken().prop_map(Outcome::Pop),
        any::<u64>().prop_map(|cursor| Outcome::Pop(PopOutcome::Stale { cursor: QueueOffset(cursor) })),
        prop::collection::vec(handle_outcome(), 0..5).prop_map(Outcome::Handles),
        Just(Outcome::UnknownTopic),
        Just(Outcome::UnknownConsumerGroup),
        any::<String>().prop_map(Outcome::Refused),
    ]
}

/// A decoded append says where its records lie; the command it was encoded from does not.
fn without_positions(command: Command) -> Command {
    match command {
        Command::Append(mut append) => {
            for entry in &mut append.entries {
                entry.record_at = 0;
            }
            Command::Append(append)
        }
        other => other,
    }
}

fn record(body: &'static [u8]) -> Record {
    Record {
        topic: "orders".to_owned(),
        queue_id: 1,
        flag: 0,
        sys_flag: 0,
        born_timestamp: 1,
        born_host: SocketAddr::from(([127, 0, 0, 1], 1)),
        store_timestamp: 2,
        store_host: SocketAddr::from(([127, 0, 0, 1], 2)),
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body: Bytes::from_static(body),
        properties: Vec::new(),
    }
}

#[test]
fn the_layout_of_append_is_fixed() {
    let entry = AppendEntry {
        topic: TopicUid(1),
        queue: QueueId(2),
        tags_code: -3,
        message_id: Bytes::from_static(b"id"),
        record: Bytes::from_static(b"record"),
        record_at: 0,
    };
    let expected: &[&[u8]] = &[
        &[1, 1, 0, 0, 0, 1],
        &[0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2],
        &[0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFD],
        &[2, b'i', b'd', 0, 0, 0, 6],
        b"record",
    ];
    assert_eq!(Command::Append(Append { entries: vec![entry] }).encode(), expected.concat());
}

#[test]
fn kinds_keep_their_numbers() {
    let key = HandleKey::default();
    let kinds = [
        Command::Append(Append::default()),
        Command::PutTopic(TopicConfig::default()),
        Command::DeleteTopic { uid: 1 },
        Command::PutConsumerGroup(ConsumerGroupConfig::default()),
        Command::DeleteConsumerGroup { uid: 1 },
        Command::Pop(Pop::default()),
        Command::Ack(Ack::default()),
        Command::ChangeInvisible(ChangeInvisible { handle: Some(key), invisible_ms: 0, request: 0 }),
        Command::DeadLetter(DeadLetter::default()),
        Command::Release(Release::default()),
        Command::Snapshot,
        Command::Purge { upto_index: 1 },
    ]
    .map(|command| command.encode()[0]);
    assert_eq!(kinds, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
}

#[test]
fn a_record_is_encoded_straight_into_the_command() {
    let mut writer = AppendWriter::default();
    writer.push_record(TopicUid(1), QueueId(1), 0, b"a", &record(b"one")).unwrap();
    let mut bad = record(b"two");
    bad.topic.clear();
    let before = writer.len();
    let refused = writer.push_record(TopicUid(1), QueueId(1), 0, b"b", &bad);
    assert_eq!(refused, Err(RecordError::TopicLength(0)));
    assert_eq!(writer.len(), before, "a refused record leaves nothing behind");
    writer.push_record(TopicUid(1), QueueId(1), 0, b"c", &record(b"three")).unwrap();
    assert_eq!(writer.count(), 2);
    let command = writer.finish();
    let Command::Append(append) = Command::decode(command.clone()).unwrap() else { panic!("not an append") };
    let bodies: Vec<Bytes> =
        append.entries.iter().map(|entry| Record::decode(entry.record.clone()).unwrap().body).collect();
    assert_eq!(bodies, ["one", "three"]);
    assert_eq!(Command::Append(append).encode(), command);
}

#[test]
fn unknown_kinds_and_versions_are_refused() {
    let decode = |bytes: &'static [u8]| Command::decode(Bytes::from_static(bytes)).unwrap_err();
    assert_eq!(decode(&[]), DecodeError::Truncated);
    assert_eq!(decode(&[1]), DecodeError::Truncated);
    assert_eq!(decode(&[200, 1]), DecodeError::Unknown { kind: 200, version: 1 });
    assert_eq!(decode(&[1, 2]), DecodeError::Unknown { kind: 1, version: 2 });
    assert_eq!(decode(&[1, 1, 0xFF, 0xFF, 0xFF, 0xFF, 0]), DecodeError::Truncated);
    assert_eq!(decode(&[1, 1, 0, 0, 0, 0, 9]), DecodeError::Trailing(1));
    assert!(matches!(decode(&[6, 1, 0xFF]), DecodeError::Body { kind: 6, .. }));
    let outcome = Outcome::decode(Bytes::from_static(&[4, 1, 0xFF, 0xFF, 0xFF, 0xFF, 0]));
    assert_eq!(outcome, Err(DecodeError::Truncated));
}

proptest! {
    #[test]
    fn commands_round_trip(command in command()) {
        prop_assert_eq!(without_positions(Command::decode(command.encode()).unwrap()), command);
    }

    #[test]
    fn records_lie_where_decode_says(entries in prop::collection::vec(append_entry(), 0..5)) {
        let command = Command::Append(Append { entries }).encode();
        let Command::Append(append) = Command::decode(command.clone()).unwrap() else { panic!("not an append") };
        for entry in append.entries {
            let at = entry.record_at as usize;
            prop_assert_eq!(&command[at..at + entry.record.len()], &entry.record[..]);
            prop_assert!(entry.record.is_empty() || command.as_ptr_range().contains(&entry.record.as_ptr()));
        }
    }

    #[test]
    fn outcomes_round_trip(outcome in outcome()) {
        prop_assert_eq!(Outcome::decode(outcome.encode()).unwrap(), outcome);
    }

    #[test]
    fn arbitrary_bytes_never_panic(kind in 0u8..12, version in 0u8..3, tail: Vec<u8>) {
        let bytes = Bytes::from([&[kind, version], &tail[..]].concat());
        let _ = Command::decode(bytes.clone());
        let _ = Outcome::decode(bytes);
    }

    #[test]
    fn a_flipped_byte_never_panics(
        command in command(), outcome in outcome(), at: prop::sample::Index, flip in 1u8..,
    ) {
        let flipped = |bytes: Bytes| {
            let mut bytes = bytes.to_vec();
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
            Bytes::from(bytes)
        };
        let _ = Command::decode(flipped(command.encode()));
        if let Ok(other) = Outcome::decode(flipped(outcome.encode())) {
            prop_assert_ne!(other, outcome);
        }
    }

    #[test]
    fn a_shorter_append_is_refused(entries in prop::collection::vec(append_entry(), 0..5), cut: prop::sample::Index) {
        let command = Command::Append(Append { entries }).encode();
        let cut = cut.index(command.len());
        prop_assert!(Command::decode(command.slice(..cut)).is_err());
    }
}

proptest! {
    /// By their meaning, not by the kind number that the function looks at.
    #[test]
    fn commands_that_bring_records_are_known_by_their_first_byte(command in command()) {
        let stores = match &command {
            Command::Append(_) | Command::DeadLetter(_) => true,
            Command::PutTopic(_)
            | Command::DeleteTopic { .. }
            | Command::PutConsumerGroup(_)
            | Command::DeleteConsumerGroup { .. }
            | Command::Pop(_)
            | Command::Ack(_)
            | Command::ChangeInvisible(_)
            | Command::Release(_)
            | Command::Snapshot
            | Command::Purge { .. } => false,
        };
        prop_assert_eq!(stores_records(&command.encode()), stores);
        prop_assert!(!stores_records(b""));
    }
}
