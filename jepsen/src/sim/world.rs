//! The simulated cluster as a whole: its machines, its network, its time, and what is done to them.

use super::host::{GROUP, Machine, NODES, Running};
use super::interpose;
use super::invariants::{Invariants, Look};
use super::net::{Host, LATENCY_US_MIN, Net};
use super::plan::{Event, Fault, Whom};
use super::restore::{self, Restore};
use super::wipe::Wipe;
use anyhow::Result;
use raftmq_broker::meta_client::MetaClient;
use raftmq_model::ids::{GroupId, NodeId, ReplicaId};
use raftmq_store::testing::Fault as DiskFault;
use rand::rngs::StdRng;
use rand::seq::IteratorRandom;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Writes to logs take this long when nothing is wrong with the disk, in microseconds.
const WRITE_US: std::ops::Range<u64> = 500..3_000;
/// How often the invariants are looked at, in microseconds.
const LOOK_US: u64 = 10_000;
/// A process that ended is started again after this, in milliseconds.
const RESTART_MS: std::ops::Range<u64> = 200..3_000;

/// See the module.
pub(super) struct World {
    pub(super) net: Net,
    pub(super) machines: BTreeMap<Host, Machine>,
    now_us: u64,
    chance: StdRng,
    /// Machines that stand still.
    paused: BTreeMap<Host, u64>,
    /// The machine whose disk is lost.
    wipe: Option<Wipe>,
    /// The machine whose disk is, or will be, an older copy.
    restore: Option<Restore>,
    /// When to start which machine again.
    starts: BTreeMap<Host, u64>,
    /// When to take what back.
    ends: Vec<(u64, Undo)>,
    /// Nodes whose disk was told to fail and that may therefore end by themselves.
    may_end: BTreeMap<Host, u64>,
    /// What went wrong in a way that no fault explains.
    pub(super) violations: Vec<String>,
    pub(super) trace: Vec<String>,
    /// How often each kind of fault came.
    pub(super) counts: BTreeMap<String, u64>,
    invariants: Invariants,
    /// By node and group.
    purges: BTreeMap<(Host, u32), Purges>,
    /// What a replica says that it has repaired since its node was started.
    repaired: BTreeMap<(Host, GroupId), u64>,
}

/// What a replica has purged, and how often it was started over since its node was.
#[derive(Clone, Copy, Default)]
struct Purges {
    purged: u64,
    installed_count: u64,
}

enum Undo {
    Resume(Host),
    Uncut(Vec<(Host, Host)>),
    Calm,
    FastDisk(Host),
    Unskew(Host, i64),
}

impl World {
    pub(super) fn new(seed: u64, groups: u32, rots: bool) -> Result<World> {
        let net = Net::new(seed ^ 0x004E_4554);
        let mut world = World {
            machines: NODES.map(|id| (id, Machine::new(id, net.clone(), groups, rots))).collect(),
            net,
            now_us: 0,
            chance: StdRng::seed_from_u64(seed ^ 0x0057_4F52_4C44),
            paused: BTreeMap::new(),
            wipe: None,
            restore: None,
            starts: BTreeMap::new(),
            ends: Vec::new(),
            may_end: BTreeMap::new(),
            violations: Vec::new(),
            trace: Vec::new(),
            counts: BTreeMap::new(),
            invariants: Invariants::default(),
            purges: BTreeMap::new(),
            repaired: BTreeMap::new(),
        };
        for id in NODES {
            world.set_disk_pace(id, WRITE_US);
            if let Some(machine) = world.machines.get_mut(&id) {
                machine.start()?;
            }
        }
        Ok(world)
    }

    pub(super) fn now_us(&self) -> u64 {
        self.now_us
    }

    /// One step of time.
    pub(super) fn step(&mut self) -> Result<()> {
        self.now_us += LATENCY_US_MIN;
        interpose::set_now_ns(self.now_us * 1_000);
        self.net.advance(self.now_us);
        for (id, machine) in &self.machines {
            if !self.paused.contains_key(id) {
                machine.step(self.now_us);
            }
        }
        self.undo_what_is_over();
        self.notice_ends();
        if self.now_us.is_multiple_of(LOOK_US) {
            self.check_invariants();
        }
        self.put_back_what_is_due();
        self.replace_what_is_lost();
        self.start_what_is_due()
    }

