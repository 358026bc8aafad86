//! The one system clock.

use raftmq_model::clock::Clock;
use raftmq_model::ids::Timestamp;
use std::time::{SystemTime, UNIX_EPOCH};

/// The machine's wall clock.
pub(super) struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }
}
