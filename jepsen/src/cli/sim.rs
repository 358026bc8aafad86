//! `raftmq-jepsen sim`: many seeds of the simulation, each in a process of its own, a few at a time.

use super::sums::{self, Sum};
use crate::history;
use crate::sim::{Options, Outcome, run as simulate};
use anyhow::{Context, Result, bail};
use clap::Args;
use raftmq_model::planted::{self, Planted};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A seed that takes longer, in real time, hangs.
const PATIENCE: Duration = Duration::from_secs(300);

#[derive(Args, Clone)]
pub(crate) struct Sim {
    /// One seed, or a range without its end: `7`, `0..150`.
    #[arg(long, default_value = "0..10", value_parser = seeds)]
    pub(super) seeds: (u64, u64),
    /// Simulated seconds under faults, for each seed.
    #[arg(long, default_value_t = 60)]
    pub(super) seconds: u64,
    /// Seeds at a time; each takes one core.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Without faults.
    #[arg(long)]
    quiet: bool,
    /// Flip bits on the disk of one node in every seed, and not in every tenth alone.
    #[arg(long)]
    rot: bool,
    /// Print what was done to the cluster, and when, also for seeds that are fine.
    #[arg(long)]
    trace: bool,
    /// Write the history here, as JSON lines; for one seed.
    #[arg(long)]
    history: Option<PathBuf>,
    /// Begin no more seeds after so many minutes.
    #[arg(long)]
    minutes: Option<f64>,
    /// Add what this run came to to this file, and print what all runs in it came to.
    #[arg(long)]
    sums: Option<PathBuf>,
    /// Begin after the last seed in the file of `--sums`, with as many seeds as the range has.
    #[arg(long, requires = "sums")]
    resume: bool,
    /// Switch a planted fault on, in a build that has them: it should be found.
    #[arg(long, value_parser = planted_fault)]
    pub(super) planted: Option<Planted>,
    /// End at the first seed with a violation.
    #[arg(long)]
    pub(super) until_found: bool,
    /// Run one seed in this process and print its outcome as JSON.
    #[arg(long, hide = true)]
    child: bool,
}

fn seeds(text: &str) -> Result<(u64, u64), String> {
    let number = |text: &str| text.parse::<u64>().map_err(|error| format!("{text:?}: {error}"));
    match text.split_once("..") {
        Some((from, to)) => Ok((number(from)?, number(to)?)),
        None => number(text).map(|seed| (seed, seed + 1)),
    }
}

fn planted_fault(name: &str) -> Result<Planted, String> {
    let fault = Planted::ALL.into_iter().find(|fault| fault.name() == name);
    match fault {
        _ if !planted::POSSIBLE => Err("this build has no planted faults: build raftmq-jepsen-planted".to_owned()),
        Some(fault) => Ok(fault),
        None => Err(format!("none of {}", Planted::ALL.map(Planted::name).join(", "))),
    }
}

#[cfg(feature = "planted-faults")]
fn switch_on(fault: Option<Planted>) {
    fault.into_iter().for_each(planted::switch_on);
}

/// A build without planted faults takes none.
#[cfg(not(feature = "planted-faults"))]
fn switch_on(_: Option<Planted>) {}

pub(crate) fn run(args: &Sim) -> ExitCode {
    let result = if args.child { child(args).map(|()| true) } else { range(args) };
    match result {
        Ok(fine) => ExitCode::from(if fine { 0 } else { super::EXIT_INVALID }),
        Err(error) => {
            eprintln!("the harness failed: {error:#}");
            ExitCode::from(super::EXIT_HARNESS)
        }
    }
}

/// One seed, in this process.
fn child(args: &Sim) -> Result<()> {
    switch_on(args.planted);
    let options = Options { seed: args.seeds.0, seconds: args.seconds, faults: !args.quiet, rot: args.rot };
    let outcome = simulate(&options, PATIENCE)?;
    if let Some(path) = &args.history {
        let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
        history::write(&outcome.history, BufWriter::new(file))?;
    }
    serde_json::to_writer(std::io::stdout(), &outcome)?;
    Ok(std::io::stdout().flush()?)
}

/// Seeds between two sums.
const STEP_SEEDS_COUNT: u64 = 100;

/// A range of seeds; whether no one had a violation. With a file of sums it is written in steps, so that a run that is broken
/// off loses little.
fn range(args: &Sim) -> Result<bool> {
    let mut args = args.clone();
    if let (Some(path), true) = (&args.sums, args.resume) {
        let last = sums::read(path)?.iter().map(|sum| sum.to).max().unwrap_or(args.seeds.0);
        args.seeds = (last, last + (args.seeds.1 - args.seeds.0));
    }
    let begin = Instant::now();
    let sum = match &args.sums {
        None => seeds_of(&args, tell)?,
        Some(path) => in_steps(&args, path)?,
    };
    println!("{sum}\ntook        {:.0} s", begin.elapsed().as_secs_f64());
    if let Some(path) = &args.sums {
        let mut total = Sum { seconds: sum.seconds, ..Sum::default() };
        sums::read(path)?.iter().for_each(|sum| total.add(sum));
        println!("in all\n{total}");
    }
    Ok(sum.bad.is_empty())
}

