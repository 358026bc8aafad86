//! How much room the volume of a folder has.

/// A reserve is not larger than this share of its volume: one in so many bytes.
pub const RESERVE_SHARE: u64 = 8;

/// The size of a volume at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Volume {
    /// Bytes that it has in all.
    pub total_bytes: u64,
    /// Bytes that this process can still write there; what the file system keeps for root is not among them.
    pub available_bytes: u64,
}

impl Volume {
    /// A volume that is never full, for file systems without a size.
    pub const BOUNDLESS: Volume = Volume { total_bytes: u64::MAX, available_bytes: u64::MAX };

    /// Hundredths of the volume that are not available, rounded up: 0 only when all of it is.
    #[must_use]
    pub fn used_percent(&self) -> u8 {
        let used = u128::from(self.total_bytes.saturating_sub(self.available_bytes));
        if self.total_bytes == 0 {
            return 100;
        }
        u8::try_from((used * 100).div_ceil(u128::from(self.total_bytes))).unwrap_or(100)
    }

    /// What is kept back here when `wanted_bytes` shall be: at most one byte in [`RESERVE_SHARE`], so that a small volume is
    /// not all reserve.
    #[must_use]
    pub fn reserve_bytes(&self, wanted_bytes: u64) -> u64 {
        wanted_bytes.min(self.total_bytes / RESERVE_SHARE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_available_is_used() {
        let used = |total_bytes, available_bytes| Volume { total_bytes, available_bytes }.used_percent();
        assert_eq!([1000, 999, 500, 10, 0].map(|available| used(1000, available)), [0, 1, 50, 99, 100]);
        assert_eq!(used(0, 0), 100, "a volume without a size has no room");
        assert_eq!(used(10, 20), 0, "a file system may say more than it has");
        assert_eq!(Volume::BOUNDLESS.used_percent(), 0);
    }

    #[test]
    fn a_reserve_is_an_eighth_at_most() {
        let volume = Volume { total_bytes: 800, available_bytes: 0 };
        assert_eq!([0, 99, 100, 101].map(|wanted| volume.reserve_bytes(wanted)), [0, 99, 100, 100]);
    }
}
