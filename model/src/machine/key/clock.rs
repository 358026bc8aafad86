//! The log clock: `0x01` -> `| version | now i64 |`.

use super::{Fields, LoadError, VERSION, join};
use crate::ids::Timestamp;

pub(in crate::machine) const PREFIX: u8 = 0x01;

pub(in crate::machine) fn key() -> Vec<u8> {
    vec![PREFIX]
}

pub(in crate::machine) fn value(now: Timestamp) -> Vec<u8> {
    join(VERSION, [&now.0.to_be_bytes()])
}

pub(in crate::machine) fn decode(value: &[u8]) -> Result<Timestamp, LoadError> {
    let mut fields = Fields::of_value(value)?;
    let now = Timestamp(fields.i64()?);
    fields.end().map(|()| now)
}
