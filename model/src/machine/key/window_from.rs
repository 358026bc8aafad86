//! Where the replay of the stored-once window begins: `0x0A` -> `| version | index u64 | clock i64 |`.

use super::{Fields, LoadError, VERSION, join};
use crate::ids::Timestamp;

pub(in crate::machine) const PREFIX: u8 = 0x0A;

/// The window holds nothing of entries before `index`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::machine) struct WindowFrom {
    /// Log index; [`WindowFrom::NOTHING`] when the window is empty.
    pub(in crate::machine) index: u64,
    /// The log clock there: a replay cannot know it from the entries behind.
    pub(in crate::machine) clock: Timestamp,
}

impl WindowFrom {
    /// No entry has to be replayed.
    pub(in crate::machine) const NOTHING: u64 = u64::MAX;
}

pub(in crate::machine) fn key() -> Vec<u8> {
    vec![PREFIX]
}

pub(in crate::machine) fn value(from: WindowFrom) -> Vec<u8> {
    join(VERSION, [&from.index.to_be_bytes(), &from.clock.0.to_be_bytes()])
}

pub(in crate::machine) fn decode(value: &[u8]) -> Result<WindowFrom, LoadError> {
    let mut fields = Fields::of_value(value)?;
    let from = WindowFrom { index: fields.u64()?, clock: Timestamp(fields.i64()?) };
    fields.end().map(|()| from)
}
