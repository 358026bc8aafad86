//! The payload of one Raft entry of a broker group: the commands that one proposal round packed together.
//!
//! ```text
//! | magic u8 0xB1 | version u8 1 | reserved u16 0 | count u32 | now_ms i64 | count × ( len u32 | command ) |
//! ```
//! All integers are big-endian. There is no checksum here: the frame of the log store covers the payload.

use crate::ids::Timestamp;
use crate::reader::Reader;
use bytes::{BufMut, Bytes, BytesMut};
use thiserror::Error;

/// First byte of each batch.
pub const BATCH_MAGIC: u8 = 0xB1;
/// The layout that this build writes, and the only one that it reads.
pub const BATCH_VERSION: u8 = 1;
/// Bytes before the first command.
pub const BATCH_HEADER_BYTES: usize = 16;
/// Bytes that each command costs beside itself.
pub const BATCH_COMMAND_OVERHEAD_BYTES: usize = 4;

const COUNT_AT: usize = 4;

/// Why bytes are not a batch.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BatchError {
    /// Shorter than a header, or a command reaches past the end.
    #[error("the batch ends in the middle of a field")]
    Truncated,
    /// The first byte is another one.
    #[error("the batch starts with byte {0:#04x}, not with its magic number")]
    Magic(u8),
    /// Written by another build.
    #[error("the batch has version {0}, which this build cannot read")]
    Version(u8),
    /// The reserved field is not zero.
    #[error("the reserved field of the batch is {0:#06x}, not 0")]
    Reserved(u16),
    /// There are bytes behind the last command.
    #[error("the batch has {0} bytes behind its last command")]
    Trailing(usize),
}

/// Packs commands into one payload.
#[derive(Debug)]
pub struct BatchWriter {
    buffer: BytesMut,
    count: u32,
}

impl BatchWriter {
    /// An empty batch whose commands apply at log time `now`.
    #[must_use]
    pub fn new(now: Timestamp) -> BatchWriter {
        BatchWriter::with_capacity(now, 0)
    }

    /// Like [`BatchWriter::new`], with room for `command_bytes` (commands and their overhead) without growing.
    #[must_use]
    pub fn with_capacity(now: Timestamp, command_bytes: usize) -> BatchWriter {
        let mut buffer = BytesMut::with_capacity(BATCH_HEADER_BYTES + command_bytes);
        buffer.put_u8(BATCH_MAGIC);
        buffer.put_u8(BATCH_VERSION);
        buffer.put_u16(0);
        buffer.put_u32(0);
        buffer.put_i64(now.0);
        assert_eq!(buffer.len(), BATCH_HEADER_BYTES);
        BatchWriter { buffer, count: 0 }
    }

    /// Adds one encoded command.
    ///
    /// # Panics
    /// When the payload would pass 4 GiB; proposers stay far below.
    pub fn push(&mut self, command: &[u8]) {
        let payload_bytes = self.buffer.len() + BATCH_COMMAND_OVERHEAD_BYTES + command.len();
        assert!(u32::try_from(payload_bytes).is_ok(), "a batch of {payload_bytes} bytes");
        self.buffer.reserve(BATCH_COMMAND_OVERHEAD_BYTES + command.len());
        self.buffer.put_u32(command.len() as u32);
        self.buffer.put_slice(command);
        self.count += 1;
    }

    /// Bytes of the payload so far.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // a batch is never empty of bytes; `count` tells about commands
    pub fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Commands so far.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The payload.
    #[must_use]
    pub fn finish(mut self) -> Bytes {
        self.buffer[COUNT_AT..COUNT_AT + 4].copy_from_slice(&self.count.to_be_bytes());
        self.buffer.freeze()
    }
}

/// A decoded payload. Its commands are slices of the payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Log time that the leader gave to the commands.
    pub now: Timestamp,
    payload: Bytes,
    count: u32,
}

impl Batch {
    /// The log time in the first [`BATCH_HEADER_BYTES`] of a payload, without a look at the commands; `None` when they begin no
    /// batch of this version.
    #[must_use]
    pub fn peek_now(head: &[u8]) -> Option<Timestamp> {
        let head = head.first_chunk::<BATCH_HEADER_BYTES>()?;
        let [magic, version, .., n0, n1, n2, n3, n4, n5, n6, n7] = *head;
        (magic == BATCH_MAGIC && version == BATCH_VERSION)
            .then(|| Timestamp(i64::from_be_bytes([n0, n1, n2, n3, n4, n5, n6, n7])))
    }

