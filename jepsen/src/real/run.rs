//! One run: load from this process, faults from a thread of its own, then heal, wait until all is well, drain, judge.

use super::cluster::RealCluster;
use crate::checker::{delivery, order, register, routes};
use crate::history::Event;
use crate::nemesis::{Fault, Plan, schedule};
use crate::report::{Coverage, Load, Window};
use crate::workload::{delivery as workload, register as registers, routes as asked_routes};
use anyhow::{Context, Result, anyhow};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Busy all the time; and one where hardly anything happens, so that what comes must not wait for the next.
const TOPICS: [&str; 2] = ["busy", "idle"];
const IDLE_INTERVAL: Duration = Duration::from_secs(10);
const BODY_BYTES_MAX: usize = 64 << 10;
/// Consumer groups that read the busy topic.
const GROUPS_COUNT: u32 = 2;
/// Sends end after this even when the nemesis does not.
const LENGTH_MAX: Duration = Duration::from_secs(4 * 60 * 60);
const DRAIN_MAX: Duration = Duration::from_secs(180);
/// How often a nemesis that waits looks whether it is to stop.
const STOP_POLL: Duration = Duration::from_millis(100);

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `raftmq` program.
    pub binary: PathBuf,
    /// Logs, configurations and volumes; empty or not there.
    pub dir: PathBuf,
    /// How many nodes.
    pub nodes_count: u32,
    /// What is done to them.
    pub plan: Plan,
    /// Tasks that send, and as many that receive.
    pub clients_count: u32,
    /// Sends of each sender in a second, at most.
    pub rate: u32,
}

/// What came of it.
#[derive(Debug)]
pub struct Outcome {
    /// What clients of the busy topic saw.
    pub events: Vec<Event>,
    /// The same of the idle one.
    pub idle_events: Vec<Event>,
    /// The same of the metadata registers.
    pub register_events: Vec<Event>,
    /// The same of those that asked for routes.
    pub route_events: Vec<Event>,
    /// What the checkers say of each topic.
    pub loads: Vec<Load>,
    /// What the checker says of the metadata registers.
    pub registers: register::Report,
    /// What it says of routes.
    pub routes: routes::Report,
    /// The faults.
    pub windows: Vec<Window>,
    /// What nodes did by themselves that they must not do.
    pub crimes: Vec<String>,
    /// Faults that this machine cannot bring about, and why.
    pub skipped: Vec<(Fault, String)>,
    /// What the run covered.
    pub coverage: Coverage,
    /// Why the cluster did not get well, or the harness could not go on.
    pub broken: Option<String>,
}

/// Runs. `stop` ends the faults early; the run is then judged as it is.
///
/// # Errors
/// For faults of the harness only.
pub async fn run(options: Options, stop: Arc<AtomicBool>) -> Result<Outcome> {
    let (ids, dir, binary) =
        ((1..=options.nodes_count).collect::<Vec<u32>>(), options.dir.clone(), options.binary.clone());
    let cluster = tokio::task::spawn_blocking(move || {
        let cluster = RealCluster::start(&ids, &dir, &binary)?;
        TOPICS.iter().try_for_each(|topic| cluster.create_topic(topic))?;
        Ok::<_, anyhow::Error>(cluster)
    });
    let cluster = cluster.await??;
    let (mut plan, mut skipped) = (options.plan.clone(), Vec::new());
    plan.faults.retain(|fault| match cluster.lacking(*fault) {
        None => true,
        Some(why) => {
            skipped.push((*fault, why));
            false
        }
    });
    let (produced, stopped) = watch::channel(false);
    let registers = registers::Options {
        admins: cluster.admins(),
        run: options.plan.seed.to_string(),
        seed: options.plan.seed,
        stop: stopped.clone(),
    };
    let endpoints: BTreeSet<String> = cluster.clients().into_iter().collect();
    let routes =
        asked_routes::Options { endpoints: cluster.clients(), topic: TOPICS[0].to_owned(), stop: stopped.clone() };
    let busy = load_options(&options, cluster.clients(), stopped);
    let idle = workload::Options {
        topic: TOPICS[1].to_owned(),
        group: TOPICS[1].to_owned(),
        groups_count: 1,
        producers: 1,
        consumers: 1,
        interval: IDLE_INTERVAL,
        ..busy.clone()
    };
    let begin = Instant::now();
    let turns_clocks = plan.faults.iter().any(|fault| fault.turns_a_clock());
    let nemesis = tokio::task::spawn_blocking(move || {
        let mut nemesis = Nemesis { cluster, begin, windows: Vec::new(), stop };
        let broken = nemesis.run(&plan).err().map(|error| format!("{error:#}"));
        produced.send_replace(true);
        (nemesis, broken)
    });
    let loads = tokio::try_join!(
        workload::run(busy),
        workload::run(idle),
        registers::run(registers),
        asked_routes::run(routes)
    );
    let (events, idle_events, register_events, route_events) = loads?;
    let (nemesis, broken) = nemesis.await.context("the nemesis died")?;
    let loads = [&events, &idle_events].into_iter().zip(TOPICS);
    let loads = loads.map(|(events, topic)| Load {
        topic: topic.to_owned(),
        delivery: delivery::check(events, (!turns_clocks).then_some(workload::INVISIBLE)),
        order: order::check(events, true),
    });
    let loads = loads.collect();
    let mut windows = nemesis.windows;
    windows.iter_mut().for_each(|window| window.measure(&events));
    let (crimes, coverage) = (nemesis.cluster.crimes(), nemesis.cluster.coverage());
    // Takes everything down; it blocks.
    tokio::task::spawn_blocking(move || drop(nemesis.cluster)).await.map_err(|error| anyhow!(error))?;
    let (registers, routes) = (register::check(&register_events), routes::check(&route_events, &endpoints));
    Ok(Outcome {
        events,
        idle_events,
        register_events,
        route_events,
        loads,
        registers,
        routes,
        windows,
        crimes,
        skipped,
        coverage,
        broken,
    })
}

