//! A cluster of processes: its birth, what it says of itself, and what its processes do by themselves.

use super::facilities::Facilities;
use super::faults::InForce;
use super::network::Network;
use super::node::Node;
use super::shell::{missing, sh};
use crate::report::Coverage;
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Programs that the back end needs.
const NEEDED: [&str; 7] = ["ip", "nsenter", "nft", "mkfs.ext4", "mount", "umount", "xfs_io"];
/// How long a cluster may take to be born, and to be well after its last fault.
const WELL_MS_MAX: u64 = 60_000;
const POLL: Duration = Duration::from_millis(200);
/// How long the leader is looked for before a fault that needs one.
const LEADER_MS_MAX: u64 = 5_000;
/// Exit code of a node that stops since it cannot write.
const EXIT_FATAL: i32 = 70;

/// See the module. Taken down when dropped: nodes, then volumes, then the network.
pub struct RealCluster {
    /// What acts on nodes from outside ends before they do.
    pub(super) in_force: InForce,
    pub(super) nodes: Vec<Node>,
    pub(super) network: Network,
    pub(super) facilities: Facilities,
    binary: PathBuf,
    /// What nodes did by themselves that they must not do.
    crimes: Vec<String>,
    /// Faults that were brought about, so that schedules vary.
    pub(super) faults_count: u64,
    /// Power cuts of a node, and how many of them lost bytes that were written a moment before.
    pub(super) power_cuts: (u64, u64),
}

/// `raftmq cluster status -o json`, as far as it is needed.
#[derive(Deserialize)]
struct Status {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    name: String,
    leader: u32,
    ready: bool,
    replicas: Vec<Replica>,
}

#[derive(Deserialize)]
struct Replica {
    role: String,
    lag: u64,
}

impl RealCluster {
    /// Makes namespaces and volumes below `dir`, starts the nodes and makes a cluster of them.
    ///
    /// # Errors
    /// When this machine lacks something, or the cluster is not born in time.
    pub fn start(ids: &[u32], dir: &Path, binary: &Path) -> Result<RealCluster> {
        let missing = missing(&NEEDED);
        if !missing.is_empty() {
            bail!("missing: {}; `./dev setup faults` installs it", missing.join(", "));
        }
        let network = Network::new(ids)?;
        let facilities = Facilities::probe();
        let clock = facilities.clock.as_ref().ok().map(PathBuf::as_path);
        let node = |id: &u32| Node::new(*id, ids, &network, dir, binary, clock);
        let nodes = ids.iter().map(node).collect::<Result<Vec<_>>>()?;
        let mut cluster = RealCluster {
            in_force: InForce::default(),
            nodes,
            network,
            facilities,
            binary: binary.to_owned(),
            crimes: Vec::new(),
            faults_count: 0,
            power_cuts: (0, 0),
        };
        cluster.start_all()?;
        cluster.init()?;
        cluster.wait_well()?;
        Ok(cluster)
    }

    fn init(&self) -> Result<()> {
        let until = Instant::now() + Duration::from_millis(WELL_MS_MAX);
        loop {
            match self.raftmq(&["cluster", "init"]) {
                Err(error) if Instant::now() >= until => return Err(error.context("the cluster is not born")),
                Err(_) => sleep(POLL),
                Ok(_) => return Ok(()),
            }
        }
    }

    pub(super) fn raftmq(&self, args: &[&str]) -> Result<String> {
        let endpoints = self.admins().join(",");
        sh(&self.binary.to_string_lossy(), &[args, &["--endpoints", &endpoints]].concat())
    }

    /// Client addresses of all nodes.
    #[must_use]
    pub fn clients(&self) -> Vec<String> {
        self.nodes.iter().map(Node::client).collect()
    }

    /// Admin addresses of all nodes.
    #[must_use]
    pub fn admins(&self) -> Vec<String> {
        self.nodes.iter().map(Node::admin).collect()
    }

