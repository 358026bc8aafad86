//! A cluster of processes, and how each fault is brought about and taken away.

use super::network::Network;
use super::node::Node;
use super::shell::{missing, sh};
use crate::nemesis::Fault;
use anyhow::{Context, Result, bail};
use rustix::process::Signal;
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
const LOSS_PERCENT: u32 = 20;

/// See the module. Taken down when dropped: nodes, then volumes, then the network.
pub struct RealCluster {
    nodes: Vec<Node>,
    network: Network,
    binary: PathBuf,
    /// What nodes did by themselves that they must not do.
    crimes: Vec<String>,
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
        let nodes = ids.iter().map(|id| Node::new(*id, ids, &network, dir, binary)).collect::<Result<Vec<_>>>()?;
        let mut cluster = RealCluster { nodes, network, binary: binary.to_owned(), crimes: Vec::new() };
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

    fn raftmq(&self, args: &[&str]) -> Result<String> {
        let admins: Vec<String> = self.nodes.iter().map(Node::admin).collect();
        let endpoints = admins.join(",");
        sh(&self.binary.to_string_lossy(), &[args, &["--endpoints", &endpoints]].concat())
    }

    /// Client addresses of all nodes.
    #[must_use]
    pub fn clients(&self) -> Vec<String> {
        self.nodes.iter().map(Node::client).collect()
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

    /// The node that leads the first broker group.
    fn leader(&self) -> Result<usize> {
        let until = Instant::now() + Duration::from_millis(LEADER_MS_MAX);
        loop {
            let groups = self.status().map(|status| status.groups).unwrap_or_default();
            let leader = groups.iter().find(|group| group.name != "namesrv").map_or(0, |group| group.leader);
            if let Some(at) = self.nodes.iter().position(|node| node.id == leader) {
                return Ok(at);
            }
            if Instant::now() >= until {
                bail!("no node leads the broker group");
            }
            sleep(POLL);
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

    fn start_all(&mut self) -> Result<()> {
        self.nodes.iter_mut().try_for_each(Node::start)
    }

    /// Notes what ended by itself. `excused`: a fault is in force that makes nodes stop; the fault is to be taken away
    /// before they are started again.
    fn watch_processes(&mut self, excused: bool) -> Result<()> {
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
            node.panics().into_iter().map(|line| format!("node {}: {line}", node.id)).collect::<Vec<_>>()
        });
        self.crimes.iter().cloned().chain(panics).collect()
    }

    /// Brings a fault about; the nodes that it is about.
    ///
    /// # Errors
    /// When it cannot be done, or there is no leader for it.
    pub fn install(&mut self, fault: Fault) -> Result<Vec<u32>> {
        let leader = self.leader()?;
        let count = self.nodes.len();
        let follower = (leader + 1) % count;
        let hit: Vec<usize> = match fault {
            Fault::KillFollower | Fault::IsolateFollower => vec![follower],
            Fault::KillAll | Fault::PowerCutAll | Fault::PacketLoss | Fault::RollingRestart => (0..count).collect(),
            Fault::PowerCutMajority => (0..=count / 2).map(|step| (leader + step) % count).collect(),
            Fault::Bridge => vec![leader, follower],
            _ => vec![leader],
        };
        match fault {
            Fault::KillLeader | Fault::KillFollower | Fault::KillAll => {
                hit.iter().try_for_each(|at| self.nodes[*at].kill())?;
            }
            Fault::PauseLeader => self.nodes[leader].signal(Signal::STOP)?,
            Fault::PowerCutLeader | Fault::PowerCutMajority | Fault::PowerCutAll => self.cut_power(&hit)?,
            Fault::DiskErrorLeader => self.nodes[leader].volume.cut_power()?,
            Fault::Transfer => self.raftmq(&["raft", "transfer", "broker-1"]).map(drop)?,
            Fault::RollingRestart => self.rolling_restart()?,
            _ => self.cut_network(fault, leader, follower)?,
        }
        Ok(hit.into_iter().map(|at| self.nodes[at].id).collect())
    }

    /// The file systems first, so that nothing is written after the moment of the cut; then the processes.
    fn cut_power(&mut self, hit: &[usize]) -> Result<()> {
        hit.iter().try_for_each(|at| self.nodes[*at].volume.cut_power())?;
        hit.iter().try_for_each(|at| self.nodes[*at].kill())
    }

    fn rolling_restart(&mut self) -> Result<()> {
        for at in 0..self.nodes.len() {
            self.nodes[at].stop()?;
            self.nodes[at].start()?;
            self.wait_well()?;
        }
        Ok(())
    }

    fn cut_network(&self, fault: Fault, leader: usize, follower: usize) -> Result<()> {
        let address = |at: usize| self.nodes[at].address.clone();
        let others = |than: usize| (0..self.nodes.len()).filter(move |at| *at != than);
        let deaf =
            |at: usize| self.network.drop_from(self.nodes[at].id, &others(at).map(address).collect::<Vec<_>>(), 100);
        let mute = |at: usize| {
            others(at).try_for_each(|other| self.network.drop_from(self.nodes[other].id, &[address(at)], 100))
        };
        match fault {
            Fault::IsolateLeader => deaf(leader).and_then(|()| mute(leader)),
            Fault::IsolateFollower => deaf(follower).and_then(|()| mute(follower)),
            Fault::DeafLeader => deaf(leader),
            Fault::MuteLeader => mute(leader),
            Fault::Bridge => {
                self.network.drop_from(self.nodes[leader].id, &[address(follower)], 100)?;
                self.network.drop_from(self.nodes[follower].id, &[address(leader)], 100)
            }
            Fault::ClientsFromLeader => self.network.drop_from(self.nodes[leader].id, &[self.network.host()], 100),
            Fault::PacketLoss => (0..self.nodes.len()).try_for_each(|at| {
                self.network.drop_from(self.nodes[at].id, &others(at).map(address).collect::<Vec<_>>(), LOSS_PERCENT)
            }),
            other => bail!("{other} is no fault of the network"),
        }
    }

    /// Takes a fault away: everything is whole, all nodes run.
    ///
    /// # Errors
    /// When it cannot be done.
    pub fn remove(&mut self, fault: Fault, nodes: &[u32]) -> Result<()> {
        self.watch_processes(fault.may_stop_a_node())?;
        self.network.heal()?;
        for node in self.nodes.iter_mut().filter(|node| nodes.contains(&node.id)) {
            match fault {
                Fault::PauseLeader => node.signal(Signal::CONT)?,
                Fault::PowerCutLeader | Fault::PowerCutMajority | Fault::PowerCutAll | Fault::DiskErrorLeader => {
                    node.kill()?;
                    node.volume.restore_power()?;
                }
                _ => {}
            }
        }
        self.start_all()
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
