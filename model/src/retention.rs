//! What a leader decides about its log: when to keep a snapshot, and up to which one to purge. Pure: the clock, the
//! volume and the log are told. The decision is a command of the log (`crate::machine`), so all replicas forget the same.

use crate::ids::{PhysicalOffset, Timestamp};
use crate::machine::{Purged, SNAPSHOT_POINTS_COUNT_MAX, SnapshotPoint};

/// Bytes between two snapshots, at least, where a bound on what is kept does not ask for more: a snapshot is up to some 80 MiB
/// large, most of it the stored-once window, and is written and encoded beside the traffic.
const SNAPSHOT_SPACING_BYTES: u64 = 1 << 30;

/// How long messages are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetentionPolicy {
    /// Milliseconds for which a message is kept; 0: for ever.
    pub retention_ms: u64,
    /// Bytes of log that are kept, and up to a segment and a sixteenth more; 0: no bound.
    pub retention_bytes_max: u64,
    /// Forget the oldest messages, also such as are neither too old nor too many, while a disk is short of room.
    pub purge_when_disk_short: bool,
    /// Bytes of a segment of the log: what is purged within one does not give its space back.
    pub segment_bytes: u64,
}

/// What there is.
#[derive(Clone, Copy, Debug)]
pub struct Retained<'a> {
    /// The log clock, or later.
    pub now: Timestamp,
    /// The purge point.
    pub purged: Purged,
    /// Kept snapshots, oldest first.
    pub points: &'a [SnapshotPoint],
    /// Where the log ends.
    pub end: PhysicalOffset,
    /// The disk of a replica is short of room.
    pub disk_short: bool,
}

/// What to propose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetentionStep {
    /// [`crate::command::Command::Snapshot`].
    Snapshot,
    /// [`crate::command::Command::Purge`].
    Purge {
        /// Log index of the snapshot.
        upto_index: u64,
    },
}

impl RetentionPolicy {
    /// The next step, if there is one now. After it was taken there may be another one.
    #[must_use]
    pub fn next(&self, retained: &Retained<'_>) -> Option<RetentionStep> {
        if let Some(point) = self.expired(retained) {
            return Some(RetentionStep::Purge { upto_index: point.index });
        }
        self.snapshot_due(retained).then_some(RetentionStep::Snapshot)
    }