    /// Carries out a fault.
    pub(super) fn hit(&mut self, event: &Event) {
        let kind = format!("{:?}", event.fault);
        let kind = kind.split(['(', ' ']).next().unwrap_or_default().to_owned();
        *self.counts.entry(kind).or_default() += 1;
        let until = self.now_us + event.for_ms * 1_000;
        match &event.fault {
            Fault::Kill(whom) | Fault::Away(whom) => self.crash(self.node(*whom), false, until),
            Fault::Wipe(whom) => self.lose_disk(self.node(*whom)),
            Fault::Restore(whom) => self.copy_disk(self.node(*whom), until),
            Fault::KillAll => NODES.for_each(|id| self.crash(id, false, until)),
            // Between two operations of the disk, or in the middle of one.
            Fault::PowerCut(whom) if self.chance.random() => self.crash(self.node(*whom), true, until),
            Fault::PowerCut(whom) => self.cut_power_in_an_operation(self.node(*whom)),
            Fault::PowerCutAll => NODES.for_each(|id| self.crash(id, true, until)),
            Fault::Pause(whom) => {
                let id = self.node(*whom);
                self.note(format!("node {id} stands still"));
                self.paused.insert(id, self.now_us);
                self.ends.push((until, Undo::Resume(id)));
            }
            Fault::Isolate(whom) => {
                let id = self.node(*whom);
                let cuts = others(id).flat_map(|other| [(id, other), (other, id)]).collect();
                self.cut(cuts, until);
            }
            Fault::Deaf(whom) => {
                let id = self.node(*whom);
                self.cut(others(id).map(|other| (other, id)).collect(), until);
            }
            Fault::Mute(whom) => {
                let id = self.node(*whom);
                self.cut(others(id).map(|other| (id, other)).collect(), until);
            }
            Fault::ClientsFrom(whom) => {
                let id = self.node(*whom);
                self.cut(vec![(0, id), (id, 0)], until);
            }
            Fault::Bridge => {
                let middle = self.node(Whom::Follower);
                let ends: Vec<Host> = others(middle).collect();
                if let [a, b] = ends[..] {
                    self.cut(vec![(a, b), (b, a)], until);
                }
            }
            Fault::Storm(weather) => {
                self.note(format!("{weather:?}"));
                self.net.set_weather(weather.clone());
                self.ends.push((until, Undo::Calm));
            }
            Fault::SlowDisk(whom, ms) => {
                let id = self.node(*whom);
                self.note(format!("the disk of node {id} takes up to {ms} ms"));
                self.set_disk_pace(id, 1_000..ms * 1_000);
                self.ends.push((until, Undo::FastDisk(id)));
            }
            Fault::DiskError(whom) => self.fail_disk(self.node(*whom)),
            Fault::Skew(whom, ms) => {
                let id = self.node(*whom);
                self.note(format!("the clock of node {id} jumps by {ms} ms"));
                self.skew(id, *ms);
                self.ends.push((until, Undo::Unskew(id, *ms)));
            }
            Fault::Transfer => self.transfer(),
        }
    }

    /// Takes everything back and starts what is down.
    pub(super) fn heal(&mut self) {
        self.note("heals".to_owned());
        self.net.heal();
        for (_, undo) in std::mem::take(&mut self.ends) {
            self.undo(undo);
        }
        // What is not put back by now is left.
        self.restore = self.restore.take().filter(|restore| matches!(restore.state, restore::State::PutBack));
        let now_us = self.now_us;
        self.starts.values_mut().for_each(|at| *at = now_us);
    }

    /// The node that leads the broker group, as it says itself.
    pub(super) fn leader(&self) -> Option<Host> {
        self.machines.values().find_map(|machine| {
            let told = machine.slot.lock();
            let replica = told.running.as_ref()?.broker.replica(GROUP)?;
            let leads = replica.leadership().borrow().leader.is_some_and(|leader| leader.0 == machine.id);
            leads.then_some(machine.id)
        })
    }

