//! `raftmq playground`: a cluster of real processes on this machine.

use crate::cli::{Global, Output};
use crate::context;
use crate::exit::Failure;
use crate::output::{self, Table};
use crate::playground::lifecycle::{self, Running, Shape};
use crate::playground::record::{Playground, PlaygroundNode};
use crate::playground::{layout, process};
use clap::{Args, Subcommand};
use raftmq_proto::admin::ClusterStatusReply;
use rustix::process::Signal;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

/// How often a playground in the foreground looks at its cluster.
const WATCH_MS: u64 = 500;
/// How long a killed process may take to be gone.
const GONE_MS_MAX: u64 = 30_000;

/// Start a playground, or do something to one.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct PlaygroundArgs {
    #[command(subcommand)]
    pub(crate) command: Option<PlaygroundCommand>,
    /// Processes.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=i64::from(layout::NODES_MAX)))]
    pub(crate) nodes: u32,
    /// Broker groups.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) groups: u32,
    /// Client port of the first node; admin ports are 100 above, peer ports 200 above. 0: free ports.
    #[arg(long, default_value_t = 8081)]
    pub(crate) port: u16,
    /// Come back when the cluster serves; `raftmq playground stop` ends it.
    #[arg(long)]
    pub(crate) detach: bool,
}

/// What to do to a playground.
#[derive(Debug, Subcommand)]
pub(crate) enum PlaygroundCommand {
    /// Kill a node's process (SIGKILL).
    Kill {
        /// Node id.
        node: u32,
    },
    /// Freeze a node's process (SIGSTOP).
    Pause {
        /// Node id.
        node: u32,
    },
    /// Let a frozen process continue (SIGCONT).
    Resume {
        /// Node id.
        node: u32,
    },
    /// Delete the data of a node that does not run, as if its disk was lost; `raftmq replica replace` brings it back.
    Wipe {
        /// Node id.
        node: u32,
    },
    /// Start a node that does not run.
    Start {
        /// Node id.
        node: u32,
    },
    /// Stop all nodes; their data stays.
    Stop,
}

#[derive(Serialize)]
struct Started<'a> {
    data: &'a Path,
    nodes: &'a [PlaygroundNode],
}

#[derive(Serialize)]
struct NodeState {
    node: u32,
    pid: u32,
    state: &'static str,
}

#[derive(Serialize)]
struct Stopped {
    stopped: Vec<u32>,
}

/// Runs the command.
pub(crate) async fn run(global: &Global, args: PlaygroundArgs) -> Result<(), Failure> {
    match &args.command {
        None => start_all(global, &args).await,
        Some(PlaygroundCommand::Stop) => stop_all(global).await,
        Some(PlaygroundCommand::Wipe { node }) => wipe_one(global, *node),
        Some(PlaygroundCommand::Start { node }) => start_one(global, *node),
        Some(PlaygroundCommand::Kill { node }) => signal_one(global, *node, Signal::KILL, "killed").await,
        Some(PlaygroundCommand::Pause { node }) => signal_one(global, *node, Signal::STOP, "paused").await,
        Some(PlaygroundCommand::Resume { node }) => signal_one(global, *node, Signal::CONT, "running").await,
    }
}

/// The folder of a playground to start, absolute: nodes are recognised by it whatever the working directory is.
fn folder_to_start(global: &Global) -> Result<PathBuf, Failure> {
    let dir = match &global.data {
        Some(dir) => dir.clone(),
        None => context::state_dir()
            .map(|dir| dir.join("playground"))
            .ok_or_else(|| Failure::usage("there is no home folder for a playground, give --data DIR"))?,
    };
    std::path::absolute(&dir).map_err(|error| Failure::usage(format!("{} cannot be used: {error}", dir.display())))
}

async fn start_all(global: &Global, args: &PlaygroundArgs) -> Result<(), Failure> {
    let dir = folder_to_start(global)?;
    let mut interrupts = Interrupts::new()?;
    let port = Some(args.port).filter(|port| *port != 0);
    let running = tokio::select! {
        running = lifecycle::start(&dir, Shape { nodes: args.nodes, groups: args.groups, port }) => running?,
        () = interrupts.next() => {
            // `start` was dropped in the middle; what it recorded is what has to be stopped.
            lifecycle::stop(&Playground::load(&dir)?, &mut Vec::new()).await;
            return Err(Failure::failed("interrupted"));
        }
    };
    context::remember(&dir)?;
    announce(global, &dir, &running.playground)?;
    if args.detach {
        return Ok(());
    }
    foreground(&dir, running, interrupts).await
}

