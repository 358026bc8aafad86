//! What the calls hand to the IO thread.

use bytes::Bytes;

use super::Done;
use super::index::Place;
use super::manifest::Manifest;

/// An entry with its place.
pub(super) struct Frame {
    pub(super) place: Place,
    pub(super) payload: Bytes,
}

/// What is put in order.
pub(super) enum Target {
    /// An entry's frame, by these bytes.
    Frame(Place, Bytes),
    /// What lies behind the last entry of the complete segment with this base.
    Filler(u64),
    /// The index file of that segment.
    Index(u64),
}

/// One call's IO. Carried out in the order of the calls.
pub(super) enum Work {
    Append {
        frames: Vec<Frame>,
        /// Sum of the payload bytes, for the queue's bound.
        payload_bytes: usize,
        generation: u64,
        done: Done,
    },
    Truncate {
        /// The new end of the log: the end of the last frame that stays.
        end: u64,
        /// What to zero in the segment that `end` lies in, from the end backwards; each at most `write_bytes_max`.
        zero: Vec<(u64, u64)>,
        generation: u64,
        done: Done,
    },
    Vote {
        vote: Bytes,
        done: Done,
    },
    /// Durable bytes are damaged and are written again.
    Repair {
        target: Target,
        done: Done,
    },
    /// A purge of whole segments, or with `manifest.discard` of all of them.
    Purge {
        manifest: Manifest,
        generation: u64,
        done: Done,
    },
}
