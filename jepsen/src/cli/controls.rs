//! `raftmq-jepsen-planted controls`: does the harness find what was planted? For each planted fault, the seed that is known
//! to find it, or a search.

use super::sim::{self, Sim};
use crate::sim::Outcome;
use anyhow::{Result, bail};
use clap::Args;
use raftmq_model::planted::{self, Planted};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

#[derive(Args)]
pub(crate) struct Controls {
    /// Search: try up to so many seeds for each fault instead of the one that is known to find it.
    #[arg(long)]
    search: Option<u64>,
    #[command(flatten)]
    sim: Sim,
}

/// A seed that finds the fault.
fn pinned(fault: Planted) -> u64 {
    match fault {
        Planted::AckBeforeSync | Planted::VoteNotSynced | Planted::ReadyTooEarly | Planted::StaleHandleAccepted => 0,
        Planted::CommittedTooEarly => 3,
        Planted::QueueNotTruncated => 24,
    }
}

pub(crate) fn run(args: &Controls) -> ExitCode {
    match all(args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(super::EXIT_INVALID),
        Err(error) => {
            eprintln!("the harness failed: {error:#}");
            ExitCode::from(super::EXIT_HARNESS)
        }
    }
}

fn all(args: &Controls) -> Result<bool> {
    if !planted::POSSIBLE {
        bail!("this build has no planted faults: build raftmq-jepsen-planted");
    }
    let mut all_found = true;
    for fault in Planted::ALL {
        let seed = pinned(fault);
        let seeds = args.search.map_or((seed, seed + 1), |count| (0, count));
        let mut one = args.sim.clone();
        (one.seeds, one.planted, one.until_found) = (seeds, Some(fault), true);
        let first = Mutex::new(None);
        let keep = |_: &Sim, seed: u64, outcome: &Outcome| {
            if let Some(violation) = outcome.violations.first() {
                let mut first = first.lock().unwrap_or_else(PoisonError::into_inner);
                first.get_or_insert_with(|| (seed, said_in_a_line(violation)));
            }
        };
        let sum = sim::seeds_of(&one, keep)?;
        match first.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some((seed, violation)) => println!("{:<22} found by seed {seed}: {violation}", fault.name()),
            None => {
                println!("{:<22} NOT FOUND in {} seeds", fault.name(), sum.seeds);
                all_found = false;
            }
        }
    }
    Ok(all_found)
}

/// Reports have a line for each finding; those that found something end in ids.
fn said_in_a_line(violation: &str) -> String {
    let found = violation.lines().filter(|line| {
        let mut words = line.split_whitespace().rev();
        let id = words.next().unwrap_or_default();
        line.starts_with("  ") && (id == "..." || id.len() > 20 || id.contains('/'))
    });
    let found: Vec<&str> = found.map(str::trim).collect();
    let line =
        if found.is_empty() { violation.lines().next().unwrap_or_default().to_owned() } else { found.join("; ") };
    line.chars().take(110).collect()
}