fn in_steps(args: &Sim, path: &Path) -> Result<Sum> {
    let (from, to) = args.seeds;
    let until = args.minutes.map(|minutes| Instant::now() + Duration::from_secs_f64(minutes.max(0.0) * 60.0));
    let mut sum = Sum { from, to: from, seconds: args.seconds, ..Sum::default() };
    while sum.to < to {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) || (args.until_found && !sum.bad.is_empty()) {
            break;
        }
        let seeds = (sum.to, to.min(sum.to + STEP_SEEDS_COUNT));
        let step = Sim { seeds, minutes: left.map(|left| left.as_secs_f64() / 60.0), ..args.clone() };
        let step = seeds_of(&step, tell)?;
        sums::append(path, &step)?;
        sum.add(&step);
    }
    Ok(sum)
}

/// Runs a range of seeds and hands each outcome to `tell`.
pub(super) fn seeds_of(args: &Sim, tell: impl Fn(&Sim, u64, &Outcome) + Sync) -> Result<Sum> {
    let (from, to) = args.seeds;
    if from >= to || args.threads == 0 {
        bail!("there is nothing to run");
    }
    let until = args.minutes.map(|minutes| Instant::now() + Duration::from_secs_f64(minutes.max(0.0) * 60.0));
    // `to` is the next seed, until all have run.
    let sum = Mutex::new(Sum { from, to: from, seconds: args.seconds, ..Sum::default() });
    let lock = || sum.lock().unwrap_or_else(PoisonError::into_inner);
    let next = || {
        let mut sum = lock();
        let over = sum.to >= to || until.is_some_and(|until| Instant::now() >= until);
        if over || (args.until_found && !sum.bad.is_empty()) {
            return None;
        }
        sum.to += 1;
        Some(sum.to - 1)
    };
    std::thread::scope(|scope| {
        let run = || -> Result<()> {
            while let Some(seed) = next() {
                let outcome = in_a_child(args, seed)?;
                let mut sum = lock();
                tell(args, seed, &outcome);
                let bad = if outcome.violations.is_empty() { Vec::new() } else { vec![seed] };
                let Outcome { acked, changed, simulated_ms, faults, .. } = outcome;
                sum.add(&Sum { seeds: 1, bad, acked, changed, simulated_ms, faults, ..Sum::default() });
            }
            Ok(())
        };
        let threads: Vec<_> = (0..args.threads).map(|_| scope.spawn(run)).collect();
        for thread in threads {
            match thread.join() {
                Ok(result) => result?,
                Err(_) => bail!("a thread of the harness panicked"),
            }
        }
        Ok(())
    })?;
    Ok(sum.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// One seed, in a process that ends with it.
fn in_a_child(args: &Sim, seed: u64) -> Result<Outcome> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["sim", "--child", "--seeds", &seed.to_string(), "--seconds", &args.seconds.to_string()]);
    if args.quiet {
        command.arg("--quiet");
    }
    if args.rot {
        command.arg("--rot");
    }
    if let Some(fault) = args.planted {
        command.args(["--planted", fault.name()]);
    }
    if let Some(path) = &args.history {
        command.arg("--history").arg(path);
    }
    let output = command.output()?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("seed {seed} ended with {}: {stderr}", output.status);
    }
    let mut outcome: Outcome = serde_json::from_slice(&output.stdout)?;
    // Tasks catch their panics, and say so.
    if stderr.contains("panicked at") {
        outcome.violations.push(format!("a panic:\n{stderr}"));
    }
    Ok(outcome)
}

fn tell(args: &Sim, seed: u64, outcome: &Outcome) {
    let bad = !outcome.violations.is_empty();
    let simulated_s = outcome.simulated_ms / 1_000;
    println!("seed {seed}: digest {:016x} acked {} simulated {simulated_s} s", outcome.digest, outcome.acked);
    if args.trace || bad {
        outcome.trace.iter().for_each(|line| println!("{line}"));
    }
    if bad {
        println!("seed {seed}: VIOLATION");
        outcome.violations.iter().for_each(|violation| println!("  {violation}"));
        println!(
            "  again: raftmq-jepsen sim --seeds {seed} --seconds {}{} --trace",
            args.seconds,
            if args.rot { " --rot" } else { "" }
        );
    }
}
