//! The command line of `raftmq-jepsen`: one file for each command that is more than a few lines.
//!
//! Exit codes: 0 valid, 1 a checker found a fault of the system, 2 the harness failed or the history decides nothing.

mod controls;
mod run;
mod sim;
mod sums;

use crate::checker::{Verdict, delivery, order};
use crate::history::{self, Event};
use crate::workload;
use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};
use raftmq_model::planted;
use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const EXIT_INVALID: u8 = 1;
const EXIT_HARNESS: u8 = 2;

/// Finds out whether a raftmq cluster keeps its promises.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Send and receive on a live cluster, then judge what was seen.
    Check(Check),
    /// Make a cluster of processes in network namespaces, hurt it, and judge. Needs root.
    Run(run::Run),
    /// Run simulated clusters under faults, one for each seed, and judge.
    Sim(sim::Sim),
    /// Switch planted faults on, one after the other, and see that each is found.
    #[command(hide = !planted::POSSIBLE)]
    Controls(controls::Controls),
    /// Take down what harness processes left that were killed.
    Clean,
    /// Print a history that `check`, `run` or `sim` wrote as EDN, for Jepsen's own checkers.
    Edn {
        /// A file of JSON lines.
        history: PathBuf,
    },
    /// Judge a history that `check` or `run` wrote.
    Judge {
        /// A file of JSON lines.
        history: PathBuf,
    },
}

#[derive(Args)]
struct Check {
    /// Nodes of the cluster, host:port each.
    #[arg(long, value_delimiter = ',', required = true)]
    endpoints: Vec<String>,
    /// An existing topic of ordinary messages from which nothing was purged yet.
    #[arg(long)]
    topic: String,
    /// A consumer group that no one else uses; default: one of this run's own.
    #[arg(long)]
    group: Option<String>,
    /// For how long to send.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Longest drain after that.
    #[arg(long, default_value_t = 90)]
    drain_seconds: u64,
    /// Tasks that send.
    #[arg(long, default_value_t = 4)]
    producers: u32,
    /// Tasks that receive.
    #[arg(long, default_value_t = 2)]
    consumers: u32,
    /// Sends of each producer in a second, at most; some are batches.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    rate: u32,
    /// The longest body; most are a few bytes.
    #[arg(long, default_value_t = 65_536)]
    body_bytes_max: usize,
    /// Talk to the endpoints in turn instead of following routes.
    #[arg(long)]
    direct: bool,
    /// Write the history here, as JSON lines.
    #[arg(long)]
    history: Option<PathBuf>,
}

/// Parses the command line and does what it says.
#[must_use]
pub fn main() -> ExitCode {
    match Cli::parse().command {
        // Before there is any runtime: its threads would take numbers that libraries give out per process.
        Command::Sim(args) => sim::run(&args),
        Command::Controls(args) => controls::run(&args),
        command => with_a_runtime(command),
    }
}

#[tokio::main]
async fn with_a_runtime(command: Command) -> ExitCode {
    let events = match command {
        Command::Sim(args) => return sim::run(&args),
        Command::Controls(args) => return controls::run(&args),
        Command::Run(args) => return run::run(args).await,
        Command::Clean => return clean(),
        Command::Edn { history } => return edn(&history),
        Command::Check(args) => check(args).await,
        Command::Judge { history } => read(&history),
    };
    match events {
        Ok(events) => judge(&events),
        Err(error) => {
            eprintln!("the harness failed: {error:#}");
            ExitCode::from(EXIT_HARNESS)
        }
    }
}

async fn check(check: Check) -> Result<Vec<Event>> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let run = format!("{}-{}", since.as_millis(), std::process::id());
    let options = workload::delivery::Options {
        endpoints: check.endpoints,
        topic: check.topic,
        group: check.group.unwrap_or_else(|| format!("jepsen-{run}")),
        groups_count: 1,
        run,
        produce: Duration::from_secs(check.seconds),
        stop: tokio::sync::watch::channel(false).1,
        drain_max: Duration::from_secs(check.drain_seconds),
        producers: check.producers,
        consumers: check.consumers,
        interval: Duration::from_secs(1) / check.rate,
        body_bytes_max: check.body_bytes_max,
        direct: check.direct,
        quiet_complete: workload::delivery::QUIET_COMPLETE,
        quiet_missing: workload::delivery::QUIET_MISSING,
        untidy: true,
        connector: None,
    };
    let events = workload::delivery::run(options).await?;
    if let Some(path) = &check.history {
        let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
        history::write(&events, BufWriter::new(file)).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(events)
}

fn clean() -> ExitCode {
    match crate::real::clean() {
        Ok(removed) => {
            removed.iter().for_each(|name| println!("{name}"));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("the harness failed: {error:#}");
            ExitCode::from(EXIT_HARNESS)
        }
    }
}

fn edn(path: &Path) -> ExitCode {
    let written = read(path).and_then(|events| Ok(history::edn::write(&events, BufWriter::new(std::io::stdout()))?));
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("the harness failed: {error:#}");
            ExitCode::from(EXIT_HARNESS)
        }
    }
}

fn read(path: &Path) -> Result<Vec<Event>> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    history::read(BufReader::new(file)).with_context(|| format!("cannot read {}", path.display()))
}

fn judge(events: &[Event]) -> ExitCode {
    // The topic may have held messages before.
    let (delivery, order) = (delivery::check(events, None), order::check(events, false));
    print!("{delivery}{order}");
    exit_code(if order.verdict() == Verdict::Invalid { Verdict::Invalid } else { delivery.verdict() })
}

fn exit_code(verdict: Verdict) -> ExitCode {
    match verdict {
        Verdict::Valid => ExitCode::SUCCESS,
        Verdict::Invalid => ExitCode::from(EXIT_INVALID),
        Verdict::Undecided => ExitCode::from(EXIT_HARNESS),
    }
}
