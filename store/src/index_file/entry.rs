//! One entry of an IndexFile, in RocketMQ's layout.

use raftmq_model::ids::{PhysicalOffset, Timestamp};

/// Bytes of an entry.
pub const ENTRY_BYTES: usize = 20;

/// One key of one message.
///
/// ```text
/// | key hash i32 | physical offset i64 | seconds since the file's begin time i32 | previous entry of the chain i32 |
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// [`raftmq_model::record::key_hash`].
    pub(crate) hash: u32,
    /// Where the record lies.
    pub(crate) physical: PhysicalOffset,
    /// Log time of the message, in whole seconds behind the first one of the file.
    pub(crate) seconds: u32,
    /// The entry before with the same slot; 0: none.
    pub(crate) previous: u32,
}

impl Entry {
    pub(crate) fn encode(&self) -> [u8; ENTRY_BYTES] {
        assert!(self.hash <= i32::MAX as u32 && self.seconds <= i32::MAX as u32, "both are an i32 on disk");
        let mut bytes = [0; ENTRY_BYTES];
        bytes[..4].copy_from_slice(&self.hash.to_be_bytes());
        bytes[4..12].copy_from_slice(&self.physical.0.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.seconds.to_be_bytes());
        bytes[16..].copy_from_slice(&self.previous.to_be_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; ENTRY_BYTES]) -> Entry {
        let [h0, h1, h2, h3, p0, p1, p2, p3, p4, p5, p6, p7, s0, s1, s2, s3, l0, l1, l2, l3] = *bytes;
        Entry {
            hash: u32::from_be_bytes([h0, h1, h2, h3]),
            physical: PhysicalOffset(u64::from_be_bytes([p0, p1, p2, p3, p4, p5, p6, p7])),
            seconds: u32::from_be_bytes([s0, s1, s2, s3]),
            previous: u32::from_be_bytes([l0, l1, l2, l3]),
        }
    }

    /// The log time, down to a second, in a file that begins at `begin`.
    pub(crate) fn time(&self, begin: Timestamp) -> Timestamp {
        Timestamp(begin.0.saturating_add(i64::from(self.seconds) * 1000))
    }
}

/// Whole seconds from `begin` to `now`.
pub(crate) fn seconds_between(begin: Timestamp, now: Timestamp) -> u32 {
    (now.0.saturating_sub(begin.0) / 1000).clamp(0, i64::from(i32::MAX)) as u32
}
