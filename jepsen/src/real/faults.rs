//! How each fault is brought about and taken away.

use super::cluster::RealCluster;
use super::injection::Injection;
use crate::nemesis::Fault;
use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use std::thread::sleep;
use std::time::{Duration, Instant};

const LOSS_PERCENT: u32 = 20;
/// What a full disk has left: half of what a node keeps back by default.
const ROOM_LEFT_BYTES: u64 = 256 << 20;
const SYNC_DELAY: &str = "delay_enter=200ms";
const SYNCS: &str = "fdatasync,fsync";
const CLOCK_JUMP_MS: i64 = 60_000;
/// A tenth.
const DRIFT_PPM: i64 = 100_000;
const STROBE: Duration = Duration::from_millis(200);
const STROBES_COUNT: u32 = 25;
/// How long messages gather on the majority of a schedule, and on the next one.
const GATHER: Duration = Duration::from_secs(3);
/// When a recovery is crashed: after one to eight of these.
const RECOVERY_STEP_MS: u64 = 40;

/// How long a node with an empty disk may take to start and to have its votes, and how often it is tried.
const REPLACED_MAX: Duration = Duration::from_secs(60);
const REPLACE_PAUSE: Duration = Duration::from_millis(100);

/// What acts on a node from outside until it is taken away.
#[derive(Default)]
pub(super) struct InForce {
    injection: Option<Injection>,
}

impl RealCluster {
    /// Why this machine cannot bring a fault about.
    #[must_use]
    pub fn lacking(&self, fault: Fault) -> Option<String> {
        self.facilities.lacking(fault)
    }

    /// Brings a fault about; the nodes that it is about.
    ///
    /// # Errors
    /// When it cannot be done, or there is no leader for it.
    pub fn install(&mut self, fault: Fault) -> Result<Vec<u32>> {
        let (metadata, leader) = self.leaders()?;
        self.faults_count += 1;
        let count = self.nodes.len();
        let follower = (leader + 1) % count;
        let hit: Vec<usize> = match fault {
            Fault::KillFollower | Fault::IsolateFollower => vec![follower],
            Fault::KillAll
            | Fault::PowerCutAll
            | Fault::PacketLoss
            | Fault::DiskFullAll
            | Fault::RollingRestart
            | Fault::ClockDrift
            | Fault::PauseAndPowerCut
            | Fault::PartitionAndPowerCut => (0..count).collect(),
            Fault::PowerCutMajority => (0..=count / 2).map(|step| (leader + step) % count).collect(),
            Fault::Bridge => vec![leader, follower],
            Fault::KillBothLeaders if metadata != leader => vec![metadata, leader],
            _ => vec![leader],
        };
        match fault {
            Fault::KillLeader | Fault::KillFollower | Fault::KillAll | Fault::KillBothLeaders => {
                hit.iter().try_for_each(|at| self.nodes[*at].kill())?;
            }
            Fault::CrashInRecovery => self.crash_in_recovery(leader)?,
            Fault::PauseLeader => self.nodes[leader].signal(Signal::STOP)?,
            Fault::PowerCutLeader | Fault::PowerCutMajority | Fault::PowerCutAll => self.cut_power(&hit)?,
            Fault::DiskErrorLeader => self.nodes[leader].volume.fail()?,
            Fault::ReadOnlyLeader => self.nodes[leader].volume.find_error()?,
            Fault::DiskFullLeader | Fault::DiskFullAll => {
                hit.iter().try_for_each(|at| self.nodes[*at].volume.fill(ROOM_LEFT_BYTES))?;
            }
            Fault::LostDiskLeader => {
                self.nodes[leader].kill()?;
                self.nodes[leader].lose_data()?;
            }
            Fault::SyncErrorLeader => self.inject(leader, "error=EIO")?,
            Fault::SlowDiskLeader => self.inject(leader, SYNC_DELAY)?,
            fault if fault.turns_a_clock() => self.turn_clocks(fault, leader)?,
            Fault::Transfer => self.raftmq(&["raft", "transfer", "broker-1"]).map(drop)?,
            Fault::RollingRestart => self.rolling_restart()?,
            Fault::PauseAndPowerCut | Fault::PartitionAndPowerCut => {
                self.swap_majorities(fault == Fault::PauseAndPowerCut, leader)?;
            }
            _ => self.cut_network(fault, leader, follower)?,
        }
        Ok(hit.into_iter().map(|at| self.nodes[at].id).collect())
    }