fn load_options(options: &Options, endpoints: Vec<String>, stop: watch::Receiver<bool>) -> workload::Options {
    workload::Options {
        endpoints,
        topic: TOPICS[0].to_owned(),
        group: TOPICS[0].to_owned(),
        groups_count: GROUPS_COUNT,
        run: format!("seed-{}", options.plan.seed),
        produce: LENGTH_MAX,
        stop,
        drain_max: DRAIN_MAX,
        producers: options.clients_count,
        consumers: options.clients_count,
        interval: Duration::from_secs(1) / options.rate.max(1),
        body_bytes_max: BODY_BYTES_MAX,
        direct: true,
        quiet_complete: workload::QUIET_COMPLETE,
        quiet_missing: workload::QUIET_MISSING,
        untidy: true,
        connector: None,
    }
}

struct Nemesis {
    cluster: RealCluster,
    begin: Instant,
    windows: Vec<Window>,
    stop: Arc<AtomicBool>,
}

impl Nemesis {
    fn run(&mut self, plan: &Plan) -> Result<()> {
        for period in schedule(plan) {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            match period.fault {
                Some(fault) => self.fault(fault, Duration::from_millis(period.fault_ms))?,
                None => self.pause(Duration::from_millis(period.fault_ms)),
            }
            self.pause(Duration::from_millis(period.calm_ms));
        }
        self.cluster.wait_well().map(drop)
    }

    fn fault(&mut self, fault: Fault, length: Duration) -> Result<()> {
        let from_us = self.now_us();
        let nodes = self.cluster.install(fault).with_context(|| format!("{fault} cannot be brought about"))?;
        eprintln!("{:>7.1} s  {fault} on {nodes:?}", from_us as f64 / 1e6);
        if !fault.is_a_moment() {
            self.pause(length);
        }
        let to_us = self.now_us();
        self.cluster.remove(fault, &nodes).with_context(|| format!("{fault} cannot be taken away"))?;
        let well = self.cluster.wait_well().with_context(|| format!("after {fault}"))?;
        self.windows.push(Window {
            fault,
            nodes,
            from_us,
            to_us,
            well_ms: well.as_millis() as u64,
            gap_ms: 0,
            recovery_ms: None,
        });
        Ok(())
    }

    fn pause(&self, length: Duration) {
        let until = Instant::now() + length;
        while Instant::now() < until && !self.stop.load(Ordering::Relaxed) {
            sleep(STOP_POLL.min(until.saturating_duration_since(Instant::now())));
        }
    }

    fn now_us(&self) -> u64 {
        self.begin.elapsed().as_micros() as u64
    }
}