    /// A node that is up, and the way to the metadata from there; `None` when there is none, or it still starts.
    pub(super) fn somebody(&self, chance: &mut StdRng) -> Option<(&Machine, Arc<MetaClient>)> {
        let machine = self.machines.values().filter(|machine| machine.is_up()).choose(chance)?;
        let meta = machine.slot.lock().running.as_ref().map(|running| Arc::clone(&running.meta))?;
        Some((machine, meta))
    }

    /// Looks at what runs on each node; `None` for nodes that are down or start.
    pub(super) fn look<T>(&self, look: impl Fn(&Running) -> T) -> Vec<Option<T>> {
        self.machines.values().map(|machine| machine.slot.lock().running.as_ref().map(&look)).collect()
    }

    /// Counts purges of logs, and what replicas did because of them.
    fn note_purges(&mut self) {
        let mut notes = Vec::new();
        for machine in self.machines.values() {
            let told = machine.slot.lock();
            let Some(running) = &told.running else { continue };
            for (id, group) in running.broker.groups() {
                let Some(replica) = running.broker.replica(id) else { continue };
                let now = Purges {
                    purged: group.log().purged().map_or(0, |(_, index)| index),
                    installed_count: replica.snapshots_installed_count(),
                };
                let known = self.purges.insert((machine.id, id.0), now).unwrap_or_default();
                if now.installed_count > known.installed_count {
                    notes.push(("(install)", format!("node {} starts group {id} over from a snapshot", machine.id)));
                } else if now.purged > known.purged {
                    notes.push(("(purge)", format!("node {} purges group {id} up to {}", machine.id, now.purged)));
                }
            }
        }
        for (kind, what) in notes {
            *self.counts.entry(kind.to_owned()).or_default() += 1;
            self.note(what);
        }
    }

    /// Counts repairs.
    fn note_repairs(&mut self, looks: &[Look]) {
        for look in looks {
            let known = self.repaired.insert((look.node, look.group), look.repaired_count).unwrap_or_default();
            if look.repaired_count > known {
                *self.counts.entry("(repair)".to_owned()).or_default() += look.repaired_count - known;
                self.note(format!(
                    "node {} has repaired {} units of group {}",
                    look.node, look.repaired_count, look.group
                ));
            }
        }
    }

    /// A bit was flipped.
    pub(super) fn note_rot(&mut self, kind: &str, what: String) {
        *self.counts.entry(format!("(rot {kind})")).or_default() += 1;
        self.note(what);
    }

    /// In the end no node has an older copy.
    pub(super) fn unrefused(&self) -> Option<String> {
        self.restored().map(|id| format!("node {id} did not refuse an older copy of its disk"))
    }

    /// The node whose disk is an older copy now.
    fn restored(&self) -> Option<Host> {
        let restore = self.restore.as_ref()?;
        matches!(restore.state, restore::State::PutBack).then_some(restore.node)
    }

    fn check_invariants(&mut self) {
        self.note_purges();
        if let Some(id) = self.restored()
            && self.machines.get(&id).is_some_and(|machine| machine.slot.lock().running.is_some())
        {
            self.restore = None;
            self.violations.push(format!("node {id} runs on an older copy of its disk"));
        }
        let mut looks = Vec::new();
        for machine in self.machines.values() {
            let told = machine.slot.lock();
            let Some(running) = &told.running else { continue };
            let meta = running.namesrv.group().clone();
            let brokers = running.broker.groups().into_iter().map(|(_, group)| group);
            for group in std::iter::once(meta).chain(brokers) {
                let leadership = *group.leadership().borrow();
                let repaired_count = group.integrity().repaired_count;
                let (node, status) = (machine.id, group.status());
                looks.push(Look { node, group: group.id(), status, leadership, repaired_count });
            }
        }
        self.note_repairs(&looks);
        for sentence in self.invariants.see(&looks) {
            // Said once: it stays true.
            if !self.violations.contains(&sentence) {
                self.note(sentence.clone());
                self.violations.push(sentence);
            }
        }
    }

    fn node(&self, whom: Whom) -> Host {
        let leader = || self.leader().unwrap_or(*NODES.start());
        match whom {
            Whom::Node(id) => id,
            Whom::Leader => leader(),
            Whom::Follower => leader() % NODES.end() + 1,
        }
    }

