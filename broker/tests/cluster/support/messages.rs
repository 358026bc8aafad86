//! Messages, receives and acks as an edge makes them.

use super::{GROUP, TOPIC};
use bytes::Bytes;
use raftmq_broker::Router;
use raftmq_model::command::{Ack, Append, AppendEntry, Command, HandleKey};
use raftmq_model::filter::tags_code;
use raftmq_model::ids::{ConsumerGroupUid, QueueId, TopicUid};
use raftmq_model::record::{Record, property};
use raftmq_proto::forward::{PopRequest, PoppedMessage};
use tokio::time::Instant;

/// One message for a queue of [`TOPIC`].
pub(crate) fn append(message_id: &str, tag: &str, queue: u32) -> Bytes {
    append_of(message_id, tag, queue, 0)
}

/// As [`append`] with `pad_bytes` more in the body.
pub(crate) fn append_of(message_id: &str, tag: &str, queue: u32, pad_bytes: usize) -> Bytes {
    append_with(message_id, tag, queue, pad_bytes, "")
}

/// As [`append_of`] with keys.
pub(crate) fn append_with(message_id: &str, tag: &str, queue: u32, pad_bytes: usize, keys: &str) -> Bytes {
    let host = "127.0.0.1:80".parse().unwrap();
    let mut properties = vec![(property::UNIQ_KEY.to_owned(), message_id.to_owned())];
    if !tag.is_empty() {
        properties.push((property::TAGS.to_owned(), tag.to_owned()));
    }
    if !keys.is_empty() {
        properties.push((property::KEYS.to_owned(), keys.to_owned()));
    }
    let record = Record {
        topic: "orders".to_owned(),
        queue_id: queue,
        flag: 0,
        sys_flag: 0,
        born_timestamp: 1,
        born_host: host,
        store_timestamp: 2,
        store_host: host,
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body: Bytes::from(format!("body of {message_id}{}", ".".repeat(pad_bytes))),
        properties,
    };
    let entry = AppendEntry {
        topic: TOPIC,
        queue: QueueId(queue),
        tags_code: tags_code(tag),
        message_id: Bytes::from(message_id.to_owned()),
        record: record.encode().unwrap(),
        record_at: 0,
    };
    Command::Append(Append { entries: vec![entry] }).encode()
}

pub(crate) fn pop_request(topic: TopicUid, consumers: ConsumerGroupUid, invisible_ms: u64) -> PopRequest {
    PopRequest {
        topic_uid: topic.0,
        consumer_group_uid: consumers.0,
        batch_count: 32,
        invisible_ms,
        ..PopRequest::default()
    }
}

pub(crate) fn handle_of(topic: TopicUid, consumers: ConsumerGroupUid, message: &PoppedMessage) -> HandleKey {
    HandleKey {
        consumer_group: consumers.0,
        topic: topic.0,
        queue: message.queue_id,
        offset: message.queue_offset,
        attempt: message.attempt,
        popped_at: message.popped_at,
    }
}

pub(crate) fn acks(topic: TopicUid, consumers: ConsumerGroupUid, messages: &[PoppedMessage]) -> Bytes {
    let handles = messages.iter().map(|message| handle_of(topic, consumers, message)).collect();
    Command::Ack(Ack { handles }).encode()
}

pub(crate) fn message_id_of(message: &PoppedMessage) -> String {
    let record = Record::decode(message.record.clone()).unwrap();
    record.property(property::UNIQ_KEY).unwrap().to_owned()
}

/// Takes and finishes messages until nothing is left; their ids.
pub(crate) async fn messages_of(
    router: &Router,
    topic: TopicUid,
    consumers: ConsumerGroupUid,
    deadline: Instant,
) -> Vec<String> {
    let mut ids = Vec::new();
    loop {
        let messages = router.pop(GROUP, pop_request(topic, consumers, 60_000), deadline).await.unwrap();
        if messages.is_empty() {
            return ids;
        }
        ids.extend(messages.iter().map(message_id_of));
        router.propose(GROUP, vec![acks(topic, consumers, &messages)], deadline).await.unwrap();
    }
}
