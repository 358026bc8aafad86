//! One unit of a ConsumeQueue, in RocketMQ's layout.

use raftmq_model::ids::PhysicalOffset;

/// Bytes of a unit.
pub const UNIT_BYTES: usize = 20;

/// Size that marks a blank unit: the place of a message before the queue's first one.
const BLANK_SIZE: u32 = 0x7FFF_FFFF;

/// Where a message lies, and what its tag hashes to.
///
/// ```text
/// | physical offset i64 | size i32 | tag hash i64 |        big-endian
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Where the record lies in the CommitLog.
    pub physical: PhysicalOffset,
    /// Bytes of the record.
    pub size: u32,
    /// Tag hash.
    pub tags_code: i64,
}

impl Unit {
    pub(super) const BLANK: Unit = Unit { physical: PhysicalOffset(0), size: BLANK_SIZE, tags_code: 0 };

    pub(super) fn encode(&self) -> [u8; UNIT_BYTES] {
        assert!(self.size <= BLANK_SIZE, "a record's size is an i32 on disk");
        let mut bytes = [0; UNIT_BYTES];
        bytes[..8].copy_from_slice(&self.physical.0.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.size.to_be_bytes());
        bytes[12..].copy_from_slice(&self.tags_code.to_be_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; UNIT_BYTES]) -> Unit {
        let [p0, p1, p2, p3, p4, p5, p6, p7, s0, s1, s2, s3, t0, t1, t2, t3, t4, t5, t6, t7] = *bytes;
        Unit {
            physical: PhysicalOffset(u64::from_be_bytes([p0, p1, p2, p3, p4, p5, p6, p7])),
            size: u32::from_be_bytes([s0, s1, s2, s3]),
            tags_code: i64::from_be_bytes([t0, t1, t2, t3, t4, t5, t6, t7]),
        }
    }
}
