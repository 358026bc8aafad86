//! From nothing to a serving cluster, and back.

use crate::admin_client;
use crate::exit::{ExitKind, Failure};
use crate::playground::record::Playground;
use crate::playground::{layout, process};
use raftmq_proto::admin::{ClusterInitRequest, ClusterStatusReply, ClusterStatusRequest};
use rustix::process::Signal;
use std::path::Path;
use std::process::Child;
use std::time::Duration;
use tokio::time::Instant;

/// How long a cluster may take from its first process to serving.
const READY_MS_MAX: u64 = 30_000;
/// How long nodes may take to stop after SIGTERM before they are killed.
const STOP_MS_MAX: u64 = 10_000;
/// How often state is asked for while waiting.
const POLL_MS: u64 = 50;

/// What a new playground is made of; an existing one keeps what it has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) nodes: u32,
    pub(crate) groups: u32,
    /// First client port; `None`: free ports.
    pub(crate) port: Option<u16>,
}

/// A playground whose processes were started here.
pub(crate) struct Running {
    pub(crate) playground: Playground,
    /// Processes, to be reaped when they end.
    pub(crate) children: Vec<(u32, Child)>,
}

/// Starts a playground in `dir` (a new one, or one that was stopped) and waits until it serves. On an error whatever was
/// started is stopped again.
pub(crate) async fn start(dir: &Path, shape: Shape) -> Result<Running, Failure> {
    let playground = prepare(dir, shape)?;
    let mut running = Running { playground, children: Vec::new() };
    match bring_up(dir, &mut running).await {
        Ok(()) => Ok(running),
        Err(failure) => {
            stop(&running.playground, &mut running.children).await;
            Err(failure)
        }
    }
}

fn prepare(dir: &Path, shape: Shape) -> Result<Playground, Failure> {
    let failed = |error: std::io::Error| Failure::usage(format!("{} cannot be used: {error}", dir.display()));
    std::fs::create_dir_all(dir).map_err(failed)?;
    if Playground::exists(dir) {
        let playground = Playground::load(dir)?;
        if playground.nodes.iter().any(process::alive) {
            return Err(Failure::refused(format!(
                "the playground in {} runs already; stop it with `raftmq playground stop --data {0}`",
                dir.display()
            )));
        }
        return Ok(playground);
    }
    let playground = layout::plan(dir, shape.nodes, shape.groups, shape.port)?;
    layout::write(&playground)?;
    playground.save(dir)?;
    Ok(playground)
}

async fn bring_up(dir: &Path, running: &mut Running) -> Result<(), Failure> {
    for node in &mut running.playground.nodes {
        let child = process::start(node)?;
        running.children.push((node.id, child));
    }
    running.playground.save(dir)?;
    let deadline = Instant::now() + Duration::from_millis(READY_MS_MAX);
    initialize(running, deadline).await?;
    wait_until_ready(running, deadline).await?;
    wait_for_client_ports(running, deadline).await
}

/// `cluster init`, again and again while nodes are still starting; idempotent.
async fn initialize(running: &mut Running, deadline: Instant) -> Result<(), Failure> {
    let request = ClusterInitRequest { broker_groups: running.playground.groups };
    loop {
        let answer = match admin_client::connect(&running.playground.admins()).await {
            Ok(mut admin) => admin.cluster_init(request).await.map_err(Failure::from),
            Err(failure) => Err(failure),
        };
        match answer {
            Ok(_) => return Ok(()),
            Err(failure) if failure.kind != ExitKind::Unreachable => return Err(failure),
            Err(failure) => pause_or_fail(running, deadline, &failure.sentence).await?,
        }
    }
}

/// Waits until all nodes answer and each group has a leader that serves.
async fn wait_until_ready(running: &mut Running, deadline: Instant) -> Result<ClusterStatusReply, Failure> {
    loop {
        let missing = match status(&running.playground).await {
            Ok(reply) => match not_ready(&reply, running.playground.nodes.len()) {
                None => return Ok(reply),
                Some(missing) => missing,
            },
            Err(failure) => failure.sentence,
        };
        pause_or_fail(running, deadline, &missing).await?;
    }
}

/// A node opens its client port a moment after its groups are ready, when it knows that a majority answers.
async fn wait_for_client_ports(running: &mut Running, deadline: Instant) -> Result<(), Failure> {
    for address in running.playground.clients() {
        while let Err(error) = tokio::net::TcpStream::connect(&address).await {
            pause_or_fail(running, deadline, &format!("the client port {address} does not answer: {error}")).await?;
        }
    }
    Ok(())
}

/// What keeps a cluster from being ready; `None` when nothing does.
fn not_ready(reply: &ClusterStatusReply, nodes: usize) -> Option<String> {
    let alive = reply.nodes.iter().filter(|node| node.alive).count();
    if alive < nodes {
        return Some(format!("{alive} of {nodes} nodes answer"));
    }
    if reply.groups.len() < 2 {
        return Some("the broker groups are not there yet".into());
    }
    let group = reply.groups.iter().find(|group| !group.ready)?;
    Some(format!("{} has no leader that serves", group.name))
}

/// The state of the cluster as whichever node answers first tells it.
pub(crate) async fn status(playground: &Playground) -> Result<ClusterStatusReply, Failure> {
    let mut admin = admin_client::connect(&playground.admins()).await?;
    Ok(admin.cluster_status(ClusterStatusRequest {}).await?.into_inner())
}

async fn pause_or_fail(running: &mut Running, deadline: Instant, missing: &str) -> Result<(), Failure> {
    if let Some(id) = ended(&mut running.children) {
        let log = running.playground.node(id).map(|node| process::last_log_line(&node.log))?;
        return Err(Failure::failed(format!("node {id} stopped; it said: {log}")));
    }
    if Instant::now() >= deadline {
        return Err(Failure::unreachable(format!("the cluster is not ready after {READY_MS_MAX} ms: {missing}")));
    }
    tokio::time::sleep(Duration::from_millis(POLL_MS)).await;
    Ok(())
}

/// Reaps children that ended; the id of one of them.
pub(crate) fn ended(children: &mut Vec<(u32, Child)>) -> Option<u32> {
    let mut ended = None;
    children.retain_mut(|(id, child)| {
        let over = matches!(child.try_wait(), Ok(Some(_)));
        if over {
            ended = Some(*id);
        }
        !over
    });
    ended
}

/// Stops all nodes: SIGTERM, then SIGKILL for those that take too long. Returns when none runs.
pub(crate) async fn stop(playground: &Playground, children: &mut Vec<(u32, Child)>) {
    for node in &playground.nodes {
        // A paused process takes SIGTERM only when it continues. Errors mean that it does not run, which is the aim.
        let _ = process::signal(node, Signal::TERM);
        let _ = process::signal(node, Signal::CONT);
    }
    let deadline = Instant::now() + Duration::from_millis(STOP_MS_MAX);
    let mut killed = false;
    loop {
        let _ = ended(children);
        if !playground.nodes.iter().any(process::alive) {
            return;
        }
        if Instant::now() >= deadline && !killed {
            killed = true;
            for node in &playground.nodes {
                let _ = process::signal(node, Signal::KILL);
            }
        }
        tokio::time::sleep(Duration::from_millis(POLL_MS)).await;
    }
}
