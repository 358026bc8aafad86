//! The wall clock of one node, as the harness turns it. The other half is the library of `jepsen/clock`.

use anyhow::{Context, Result};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// See the module.
pub(super) struct Clock {
    control: File,
    path: PathBuf,
    library: PathBuf,
}

impl Clock {
    /// A clock that is right, controlled through a new file at `path`.
    pub(super) fn new(path: &Path, library: &Path) -> Result<Clock> {
        let control = File::options().create(true).truncate(true).write(true).open(path)?;
        let clock = Clock { control, path: path.to_owned(), library: library.to_owned() };
        clock.set(0, 0)?;
        Ok(clock)
    }

    /// Makes a process that is about to be started use this clock.
    pub(super) fn attach(&self, command: &mut Command) {
        command.env("LD_PRELOAD", &self.library).env("RAFTMQ_JEPSEN_CLOCK", &self.path);
    }

    /// From now on it is `offset_ms` ahead and gains `drift_ppm` millionths.
    pub(super) fn set(&self, offset_ms: i64, drift_ppm: i64) -> Result<()> {
        let now_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i64);
        let fields = [offset_ms * 1_000_000, now_ns, drift_ppm].map(i64::to_le_bytes).concat();
        self.control.write_all_at(&fields, 0).context("a clock cannot be turned")
    }
}