    fn note(&mut self, what: String) {
        self.trace.push(format!("{:>10.3} s  {what}", self.now_us as f64 / 1e6));
    }

    fn crash(&mut self, id: Host, dark: bool, until: u64) {
        let Some(machine) = self.machines.get_mut(&id).filter(|machine| machine.is_up()) else { return };
        machine.crash(dark.then(|| self.chance.random()));
        self.paused.remove(&id);
        // A failure that the disk still has in store outlives the process, but not the power.
        if dark {
            self.may_end.remove(&id);
        }
        let extra_us = self.chance.random_range(RESTART_MS) * 1_000;
        self.starts.insert(id, until + extra_us);
        self.note(format!("node {id} {}", if dark { "loses power" } else { "is killed" }));
    }

    fn lose_disk(&mut self, id: Host) {
        self.crash(id, false, self.now_us);
        self.forget_disk(id);
        let seed = self.chance.random();
        let Some(machine) = self.machines.get_mut(&id) else { return };
        machine.wipe();
        self.wipe = Some(Wipe::new(id, machine.incarnation, seed));
        self.set_disk_pace(id, WRITE_US);
        self.note(format!("the disk of node {id} is lost"));
    }

    /// A node ends, its disk is copied, and it goes on; the copy is put back from `until` on.
    fn copy_disk(&mut self, id: Host, until: u64) {
        let dark = self.chance.random();
        self.crash(id, dark, self.now_us);
        let seed = self.chance.random();
        let Some(machine) = self.machines.get(&id).filter(|machine| !machine.is_up()) else { return };
        let state = restore::State::Copied(machine.image(seed));
        self.restore = Some(Restore { node: id, due_us: until, state });
        self.note(format!("the disk of node {id} is copied"));
    }

    /// A copy is put back when all others know that the disk went on after it: whoever answers then can tell.
    fn put_back_what_is_due(&mut self) {
        let Some(Restore { node: id, due_us, state: restore::State::Copied(image) }) = &self.restore else { return };
        let (id, now_us) = (*id, self.now_us);
        let Some(machine) = self.machines.get(&id).filter(|_| now_us >= *due_us) else { return };
        let (replica, copied) = (machine.replica(), image.stamp_of(machine.replica()));
        if others(id).filter_map(|other| self.machines.get(&other)).any(|other| other.stamp_of(replica) <= copied) {
            return;
        }
        self.crash(id, true, now_us);
        self.forget_disk(id);
        let back = Restore { node: id, due_us: now_us, state: restore::State::PutBack };
        let Some(Restore { state: restore::State::Copied(image), .. }) = self.restore.replace(back) else { return };
        if let Some(machine) = self.machines.get_mut(&id) {
            machine.put_back(image);
        }
        self.set_disk_pace(id, WRITE_US);
        self.starts.insert(id, now_us);
        *self.counts.entry("(put back)".to_owned()).or_default() += 1;
        self.note(format!("the disk of node {id} is put back from its copy, with stamp {copied}"));
    }

    /// The disk of a machine that is down is another one from now on.
    fn forget_disk(&mut self, id: Host) {
        self.starts.remove(&id);
        self.may_end.remove(&id);
        self.invariants.forget(id);
        self.purges.retain(|(node, _), _| *node != id);
    }

    /// An operator has the node of a lost disk replaced, and then starts it.
    fn replace_what_is_lost(&mut self) {
        let Some(mut wipe) = self.wipe.take() else { return };
        if wipe.step(self) {
            self.note(format!("node {} is placed anew as incarnation {}", wipe.node, wipe.incarnation));
            self.starts.insert(wipe.node, self.now_us);
        } else {
            self.wipe = Some(wipe);
        }
    }

    /// The voters that each group should have in the end.
    pub(super) fn members(&self) -> Vec<ReplicaId> {
        let member = |machine: &Machine| ReplicaId { node: NodeId(machine.id), incarnation: machine.incarnation };
        self.machines.values().map(member).collect()
    }

    fn cut(&mut self, cuts: Vec<(Host, Host)>, until: u64) {
        self.note(format!("no bytes {cuts:?}"));
        cuts.iter().for_each(|(from, to)| self.net.cut(*from, *to, true));
        self.ends.push((until, Undo::Uncut(cuts)));
    }

