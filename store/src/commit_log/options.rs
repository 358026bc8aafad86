//! How a log is opened.

use std::path::PathBuf;
use std::sync::Arc;

use crate::frame::{HEADER_BYTES, PAYLOAD_BYTES_MAX};
use crate::io::{Io, RealIo};

/// Sizes of segments, and what a log's memory maps need.
const PAGE_BYTES: u64 = 4096;
/// Segments are not larger than this.
const SEGMENT_BYTES_LIMIT: u64 = 1 << 32;

/// There both take about the same time on ext4 (`append_rate`), and one writes half the bytes: disks have limits for these.
const HOLES_BYTES_MIN: u64 = 256 << 10;

/// When an append counts as done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// After `fdatasync`.
    #[default]
    Fsync,
    /// After the write: a loss of power can take entries whose append was done (at most those of the last segment).
    /// Votes are synced all the same.
    Memory,
}

/// How a log is opened.
#[derive(Clone)]
pub struct CommitLogOptions {
    /// The log's folder; made when missing.
    pub dir: PathBuf,
    /// Bytes of a segment file, a multiple of 4096. Equal on all replicas and for the whole life of a log.
    pub segment_bytes_max: u64,
    /// Bytes that may be written and not synced at any time; also the largest frame, and how far from the end a torn
    /// tail may reach.
    pub write_bytes_max: u64,
    /// Payload bytes of recent entries that are kept in memory (more while they are not written yet).
    pub cache_bytes_max: usize,
    /// Payload bytes that wait for the IO thread before `append` waits.
    pub queue_bytes_max: usize,
    /// When an append counts as done.
    pub durability: Durability,
    /// Bytes that are zero-written ahead of the tail, so that a sync changes no block map; 0 for none.
    pub zero_ahead_bytes: u64,
    /// Appends that are written together and have this many bytes go into holes: for them the journal commit of their sync costs
    /// less than writing all their blocks twice.
    pub holes_bytes_min: u64,
    /// Bytes of the volume that are not zeroed ahead into (an eighth of a small volume): they are for what must be written
    /// though the disk is full.
    pub reserve_bytes: u64,
    /// Whether the log has an IO thread. Without, nothing is written until [`crate::CommitLog::drive`] is called, on the
    /// thread that calls it: for tests and simulation.
    pub io_thread: bool,
    /// Whether a log that has lost entries which were committed is opened all the same, cut where the loss begins. Only for
    /// who knows that the other replicas have them.
    pub cut_damage: bool,
    /// Whether the payloads of all entries are checked at open, and not those of the last two segments alone.
    pub verify_all: bool,
    /// The file system.
    pub io: Arc<dyn Io>,
}

impl CommitLogOptions {
    /// A log in `dir` with 1 GiB segments and the default limits, on the real file system.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>) -> CommitLogOptions {
        CommitLogOptions {
            dir: dir.into(),
            segment_bytes_max: 1 << 30,
            write_bytes_max: 16 << 20,
            cache_bytes_max: 64 << 20,
            queue_bytes_max: 128 << 20,
            durability: Durability::Fsync,
            zero_ahead_bytes: 16 << 20,
            holes_bytes_min: HOLES_BYTES_MIN,
            reserve_bytes: 0,
            io_thread: true,
            cut_damage: false,
            verify_all: false,
            io: Arc::new(RealIo),
        }
    }

    /// The largest payload that one entry may have.
    #[must_use]
    pub fn payload_bytes_max(&self) -> usize {
        let frame = usize::try_from(self.segment_bytes_max.min(self.write_bytes_max)).unwrap_or(usize::MAX);
        frame.saturating_sub(HEADER_BYTES).min(PAYLOAD_BYTES_MAX)
    }

    /// Why the options make no sense, if so.
    pub(super) fn objection(&self) -> Option<String> {
        let segment = self.segment_bytes_max;
        if segment == 0 || !segment.is_multiple_of(PAGE_BYTES) || segment > SEGMENT_BYTES_LIMIT {
            return Some(format!(
                "segment_bytes_max is {segment}, but must be a multiple of {PAGE_BYTES} up to {SEGMENT_BYTES_LIMIT}"
            ));
        }
        if self.write_bytes_max < PAGE_BYTES || !self.write_bytes_max.is_multiple_of(PAGE_BYTES) {
            let write = self.write_bytes_max;
            return Some(format!("write_bytes_max is {write}, but must be a multiple of {PAGE_BYTES}"));
        }
        None
    }

    /// How far behind the last valid frame the bytes of a torn tail can lie.
    pub(super) fn torn_bytes_max(&self) -> u64 {
        match self.durability {
            Durability::Fsync => self.write_bytes_max,
            Durability::Memory => self.segment_bytes_max,
        }
    }
}