    /// Creates a topic.
    ///
    /// # Errors
    /// When the cluster refuses.
    pub fn create_topic(&self, name: &str) -> Result<()> {
        self.raftmq(&["topic", "create", name]).map(drop)
    }

    fn status(&self) -> Result<Status> {
        let json = self.raftmq(&["cluster", "status", "-o", "json"])?;
        serde_json::from_str(&json).context("`cluster status` cannot be read")
    }

    /// The nodes that lead the metadata and the first broker group.
    pub(super) fn leaders(&self) -> Result<(usize, usize)> {
        let until = Instant::now() + Duration::from_millis(LEADER_MS_MAX);
        loop {
            let groups = self.status().map(|status| status.groups).unwrap_or_default();
            let leads = |metadata: bool| {
                let group = groups.iter().find(|group| (group.name == "namesrv") == metadata)?;
                self.nodes.iter().position(|node| node.id == group.leader)
            };
            if let (Some(metadata), Some(broker)) = (leads(true), leads(false)) {
                return Ok((metadata, broker));
            }
            if Instant::now() >= until {
                bail!("no node leads the metadata and the broker group");
            }
            sleep(POLL);
        }
    }

    /// What the run covered; for its end.
    #[must_use]
    pub fn coverage(&self) -> Coverage {
        let logs = |what: &str| self.nodes.iter().map(|node| node.log_lines(what).len() as u64).sum();
        Coverage {
            truncations: logs("cut uncommitted entries off the log"),
            segments_rolled: self.nodes.iter().map(Node::segments_rolled).max().unwrap_or_default(),
            power_cuts: self.power_cuts.0,
            power_cuts_with_loss: self.power_cuts.1,
        }
    }

    /// Waits until all groups are led and all replicas follow; how long that took.
    ///
    /// # Errors
    /// When it takes too long.
    pub fn wait_well(&mut self) -> Result<Duration> {
        let begin = Instant::now();
        loop {
            self.watch_processes(false)?;
            let well = self.status().is_ok_and(|status| status.is_well(self.nodes.len()));
            if well {
                return Ok(begin.elapsed());
            }
            if begin.elapsed() > Duration::from_millis(WELL_MS_MAX) {
                bail!("the cluster is not well after {WELL_MS_MAX} ms");
            }
            sleep(POLL);
        }
    }

    pub(super) fn start_all(&mut self) -> Result<()> {
        self.nodes.iter_mut().try_for_each(Node::start)
    }

    /// Notes what ended by itself. `excused`: a fault is in force that makes nodes stop; the fault is to be taken away
    /// before they are started again.
    pub(super) fn watch_processes(&mut self, excused: bool) -> Result<()> {
        for node in &mut self.nodes {
            let ended = node.ended()?;
            if let Some(code) = ended.filter(|code| !(excused && *code == EXIT_FATAL)) {
                self.crimes.push(format!("node {} ended by itself with code {code}", node.id));
            }
        }
        Ok(())
    }

    /// What nodes did by themselves that they must not do: end without a reason, panic.
    #[must_use]
    pub fn crimes(&self) -> Vec<String> {
        let panics = self.nodes.iter().flat_map(|node| {
            node.log_lines("panicked at")
                .into_iter()
                .map(|line| format!("node {}: {line}", node.id))
                .collect::<Vec<_>>()
        });
        self.crimes.iter().cloned().chain(panics).collect()
    }
}

impl Status {
    fn is_well(&self, nodes_count: usize) -> bool {
        // Under load a follower is some entries behind.
        const LAG_COUNT_MAX: u64 = 1_000;
        let follows =
            |replica: &Replica| matches!(replica.role.as_str(), "leader" | "follower") && replica.lag <= LAG_COUNT_MAX;
        !self.groups.is_empty()
            && self.groups.iter().all(|group| {
                let following = group.replicas.iter().filter(|replica| follows(replica)).count();
                group.leader != 0 && group.ready && following == nodes_count
            })
    }
}
