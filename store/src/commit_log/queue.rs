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
    /// A purge of whole segments, or with `manifest.discard` of all of them.
    Purge {
        manifest: Manifest,
        generation: u64,
        done: Done,
    },
}
