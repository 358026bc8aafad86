//! How one Raft entry lies in a segment file.
//!
//! ```text
//!  0 magic u32 | 4 version u8 | 5 kind u8 | 6 zero u16 | 8 payload bytes u32 | 12 zero u32
//! 16 term u64  | 24 index u64 | 32 physical offset u64 (of this header)
//! 40 header CRC u32 (over 0..40) | 44 CRC u32 (over 0..44 and the payload)
//! 48 payload, then zeros to a multiple of 8
//! ```
//!
//! Both CRCs (CRC-32, IEEE) begin with the segment's base offset, so that bytes of another segment never pass. A filler
//! stands between the last frame and the end of its segment; its payload is the zeros that are there anyway and is not
//! in its CRC, its term and index are 0.

use bytes::Bytes;

/// Bytes of a frame header.
pub const HEADER_BYTES: usize = 48;
/// Frames begin at multiples of this.
pub const FRAME_ALIGN: u64 = 8;
/// Payload bytes that the format can hold (the log's options set a lower limit).
pub const PAYLOAD_BYTES_MAX: usize = (1 << 30) - 1;

pub(crate) const MAGIC: u32 = 0x524d_5146; // "RMQF"
pub(crate) const VERSION: u8 = 1;
const KIND_FILLER: u8 = 0xff;

/// What an entry holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum EntryKind {
    /// Nothing: a new leader's first entry.
    Blank = 0,
    /// Commands, packed by `raftmq_model::batch`.
    Batch = 1,
    /// A membership of the group.
    Membership = 2,
}

impl EntryKind {
    pub(crate) fn from_u8(value: u8) -> Option<EntryKind> {
        match value {
            0 => Some(EntryKind::Blank),
            1 => Some(EntryKind::Batch),
            2 => Some(EntryKind::Membership),
            _ => None,
        }
    }
}

/// The contents of a header, checked by [`FrameHeader::decode`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameHeader {
    /// The entry's kind; `None` for a filler.
    pub kind: Option<EntryKind>,
    /// Bytes of the payload, without the padding.
    pub payload_bytes: u32,
    /// The entry's term.
    pub term: u64,
    /// The entry's index.
    pub index: u64,
    /// Physical offset of the header.
    pub offset: u64,
}

/// Bytes that a frame with such a payload takes, padding included.
#[must_use]
pub fn frame_bytes(payload_bytes: u64) -> u64 {
    (HEADER_BYTES as u64 + payload_bytes).next_multiple_of(FRAME_ALIGN)
}

/// The version of a frame that a newer program wrote, when these bytes begin one. A header of this version whose version
/// byte alone has rotted is none: its checksum says so.
pub(crate) fn newer_version(bytes: &[u8; HEADER_BYTES], base: u64) -> Option<u8> {
    if u32_at(bytes, 0) != MAGIC || bytes[4] <= VERSION {
        return None;
    }
    let mut ours = *bytes;
    ours[4] = VERSION;
    let mut hasher = seeded(base);
    hasher.update(&ours[..40]);
    (hasher.finalize() != u32_at(bytes, 40)).then_some(bytes[4])
}

fn seeded(base: u64) -> crc32fast::Hasher {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&base.to_be_bytes());
    hasher
}

fn u32_at(bytes: &[u8; HEADER_BYTES], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8; HEADER_BYTES], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) << 32 | u64::from(u32_at(bytes, at + 4))
}

impl FrameHeader {
    /// The header of the filler that takes the `room` bytes from `offset` to the end of the segment.
    #[must_use]
    pub fn filler(offset: u64, room: u64) -> FrameHeader {
        assert!(room >= HEADER_BYTES as u64, "a filler has a header");
        let payload_bytes = u32::try_from(room - HEADER_BYTES as u64).unwrap_or(u32::MAX);
        FrameHeader { kind: None, payload_bytes, term: 0, index: 0, offset }
    }

    /// Bytes of the whole frame.
    #[must_use]
    pub fn frame_bytes(&self) -> u64 {
        frame_bytes(u64::from(self.payload_bytes))
    }

