//! One seed: a cluster is born, is used under faults, heals, must be well again, and is judged.

use super::host::{self, NODES, client_address};
use super::interpose;
use super::net::Net;
use super::operator::Operator;
use super::plan::{Event, Fault, plan};
use super::registers::Registers;
use super::retention::Retention;
use super::rot::Rot;
use super::world::World;
use crate::checker::{Verdict, delivery as delivery_checker, order};
use crate::history::{self, Event as HistoryEvent};
use crate::workload::delivery;
use anyhow::{Context, Result, anyhow, bail};
use raftmq_broker::leader::Replica;
use raftmq_client::Connector;
use raftmq_model::config::{Permission, TopicType};
use raftmq_model::ids::{GroupId, QueueOffset};
use raftmq_model::machine::Mix;
use raftmq_model::meta::{CreateTopic, MetaOp};
use raftmq_raft::{Group, InitializeError, Member};
use raftmq_store::consume_queue::QueueRange;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Of the thread that runs everything.
const STACK_BYTES: usize = 16 << 20;
const TOPIC: &str = "orders";
const BODY_BYTES_MAX: usize = 16 << 10;
/// How long birth may take, in simulated time.
const BIRTH_MS_MAX: u64 = 20_000;
/// How long the workload may go on after healing, and then the replicas until they are equal.
const DRAIN_MS_MAX: u64 = 180_000;
const SETTLE_MS_MAX: u64 = 30_000;

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Decides everything.
    pub seed: u64,
    /// Simulated seconds under faults.
    pub seconds: u64,
    /// Whether there are any faults.
    pub faults: bool,
    /// Whether bits flip on a disk, also in seeds where they do not by themselves.
    pub rot: bool,
}

/// How it ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// What went wrong; empty: nothing.
    pub violations: Vec<String>,
    /// What was done to the cluster, and when.
    pub trace: Vec<String>,
    /// A number that depends on every byte that arrived anywhere, and when, and on the history.
    pub digest: u64,
    /// What clients saw.
    #[serde(skip)]
    pub history: Vec<HistoryEvent>,
    /// Sends that were acknowledged.
    pub acked: usize,
    /// Changes of topics, and of settings of consumer groups, that were answered.
    pub changed: usize,
    /// Simulated time in all, in milliseconds.
    pub simulated_ms: u64,
    /// How often each kind of fault came.
    pub faults: BTreeMap<String, u64>,
}

/// Runs one seed on a thread of its own. Libraries also keep a few numbers per process, so the digest of a seed is always the
/// same only for the first one in a process.
///
/// # Errors
/// When the harness fails, not the system: also when it takes longer than `patience`, in real time.
pub fn run(options: &Options, patience: Duration) -> Result<Outcome> {
    let options = options.clone();
    let (done, waits) = std::sync::mpsc::sync_channel(1);
    let thread = std::thread::Builder::new().name(format!("seed-{}", options.seed)).stack_size(STACK_BYTES);
    thread.spawn(move || {
        interpose::begin(options.seed);
        // Nobody waits any more when it took too long.
        let _ = done.send(simulate(&options));
    })?;
    match waits.recv_timeout(patience) {
        Ok(outcome) => outcome,
        Err(RecvTimeoutError::Timeout) => bail!("it hangs: no end after {} s", patience.as_secs()),
        Err(RecvTimeoutError::Disconnected) => bail!("the simulation itself panicked"),
    }
}

/// The clients' side: a runtime that is stepped like that of a node.
struct Clients {
    runtime: tokio::runtime::Runtime,
    start: Instant,
    start_us: u64,
}

impl Clients {
    fn step(&self, now_us: u64) {
        let until = self.start + Duration::from_micros(now_us - self.start_us);
        self.runtime.block_on(async { tokio::time::sleep_until(until).await });
    }
}

