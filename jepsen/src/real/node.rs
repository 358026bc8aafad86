//! One node: its configuration, its process, its volume.

use super::clock::Clock;
use super::network::Network;
use super::volume::Volume;
use anyhow::{Context, Result};
use raftmq_store::segment::{SEGMENT_DIR, parse_segment_name};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Room for a long run; the image is a hole until it is written.
const VOLUME_BYTES: u64 = 8 << 30;
/// Small, so that a run rolls segments.
const SEGMENT_BYTES_MAX: u64 = 16 << 20;
/// Minutes of traffic, so that what is purged was consumed long ago, and a long run purges.
const RETENTION_BYTES_MAX: u64 = 48 << 20;

pub(super) struct Node {
    pub(super) id: u32,
    pub(super) address: String,
    space: String,
    dir: PathBuf,
    binary: PathBuf,
    child: Option<Child>,
    pub(super) volume: Volume,
    /// Its wall clock, where this machine can turn it.
    pub(super) clock: Option<Clock>,
}

impl Node {
    /// `clock`: the library that turns clocks.
    pub(super) fn new(
        id: u32,
        ids: &[u32],
        network: &Network,
        dir: &Path,
        binary: &Path,
        clock: Option<&Path>,
    ) -> Result<Node> {
        let dir = dir.join(format!("node-{id}"));
        fs::create_dir_all(&dir)?;
        let (address, space) = (network.address(id), network.space(id));
        let volume = Volume::new(&dir, VOLUME_BYTES)?;
        let clock = clock.map(|library| Clock::new(&dir.join("clock"), library)).transpose()?;
        let node = Node { id, address, space, dir, binary: binary.to_owned(), child: None, volume, clock };
        let peers: Vec<String> = ids.iter().map(|peer| peer_of(*peer, network)).collect();
        fs::write(node.dir.join("node.toml"), node.config(&peers))?;
        Ok(node)
    }

    fn config(&self, peers: &[String]) -> String {
        let Node { id, address, .. } = self;
        format!(
            "node_id = {id}\ndata_dir = {:?}\nclient_listen = \"{address}:8081\"\npeer_listen = \"{address}:8281\"\n\
             admin_listen = \"{address}:8181\"\nsegment_bytes_max = {SEGMENT_BYTES_MAX}\nauto_create_topics = true\n\
             retention_bytes_max = {RETENTION_BYTES_MAX}\npurge_when_disk_short = false\n\
             peers = [{}]\n",
            self.volume.mount().join("data"),
            peers.join(", ")
        )
    }

    pub(super) fn client(&self) -> String {
        format!("{}:8081", self.address)
    }

    pub(super) fn admin(&self) -> String {
        format!("{}:8181", self.address)
    }

    /// Starts the process, when it does not run. Its log is not on the volume, so that it outlives a power cut.
    pub(super) fn start(&mut self) -> Result<()> {
        if self.child.is_some() {
            return Ok(());
        }
        let log = File::options().create(true).append(true).open(self.log_path())?;
        // It becomes the node: the process id is the node's. `ip netns exec` would give the node a copy of all mounts, which
        // keeps the volumes of other nodes in use.
        let mut command = Command::new("nsenter");
        if let Some(clock) = &self.clock {
            clock.attach(&mut command);
        }
        let child = command
            .arg(format!("--net=/run/netns/{}", self.space))
            .arg(&self.binary)
            .args(["serve", "--config"])
            .arg(self.dir.join("node.toml"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .with_context(|| format!("node {} does not start", self.id))?;
        self.child = Some(child);
        Ok(())
    }

    /// Sends a signal to the process, when it runs.
    pub(super) fn signal(&self, signal: Signal) -> Result<()> {
        let Some(child) = &self.child else { return Ok(()) };
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).context("no process id")?;
        kill_process(pid, signal).with_context(|| format!("node {} does not take signals", self.id))
    }

    /// Ends the process at once, when it runs.
    pub(super) fn kill(&mut self) -> Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// Asks the process to end and waits for it.
    pub(super) fn stop(&mut self) -> Result<()> {
        self.signal(Signal::TERM)?;
        if let Some(mut child) = self.child.take() {
            child.wait()?;
        }
        Ok(())
    }

    /// The exit code of a process that ended by itself (-1: by a signal); it is forgotten then.
    pub(super) fn ended(&mut self) -> Result<Option<i32>> {
        let Some(child) = &mut self.child else { return Ok(None) };
        let Some(status) = child.try_wait()? else { return Ok(None) };
        self.child = None;
        Ok(Some(status.code().unwrap_or(-1)))
    }

    /// Its data is gone. The process does not run.
    pub(super) fn lose_data(&self) -> Result<()> {
        fs::remove_dir_all(self.volume.mount().join("data")).with_context(|| format!("the data of node {}", self.id))
    }

    fn log_path(&self) -> PathBuf {
        self.dir.join("log")
    }

    /// Lines of its log that hold `what`.
    pub(super) fn log_lines(&self, what: &str) -> Vec<String> {
        let log = fs::read(self.log_path()).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        log.lines().filter(|line| line.contains(what)).map(str::to_owned).collect()
    }

    /// How often the log of a group of the node rolled to a new segment, by what its volume holds.
    pub(super) fn segments_rolled(&self) -> u64 {
        let groups = fs::read_dir(self.volume.mount().join("data/groups")).into_iter().flatten().flatten();
        let segments = |group: fs::DirEntry| {
            let files = fs::read_dir(group.path().join("log").join(SEGMENT_DIR)).into_iter().flatten().flatten();
            files.filter(|file| parse_segment_name(&file.file_name().to_string_lossy()).is_some()).count() as u64
        };
        groups.map(|group| segments(group).saturating_sub(1)).sum()
    }

    /// The id of the process, when it runs.
    pub(super) fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

fn peer_of(id: u32, network: &Network) -> String {
    format!("{{ id = {id}, peer = \"{}:8281\", roles = [\"namesrv\", \"broker\"] }}", network.address(id))
}
