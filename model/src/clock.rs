//! The one way to ask for the time.

use crate::ids::Timestamp;

/// A wall clock. Runtimes and the simulation implement it; nothing in this crate reads one by itself.
pub trait Clock: Send + Sync + 'static {
    /// Now, in milliseconds since the Unix epoch.
    fn now(&self) -> Timestamp;
}
