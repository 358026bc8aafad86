//! `raftmq demo`: a cluster, load, the leader killed in the middle, and a count of what was lost.

use crate::cli::{Global, Output};
use crate::demo::{self, Plan, Report};
use crate::exit::Failure;
use crate::output;
use clap::Args;

/// How the demo runs. It takes less than a minute and leaves nothing behind.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Processes.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=9))]
    nodes: u32,
    /// How long to send; the leader is killed after a third of it.
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u64).range(3..=20))]
    seconds: u64,
    /// Producers, each sending one message after the other.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=256))]
    producers: u32,
    /// Consumers of one group.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    consumers: u32,
}

/// Runs the command. A message that was acknowledged and not delivered is a failure.
pub(crate) async fn run(global: &Global, args: DemoArgs) -> Result<(), Failure> {
    let plan = Plan { nodes: args.nodes, seconds: args.seconds, producers: args.producers, consumers: args.consumers };
    let report = demo::run(&plan).await?;
    match global.output {
        Output::Json => output::print_json(&report)?,
        Output::Table => output::print(&text(&report))?,
    }
    match report.lost {
        0 => Ok(()),
        lost => Err(Failure::failed(format!("{lost} acknowledged messages were not delivered"))),
    }
}

fn text(report: &Report) -> String {
    let failover = format!("{:.0} ms from SIGKILL of the leader to the next acknowledged send", report.failover_ms);
    let lines = [
        ("acked", report.acked.to_string()),
        ("delivered", report.delivered.to_string()),
        ("delivered twice", report.delivered_twice.to_string()),
        ("lost", report.lost.to_string()),
        ("failover", failover),
        ("sends", format!("{:.0}/s", report.sends_per_s)),
    ];
    lines.iter().map(|(name, value)| format!("{name:<17}{value}\n")).collect()
}
