//! The bounds of a group's state.

/// Bounds of a [`super::GroupState`]. What they evict and refuse is part of the replicated rules: all replicas of a
/// group must use the same values, so a change of a default is a change of the log's meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Message ids that the stored-once window remembers.
    pub stored_once_count_max: usize,
    /// Log time, in milliseconds, for which the stored-once window remembers a message id.
    pub stored_once_ms: u64,
    /// Bytes of message ids (as packed by the window) that the stored-once window remembers.
    pub stored_once_id_bytes_max: usize,
    /// Attempt ids that are remembered per consumer group; the oldest is forgotten first.
    pub attempt_ids_count_max: usize,
    /// Log time, in milliseconds, for which an attempt id is remembered.
    pub attempt_ids_ms: u64,
    /// Bytes of an attempt id.
    pub attempt_id_bytes_max: usize,
    /// Messages in flight per consumer group and queue; fresh ones beyond it are not taken.
    pub in_flight_count_max: usize,
    /// Messages that one `Pop` may name.
    pub pop_count_max: usize,
}

/// See [`Limits::stored_once_count_max`].
pub const STORED_ONCE_COUNT_MAX: usize = 1_000_000;
/// See [`Limits::stored_once_ms`].
pub const STORED_ONCE_MS: u64 = 10 * 60 * 1000;
/// See [`Limits::stored_once_id_bytes_max`].
pub const STORED_ONCE_ID_BYTES_MAX: usize = 64 * 1024 * 1024;
/// See [`Limits::attempt_ids_count_max`].
pub const ATTEMPT_IDS_COUNT_MAX: usize = 16 * 1024;
/// See [`Limits::attempt_ids_ms`].
pub const ATTEMPT_IDS_MS: u64 = 10 * 60 * 1000;
/// See [`Limits::attempt_id_bytes_max`].
pub const ATTEMPT_ID_BYTES_MAX: usize = 255;
/// See [`Limits::in_flight_count_max`].
pub const IN_FLIGHT_COUNT_MAX: usize = 20_000;
/// See [`Limits::pop_count_max`].
pub const POP_COUNT_MAX: usize = 1024;

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            stored_once_count_max: STORED_ONCE_COUNT_MAX,
            stored_once_ms: STORED_ONCE_MS,
            stored_once_id_bytes_max: STORED_ONCE_ID_BYTES_MAX,
            attempt_ids_count_max: ATTEMPT_IDS_COUNT_MAX,
            attempt_ids_ms: ATTEMPT_IDS_MS,
            attempt_id_bytes_max: ATTEMPT_ID_BYTES_MAX,
            in_flight_count_max: IN_FLIGHT_COUNT_MAX,
            pop_count_max: POP_COUNT_MAX,
        }
    }
}