fn simulate(options: &Options) -> Result<Outcome> {
    let groups = groups_of(options.seed);
    let rots = options.faults && (options.rot || rots_of(options.seed));
    let mut world = World::new(options.seed, groups, rots)?;
    let (runtime, start) = host::runtime()?;
    let clients = Clients { runtime, start, start_us: 0 };
    be_born(&mut world, groups)?;
    let (stop, stopped) = watch::channel(false);
    let task = clients.runtime.spawn(workload(world.net.clone(), options, stopped));
    let mut others = Others {
        operator: Operator::new(options.seed),
        registers: Registers::new(options.seed),
        retention: Retention::new(options.seed, groups_count_of(options.seed)),
        rot: rots.then(|| Rot::new(options.seed)),
    };
    let task = under_faults(&mut world, &clients, &mut others, options, task)?;
    world.heal();
    let _ = stop.send(true);
    let history = drain(&mut world, &clients, task)?;
    settle(&mut world, &clients)?;
    if rots {
        scrub(&mut world, &clients)?;
    }
    let mut violations = std::mem::take(&mut world.violations);
    let mut acked = 0;
    match &history {
        None => violations.push(format!("not drained {} s after healing", DRAIN_MS_MAX / 1_000)),
        Some(history) => {
            let skewed = world.counts.contains_key("Skew");
            let report = delivery_checker::check(history, (!skewed).then_some(delivery::INVISIBLE));
            acked = report.sent_ok;
            if report.verdict() != Verdict::Valid {
                violations.push(format!("delivery:\n{report}"));
            }
            let report = order::check(history, true);
            if report.verdict() == Verdict::Invalid {
                violations.push(format!("order:\n{report}"));
            }
        }
    }
    compare_replicas(&world, &mut violations);
    let Others { operator, registers, .. } = others;
    let registers = registers.judge();
    if registers.verdict() == Verdict::Invalid {
        violations.push(registers.to_string());
    }
    violations.extend(world.unrefused());
    violations.extend(operator.judge(&world.look(|running| running.namesrv.view())));
    let history = history.unwrap_or_default();
    Ok(Outcome {
        violations,
        trace: std::mem::take(&mut world.trace),
        digest: digest(world.net.digest(), &history),
        acked,
        changed: operator.done_count() + registers.answered,
        history,
        simulated_ms: world.now_us() / 1_000,
        faults: std::mem::take(&mut world.counts),
    })
}

fn digest(network: u64, history: &[HistoryEvent]) -> u64 {
    let mut text = Vec::new();
    // Writing to memory does not fail.
    let _ = history::write(history, &mut text);
    text.iter().fold(network, |digest, byte| (digest ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3))
}

/// Broker groups of a seed's cluster: one, in a quarter of the seeds three.
fn groups_of(seed: u64) -> u32 {
    if seed % 4 == 3 { 3 } else { 1 }
}

/// Sends of each producer in a second: some bugs need traffic, others that there is none.
fn rate_of(seed: u64) -> u32 {
    if seed % 4 == 2 { 1 } else { 10 }
}

/// Whether bits flip on a disk: in every tenth seed.
fn rots_of(seed: u64) -> bool {
    seed % 10 == 9
}

/// Consumer groups that read the topic.
fn groups_count_of(seed: u64) -> u32 {
    if seed % 8 < 4 { 1 } else { 2 }
}

/// What `raftmq cluster init` does: the first membership of each group, the first record, a topic.
fn be_born(world: &mut World, groups: u32) -> Result<()> {
    let done = Arc::new(Mutex::new(None));
    let mut started = false;
    while world.now_us() < BIRTH_MS_MAX * 1_000 {
        world.step()?;
        if !started && world.look(|_| ()).iter().all(Option::is_some) {
            started = true;
            let Some(machine) = world.machines.get(NODES.start()) else { bail!("there is no first node") };
            let told = machine.slot.lock();
            let Some(running) = &told.running else { continue };
            let (meta_group, meta) = (running.namesrv.group().clone(), Arc::clone(&running.meta));
            let (broker, done) = (Arc::clone(&running.broker), Arc::clone(&done));
            drop(told);
            machine.spawn(async move {
                let born = async {
                    initialize(&meta_group).await?;
                    for (id, _) in broker.groups() {
                        match broker.initialize_group(id).await {
                            Ok(()) | Err(InitializeError::NotAllowed) => {}
                            Err(error) => return Err(anyhow!("broker group {id}: {error}")),
                        }
                    }
                    let deadline = Instant::now() + Duration::from_millis(BIRTH_MS_MAX);
                    meta.propose(MetaOp::Birth(host::birth(groups)), deadline).await?;
                    let topic = CreateTopic {
                        name: TOPIC.to_owned(),
                        topic_type: TopicType::Normal as i32,
                        permission: Permission::ReadWrite as i32,
                        queue_count: 4,
                    };
                    meta.topic_or_create(topic, deadline).await?;
                    Ok(())
                };
                *done.lock().unwrap_or_else(PoisonError::into_inner) = Some(born.await);
            });
        }
        if let Some(result) = done.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return result.context("the cluster is not born");
        }
    }
    bail!("the cluster was not born in {} s", BIRTH_MS_MAX / 1_000)
}

async fn initialize(group: &Group) -> Result<()> {
    match group.initialize(&host::voters()).await {
        Ok(()) | Err(InitializeError::NotAllowed) => Ok(()),
        Err(error) => Err(anyhow!("group {}: {error}", group.id())),
    }
}

