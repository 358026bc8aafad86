//! What this machine can do to a node, and why it cannot do the rest: such faults are skipped, and the run says so.

use super::shell::sh;
use crate::nemesis::Fault;
use rustix::fs::Access;
use std::path::{Path, PathBuf};

/// The library of `jepsen/clock`, beside this program.
const CLOCK_LIBRARY: &str = "libraftmq_jepsen_clock.so";
/// Exists where ext4 tells of its mounts.
const EXT4_SYSFS: &str = "/sys/fs/ext4";

/// See the module. An error says why.
pub(super) struct Facilities {
    /// The library that turns clocks.
    pub(super) clock: Result<PathBuf, String>,
    /// System calls can be delayed and made to fail.
    injection: Result<(), String>,
    /// A file system can be told to find an error.
    fs_error: Result<(), String>,
}

impl Facilities {
    pub(super) fn probe() -> Facilities {
        let library = std::env::current_exe().unwrap_or_default().with_file_name(CLOCK_LIBRARY);
        let clock = if library.is_file() { Ok(library) } else { Err(format!("{} is not built", library.display())) };
        let traced = sh("strace", &["-qq", "-o", "/dev/null", "true"]);
        // It is there and cannot be written where the machine is a container.
        let fs_error = rustix::fs::access(Path::new(EXT4_SYSFS), Access::WRITE_OK);
        let fs_error = fs_error.map_err(|error| format!("{EXT4_SYSFS} cannot be written: {error}"));
        Facilities { clock, injection: traced.map(drop).map_err(|error| format!("{error:#}")), fs_error }
    }

    /// Why a fault cannot be brought about here.
    pub(super) fn lacking(&self, fault: Fault) -> Option<String> {
        match fault {
            Fault::SlowDiskLeader | Fault::SyncErrorLeader => self.injection.clone().err(),
            Fault::ReadOnlyLeader => self.fs_error.clone().err(),
            fault if fault.turns_a_clock() => self.clock.clone().err(),
            _ => None,
        }
    }
}
