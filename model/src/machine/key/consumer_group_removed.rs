//! A deleted consumer group: `0x06 | consumer group u64` -> `| version |`.

use super::{Fields, LoadError, VERSION, join};
use crate::ids::ConsumerGroupUid;

pub(in crate::machine) const PREFIX: u8 = 0x06;

pub(in crate::machine) fn key(uid: ConsumerGroupUid) -> Vec<u8> {
    join(PREFIX, [&uid.0.to_be_bytes()])
}

pub(in crate::machine) fn value() -> Vec<u8> {
    vec![VERSION]
}

pub(in crate::machine) fn decode(key: &[u8], value: &[u8]) -> Result<ConsumerGroupUid, LoadError> {
    let mut fields = Fields::of_key(key)?;
    let uid = ConsumerGroupUid(fields.u64()?);
    fields.end()?;
    Fields::of_value(value)?.end().map(|()| uid)
}
