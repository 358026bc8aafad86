//! The demo: real processes, the public API, one SIGKILL, and the books of producers and consumers compared.
//!
//! A message counts as acked when a send of it was answered OK, and as delivered when a consumer received it. A producer
//! repeats a send that failed under the same message id through the next node, so an acked message may have been sent
//! several times but is stored once.

mod books;
mod workers;

use crate::exit::Failure;
use crate::load::endpoints::Endpoints;
use crate::output::tell;
use crate::playground::lifecycle::{self, Running, Shape};
use crate::playground::process;
use books::{Books, Killed};
use rustix::process::Signal;
use serde::Serialize;
use std::sync::Arc;
use std::time::{Duration, Instant};
use workers::{Load, Phase};

/// How long consumers may take, after the last send, for what is left.
const DRAIN_MS_MAX: u64 = 25_000;
/// How often the books are looked at meanwhile.
const POLL_MS: u64 = 20;
/// How long the killed process may take to be gone.
const GONE_MS_MAX: u64 = 5000;

/// What to run.
pub(crate) struct Plan {
    pub(crate) nodes: u32,
    pub(crate) seconds: u64,
    pub(crate) producers: u32,
    pub(crate) consumers: u32,
}

/// What came of it.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// Messages whose send was acknowledged.
    pub(crate) acked: u64,
    /// Acknowledged messages that were delivered at least once.
    pub(crate) delivered: u64,
    /// Messages that were delivered more than once.
    pub(crate) delivered_twice: u64,
    /// Acknowledged messages that were not delivered.
    pub(crate) lost: u64,
    /// From just before the SIGKILL to the acknowledgement of a send that began after the process was gone.
    pub(crate) failover_ms: f64,
    /// Acknowledged sends for each second of the whole load, with the failure in it.
    pub(crate) sends_per_s: f64,
    /// The node that was killed.
    pub(crate) killed_node: u32,
}

/// Runs the demo in a folder that is removed afterwards.
pub(crate) async fn run(plan: &Plan) -> Result<Report, Failure> {
    let dir = tempfile::Builder::new()
        .prefix("raftmq-demo-")
        .tempdir()
        .map_err(|error| Failure::failed(format!("no folder can be made for the demo: {error}")))?;
    tell(&format!("starting {} nodes in {}", plan.nodes, dir.path().display()));
    let mut running = lifecycle::start(dir.path(), Shape { nodes: plan.nodes, groups: 1, port: None }).await?;
    let report = tokio::select! {
        report = exercise(plan, &running) => report,
        _ = tokio::signal::ctrl_c() => Err(Failure::failed("interrupted")),
    };
    lifecycle::stop(&running.playground, &mut running.children).await;
    report
}

async fn exercise(plan: &Plan, running: &Running) -> Result<Report, Failure> {
    let books = Arc::new(Books::default());
    let load = Load::start(plan, Endpoints::new(&running.playground.clients())?, Arc::clone(&books)).await?;
    let started = Instant::now();
    tell(&format!("{} producers send, {} consumers receive", plan.producers, plan.consumers));
    let second = Duration::from_secs(1);
    tokio::time::sleep(second.mul_f64(plan.seconds as f64 / 3.0)).await;
    let killed = kill_leader(running).await?;
    books.killed(killed.clone());
    tell(&format!("killed node {}, the leader, after {} acknowledged sends", killed.node, books.acked_count()));
    tokio::time::sleep_until((started + second.mul_f64(plan.seconds as f64)).into()).await;
    load.phase(Phase::Drain);
    let sent_for = started.elapsed();
    tell(&format!("{} sends acknowledged; waiting for the consumers", books.acked_count()));
    let deadline = Instant::now() + Duration::from_millis(DRAIN_MS_MAX);
    load.producers_end().await?;
    while books.undelivered_count() > 0 && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(POLL_MS)).await;
    }
    load.phase(Phase::Stop);
    books.report(&killed, sent_for)
}

/// Kills the leader of the first broker group; returns when its process is gone.
async fn kill_leader(running: &Running) -> Result<Killed, Failure> {
    let status = lifecycle::status(&running.playground).await?;
    let group = status.groups.iter().find(|group| group.id != 0 && group.leader != 0);
    let leader = group.map(|group| group.leader).ok_or_else(|| Failure::failed("no broker group has a leader"))?;
    let node = running.playground.node(leader)?;
    let at = Instant::now();
    process::signal(node, Signal::KILL)?;
    let deadline = at + Duration::from_millis(GONE_MS_MAX);
    while process::alive(node) {
        if Instant::now() >= deadline {
            return Err(Failure::failed(format!("node {leader} does not go away after SIGKILL")));
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(Killed { node: leader, at, gone: Instant::now() })
}
