//! Network namespaces joined by a bridge, and what is cut between them.

use super::shell::sh;
use anyhow::{Context, Result, bail};

/// Begins every name of this harness; the hexadecimal id of its process follows.
const PREFIX: &str = "rq";

/// See the module. Taken down when dropped.
pub(super) struct Network {
    pid: u32,
    nodes: Vec<u32>,
}

impl Network {
    /// Makes a namespace for each node; this process reaches them over the bridge.
    pub(super) fn new(nodes: &[u32]) -> Result<Network> {
        let pid = std::process::id();
        // Dropped, and so taken down, when the rest fails.
        let network = Network { pid, nodes: nodes.to_vec() };
        let (bridge, host) = (network.bridge(), network.host());
        let taken = sh("ip", &["-o", "-4", "addr"])?;
        if taken.contains(&format!(" {}", network.subnet())) {
            bail!("the addresses {}0/24 are in use on this machine; try again", network.subnet());
        }
        sh("ip", &["link", "add", &bridge, "type", "bridge"]).context("no bridge; the harness needs root")?;
        sh("ip", &["addr", "add", &format!("{host}/24"), "dev", &bridge])?;
        sh("ip", &["link", "set", &bridge, "up"])?;
        for node in nodes {
            network.add(*node)?;
        }
        Ok(network)
    }

    fn add(&self, node: u32) -> Result<()> {
        let (space, outer) = (self.space(node), format!("{PREFIX}{:x}v{node}", self.pid));
        let inner = format!("{PREFIX}{:x}w{node}", self.pid);
        sh("ip", &["netns", "add", &space])?;
        sh("ip", &["link", "add", &outer, "type", "veth", "peer", "name", &inner])?;
        sh("ip", &["link", "set", &inner, "netns", &space])?;
        sh("ip", &["link", "set", &outer, "master", &self.bridge(), "up"])?;
        let within = |args: &[&str]| sh("ip", &[&["-n", &space], args].concat());
        within(&["addr", "add", &format!("{}/24", self.address(node)), "dev", &inner])?;
        within(&["link", "set", &inner, "up"])?;
        within(&["link", "set", "lo", "up"])?;
        Ok(())
    }

    /// A node's namespace.
    pub(super) fn space(&self, node: u32) -> String {
        format!("{PREFIX}{:x}n{node}", self.pid)
    }

    /// A node's address.
    pub(super) fn address(&self, node: u32) -> String {
        format!("{}{node}", self.subnet())
    }

    /// The address of this process on the bridge.
    pub(super) fn host(&self) -> String {
        format!("{}254", self.subnet())
    }

    fn bridge(&self) -> String {
        format!("{PREFIX}{:x}b", self.pid)
    }

    /// Of the range that is shared by carriers, so that nothing here uses it.
    fn subnet(&self) -> String {
        format!("100.{}.{}.", 64 + (self.pid >> 8) % 64, self.pid % 256)
    }

    /// `at` drops what comes from these addresses: all of it, or some of a hundred packets.
    pub(super) fn drop_from(&self, at: u32, from: &[String], percent: u32) -> Result<()> {
        let chance = if percent >= 100 { String::new() } else { format!("numgen random mod 100 < {percent} ") };
        let rules = format!(
            "table inet cut {{ chain in {{ type filter hook input priority 0; ip saddr {{ {} }} {chance}drop; }}; }}",
            from.join(", ")
        );
        sh("ip", &["netns", "exec", &self.space(at), "nft", &rules]).map(drop)
    }

    /// Nothing is dropped at any node any more.
    pub(super) fn heal(&self) -> Result<()> {
        for node in &self.nodes {
            // Declared first, so that deleting it works whether it was there or not.
            let rules = "table inet cut {}; delete table inet cut;";
            sh("ip", &["netns", "exec", &self.space(*node), "nft", rules])?;
        }
        Ok(())
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for node in &self.nodes {
            // A namespace takes its end of the pair, and so the pair, along.
            let _ = sh("ip", &["netns", "del", &self.space(*node)]);
        }
        let _ = sh("ip", &["link", "del", &self.bridge()]);
    }
}

/// Takes down what harness processes left that are no more; what it took down.
///
/// # Errors
/// When namespaces and links cannot be listed.
pub fn clean() -> Result<Vec<String>> {
    let mut removed = Vec::new();
    for line in sh("ip", &["netns", "list"])?.lines() {
        let name = line.split_whitespace().next().unwrap_or_default();
        if !left_behind(name) {
            continue;
        }
        // Nodes that outlived their harness: nobody else puts a process there.
        for pid in sh("ip", &["netns", "pids", name])?.lines() {
            let _ = sh("kill", &["-KILL", pid]);
        }
        if sh("ip", &["netns", "del", name]).is_ok() {
            removed.push(name.to_owned());
        }
    }
    for line in sh("ip", &["-o", "link", "show", "type", "bridge"])?.lines() {
        let name = line.split(": ").nth(1).unwrap_or_default();
        if left_behind(name) && sh("ip", &["link", "del", name]).is_ok() {
            removed.push(name.to_owned());
        }
    }
    Ok(removed)
}

/// Whether a name is of a harness process that does not run.
fn left_behind(name: &str) -> bool {
    let pid = name.strip_prefix(PREFIX).and_then(|rest| rest.split(['n', 'v', 'w']).next());
    let pid = pid.map(|pid| pid.strip_suffix('b').filter(|_| !name.contains('n')).unwrap_or(pid));
    let Some(pid) = pid.and_then(|pid| u32::from_str_radix(pid, 16).ok()) else { return false };
    !std::path::Path::new(&format!("/proc/{pid}")).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_dead_harnesses_are_left_behind() {
        let own = std::process::id();
        assert!(!left_behind(&format!("rq{own:x}n1")) && !left_behind(&format!("rq{own:x}b")));
        // Process ids end far below these.
        assert!(left_behind("rq7ffffffen2") && left_behind("rq7ffffffeb"));
        assert!(!left_behind("docker0") && !left_behind("rqueue") && !left_behind("lo"));
    }
}
