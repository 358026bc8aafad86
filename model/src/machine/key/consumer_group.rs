//! A consumer group's record: `0x05 | consumer group u64` -> `| version | protobuf ConsumerGroupConfig |`.

use super::{Fields, LoadError, VERSION, join};
use crate::config::ConsumerGroupConfig;
use crate::ids::ConsumerGroupUid;
use prost::Message;

pub(in crate::machine) const PREFIX: u8 = 0x05;

pub(in crate::machine) fn key(uid: ConsumerGroupUid) -> Vec<u8> {
    join(PREFIX, [&uid.0.to_be_bytes()])
}

pub(in crate::machine) fn value(config: &ConsumerGroupConfig) -> Vec<u8> {
    join(VERSION, [&config.encode_to_vec()])
}

pub(in crate::machine) fn decode(key: &[u8], value: &[u8]) -> Result<ConsumerGroupConfig, LoadError> {
    let mut fields = Fields::of_key(key)?;
    let uid = ConsumerGroupUid(fields.u64()?);
    fields.end()?;
    let config = ConsumerGroupConfig::decode(Fields::of_value(value)?.rest()).map_err(|_| LoadError::Record)?;
    if config.uid() == uid { Ok(config) } else { Err(LoadError::Record) }
}
