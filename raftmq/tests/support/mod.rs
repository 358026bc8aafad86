//! Runs the built binary in a folder of its own. Each test uses its part.
#![allow(dead_code)]

pub(crate) mod client;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a cluster may take for anything that a test waits for.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// A folder, and the binary that uses it for its playground and its state. Stops the playground when dropped.
pub(crate) struct Raftmq {
    dir: tempfile::TempDir,
}

/// How a command ended.
pub(crate) struct Cli {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Cli {
    /// The command must have worked.
    #[track_caller]
    pub(crate) fn ok(self) -> Cli {
        assert_eq!(self.code, 0, "{}", self.stderr);
        self
    }
}

impl Raftmq {
    pub(crate) fn new() -> Raftmq {
        Raftmq { dir: tempfile::tempdir().expect("folder") }
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_raftmq"));
        command.args(arguments).arg("--data").arg(self.dir());
        command.env("XDG_STATE_HOME", self.dir().join("state")).stdin(Stdio::null());
        command
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Cli {
        let output = self.command(arguments).output().expect("run");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
        Cli { code: output.status.code().unwrap_or(-1), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    /// Runs a command that must work, with `-o json`.
    #[track_caller]
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let arguments = [arguments, &["-o", "json"]].concat();
        let stdout = self.run(&arguments).ok().stdout;
        serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {stdout}"))
    }

    /// Asks for the cluster's status until it is as wanted.
    #[track_caller]
    pub(crate) fn status_when(&self, wanted: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + SOON;
        loop {
            let status = self.json(&["cluster", "status"]);
            if wanted(&status) {
                return status;
            }
            assert!(Instant::now() < deadline, "the cluster stays as {status}");
        }
    }

    /// Starts a playground of three nodes, each with its own ports; where clients connect.
    #[track_caller]
    pub(crate) fn three_nodes(&self) -> Vec<String> {
        let started = self.json(&["playground", "--nodes", "3", "--port", "0", "--detach"]);
        let nodes = started["nodes"].as_array().expect("nodes").iter();
        nodes.map(|node| node["client"].as_str().expect("client").into()).collect()
    }

    /// Starts a command whose standard output can be read.
    pub(crate) fn spawn(&self, arguments: &[&str]) -> Child {
        self.command(arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("spawn")
    }

    /// Ctrl-C.
    pub(crate) fn interrupt(&self, child: &Child) {
        signal(child, Signal::INT);
    }

    /// What a service manager sends.
    pub(crate) fn terminate(&self, child: &Child) {
        signal(child, Signal::TERM);
    }

    /// Processes that run with a configuration in this folder.
    pub(crate) fn running(&self) -> usize {
        let processes = std::fs::read_dir("/proc").expect("proc").flatten();
        let lines = processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
        let needle = format!("{}/node-", self.dir().display());
        lines.filter(|line| String::from_utf8_lossy(line).contains(&needle)).count()
    }
}

fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(child.id()).expect("pid")).expect("pid");
    kill_process(pid, signal).expect("signal");
}

impl Drop for Raftmq {
    fn drop(&mut self) {
        if self.dir().join("playground.json").exists() {
            let _ = self.run(&["playground", "stop"]);
        }
    }
}

/// An address that nobody listens on, and no one else will: each is on a loopback address of its own.
pub(crate) fn free_address() -> String {
    static NEXT: std::sync::atomic::AtomicU16 = std::sync::atomic::AtomicU16::new(0);
    let [high, low] = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed).to_be_bytes();
    let process = u8::try_from(std::process::id() % 250).expect("below 250");
    format!("127.{}.{high}.{}:7000", process + 2, low.wrapping_add(1))
}
