//! A deleted topic: `0x03 | topic u64` -> `| version |`.

use super::{Fields, LoadError, VERSION, join};
use crate::ids::TopicUid;

pub(in crate::machine) const PREFIX: u8 = 0x03;

pub(in crate::machine) fn key(uid: TopicUid) -> Vec<u8> {
    join(PREFIX, [&uid.0.to_be_bytes()])
}

pub(in crate::machine) fn value() -> Vec<u8> {
    vec![VERSION]
}

pub(in crate::machine) fn decode(key: &[u8], value: &[u8]) -> Result<TopicUid, LoadError> {
    let mut fields = Fields::of_key(key)?;
    let uid = TopicUid(fields.u64()?);
    fields.end()?;
    Fields::of_value(value)?.end().map(|()| uid)
}
