//! What was purged: `0x0E` -> `| version | index u64 | offset u64 |`.

use super::{Fields, LoadError, VERSION, join};
use crate::ids::PhysicalOffset;
use crate::machine::Purged;

pub(in crate::machine) const PREFIX: u8 = 0x0E;

pub(in crate::machine) fn key() -> Vec<u8> {
    vec![PREFIX]
}

pub(in crate::machine) fn value(purged: Purged) -> Vec<u8> {
    join(VERSION, [&purged.index.to_be_bytes(), &purged.offset.0.to_be_bytes()])
}

pub(in crate::machine) fn decode(value: &[u8]) -> Result<Purged, LoadError> {
    let mut fields = Fields::of_value(value)?;
    let purged = Purged { index: fields.u64()?, offset: PhysicalOffset(fields.u64()?) };
    fields.end().map(|()| purged)
}
