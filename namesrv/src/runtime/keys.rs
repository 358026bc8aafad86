//! How the meta state lies in a state store.
//!
//! ```text
//! b                    bookkeeping of the Raft log, opaque
//! h                    head: cluster id, revision, highest number given out
//! n | node u32         NodeRecord
//! g | group u32        BrokerGroupRecord
//! t | uid u64          TopicConfig
//! c | uid u64          ConsumerGroupConfig
//! ```
//! Numbers are big-endian; values are protobuf.

use crate::machine::MetaState;
use bytes::Bytes;
use prost::Message;
use raftmq_model::config::{ConsumerGroupConfig, TopicConfig};
use raftmq_model::meta::{BrokerGroupRecord, MetaRecord, NodeRecord};
use std::io;

pub(super) const BOOKKEEPING: &[u8] = b"b";
pub(super) const HEAD: &[u8] = b"h";
const NODE: u8 = b'n';
const BROKER_GROUP: u8 = b'g';
const TOPIC: u8 = b't';
const CONSUMER_GROUP: u8 = b'c';

/// What of the state is not a record.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Head {
    #[prost(string, tag = "1")]
    pub(super) cluster_id: String,
    #[prost(uint64, tag = "2")]
    pub(super) revision: u64,
    #[prost(uint64, tag = "3")]
    pub(super) number_last: u64,
}

impl Head {
    pub(super) fn of(state: &MetaState) -> Head {
        Head { cluster_id: state.cluster_id().to_owned(), revision: state.revision(), number_last: state.number_last() }
    }
}

/// The key of a record, and its value; no value for a removal.
pub(super) fn encode(record: &MetaRecord) -> (Vec<u8>, Option<Vec<u8>>) {
    match record {
        MetaRecord::Node(node) => (key(NODE, &node.id.to_be_bytes()), Some(node.encode_to_vec())),
        MetaRecord::BrokerGroup(group) => (key(BROKER_GROUP, &group.id.to_be_bytes()), Some(group.encode_to_vec())),
        MetaRecord::Topic(topic) => (key(TOPIC, &topic.uid.to_be_bytes()), Some(topic.encode_to_vec())),
        MetaRecord::ConsumerGroup(group) => {
            (key(CONSUMER_GROUP, &group.uid.to_be_bytes()), Some(group.encode_to_vec()))
        }
        MetaRecord::TopicRemoved(uid) => (key(TOPIC, &uid.to_be_bytes()), None),
        MetaRecord::ConsumerGroupRemoved(uid) => (key(CONSUMER_GROUP, &uid.to_be_bytes()), None),
    }
}

fn key(kind: u8, id: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(1 + id.len());
    key.push(kind);
    key.extend_from_slice(id);
    key
}

/// Collects the pairs of a state store.
#[derive(Default)]
pub(super) struct Loading {
    bookkeeping: Option<Bytes>,
    head: Head,
    records: Vec<MetaRecord>,
}

impl Loading {
    pub(super) fn put(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        let record = match key.first() {
            _ if key == BOOKKEEPING => {
                self.bookkeeping = Some(Bytes::copy_from_slice(value));
                return Ok(());
            }
            _ if key == HEAD => {
                self.head = Head::decode(value).map_err(|error| damaged(key, &error))?;
                return Ok(());
            }
            Some(&NODE) => NodeRecord::decode(value).map(MetaRecord::Node),
            Some(&BROKER_GROUP) => BrokerGroupRecord::decode(value).map(MetaRecord::BrokerGroup),
            Some(&TOPIC) => TopicConfig::decode(value).map(MetaRecord::Topic),
            Some(&CONSUMER_GROUP) => ConsumerGroupConfig::decode(value).map(MetaRecord::ConsumerGroup),
            _ => return Err(damaged(key, &"a key of a newer version")),
        };
        let record = record.map_err(|error| damaged(key, &error))?;
        if encode(&record).0 != key {
            return Err(damaged(key, &"the record is of another key"));
        }
        self.records.push(record);
        Ok(())
    }

    /// The state, and the bookkeeping that was written with it.
    pub(super) fn finish(self) -> (MetaState, Option<Bytes>) {
        let Head { cluster_id, revision, number_last } = self.head;
        (MetaState::from_records(cluster_id, revision, number_last, self.records), self.bookkeeping)
    }
}

fn damaged(key: &[u8], why: &dyn std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the meta state is damaged at key {key:02x?}: {why}"))
}