    fn set_disk_pace(&mut self, id: Host, us: std::ops::Range<u64>) {
        let mut chance = StdRng::seed_from_u64(self.chance.random());
        if let Some(machine) = self.machines.get(&id) {
            machine.disk.set_write_delays(Box::new(move || Duration::from_micros(chance.random_range(us.clone()))));
        }
    }

    fn fail_disk(&mut self, id: Host) {
        let in_operations = self.chance.random_range(1..5);
        if let Some(machine) = self.machines.get(&id).filter(|machine| machine.is_up()) {
            machine.disk.fail_at(machine.disk.operations() + in_operations, DiskFault::Device);
            self.may_end.insert(id, self.now_us);
            self.note(format!("the disk of node {id} fails in {in_operations} operations"));
        }
    }

    fn cut_power_in_an_operation(&mut self, id: Host) {
        let in_operations = self.chance.random_range(1..40);
        if let Some(machine) = self.machines.get(&id).filter(|machine| machine.is_up()) {
            machine.disk.cut_power_at(machine.disk.operations() + in_operations);
            self.may_end.insert(id, self.now_us);
            self.note(format!("node {id} loses power in {in_operations} operations of its disk"));
        }
    }

    fn skew(&self, id: Host, ms: i64) {
        if let Some(machine) = self.machines.get(&id) {
            machine.skew_ms.fetch_add(ms, Ordering::Relaxed);
        }
    }

    fn transfer(&mut self) {
        let Some(leader) = self.leader() else { return };
        self.note(format!("node {leader} hands over"));
        let Some(machine) = self.machines.get(&leader) else { return };
        let replica = machine.slot.lock().running.as_ref().and_then(|running| running.broker.replica(GROUP));
        if let Some(replica) = replica {
            machine.spawn(async move {
                // That it may fail is part of the fault.
                let _ = replica.group().transfer_leader(None).await;
            });
        }
    }

    fn undo_what_is_over(&mut self) {
        while let Some(position) = self.ends.iter().position(|(at, _)| *at <= self.now_us) {
            let (_, undo) = self.ends.remove(position);
            self.undo(undo);
        }
    }

    fn undo(&mut self, undo: Undo) {
        match undo {
            Undo::Resume(id) => {
                if self.paused.remove(&id).is_some()
                    && let Some(machine) = self.machines.get(&id)
                {
                    machine.jump(self.now_us);
                    self.note(format!("node {id} goes on"));
                }
            }
            Undo::Uncut(cuts) => {
                cuts.iter().for_each(|(from, to)| self.net.cut(*from, *to, false));
                self.note(format!("bytes again {cuts:?}"));
            }
            Undo::Calm => self.net.set_weather(super::net::Weather::default()),
            Undo::FastDisk(id) => self.set_disk_pace(id, WRITE_US),
            Undo::Unskew(id, ms) => self.skew(id, -ms),
        }
    }

    /// A process that ended by itself; fine only after a fault of its disk.
    fn notice_ends(&mut self) {
        for id in NODES {
            let Some(reason) = self.machines.get(&id).and_then(|machine| machine.slot.lock().ended.take()) else {
                continue;
            };
            self.note(format!("node {id} ends: {reason}"));
            if self.restored() == Some(id) && restore::is_refusal(&reason) {
                self.restore = None;
                *self.counts.entry("(put back, refused)".to_owned()).or_default() += 1;
                self.lose_disk(id);
                continue;
            }
            if self.may_end.remove(&id).is_none() {
                self.violations.push(format!("node {id} ended by itself: {reason}"));
            }
            // What a failed sync should have made durable never will be.
            self.crash(id, true, self.now_us);
        }
    }

    fn start_what_is_due(&mut self) -> Result<()> {
        let due: Vec<Host> = self.starts.iter().filter(|(_, at)| **at <= self.now_us).map(|(id, _)| *id).collect();
        for id in due {
            self.starts.remove(&id);
            self.note(format!("node {id} starts"));
            if let Some(machine) = self.machines.get_mut(&id) {
                machine.start()?;
            }
        }
        Ok(())
    }
}

fn others(id: Host) -> impl Iterator<Item = Host> {
    NODES.filter(move |other| *other != id)
}
