//! A topic's record: `0x02 | topic u64` -> `| version | protobuf TopicConfig |`.

use super::{Fields, LoadError, VERSION, join};
use crate::config::TopicConfig;
use crate::ids::TopicUid;
use prost::Message;

pub(in crate::machine) const PREFIX: u8 = 0x02;

pub(in crate::machine) fn key(uid: TopicUid) -> Vec<u8> {
    join(PREFIX, [&uid.0.to_be_bytes()])
}

pub(in crate::machine) fn value(config: &TopicConfig) -> Vec<u8> {
    join(VERSION, [&config.encode_to_vec()])
}

pub(in crate::machine) fn decode(key: &[u8], value: &[u8]) -> Result<TopicConfig, LoadError> {
    let mut fields = Fields::of_key(key)?;
    let uid = TopicUid(fields.u64()?);
    fields.end()?;
    let config = TopicConfig::decode(Fields::of_value(value)?.rest()).map_err(|_| LoadError::Record)?;
    if config.uid() == uid { Ok(config) } else { Err(LoadError::Record) }
}