fn announce(global: &Global, dir: &Path, playground: &Playground) -> Result<(), Failure> {
    if global.output == Output::Json {
        return output::print_json(&Started { data: dir, nodes: &playground.nodes });
    }
    let mut table = Table::new(&["NODE", "PID", "CLIENT", "ADMIN", "LOG"]);
    for node in &playground.nodes {
        table.row([
            node.id.to_string(),
            node.pid.to_string(),
            node.client.clone(),
            node.admin.clone(),
            node.log.display().to_string(),
        ]);
    }
    output::print(&table.render())?;
    output::tell(&format!(
        "\nSDK endpoints: {}\nTry: raftmq topic create orders; raftmq cluster status; raftmq playground kill 1",
        playground.clients().join(";")
    ));
    Ok(())
}

/// Says on stderr whenever leaders or nodes change; stops everything at Ctrl-C or SIGTERM.
async fn foreground(dir: &Path, mut running: Running, mut interrupts: Interrupts) -> Result<(), Failure> {
    let mut said = String::new();
    let mut watch = tokio::time::interval(Duration::from_millis(WATCH_MS));
    loop {
        tokio::select! {
            () = interrupts.next() => break,
            _ = watch.tick() => {}
        }
        let _ = lifecycle::ended(&mut running.children);
        // Nodes may have been killed and started by other commands.
        running.playground = Playground::load(dir)?;
        if !running.playground.nodes.iter().any(process::alive) {
            output::tell("no node runs any more");
            return Ok(());
        }
        let line = match lifecycle::status(&running.playground).await {
            Ok(reply) => short(&reply),
            Err(failure) => failure.sentence,
        };
        if line != said {
            output::tell(&line);
            said = line;
        }
    }
    output::tell("stopping");
    lifecycle::stop(&Playground::load(dir)?, &mut running.children).await;
    context::forget(dir);
    Ok(())
}

/// One line: who lives and who leads.
fn short(reply: &ClusterStatusReply) -> String {
    let nodes = reply.nodes.iter().map(|node| format!("{}{}", node.id, if node.alive { "" } else { " (down)" }));
    let groups = reply.groups.iter().map(|group| match group.leader {
        0 => format!("{}: no leader", group.name),
        leader => format!("{}: node {leader} in term {}", group.name, group.term),
    });
    format!("nodes {} | {}", nodes.collect::<Vec<_>>().join(", "), groups.collect::<Vec<_>>().join(" | "))
}

async fn stop_all(global: &Global) -> Result<(), Failure> {
    let dir = context::playground_dir(global)?;
    let playground = Playground::load(&dir)?;
    let running: Vec<u32> = playground.nodes.iter().filter(|node| process::alive(node)).map(|node| node.id).collect();
    lifecycle::stop(&playground, &mut Vec::new()).await;
    context::forget(&dir);
    match global.output {
        Output::Json => output::print_json(&Stopped { stopped: running }),
        Output::Table => output::print(&format!("{} nodes stopped\n", running.len())),
    }
}

fn wipe_one(global: &Global, id: u32) -> Result<(), Failure> {
    let playground = Playground::load(&context::playground_dir(global)?)?;
    let node = playground.node(id)?;
    if process::alive(node) {
        return Err(Failure::refused(format!("node {id} runs: `raftmq playground kill {id}` first")));
    }
    let wiped = std::fs::remove_dir_all(&node.data);
    wiped.map_err(|error| Failure::failed(format!("{} cannot be deleted: {error}", node.data.display())))?;
    report(global, node, "without its data")
}

fn start_one(global: &Global, id: u32) -> Result<(), Failure> {
    let dir = context::playground_dir(global)?;
    let mut playground = Playground::load(&dir)?;
    if process::alive(playground.node(id)?) {
        return Err(Failure::refused(format!("node {id} runs already")));
    }
    for node in playground.nodes.iter_mut().filter(|node| node.id == id) {
        // Dropped, not waited for: the process outlives this command.
        drop(process::start(node)?);
    }
    playground.save(&dir)?;
    report(global, playground.node(id)?, "running")
}

async fn signal_one(global: &Global, id: u32, signal: Signal, state: &'static str) -> Result<(), Failure> {
    let playground = Playground::load(&context::playground_dir(global)?)?;
    let node = playground.node(id)?;
    process::signal(node, signal)?;
    if signal == Signal::KILL {
        let deadline = Instant::now() + Duration::from_millis(GONE_MS_MAX);
        while !process::gone(node.pid) && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    report(global, node, state)
}

fn report(global: &Global, node: &PlaygroundNode, state: &'static str) -> Result<(), Failure> {
    match global.output {
        Output::Json => output::print_json(&NodeState { node: node.id, pid: node.pid, state }),
        Output::Table => output::print(&format!("node {} (pid {}) is {state}\n", node.id, node.pid)),
    }
}

/// Ctrl-C and SIGTERM.
struct Interrupts {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

impl Interrupts {
    fn new() -> Result<Interrupts, Failure> {
        let failed = |error: std::io::Error| Failure::failed(format!("signals cannot be caught: {error}"));
        Ok(Interrupts {
            interrupt: signal(SignalKind::interrupt()).map_err(failed)?,
            terminate: signal(SignalKind::terminate()).map_err(failed)?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
