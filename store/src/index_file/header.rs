//! The first bytes of an IndexFile.
//!
//! ```text
//!  0 magic u32 | 4 version u8 | 5 complete u8 | 6 zero u16 | 8 slots u32 | 12 content CRC u32 (0 until complete)
//! 16 base u64 (the file's name) | 24 next log index u64 | 32 zero, 12 bytes | 44 header CRC u32 (over 0..44 and 48..88)
//! 48 RocketMQ's header: begin time i64 | end time i64 | begin physical i64 | end physical i64 | used slots i32 | index count i32
//! ```
//! All of it lies in one sector, so that a loss of power leaves the header before or the one after. RocketMQ's 40 bytes have
//! neither magic nor version nor checksum: ours stand before them.

use super::ENTRY_BYTES;
use raftmq_model::ids::{PhysicalOffset, Timestamp};
use std::io::{Error, ErrorKind, Result};
use std::path::Path;

/// Bytes of our header and RocketMQ's.
pub(crate) const HEADER_BYTES: usize = 88;
const MAGIC: u32 = 0x524d_5149; // "RMQI"
const VERSION: u8 = 1;
const CRC_AT: usize = 44;
const ROCKETMQ_AT: usize = 48;

/// A header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// Nothing is added any more: slots and checksum are there.
    pub(crate) complete: bool,
    /// Slots of the file.
    pub(crate) slots: u32,
    /// CRC-32 of entries and slots, in this order; 0 until the file is complete.
    pub(crate) content_crc: u32,
    /// Physical offset of the payload of the first log entry in the file, which is its name.
    pub(crate) base: u64,
    /// All log entries before this one are indexed, here or in the files before.
    pub(crate) next_index: u64,
    /// Log time of the first message.
    pub(crate) begin_time: Timestamp,
    /// Log time of the last message, down to a whole second behind the first one's.
    pub(crate) end_time: Timestamp,
    /// Where the first message's record lies.
    pub(crate) begin: PhysicalOffset,
    /// Where the last message's record lies.
    pub(crate) end: PhysicalOffset,
    /// Slots that have a chain.
    pub(crate) slots_used: u32,
    /// The number that the next entry gets; entry 0 is never used.
    pub(crate) count: u32,
}

impl Header {
    /// The header of a file without entries.
    pub(crate) fn new(base: u64, slots: u32, next_index: u64) -> Header {
        Header {
            complete: false,
            slots,
            content_crc: 0,
            base,
            next_index,
            begin_time: Timestamp(0),
            end_time: Timestamp(0),
            begin: PhysicalOffset(0),
            end: PhysicalOffset(0),
            slots_used: 0,
            count: 1,
        }
    }

    /// Where an entry lies in the file.
    pub(crate) fn entry_at(&self, entry: u32) -> u64 {
        HEADER_BYTES as u64 + u64::from(self.slots) * 4 + u64::from(entry) * ENTRY_BYTES as u64
    }

    /// Where a slot lies in the file.
    pub(crate) fn slot_at(slot: u32) -> u64 {
        HEADER_BYTES as u64 + u64::from(slot) * 4
    }

    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        assert!(self.count >= 1 && self.slots >= 1, "entry 0 is never used, and there is a slot");
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..4].copy_from_slice(&MAGIC.to_be_bytes());
        bytes[4] = VERSION;
        bytes[5] = u8::from(self.complete);
        bytes[8..12].copy_from_slice(&self.slots.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.content_crc.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.base.to_be_bytes());
        bytes[24..32].copy_from_slice(&self.next_index.to_be_bytes());
        bytes[48..56].copy_from_slice(&self.begin_time.0.to_be_bytes());
        bytes[56..64].copy_from_slice(&self.end_time.0.to_be_bytes());
        bytes[64..72].copy_from_slice(&self.begin.0.to_be_bytes());
        bytes[72..80].copy_from_slice(&self.end.0.to_be_bytes());
        bytes[80..84].copy_from_slice(&self.slots_used.to_be_bytes());
        bytes[84..88].copy_from_slice(&self.count.to_be_bytes());
        let crc = crc(&bytes);
        bytes[CRC_AT..ROCKETMQ_AT].copy_from_slice(&crc.to_be_bytes());
        bytes
    }

    /// Reads the header of the file `path`, whose name says `base`.
    ///
    /// # Errors
    /// `InvalidData` with the file and what is wrong with it.
    pub(crate) fn decode(bytes: &[u8; HEADER_BYTES], path: &Path, base: u64) -> Result<Header> {
        let wrong = |what: &str| Error::new(ErrorKind::InvalidData, format!("{} {what}", path.display()));
        let u32_at = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let u64_at = |at: usize| u64::from(u32_at(at)) << 32 | u64::from(u32_at(at + 4));
        if u32_at(0) == MAGIC && bytes[4] > VERSION {
            return Err(wrong("was written by a newer version of raftmq"));
        }
        if u32_at(0) != MAGIC || bytes[4] != VERSION || bytes[5] > 1 || u32_at(CRC_AT) != crc(bytes) {
            return Err(wrong("is damaged: its header is not as it was written"));
        }
        let header = Header {
            complete: bytes[5] == 1,
            slots: u32_at(8),
            content_crc: u32_at(12),
            base: u64_at(16),
            next_index: u64_at(24),
            begin_time: Timestamp(u64_at(48).cast_signed()),
            end_time: Timestamp(u64_at(56).cast_signed()),
            begin: PhysicalOffset(u64_at(64)),
            end: PhysicalOffset(u64_at(72)),
            slots_used: u32_at(80),
            count: u32_at(84),
        };
        if header.base != base || header.count < 1 || header.slots < 1 || header.slots_used > header.slots {
            return Err(wrong("is damaged: its header contradicts itself or the file's name"));
        }
        Ok(header)
    }
}

fn crc(bytes: &[u8; HEADER_BYTES]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&bytes[..CRC_AT]);
    hasher.update(&bytes[ROCKETMQ_AT..]);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_is_fixed_and_every_flipped_bit_is_noticed() {
        let header = Header {
            complete: true,
            content_crc: 0xDEAD_BEEF,
            begin_time: Timestamp(1000),
            end_time: Timestamp(-1),
            begin: PhysicalOffset(4144),
            end: PhysicalOffset(1 << 40),
            slots_used: 2,
            count: 9,
            ..Header::new(4096, 5, 77)
        };
        let bytes = header.encode();
        assert_eq!(&bytes[..16], b"RMQI\x01\x01\0\0\0\0\0\x05\xde\xad\xbe\xef");
        assert_eq!(bytes[56..64], [0xff; 8]);
        assert_eq!(bytes[80..], [0, 0, 0, 2, 0, 0, 0, 9]);
        assert_eq!(header.entry_at(1), 88 + 20 + 20);
        assert_eq!(Header::decode(&bytes, Path::new("f"), 4096).unwrap(), header);
        assert!(Header::decode(&bytes, Path::new("f"), 4097).is_err());
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Header::decode(&flipped, Path::new("f"), 4096).is_err(), "bit {bit}");
        }
        let mut newer = bytes;
        newer[4] = 2;
        assert!(Header::decode(&newer, Path::new("f"), 4096).unwrap_err().to_string().contains("newer"));
    }
}
