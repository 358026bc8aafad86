//! Part of the stored-once window: `0x0B | number u64` -> `| version | index u64 | entries |`, where an entry is
//! `| topic u64 | queue u32 | offset u64 | physical u64 | at i64 | packing u8 | id length u8 | packed id |`.
//!
//! `apply` never writes these: they are made for a snapshot, whose log ends before the window does, and stay in the
//! store of a replica that installed it until the window has moved past them.

use super::{Fields, LoadError, VERSION, join};
use crate::ids::{PhysicalOffset, QueueId, QueueOffset, Timestamp, TopicUid};
use crate::machine::window::{MessageKey, Receipt, Remembered};

pub(in crate::machine) const PREFIX: u8 = 0x0B;

pub(in crate::machine) fn key(number: u64) -> Vec<u8> {
    join(PREFIX, [&number.to_be_bytes()])
}

/// The value of a chunk without entries; [`push`] adds them.
pub(in crate::machine) fn value(first_index: u64) -> Vec<u8> {
    join(VERSION, [&first_index.to_be_bytes()])
}

pub(in crate::machine) fn push(value: &mut Vec<u8>, entry: &Remembered<'_>) {
    let Remembered { key, receipt, at } = entry;
    value.extend_from_slice(&key.topic().0.to_be_bytes());
    value.extend_from_slice(&receipt.queue.0.to_be_bytes());
    value.extend_from_slice(&receipt.offset.0.to_be_bytes());
    value.extend_from_slice(&receipt.physical.0.to_be_bytes());
    value.extend_from_slice(&at.0.to_be_bytes());
    value.push(key.packing());
    // At most 255 bytes: the length of a message id is one byte in the log, and packing only shortens it.
    value.push(key.packed().len() as u8);
    value.extend_from_slice(key.packed());
}

/// Log index of the chunk and its entries.
pub(in crate::machine) fn decode<'a>(value: &'a [u8]) -> Result<(u64, Vec<Remembered<'a>>), LoadError> {
    let mut fields = Fields::of_value(value)?;
    let first_index = fields.u64()?;
    let mut entries = Vec::new();
    while !fields.is_empty() {
        let topic = TopicUid(fields.u64()?);
        let queue = QueueId(fields.u32()?);
        let (offset, physical) = (QueueOffset(fields.u64()?), PhysicalOffset(fields.u64()?));
        let at = Timestamp(fields.i64()?);
        let (packing, len) = (fields.u8()?, fields.u8()?);
        let key = MessageKey::from_packed(topic, packing, fields.bytes(usize::from(len))?).ok_or(LoadError::Record)?;
        entries.push(Remembered { key, receipt: Receipt { queue, offset, physical }, at });
    }
    Ok((first_index, entries))
}