fn workload(
    net: Net,
    options: &Options,
    stop: watch::Receiver<bool>,
) -> impl Future<Output = Result<Vec<HistoryEvent>>> + Send + use<> {
    let connector = Connector::new(move |address| {
        let net = net.clone();
        async move { net.connect(0, address).await }
    });
    let options = delivery::Options {
        endpoints: NODES.map(client_address).collect(),
        topic: TOPIC.to_owned(),
        group: "checkers".to_owned(),
        groups_count: groups_count_of(options.seed),
        run: options.seed.to_string(),
        // Ended by `stop`.
        produce: Duration::from_secs(options.seconds + 3_600),
        stop,
        drain_max: Duration::from_millis(DRAIN_MS_MAX),
        producers: 2,
        consumers: 2,
        interval: Duration::from_secs(1) / rate_of(options.seed),
        body_bytes_max: BODY_BYTES_MAX,
        direct: false,
        quiet_complete: delivery::QUIET_COMPLETE,
        quiet_missing: delivery::QUIET_MISSING,
        untidy: true,
        connector: Some(connector),
    };
    async move { delivery::run(options).await }
}

/// Who uses the cluster beside the workload.
struct Others {
    operator: Operator,
    registers: Registers,
    retention: Retention,
    rot: Option<Rot>,
}

type Task = JoinHandle<Result<Vec<HistoryEvent>>>;

fn under_faults(
    world: &mut World,
    clients: &Clients,
    others: &mut Others,
    options: &Options,
    task: Task,
) -> Result<Task> {
    let begin_us = world.now_us();
    let mut events = if options.faults { plan(options.seed, options.seconds * 1_000) } else { Vec::new() };
    // One entry on three disks: with one lost and one rotten, what a majority acknowledged may be nowhere.
    events.retain(|event| others.rot.is_none() || !matches!(event.fault, Fault::Wipe(_) | Fault::Restore(_)));
    let mut events = events.into_iter().peekable();
    while world.now_us() < begin_us + options.seconds * 1_000_000 {
        world.step()?;
        clients.step(world.now_us());
        others.operator.step(world);
        others.registers.step(world);
        others.retention.step(world);
        if let Some(rot) = &mut others.rot {
            rot.step(world);
        }
        let due = |event: &Event| begin_us + event.at_ms * 1_000 <= world.now_us();
        if let Some(event) = events.next_if(due) {
            world.hit(&event);
        }
        if task.is_finished() {
            bail!("the workload ended early");
        }
    }
    Ok(task)
}

fn drain(world: &mut World, clients: &Clients, task: Task) -> Result<Option<Vec<HistoryEvent>>> {
    let until_us = world.now_us() + (DRAIN_MS_MAX + 10_000) * 1_000;
    while world.now_us() < until_us {
        world.step()?;
        clients.step(world.now_us());
        if task.is_finished() {
            return clients.runtime.block_on(task)?.map(Some);
        }
    }
    Ok(None)
}

/// Lets replicas catch up: all are up and have applied the same.
fn settle(world: &mut World, clients: &Clients) -> Result<()> {
    let until_us = world.now_us() + SETTLE_MS_MAX * 1_000;
    while world.now_us() < until_us {
        for _ in 0..100 {
            world.step()?;
            clients.step(world.now_us());
        }
        let equal = |at: &Vec<_>| at.len() == NODES.count() && at.windows(2).all(|two| two[0] == two[1]);
        if positions(world).values().all(equal) && strangers(world).is_empty() {
            return Ok(());
        }
    }
    Ok(())
}

/// Lets each replica that is up read its whole log twice more and repair what it finds; a violation when one does not get there.
fn scrub(world: &mut World, clients: &Clients) -> Result<()> {
    let begin = integrities(world);
    let until_us = world.now_us() + SETTLE_MS_MAX * 1_000;
    while world.now_us() < until_us {
        for _ in 0..100 {
            world.step()?;
            clients.step(world.now_us());
        }
        let now = integrities(world);
        let is_done = |at: &(u32, GroupId), (passes, damaged): &(u64, u64)| {
            *damaged == 0 && begin.get(at).is_none_or(|(before, _)| *passes >= before + 2)
        };
        if now.len() == begin.len() && now.iter().all(|(at, of)| is_done(at, of)) {
            return Ok(());
        }
    }
    let now = integrities(world);
    world.violations.push(format!("logs are not whole after scrubbing (passes, damaged): {now:?}, before: {begin:?}"));
    Ok(())
}

