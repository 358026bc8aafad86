//! Checkers: pure functions from a history to a verdict. One file each.

pub mod delivery;
pub mod linearizable;
pub mod order;
pub mod register;
pub mod routes;

use std::fmt;

/// What a checker concludes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Nothing speaks against the system, and the history could have.
    Valid,
    /// The system broke a promise.
    Invalid,
    /// The history decides nothing.
    Undecided,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Valid => "valid",
            Verdict::Invalid => "INVALID",
            Verdict::Undecided => "undecided",
        })
    }
}
