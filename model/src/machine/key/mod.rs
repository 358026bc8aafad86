//! Keys and values of a group's state in the state store: one file per key type.
//!
//! A key is a one-byte prefix and big-endian fields, so that byte order is the order of the fields. A value begins with
//! a version byte. Prefixes are never reused; those from [`RUNTIME_PREFIX_MIN`] belong to the runtime (applied index and
//! the like), and [`super::Loader`] passes over them.
//!
//! | prefix | file | key | value |
//! |---|---|---|---|
//! | 0x01 | `clock` | | log clock |
//! | 0x02 | `topic` | topic | record |
//! | 0x03 | `topic_removed` | topic | |
//! | 0x04 | `queue` | topic, queue | next offset |
//! | 0x05 | `consumer_group` | consumer group | record |
//! | 0x06 | `consumer_group_removed` | consumer group | |
//! | 0x07 | `cursor` | consumer group, topic, queue | cursor |
//! | 0x08 | `in_flight` | consumer group, topic, queue, offset | attempt, handle, visible-again time |
//! | 0x09 | `attempt` | consumer group, log index, command offset | attempt id and its batch |
//! | 0x0A | `window_from` | | where the replay of the stored-once window begins |
//! | 0x0B | `window_chunk` | number | part of the stored-once window (of an installed snapshot) |
//! | 0x0C | `snapshot_point` | log index | place, log time and next offsets of a snapshot |
//! | 0x0D | `queue_min` | topic, queue | first offset, where messages were purged |
//! | 0x0E | `purged` | | the purge point |

pub(super) mod attempt;
pub(super) mod clock;
pub(super) mod consumer_group;
pub(super) mod consumer_group_removed;
pub(super) mod cursor;
pub(super) mod in_flight;
pub(super) mod purged;
pub(super) mod queue;
pub(super) mod queue_min;
pub(super) mod snapshot_point;
pub(super) mod topic;
pub(super) mod topic_removed;
pub(super) mod window_chunk;
pub(super) mod window_from;

use super::load::LoadError;

/// Keys whose first byte is this or above are the runtime's own.
pub const RUNTIME_PREFIX_MIN: u8 = 0xF0;

/// The version byte of every value so far.
pub(super) const VERSION: u8 = 1;

/// Takes a key or a value apart.
pub(super) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// The fields of a key behind its prefix.
    pub(super) fn of_key(key: &'a [u8]) -> Result<Fields<'a>, LoadError> {
        let mut fields = Fields(key);
        fields.u8()?;
        Ok(fields)
    }

    /// The fields of a value behind its version.
    pub(super) fn of_value(value: &'a [u8]) -> Result<Fields<'a>, LoadError> {
        let mut fields = Fields(value);
        match fields.u8()? {
            VERSION => Ok(fields),
            version => Err(LoadError::Version(version)),
        }
    }

    pub(super) fn bytes(&mut self, count: usize) -> Result<&'a [u8], LoadError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(LoadError::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], LoadError> {
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or(LoadError::Short)?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(super) fn u8(&mut self) -> Result<u8, LoadError> {
        Ok(u8::from_be_bytes(self.array()?))
    }

    pub(super) fn u32(&mut self) -> Result<u32, LoadError> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64, LoadError> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    pub(super) fn i64(&mut self) -> Result<i64, LoadError> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All that is left.
    pub(super) fn rest(self) -> &'a [u8] {
        self.0
    }

    /// Refuses what is longer than its fields.
    pub(super) fn end(self) -> Result<(), LoadError> {
        if self.0.is_empty() { Ok(()) } else { Err(LoadError::Long) }
    }
}

/// A key or a value of fixed-size fields.
pub(super) fn join<const N: usize>(first: u8, fields: [&[u8]; N]) -> Vec<u8> {
    let mut joined = Vec::with_capacity(1 + fields.iter().map(|field| field.len()).sum::<usize>());
    joined.push(first);
    for field in fields {
        joined.extend_from_slice(field);
    }
    joined
}
