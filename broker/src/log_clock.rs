//! The clock that gives a broker group its log time.
//!
//! Log time never runs back: apply takes the highest time of any entry so far. If a leader's wall clock was ahead and was set
//! right, or a leader with a clock behind takes over, wall time says nothing until it has caught up; would log time stand
//! still meanwhile, so would everything that waits for it, in-flight messages first. So a clock that is behind goes on from
//! the last log time at half speed: waits may last twice as long, and wall time catches up.
//!
//! ```text
//!                 ____/  wall
//!    wall ahead  /   ..
//!      _________/ ..        log time: follows the wall clock, or half as fast from where it was
//!     /    |  ..
//!          set back
//! ```

use parking_lot::Mutex;
use raftmq_model::clock::Clock;
use raftmq_model::ids::Timestamp;
use std::sync::Arc;
use tokio::time::Instant;

/// While wall time is behind, log time goes this many times slower.
const SLOWER_TIMES: u64 = 2;

/// One group's log clock on one node. See the module.
pub(crate) struct LogClock {
    wall: Arc<dyn Clock>,
    /// A log time, and when it was.
    known: Mutex<(Timestamp, Instant)>,
}

impl LogClock {
    pub(crate) fn new(wall: Arc<dyn Clock>) -> LogClock {
        let known = (wall.now(), Instant::now());
        LogClock { wall, known: Mutex::new(known) }
    }

    /// The group applied something at this log time.
    pub(crate) fn applied(&self, at: Timestamp) {
        let now = Instant::now();
        let mut known = self.known.lock();
        if at > going_on(*known, now) {
            *known = (at, now);
        }
    }
}

impl Clock for LogClock {
    fn now(&self) -> Timestamp {
        let (wall, now) = (self.wall.now(), Instant::now());
        let mut known = self.known.lock();
        let log = going_on(*known, now);
        if wall >= log {
            *known = (wall, now);
            return wall;
        }
        log
    }
}

fn going_on((at, then): (Timestamp, Instant), now: Instant) -> Timestamp {
    let ms = now.saturating_duration_since(then).as_millis();
    at.plus_ms(u64::try_from(ms).unwrap_or(u64::MAX) / SLOWER_TIMES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicI64, Ordering};
    use std::time::Duration;

    struct Wall(AtomicI64);

    impl Clock for Wall {
        fn now(&self) -> Timestamp {
            Timestamp(self.0.load(Ordering::Relaxed))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn log_time_follows_the_wall_clock_and_never_stands_still() {
        let wall = Arc::new(Wall(AtomicI64::new(1_000_000)));
        let clock = LogClock::new(Arc::clone(&wall) as Arc<dyn Clock>);
        let pass = async |ms: u64| {
            wall.0.fetch_add(ms as i64, Ordering::Relaxed);
            tokio::time::advance(Duration::from_millis(ms)).await;
            clock.now().0
        };
        assert_eq!(pass(500).await, 1_000_500);
        // Set back by ten seconds: on at half speed, whoever asks in between.
        wall.0.fetch_sub(10_000, Ordering::Relaxed);
        assert_eq!(clock.now().0, 1_000_500);
        assert_eq!(pass(1_001).await, 1_001_000);
        assert_eq!(pass(999).await, 1_001_500);
        assert_eq!(pass(18_000).await, 1_010_500, "caught up");
        assert_eq!(pass(1_000).await, 1_011_500);
        // Another node's clock is ahead, and its log time is this group's.
        clock.applied(Timestamp(1_031_500));
        assert_eq!(clock.now().0, 1_031_500);
        assert_eq!(pass(10_000).await, 1_036_500);
        clock.applied(Timestamp(1_000_000));
        assert_eq!(clock.now().0, 1_036_500, "an old time is no news");
    }
}
