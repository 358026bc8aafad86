//! The processes of a playground: start, recognise, signal.

use crate::exit::Failure;
use crate::playground::record::PlaygroundNode;
use rustix::process::{Pid, Signal, kill_process};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Starts `raftmq serve` for a node and writes its pid into the record. The process gets a process group of its own, so
/// that Ctrl-C at a terminal does not reach it: whoever stops the playground stops it in order.
pub(crate) fn start(node: &mut PlaygroundNode) -> Result<Child, Failure> {
    let failed = |error: std::io::Error| Failure::failed(format!("node {} cannot be started: {error}", node.id));
    let program = std::env::current_exe().map_err(failed)?;
    let log = std::fs::OpenOptions::new().create(true).append(true).open(&node.log).map_err(failed)?;
    let child = Command::new(program)
        .arg("serve")
        .arg("--config")
        .arg(&node.config)
        .stdin(Stdio::null())
        .stdout(log.try_clone().map_err(failed)?)
        .stderr(log)
        .process_group(0)
        .spawn()
        .map_err(failed)?;
    node.pid = child.id();
    node.started_ticks = started_ticks(child.id()).unwrap_or(0);
    Ok(child)
}

/// Whether the process of the record runs. A zombie does not.
pub(crate) fn alive(node: &PlaygroundNode) -> bool {
    node.pid != 0 && started_ticks(node.pid) == Some(node.started_ticks) && serves(node.pid, &node.config)
}

/// Whether nothing of a process is left that holds its files. A process with much unwritten memory takes seconds to end, and
/// its first thread is a zombie long before the last one lets go.
pub(crate) fn gone(pid: u32) -> bool {
    let threads = || std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    stat(pid).is_none_or(|stat| matches!(stat.state, 'Z' | 'X') && threads() <= 1)
}

/// Sends a signal to a node's process, and to no other. Error: a sentence when it does not run.
pub(crate) fn signal(node: &PlaygroundNode, signal: Signal) -> Result<(), Failure> {
    if !alive(node) {
        return Err(Failure::refused(format!("node {} does not run", node.id)));
    }
    let failed = || Failure::failed(format!("node {} (pid {}) cannot be signalled", node.id, node.pid));
    let pid = i32::try_from(node.pid).ok().and_then(Pid::from_raw).ok_or_else(failed)?;
    kill_process(pid, signal).map_err(|_| failed())
}

/// The last line of a node's log, for a sentence about its end.
pub(crate) fn last_log_line(log: &Path) -> String {
    let text = std::fs::read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("nothing").trim().to_string()
}

struct Stat {
    state: char,
    started_ticks: u64,
}

/// Fields 3 and 22 of `/proc/PID/stat`; field 2 is the program's name in parentheses, which may contain anything.
fn stat(pid: u32) -> Option<Stat> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = text.get(text.rfind(')')? + 1..)?.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let started_ticks = fields.nth(18)?.parse().ok()?;
    Some(Stat { state, started_ticks })
}

fn started_ticks(pid: u32) -> Option<u64> {
    stat(pid).filter(|stat| stat.state != 'Z' && stat.state != 'X').map(|stat| stat.started_ticks)
}

fn serves(pid: u32, config: &Path) -> bool {
    let Ok(command_line) = std::fs::read(format!("/proc/{pid}/cmdline")) else { return false };
    let words: Vec<&[u8]> = command_line.split(|byte| *byte == 0).collect();
    words.contains(&b"serve".as_slice()) && words.contains(&config.as_os_str().as_encoded_bytes())
}

/// User and system time of a process so far, in microseconds; `None` when there is none.
pub(crate) fn cpu_us(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = text.get(text.rfind(')')? + 1..)?.split_ascii_whitespace();
    let user: u64 = fields.nth(11)?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    let ticks_per_second = rustix::param::clock_ticks_per_second();
    Some((user + system) * 1_000_000 / ticks_per_second.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::playground::layout;

    #[test]
    fn another_process_is_never_taken_for_a_node() {
        let dir = tempfile::tempdir().expect("dir");
        let mut node = layout::plan(dir.path(), 1, 1, None).expect("plan").nodes.remove(0);
        assert!(!alive(&node));
        // This test runs, started when it says, but it is not `raftmq serve` with that configuration.
        node.pid = std::process::id();
        node.started_ticks = started_ticks(node.pid).expect("own start time");
        assert!(!alive(&node));
        assert!(signal(&node, Signal::KILL).is_err());
    }

    #[test]
    fn a_process_is_gone_with_its_last_thread() {
        assert!(!gone(std::process::id()));
        let mut child = Command::new("true").spawn().expect("a child");
        // A zombie until it is waited for.
        let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while !gone(child.id()) && std::time::Instant::now() < until {
            std::thread::yield_now();
        }
        assert!(gone(child.id()));
        child.wait().expect("it ends");
        assert!(gone(child.id()));
    }

    #[test]
    fn own_cpu_time_is_known() {
        assert!(cpu_us(std::process::id()).is_some());
    }
}