    /// The file systems first, so that nothing is written after the moment of the cut; then the processes.
    fn cut_power(&mut self, hit: &[usize]) -> Result<()> {
        hit.iter().try_for_each(|at| self.nodes[*at].volume.cut_power())?;
        hit.iter().try_for_each(|at| self.nodes[*at].kill())
    }

    /// After [`RealCluster::cut_power`].
    fn restore_power(&mut self, at: usize) -> Result<()> {
        self.nodes[at].kill()?;
        if let Some(lost) = self.nodes[at].volume.restore()? {
            self.power_cuts.0 += 1;
            self.power_cuts.1 += u64::from(lost);
        }
        Ok(())
    }

    fn inject(&mut self, at: usize, what: &str) -> Result<()> {
        let pid = self.nodes[at].pid().context("the node does not run")?;
        self.in_force.injection = Some(Injection::attach(pid, SYNCS, what)?);
        Ok(())
    }

    fn turn_clocks(&self, fault: Fault, leader: usize) -> Result<()> {
        let set = |at: usize, offset_ms, drift_ppm| {
            self.nodes[at].clock.as_ref().context("the clock cannot be turned")?.set(offset_ms, drift_ppm)
        };
        match fault {
            Fault::ClockAheadLeader => set(leader, CLOCK_JUMP_MS, 0),
            Fault::ClockBehindLeader => set(leader, -CLOCK_JUMP_MS, 0),
            Fault::ClockDrift => (0..self.nodes.len())
                .try_for_each(|at| set(at, 0, if at.is_multiple_of(2) { DRIFT_PPM } else { -DRIFT_PPM })),
            _ => (0..STROBES_COUNT).try_for_each(|turn| {
                sleep(STROBE);
                set(leader, i64::from(turn % 3) * CLOCK_JUMP_MS - CLOCK_JUMP_MS, 0)
            }),
        }
    }

    fn rolling_restart(&mut self) -> Result<()> {
        for at in 0..self.nodes.len() {
            self.nodes[at].stop()?;
            self.nodes[at].start()?;
            self.wait_well()?;
        }
        Ok(())
    }

    fn crash_in_recovery(&mut self, at: usize) -> Result<()> {
        self.nodes[at].kill()?;
        for turn in 0..2 {
            self.nodes[at].start()?;
            sleep(Duration::from_millis(RECOVERY_STEP_MS * (1 + (self.faults_count + 3 * turn) % 8)));
            self.nodes[at].kill()?;
        }
        self.nodes[at].start()
    }

    /// See [`Fault::PauseAndPowerCut`]. What the first majority acknowledged must be on the second one.
    fn swap_majorities(&mut self, pause: bool, leader: usize) -> Result<()> {
        let count = self.nodes.len();
        let minority = count.div_ceil(2) - 1;
        // The leader's power fails, or a follower's, in turn; the nodes after it stay, those after them are away first.
        let crashed = (leader + usize::from(self.faults_count.is_multiple_of(2))) % count;
        let after = |steps: std::ops::Range<usize>| steps.map(|step| (crashed + step) % count).collect::<Vec<usize>>();
        let (stay, away) = (after(1..count - minority), after(count - minority..count));
        self.take_away(pause, &away)?;
        sleep(GATHER);
        self.cut_power(&[crashed])?;
        self.take_away(pause, &stay)?;
        if pause {
            away.iter().try_for_each(|at| self.nodes[*at].signal(Signal::CONT))?;
        } else {
            self.network.heal()?;
            self.take_away(pause, &stay)?;
        }
        self.restore_power(crashed)?;
        self.nodes[crashed].start()?;
        sleep(2 * GATHER);
        Ok(())
    }

