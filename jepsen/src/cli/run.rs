//! `raftmq-jepsen run`: a cluster of processes under faults.

use super::{EXIT_HARNESS, exit_code};
use crate::history;
use crate::nemesis::{Fault, Plan};
use crate::real::{self, Options, Outcome};
use crate::report::{Judgement, page, quiet_failures};
use anyhow::{Context, Result};
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::signal::unix::{SignalKind, signal};

#[derive(clap::Args)]
pub(crate) struct Run {
    /// For how long faults come.
    #[arg(long, default_value_t = 3.0)]
    minutes: f64,
    /// As many faults as this, whatever the time.
    #[arg(long)]
    times: Option<usize>,
    /// The kinds of faults, which take turns. Without it: all; `--quiet`: none.
    #[arg(long, value_delimiter = ',', conflicts_with = "quiet")]
    faults: Vec<Fault>,
    /// No faults.
    #[arg(long)]
    quiet: bool,
    /// All chance comes from it. Without it: another one each time.
    #[arg(long)]
    seed: Option<u64>,
    /// Nodes of the cluster.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(3..=5))]
    nodes: u32,
    /// Tasks that send, and as many that receive for each of two consumer groups.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    clients: u32,
    /// Sends of each of them in a second, at most; some are batches.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    rate: u32,
    /// The `raftmq` program. Without it: the one beside this program.
    #[arg(long)]
    binary: Option<PathBuf>,
    /// Logs, history and report; made anew. Without it: a folder among the temporary files.
    #[arg(long)]
    out: Option<PathBuf>,
}

pub(crate) async fn run(args: Run) -> ExitCode {
    match try_run(args).await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("the harness failed: {error:#}");
            ExitCode::from(EXIT_HARNESS)
        }
    }
}

async fn try_run(args: Run) -> Result<ExitCode> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seed = args.seed.unwrap_or_else(|| u64::from(since.subsec_nanos()));
    let out =
        args.out.clone().unwrap_or_else(|| std::env::temp_dir().join(format!("raftmq-jepsen-{}", std::process::id())));
    fs::create_dir_all(&out).with_context(|| format!("{} cannot be made", out.display()))?;
    let faults = match (args.quiet, args.faults.is_empty()) {
        (true, _) => Vec::new(),
        (false, true) => Fault::ALL.to_vec(),
        (false, false) => args.faults.clone(),
    };
    let plan =
        Plan { seed, faults: faults.clone(), length: Duration::from_secs_f64(args.minutes * 60.0), times: args.times };
    let options = Options {
        binary: binary(args.binary)?,
        dir: out.join("cluster"),
        nodes_count: args.nodes,
        plan,
        clients_count: args.clients,
        rate: args.rate,
    };
    eprintln!("seed {seed}, {} nodes, results in {}", args.nodes, out.display());
    let outcome = real::run(options, stop_on_signal()?).await?;
    let judgement = Judgement {
        seed,
        loads: outcome.loads.clone(),
        registers: outcome.registers.clone(),
        routes: outcome.routes.clone(),
        windows: outcome.windows.clone(),
        planned: faults.into_iter().filter(|fault| outcome.skipped.iter().all(|(other, _)| other != fault)).collect(),
        skipped: outcome.skipped.clone(),
        coverage: outcome.coverage,
        quiet_failures: quiet_failures(&outcome.events, &outcome.windows),
        crimes: outcome.crimes.clone(),
        broken: outcome.broken.clone(),
    };
    write(&out, &judgement, &outcome)?;
    print!("{judgement}");
    println!("{}", out.join("report.html").display());
    Ok(exit_code(judgement.verdict()))
}

fn write(out: &Path, judgement: &Judgement, outcome: &Outcome) -> Result<()> {
    for (name, events) in [
        ("history.jsonl", &outcome.events),
        ("history-idle.jsonl", &outcome.idle_events),
        ("history-registers.jsonl", &outcome.register_events),
        ("history-routes.jsonl", &outcome.route_events),
    ] {
        let file = File::create(out.join(name))?;
        history::write(events, BufWriter::new(file)).context("the history cannot be written")?;
    }
    serde_json::to_writer_pretty(File::create(out.join("faults.json"))?, &judgement.windows)?;
    fs::write(out.join("report.html"), page(judgement, &outcome.events)).context("the report cannot be written")
}

fn binary(given: Option<PathBuf>) -> Result<PathBuf> {
    let own = std::env::current_exe().context("this program does not know where it is")?;
    let binary = given.unwrap_or_else(|| own.with_file_name("raftmq"));
    fs::canonicalize(&binary).with_context(|| format!("{} is not there", binary.display()))
}

/// Becomes true with SIGINT or SIGTERM: the run then ends in order and takes everything down.
fn stop_on_signal() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for kind in [SignalKind::interrupt(), SignalKind::terminate()] {
        let (stop, mut stream) = (Arc::clone(&stop), signal(kind)?);
        tokio::spawn(async move {
            while stream.recv().await.is_some() {
                stop.store(true, Ordering::Relaxed);
            }
        });
    }
    Ok(stop)
}
