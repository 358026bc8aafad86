//! What an inspection found wrong, and where.

use std::fmt;
use std::path::PathBuf;

/// Findings that are kept with their text; the others are only counted.
pub const FINDINGS_COUNT_MAX: usize = 1000;

/// What a finding means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Severity {
    /// What a crash may leave, or what costs nothing: the node starts and repairs it.
    Note,
    /// Bytes that are not as they were written, or files that contradict each other.
    Damage,
}

/// One thing that is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// What it means.
    pub severity: Severity,
    /// The file.
    pub file: PathBuf,
    /// Where in the file, in bytes.
    pub at: u64,
    /// What was expected and what is there.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}: {}", self.file.display(), self.at, self.what)
    }
}

/// All that is wrong, in the order in which it was found.
#[derive(Clone, Default, Debug)]
pub struct Findings {
    list: Vec<Finding>,
    damages: u64,
    notes: u64,
}

impl Findings {
    /// Adds damage.
    pub fn damage(&mut self, file: impl Into<PathBuf>, at: u64, what: impl Into<String>) {
        self.damages += 1;
        self.push(Severity::Damage, file.into(), at, what.into());
    }

    /// Adds a note.
    pub fn note(&mut self, file: impl Into<PathBuf>, at: u64, what: impl Into<String>) {
        self.notes += 1;
        self.push(Severity::Note, file.into(), at, what.into());
    }

    fn push(&mut self, severity: Severity, file: PathBuf, at: u64, what: String) {
        if self.list.len() < FINDINGS_COUNT_MAX {
            self.list.push(Finding { severity, file, at, what });
        }
    }

    /// The first [`FINDINGS_COUNT_MAX`] findings.
    #[must_use]
    pub fn list(&self) -> &[Finding] {
        &self.list
    }

    /// How much damage there is, with what is not in the list.
    #[must_use]
    pub fn damages(&self) -> u64 {
        self.damages
    }

    /// How many notes there are, with what is not in the list.
    #[must_use]
    pub fn notes(&self) -> u64 {
        self.notes
    }
}