    fn take_away(&self, pause: bool, nodes: &[usize]) -> Result<()> {
        for at in nodes {
            if pause {
                self.nodes[*at].signal(Signal::STOP)?
            } else {
                self.deafen(*at).and_then(|()| self.mute(*at))?
            }
        }
        Ok(())
    }

    fn addresses_but(&self, at: usize) -> Vec<String> {
        let others = self.nodes.iter().enumerate().filter(|(other, _)| *other != at);
        others.map(|(_, node)| node.address.clone()).collect()
    }

    fn deafen(&self, at: usize) -> Result<()> {
        self.network.drop_from(self.nodes[at].id, &self.addresses_but(at), 100)
    }

    fn mute(&self, at: usize) -> Result<()> {
        let address = [self.nodes[at].address.clone()];
        let mut others = (0..self.nodes.len()).filter(|other| *other != at);
        others.try_for_each(|other| self.network.drop_from(self.nodes[other].id, &address, 100))
    }

    fn cut_network(&self, fault: Fault, leader: usize, follower: usize) -> Result<()> {
        let between = |at: usize, from: String| self.network.drop_from(self.nodes[at].id, &[from], 100);
        match fault {
            Fault::IsolateLeader => self.deafen(leader).and_then(|()| self.mute(leader)),
            Fault::IsolateFollower => self.deafen(follower).and_then(|()| self.mute(follower)),
            Fault::DeafLeader => self.deafen(leader),
            Fault::MuteLeader => self.mute(leader),
            Fault::Bridge => {
                between(leader, self.nodes[follower].address.clone())?;
                between(follower, self.nodes[leader].address.clone())
            }
            Fault::ClientsFromLeader => between(leader, self.network.host()),
            Fault::PacketLoss => (0..self.nodes.len())
                .try_for_each(|at| self.network.drop_from(self.nodes[at].id, &self.addresses_but(at), LOSS_PERCENT)),
            other => bail!("{other} is no fault of the network"),
        }
    }

    /// Takes a fault away: everything is whole, all nodes run.
    ///
    /// # Errors
    /// When it cannot be done.
    pub fn remove(&mut self, fault: Fault, nodes: &[u32]) -> Result<()> {
        self.watch_processes(fault.may_stop_a_node())?;
        self.in_force = InForce::default();
        self.network.heal()?;
        for at in 0..self.nodes.len() {
            if let Some(clock) = &self.nodes[at].clock {
                clock.set(0, 0)?;
            }
            if !nodes.contains(&self.nodes[at].id) {
                continue;
            }
            match fault {
                Fault::PauseLeader | Fault::PauseAndPowerCut => self.nodes[at].signal(Signal::CONT)?,
                Fault::PowerCutLeader
                | Fault::PowerCutMajority
                | Fault::PowerCutAll
                | Fault::DiskErrorLeader
                | Fault::ReadOnlyLeader => self.restore_power(at)?,
                // What it could not sync may or may not be there: as after any crash.
                Fault::SyncErrorLeader => self.nodes[at].kill()?,
                // And no restart: the node has to go on by itself.
                Fault::DiskFullLeader | Fault::DiskFullAll => self.nodes[at].volume.empty()?,
                _ => {}
            }
        }
        self.start_all()?;
        if fault == Fault::LostDiskLeader {
            nodes.iter().try_for_each(|node| self.replace(*node))?;
        }
        Ok(())
    }

    /// Has a node that starts on an empty disk made a member again, with its votes, as an operator would.
    fn replace(&self, node: u32) -> Result<()> {
        let until = Instant::now() + REPLACED_MAX;
        let wait_s = REPLACED_MAX.as_secs().to_string();
        loop {
            match self.raftmq(&["replica", "replace", &node.to_string(), "--wait-s", &wait_s]) {
                Ok(_) => return Ok(()),
                // It does not answer yet.
                Err(error) if Instant::now() >= until => return Err(error.context("a lost disk is not replaced")),
                Err(_) => sleep(REPLACE_PAUSE),
            }
        }
    }
}
