//! Where the replay of the stored-once window begins: `0x0A` -> `| version | index u64 | clock i64 | floor u64 |`.

use super::{Fields, LoadError, VERSION, join};
use crate::ids::{PhysicalOffset, Timestamp};

pub(in crate::machine) const PREFIX: u8 = 0x0A;

/// How far back the window goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::machine) struct WindowFrom {
    /// A log index before which the window holds nothing; [`u64::MAX`] when it is empty.
    pub(in crate::machine) index: u64,
    /// The log clock there: a replay cannot know it from the entries behind.
    pub(in crate::machine) clock: Timestamp,
    /// Where the oldest record in the window lies.
    pub(in crate::machine) floor: PhysicalOffset,
}

impl WindowFrom {
    /// The window is empty, and no entry has to be replayed.
    pub(in crate::machine) const NOTHING: WindowFrom =
        WindowFrom { index: u64::MAX, clock: Timestamp(0), floor: PhysicalOffset(u64::MAX) };
}

pub(in crate::machine) fn key() -> Vec<u8> {
    vec![PREFIX]
}

pub(in crate::machine) fn value(from: WindowFrom) -> Vec<u8> {
    join(VERSION, [&from.index.to_be_bytes(), &from.clock.0.to_be_bytes(), &from.floor.0.to_be_bytes()])
}

pub(in crate::machine) fn decode(value: &[u8]) -> Result<WindowFrom, LoadError> {
    let mut fields = Fields::of_value(value)?;
    let (index, clock) = (fields.u64()?, Timestamp(fields.i64()?));
    let from = WindowFrom { index, clock, floor: PhysicalOffset(fields.u64()?) };
    fields.end().map(|()| from)
}