    /// The newest snapshot before which nothing has to be kept.
    fn expired<'a>(&self, retained: &Retained<'a>) -> Option<&'a SnapshotPoint> {
        let old =
            |point: &&SnapshotPoint| self.retention_ms > 0 && retained.now.ms_since(point.at) >= self.retention_ms;
        let by_age = retained.points.iter().rev().find(old);
        let kept = |point: &SnapshotPoint| retained.end.0.saturating_sub(point.offset.0);
        let too_large = self.retention_bytes_max > 0
            && retained.end.0.saturating_sub(retained.purged.offset.0) > self.retention_bytes_max;
        let fits = retained.points.iter().find(|point| kept(point) <= self.retention_bytes_max);
        let by_bytes = if too_large { fits.or(retained.points.last()) } else { None };
        // One step at a time, since each look sees what the last one gave back; and never what came just now.
        let oldest = retained.points.first().filter(|point| kept(point) >= self.segment_bytes);
        let by_disk = oldest.filter(|_| self.is_short(retained));
        by_age.into_iter().chain(by_bytes).chain(by_disk).max_by_key(|point| point.index)
    }

    fn is_short(&self, retained: &Retained<'_>) -> bool {
        self.purge_when_disk_short && retained.disk_short
    }

    /// A new segment has begun since the last snapshot, and enough was written, or enough time went by, for a purge up to here
    /// to be worth its snapshot.
    fn snapshot_due(&self, retained: &Retained<'_>) -> bool {
        let last = retained.points.last().map_or(retained.purged.offset, |point| point.offset);
        if retained.end.0 / self.segment_bytes <= last.0 / self.segment_bytes {
            return false;
        }
        let steps = SNAPSHOT_POINTS_COUNT_MAX as u64;
        let kept = retained.end.0.saturating_sub(retained.purged.offset.0);
        let spacing = match self.retention_bytes_max {
            _ if self.is_short(retained) => 0,
            0 => (kept / steps).max(SNAPSHOT_SPACING_BYTES),
            max => (kept.min(max) / steps).max(SNAPSHOT_SPACING_BYTES.min(max / 4)),
        };
        let enough = (retained.end.0 - last.0) >= spacing;
        let age = retained.points.last().map(|point| retained.now.ms_since(point.at));
        enough || (self.retention_ms > 0 && age.is_some_and(|age| age >= self.retention_ms / steps))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: u64 = 100;
    const POLICY: RetentionPolicy = RetentionPolicy {
        retention_ms: 1600,
        retention_bytes_max: 1600,
        purge_when_disk_short: true,
        segment_bytes: SEGMENT,
    };

    fn points(points: &[(u64, u64, i64)]) -> Vec<SnapshotPoint> {
        let point = |(index, offset, at): &(u64, u64, i64)| SnapshotPoint {
            index: *index,
            offset: PhysicalOffset(*offset),
            at: Timestamp(*at),
            queues: Vec::new(),
        };
        points.iter().map(point).collect()
    }

    fn next(
        policy: RetentionPolicy,
        now: i64,
        purged: (u64, u64),
        kept: &[(u64, u64, i64)],
        end: u64,
    ) -> Option<RetentionStep> {
        let purged = Purged { index: purged.0, offset: PhysicalOffset(purged.1) };
        let (now, points, end) = (Timestamp(now), points(kept), PhysicalOffset(end));
        policy.next(&Retained { now, purged, points: &points, end, disk_short: false })
    }

    #[test]
    fn a_disk_that_is_short_of_room_costs_the_oldest_messages() {
        let short = |policy: RetentionPolicy, kept: &[(u64, u64, i64)], end| {
            let (now, points) = (Timestamp(0), points(kept));
            policy.next(&Retained {
                now,
                purged: Purged::default(),
                points: &points,
                end: PhysicalOffset(end),
                disk_short: true,
            })
        };
        let kept = [(5, 101, 0), (6, 201, 0)];
        assert_eq!(short(POLICY, &kept, 299), Some(RetentionStep::Purge { upto_index: 5 }), "one step");
        assert_eq!(short(POLICY, &kept[1..], 299), None, "the last segment's worth stays");
        assert_eq!(short(POLICY, &[], 99), None, "nothing would come back of one segment");
        assert_eq!(short(POLICY, &[], 100), Some(RetentionStep::Snapshot), "as soon as a segment is over");
        let keeps = RetentionPolicy { purge_when_disk_short: false, ..POLICY };
        assert_eq!(short(keeps, &kept, 299), None);
    }

    #[test]
    fn a_snapshot_is_due_in_a_new_segment() {
        assert_eq!(next(POLICY, 0, (0, 0), &[], 99), None, "still in the first segment");
        assert_eq!(next(POLICY, 0, (0, 0), &[], 399), None, "a quarter of what is kept, at least");
        assert_eq!(next(POLICY, 0, (0, 0), &[], 400), Some(RetentionStep::Snapshot));
        assert_eq!(next(POLICY, 0, (0, 0), &[(5, 401, 0)], 499), None, "one for each segment");
        assert_eq!(next(POLICY, 0, (0, 0), &[(5, 401, 0)], 801), Some(RetentionStep::Snapshot));
    }

    #[test]
    fn snapshots_come_in_steps_of_a_sixteenth_of_what_is_kept() {
        const GIB: u64 = 1 << 30;
        let unbounded = RetentionPolicy { retention_bytes_max: 0, ..POLICY };
        let due = |now, last, end| next(unbounded, now, (0, 0), &[(5, last, 0)], end);
        assert_eq!(due(0, GIB, 2 * GIB - 1), None, "a gibibyte, at least");
        assert_eq!(due(0, GIB, 2 * GIB), Some(RetentionStep::Snapshot));
        assert_eq!(due(0, 64 * GIB, 66 * GIB), None, "a sixteenth of 66 GiB was not written");
        assert_eq!(due(0, 64 * GIB, 69 * GIB), Some(RetentionStep::Snapshot));
        assert_eq!(due(99, 64 * GIB, 66 * GIB), None);
        assert_eq!(due(100, 64 * GIB, 66 * GIB), Some(RetentionStep::Snapshot), "or the time");
    }

    #[test]
    fn the_newest_snapshot_that_is_old_enough_is_the_purge_point() {
        let kept = [(5, 101, 1000), (6, 201, 2000), (7, 301, 3000)];
        assert_eq!(next(POLICY, 2599, (0, 0), &kept, 302), None);
        assert_eq!(next(POLICY, 2600, (0, 0), &kept, 302), Some(RetentionStep::Purge { upto_index: 5 }));
        assert_eq!(next(POLICY, 3700, (0, 0), &kept, 302), Some(RetentionStep::Purge { upto_index: 6 }));
        let for_ever = RetentionPolicy { retention_ms: 0, ..POLICY };
        assert_eq!(next(for_ever, i64::MAX, (0, 0), &kept, 302), None);
    }

    #[test]
    fn the_oldest_snapshot_that_keeps_no_more_than_the_bound_is_the_purge_point() {
        let kept = [(5, 101, 0), (6, 601, 0), (7, 1001, 0)];
        assert_eq!(next(POLICY, 0, (0, 0), &kept, 1600), Some(RetentionStep::Snapshot), "no more than the bound");
        assert_eq!(next(POLICY, 0, (0, 0), &kept, 1300), None);
        assert_eq!(next(POLICY, 0, (0, 0), &kept, 1701), Some(RetentionStep::Purge { upto_index: 5 }));
        assert_eq!(next(POLICY, 0, (0, 0), &kept, 1702), Some(RetentionStep::Purge { upto_index: 6 }));
        assert_eq!(
            next(POLICY, 0, (0, 0), &kept, 9000),
            Some(RetentionStep::Purge { upto_index: 7 }),
            "the best there is"
        );
        assert_eq!(next(POLICY, 0, (0, 0), &[], 9000), Some(RetentionStep::Snapshot));
        let unbounded = RetentionPolicy { retention_bytes_max: 0, ..POLICY };
        assert_eq!(next(unbounded, 0, (0, 0), &kept, 9000), None);
    }

    #[test]
    fn the_stricter_bound_decides() {
        let kept = [(5, 101, 0), (6, 601, 2000)];
        assert_eq!(next(POLICY, 1700, (0, 0), &kept, 1702), Some(RetentionStep::Purge { upto_index: 6 }));
        assert_eq!(next(POLICY, 3600, (0, 0), &kept, 700), Some(RetentionStep::Purge { upto_index: 6 }));
    }
}
