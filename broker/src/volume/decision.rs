//! When a volume counts as full. Pure: values in, a state out.
//!
//! ```text
//!              available < reserve, or used > maximum
//!   Writable ------------------------------------------> Full
//!            <------------------------------------------
//!              available ≥ reserve + a quarter of it, and used ≤ maximum - 2 points
//! ```
//! The gap between the two edges keeps a volume at the edge from flapping with each file that comes and goes.

use raftmq_store::Volume;

/// Room must come back by this share of the reserve, one byte in so many, before writes resume ...
const RESUME_SHARE: u64 = 4;
/// ... and by so many points of the used percentage.
const RESUME_POINTS: u8 = 2;
/// With this maximum the used percentage does not count.
const USED_PERCENT_OFF: u8 = 100;

/// What a node keeps back of its volume. The defaults of [`crate::options::BrokerLimits`] say why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VolumeLimits {
    /// Bytes, an eighth of a small volume at most ([`Volume::reserve_bytes`]); 0 for none.
    pub reserve_bytes: u64,
    /// Hundredths of the volume that may be used; 100 for all.
    pub used_percent_max: u8,
}

/// Whether messages may be stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VolumeState {
    /// Yes.
    Writable,
    /// No: what is left is for acks, positions, votes and what else must go on.
    Full,
}

impl VolumeLimits {
    /// The state of a volume that was in the state `before`.
    #[must_use]
    pub fn next(&self, before: VolumeState, volume: Volume) -> VolumeState {
        let reserve = volume.reserve_bytes(self.reserve_bytes);
        let (available, used) = (volume.available_bytes, volume.used_percent());
        let below = |used_max: u8| self.used_percent_max >= USED_PERCENT_OFF || used <= used_max;
        let room = match before {
            VolumeState::Writable => available >= reserve && below(self.used_percent_max),
            VolumeState::Full => {
                available >= reserve.saturating_add(reserve / RESUME_SHARE)
                    && below(self.used_percent_max.saturating_sub(RESUME_POINTS))
            }
        };
        if room { VolumeState::Writable } else { VolumeState::Full }
    }
}

#[cfg(test)]
mod tests {
    use super::VolumeState::{Full, Writable};
    use super::*;

    const MIB: u64 = 1 << 20;

    fn states(limits: VolumeLimits, total_bytes: u64, available: &[u64]) -> Vec<VolumeState> {
        let mut state = Writable;
        let next = |available_bytes: &u64| {
            state = limits.next(state, Volume { total_bytes, available_bytes: *available_bytes });
            state
        };
        available.iter().map(next).collect()
    }

    #[test]
    fn the_reserve_is_kept_and_writes_resume_when_a_quarter_more_is_back() {
        let limits = VolumeLimits { reserve_bytes: 512 * MIB, used_percent_max: 100 };
        let available = [513, 512, 511, 512, 639, 640, 512, 0].map(|mib| mib * MIB);
        let expected = [Writable, Writable, Full, Full, Full, Writable, Writable, Full];
        assert_eq!(states(limits, 100_000 * MIB, &available), expected);
    }

    #[test]
    fn a_small_volume_keeps_an_eighth() {
        let limits = VolumeLimits { reserve_bytes: 512 * MIB, used_percent_max: 100 };
        let available = [200, 32, 31, 39, 40].map(|mib| mib * MIB);
        assert_eq!(states(limits, 256 * MIB, &available), [Writable, Writable, Full, Full, Writable]);
    }

    #[test]
    fn a_volume_may_be_as_used_as_configured_and_resumes_two_points_below() {
        let limits = VolumeLimits { reserve_bytes: 0, used_percent_max: 90 };
        let available = [1000, 100, 99, 100, 119, 120, 100];
        let expected = [Writable, Writable, Full, Full, Full, Writable, Writable];
        assert_eq!(states(limits, 1000, &available), expected);
    }

    #[test]
    fn a_nearly_full_large_disk_is_no_obstacle_by_default() {
        let limits = VolumeLimits { reserve_bytes: 512 * MIB, used_percent_max: 100 };
        assert_eq!(states(limits, 250_000 * MIB, &[5_000 * MIB]), [Writable], "98 % are used");
    }

    #[test]
    fn without_limits_nothing_is_full() {
        let limits = VolumeLimits { reserve_bytes: 0, used_percent_max: 100 };
        assert_eq!(states(limits, 1000, &[0]), [Writable]);
    }
}