    /// Checks the whole structure, so that [`Batch::commands`] cannot fail.
    ///
    /// # Errors
    /// When `payload` is not exactly one batch of this version.
    pub fn decode(payload: Bytes) -> Result<Batch, BatchError> {
        let mut reader = Reader::new(payload.clone());
        let magic = reader.u8().ok_or(BatchError::Truncated)?;
        if magic != BATCH_MAGIC {
            return Err(BatchError::Magic(magic));
        }
        let version = reader.u8().ok_or(BatchError::Truncated)?;
        if version != BATCH_VERSION {
            return Err(BatchError::Version(version));
        }
        let reserved = reader.u16().ok_or(BatchError::Truncated)?;
        if reserved != 0 {
            return Err(BatchError::Reserved(reserved));
        }
        let count = reader.u32().ok_or(BatchError::Truncated)?;
        let now = Timestamp(reader.i64().ok_or(BatchError::Truncated)?);
        for _ in 0..count {
            let len = reader.u32().ok_or(BatchError::Truncated)?;
            reader.bytes(len as usize).ok_or(BatchError::Truncated)?;
        }
        match reader.remaining() {
            0 => Ok(Batch { now, payload, count }),
            trailing => Err(BatchError::Trailing(trailing)),
        }
    }

    /// Number of commands.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The commands in order, each with the offset of its first byte within the payload.
    pub fn commands(&self) -> impl Iterator<Item = (u32, Bytes)> + '_ {
        let mut at = BATCH_HEADER_BYTES;
        (0..self.count).map(move |_| {
            // Invariant: `decode` has walked the same lengths, so that the slices are within the payload.
            let start = at + BATCH_COMMAND_OVERHEAD_BYTES;
            let mut len = [0; 4];
            len.copy_from_slice(&self.payload[at..start]);
            at = start + u32::from_be_bytes(len) as usize;
            (start as u32, self.payload.slice(start..at))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encode(now: i64, commands: &[Vec<u8>]) -> Bytes {
        let mut writer = BatchWriter::new(Timestamp(now));
        for command in commands {
            writer.push(command);
        }
        assert_eq!(writer.count() as usize, commands.len());
        let len = writer.len();
        let payload = writer.finish();
        assert_eq!(payload.len(), len);
        payload
    }

    #[test]
    fn layout_is_fixed() {
        let payload = encode(0x0102_0304_0506_0708, &[vec![0xAA, 0xBB]]);
        assert_eq!(&payload[..], [0xB1, 1, 0, 0, 0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 2, 0xAA, 0xBB]);
    }

    proptest! {
        #[test]
        fn round_trip(now: i64, commands: Vec<Vec<u8>>) {
            let payload = encode(now, &commands);
            let batch = Batch::decode(payload.clone()).unwrap();
            prop_assert_eq!(batch.now, Timestamp(now));
            prop_assert_eq!(Batch::peek_now(&payload), Some(Timestamp(now)));
            prop_assert_eq!(batch.count() as usize, commands.len());
            let mut seen = Vec::new();
            for (at, command) in batch.commands() {
                prop_assert_eq!(&payload[at as usize..at as usize + command.len()], &command[..]);
                seen.push(command.to_vec());
            }
            prop_assert_eq!(seen, commands);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
            if let Ok(batch) = Batch::decode(Bytes::from(bytes)) {
                let _ = batch.commands().count();
            }
        }

        #[test]
        fn a_flipped_byte_never_panics(commands: Vec<Vec<u8>>, at: prop::sample::Index, flip in 1u8..) {
            let mut bytes = encode(7, &commands).to_vec();
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
            if let Ok(batch) = Batch::decode(Bytes::from(bytes)) {
                // The structure still stands, so the flip hit the time or a command's own bytes.
                prop_assert!(at >= 8);
                prop_assert_eq!(batch.commands().count(), commands.len());
            }
        }

        #[test]
        fn a_shorter_payload_is_refused(commands: Vec<Vec<u8>>, cut: prop::sample::Index) {
            let payload = encode(7, &commands);
            let cut = cut.index(payload.len());
            prop_assert!(Batch::decode(payload.slice(..cut)).is_err());
        }
    }
}
