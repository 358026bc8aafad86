//! Which file a physical offset lies in, and where the next frame goes.
//!
//! ```text
//! commitlog/00000000000000000000      offsets        0 .. S            S = segment_bytes_max
//! commitlog/00000000001073741824      offsets        S .. 2 S
//!
//! | frame | frame | ... | filler or < 48 zero bytes |     a frame never spans two segments
//! ```
//!
//! Placement is a pure function of the end of the frame before and of the frame's size, so logs with equal entries have
//! equal physical offsets on each replica.

use crate::frame::{FRAME_ALIGN, HEADER_BYTES};

/// The folder of the segments, inside the folder of the log.
pub const SEGMENT_DIR: &str = "commitlog";

/// Digits of a segment's file name.
const NAME_DIGITS: usize = 20;

/// The file name of the segment that begins at `base`.
#[must_use]
pub fn segment_name(base: u64) -> String {
    format!("{base:0NAME_DIGITS$}")
}

/// The base offset that a file name stands for; `None` when it is no segment's name.
#[must_use]
pub fn parse_segment_name(name: &str) -> Option<u64> {
    if name.len() != NAME_DIGITS || !name.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    name.parse().ok()
}

/// The base of the segment that holds the byte at `offset`.
#[must_use]
pub fn segment_base(offset: u64, segment_bytes: u64) -> u64 {
    offset - offset % segment_bytes
}

/// Bytes from `offset` to the end of its segment; a whole segment when `offset` is a segment's first byte.
#[must_use]
pub fn segment_room(offset: u64, segment_bytes: u64) -> u64 {
    segment_bytes - offset % segment_bytes
}

/// Where a frame of `frame_bytes` goes when the frame before it ends at `tail`.
#[must_use]
pub fn place(tail: u64, frame_bytes: u64, segment_bytes: u64) -> u64 {
    assert!(tail.is_multiple_of(FRAME_ALIGN) && frame_bytes.is_multiple_of(FRAME_ALIGN), "frames are aligned");
    assert!((HEADER_BYTES as u64..=segment_bytes).contains(&frame_bytes), "a frame fits into a segment");
    let room = segment_room(tail, segment_bytes);
    if frame_bytes <= room { tail } else { tail + room }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        assert_eq!(segment_name(1 << 30), "00000000001073741824");
        assert_eq!(parse_segment_name("00000000001073741824"), Some(1 << 30));
        assert_eq!(parse_segment_name("1073741824"), None);
        assert_eq!(parse_segment_name("0000000000107374182x"), None);
    }

    #[test]
    fn a_frame_never_spans_segments() {
        assert_eq!(place(0, 4096, 4096), 0);
        assert_eq!(place(8, 4096, 4096), 4096);
        assert_eq!(place(4000, 96, 4096), 4000);
        assert_eq!(place(4000, 104, 4096), 4096);
        assert_eq!(place(4096, 64, 4096), 4096);
    }
}