/// For each replica that is up, passes of its scrubber and damaged entries.
fn integrities(world: &World) -> BTreeMap<(u32, GroupId), (u64, u64)> {
    let mut found = BTreeMap::new();
    for machine in world.machines.values() {
        let told = machine.slot.lock();
        let Some(running) = &told.running else { continue };
        let brokers = running.broker.groups().into_iter();
        for (id, group) in std::iter::once((GroupId::META, running.namesrv.group().clone())).chain(brokers) {
            let of = group.integrity();
            found.insert((machine.id, id), (of.scrub_passes_count, of.damaged_count));
        }
    }
    found
}

/// For each group what each replica that is up has applied, and whether it is all of its log.
fn positions(world: &World) -> BTreeMap<GroupId, Vec<(Option<u64>, bool)>> {
    let mut positions: BTreeMap<GroupId, Vec<(Option<u64>, bool)>> = BTreeMap::new();
    let looked = world.look(|running| {
        let meta = (GroupId::META, running.namesrv.group().status());
        let brokers = running.broker.groups().into_iter().map(|(id, group)| (id, group.status()));
        std::iter::once(meta).chain(brokers).collect::<Vec<_>>()
    });
    for (group, status) in looked.into_iter().flatten().flatten() {
        let applied = status.applied.map(|(_, index)| index);
        positions.entry(group).or_default().push((applied, applied == status.last));
    }
    positions
}

/// Groups whose members, as a replica knows them, are not the present lives of all nodes as voters.
fn strangers(world: &World) -> Vec<String> {
    let wanted: Vec<Member> = world.members().into_iter().map(|replica| Member { replica, voter: true }).collect();
    let looked = world.look(|running| {
        let brokers = running.broker.groups().into_iter().map(|(_, group)| group);
        let groups = std::iter::once(running.namesrv.group().clone()).chain(brokers);
        groups.map(|group| (group.id(), group.status().members)).collect::<Vec<_>>()
    });
    let wrong = looked.into_iter().flatten().flatten().filter(|(_, members)| *members != wanted);
    wrong.map(|(group, members)| format!("the members of group {group} are {members:?}")).collect()
}

/// In the end all replicas are up, have applied the same, and are the same.
fn compare_replicas(world: &World, violations: &mut Vec<String>) {
    for (group, at) in positions(world) {
        let same = at.windows(2).all(|two| two[0] == two[1]) && at.iter().all(|(_, whole)| *whole);
        if !same || at.len() != NODES.count() {
            violations.push(format!("the replicas of group {group} did not become equal: {at:?}"));
        }
    }
    violations.extend(strangers(world));
    let out_of_step = world.look(|running| {
        let groups = running.broker.groups().into_iter();
        groups.filter_map(|(id, _)| running.broker.replica(id)?.queue_out_of_step()).collect::<Vec<_>>()
    });
    violations.extend(out_of_step.into_iter().flatten().flatten());
    let digests = world.look(|running| {
        let groups = running.broker.groups().into_iter();
        let digest = |(id, _)| Some((id, running.broker.replica(id)?.digest()));
        groups.filter_map(digest).collect::<BTreeMap<_, _>>()
    });
    if digests.windows(2).any(|two| two[0] != two[1]) {
        violations.push(format!("the states of the broker groups differ: {digests:x?}"));
    }
    let kept = world.look(|running| {
        let groups = running.broker.groups().into_iter();
        groups.filter_map(|(id, _)| Some((id, kept(running.broker.replica(id)?.as_ref())))).collect::<BTreeMap<_, _>>()
    });
    if kept.windows(2).any(|two| two[0] != two[1]) {
        violations.push(format!("the replicas do not keep the same messages: {kept:?}"));
    }
    let views = world.look(|running| running.namesrv.view());
    if views.windows(2).any(|two| two[0] != two[1]) {
        violations.push("the states of the meta group differ".to_owned());
    }
}

/// What a replica keeps: its purge point, and of each queue the range of its messages and a digest of their records, or why one
/// cannot be read.
type Kept = (u64, Vec<(QueueRange, Result<u64, String>)>);

fn kept(replica: &Replica) -> Kept {
    let digest = |range: QueueRange| {
        let mut mix = Mix::new();
        for offset in (range.min.0..range.max.0).map(QueueOffset) {
            let record = replica.stored_record(range.topic, range.queue, offset);
            mix.bytes(&record.map_err(|error| format!("message {offset}: {error}"))?);
        }
        Ok(mix.finish())
    };
    let queues = replica.queue_ranges().into_iter().map(|range| (range, digest(range)));
    (replica.purged_upto(), queues.collect())
}
