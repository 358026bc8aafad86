//! System calls of one process, delayed or made to fail by strace, which is attached to it for as long as this exists.

use super::shell::sh;
use anyhow::{Context, Result, bail};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long strace may take to attach to all threads.
const ATTACH_MS_MAX: u64 = 5_000;
const POLL: Duration = Duration::from_millis(20);

/// See the module. Detached when dropped.
pub(super) struct Injection {
    strace: Child,
}

impl Injection {
    /// Does `what` (strace's words: `error=EIO`, `delay_enter=200ms`) to the calls `calls` of a process, from when this
    /// returns.
    pub(super) fn attach(pid: u32, calls: &str, what: &str) -> Result<Injection> {
        let strace = Command::new("strace")
            .args(["-f", "-qq", "-o", "/dev/null", "-p", &pid.to_string()])
            .args(["-e", &format!("trace={calls}"), "-e", &format!("inject={calls}:{what}")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("strace does not start")?;
        let mut injection = Injection { strace };
        let until = Instant::now() + Duration::from_millis(ATTACH_MS_MAX);
        // An injected error may have ended the process at once.
        while field(pid, "TracerPid:").is_none_or(|tracer| tracer == "0") && !is_over(pid) {
            if injection.strace.try_wait()?.is_some() || Instant::now() > until {
                bail!("strace does not attach to process {pid}");
            }
            sleep(POLL);
        }
        Ok(injection)
    }
}

/// What `/proc` says of a process. strace attaches to its main thread first, and to the others right after.
fn field(pid: u32, name: &str) -> Option<String> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim().to_owned())
}

/// Whether a process has ended, be it that nobody has asked for its exit code yet.
fn is_over(pid: u32) -> bool {
    field(pid, "State:").is_none_or(|state| state.starts_with(['Z', 'X']))
}

impl Drop for Injection {
    fn drop(&mut self) {
        // It detaches from all threads when it is asked to end; killed, it would leave them stopped.
        if matches!(self.strace.try_wait(), Ok(None)) {
            let _ = sh("kill", &["-TERM", &self.strace.id().to_string()]);
        }
        let _ = self.strace.wait();
    }
}