    /// The header's bytes for a frame in the segment `base`. `payload` is not looked at for a filler.
    #[must_use]
    pub fn encode(&self, base: u64, payload: &[u8]) -> [u8; HEADER_BYTES] {
        assert!(self.offset >= base && self.offset.is_multiple_of(FRAME_ALIGN), "a frame lies aligned in its segment");
        assert!(self.kind.is_none() || self.payload_bytes as usize == payload.len(), "the length is the payload's");
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..4].copy_from_slice(&MAGIC.to_be_bytes());
        bytes[4] = VERSION;
        bytes[5] = self.kind.map_or(KIND_FILLER, |kind| kind as u8);
        bytes[8..12].copy_from_slice(&self.payload_bytes.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.term.to_be_bytes());
        bytes[24..32].copy_from_slice(&self.index.to_be_bytes());
        bytes[32..40].copy_from_slice(&self.offset.to_be_bytes());
        let mut hasher = seeded(base);
        hasher.update(&bytes[..40]);
        let header_crc = hasher.clone().finalize().to_be_bytes();
        bytes[40..44].copy_from_slice(&header_crc);
        hasher.update(&header_crc);
        if self.kind.is_some() {
            hasher.update(payload);
        }
        bytes[44..48].copy_from_slice(&hasher.finalize().to_be_bytes());
        bytes
    }

    /// Reads a header that should lie at `offset` in the segment `base`; `None` when it is not one of ours. Its payload
    /// is not checked; see [`check_frame`].
    #[must_use]
    pub fn decode(bytes: &[u8; HEADER_BYTES], base: u64, offset: u64) -> Option<FrameHeader> {
        if u32_at(bytes, 0) != MAGIC || bytes[4] != VERSION || bytes[6..8] != [0, 0] || u32_at(bytes, 12) != 0 {
            return None;
        }
        let mut hasher = seeded(base);
        hasher.update(&bytes[..40]);
        if hasher.finalize() != u32_at(bytes, 40) || u64_at(bytes, 32) != offset {
            return None;
        }
        let kind = match bytes[5] {
            KIND_FILLER => None,
            kind => Some(EntryKind::from_u8(kind)?),
        };
        let (term, index) = (u64_at(bytes, 16), u64_at(bytes, 24));
        Some(FrameHeader { kind, payload_bytes: u32_at(bytes, 8), term, index, offset })
    }
}

/// Checks a frame (header and payload, without the padding) that should lie at `offset` in the segment `base`, and gives
/// its header; `None` when any byte is not as it was written.
#[must_use]
pub fn check_frame(frame: &Bytes, base: u64, offset: u64) -> Option<FrameHeader> {
    let (header, payload) = frame.split_first_chunk::<HEADER_BYTES>()?;
    let decoded = FrameHeader::decode(header, base, offset)?;
    let mut hasher = seeded(base);
    hasher.update(&header[..44]);
    if decoded.kind.is_some() {
        if payload.len() != decoded.payload_bytes as usize {
            return None;
        }
        hasher.update(payload);
    }
    (hasher.finalize() == u32_at(header, 44)).then_some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(payload: &[u8]) -> Vec<u8> {
        let payload_bytes = payload.len() as u32;
        let header = FrameHeader { kind: Some(EntryKind::Batch), payload_bytes, term: 3, index: 7, offset: 4096 + 64 };
        let mut bytes = header.encode(4096, payload).to_vec();
        bytes.extend_from_slice(payload);
        bytes
    }

    #[test]
    fn a_frame_is_read_back() {
        let bytes = Bytes::from(frame(b"hello"));
        let header = check_frame(&bytes, 4096, 4096 + 64).unwrap();
        assert_eq!((header.term, header.index, header.payload_bytes, header.frame_bytes()), (3, 7, 5, 56));
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let bytes = frame(b"hello, world");
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(check_frame(&Bytes::from(flipped), 4096, 4096 + 64), None, "bit {bit}");
        }
    }

    #[test]
    fn bytes_of_another_segment_do_not_pass() {
        let bytes = Bytes::from(frame(b"hello"));
        assert_eq!(check_frame(&bytes, 0, 4096 + 64), None);
        assert_eq!(check_frame(&bytes, 4096, 4096 + 72), None);
    }

    #[test]
    fn the_layout_is_fixed() {
        let header = FrameHeader { kind: Some(EntryKind::Batch), payload_bytes: 3, term: 1, index: 2, offset: 8 };
        let bytes = header.encode(0, b"abc");
        assert_eq!(&bytes[..8], b"RMQF\x01\x01\0\0");
        // Computed independently of this code.
        assert_eq!(bytes[40..], [0xa2, 0x79, 0x59, 0x0a, 0x6d, 0xff, 0xc1, 0x7f]);
    }
}
