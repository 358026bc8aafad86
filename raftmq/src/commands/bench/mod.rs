//! `raftmq bench`: closed-loop load on the public API, and what it measured.

mod receive;
mod send;

use crate::cli::{Global, Output};
use crate::exit::Failure;
use crate::load::summary::percentile_ms;
use crate::output;
use clap::Subcommand;
use hdrhistogram::Histogram;
use serde::Serialize;
use std::time::Duration;

/// What to measure.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Send: each of `--in-flight` senders sends its next request when the last one is acknowledged.
    Send(send::SendArgs),
    /// Receive and ack: each of `--in-flight` receivers receives its next batch when the last one is acked.
    Receive(receive::ReceiveArgs),
}

/// The result of a run.
#[derive(Debug, Serialize)]
struct Report {
    messages: u64,
    calls: u64,
    errors: u64,
    seconds: f64,
    messages_per_s: f64,
    p50_ms: f64,
    p99_ms: f64,
    p999_ms: f64,
    max_ms: f64,
    /// Microseconds of CPU that the processes of `--pids` spent on each message.
    cpu_us_per_message: Option<f64>,
}

/// What one worker, or all of them, did.
struct Tally {
    latencies: Histogram<u64>,
    messages: u64,
    calls: u64,
    errors: u64,
    /// What the last error said.
    said: Option<String>,
}

impl Tally {
    fn new() -> Result<Tally, Failure> {
        Ok(Tally { latencies: crate::load::summary::histogram()?, messages: 0, calls: 0, errors: 0, said: None })
    }

    fn add(&mut self, other: &Tally) -> Result<(), Failure> {
        self.latencies
            .add(&other.latencies)
            .map_err(|error| Failure::failed(format!("latencies cannot be added: {error}")))?;
        self.messages += other.messages;
        self.calls += other.calls;
        self.errors += other.errors;
        self.said = self.said.take().or_else(|| other.said.clone());
        Ok(())
    }

    fn report(&self, span: Duration, cpu_us_per_message: Option<f64>) -> Report {
        let seconds = span.as_secs_f64();
        Report {
            messages: self.messages,
            calls: self.calls,
            errors: self.errors,
            seconds,
            messages_per_s: self.messages as f64 / seconds.max(f64::EPSILON),
            p50_ms: percentile_ms(&self.latencies, 50.0),
            p99_ms: percentile_ms(&self.latencies, 99.0),
            p999_ms: percentile_ms(&self.latencies, 99.9),
            max_ms: percentile_ms(&self.latencies, 100.0),
            cpu_us_per_message,
        }
    }
}

/// Runs the command.
pub(crate) async fn run(global: &Global, command: BenchCommand) -> Result<(), Failure> {
    match command {
        BenchCommand::Send(args) => send::run(global, &args).await,
        BenchCommand::Receive(args) => receive::run(global, &args).await,
    }
}

/// Adds the workers' tallies up and prints the report; nothing at all that worked is a failure.
fn finish(
    global: &Global,
    tallies: &[Tally],
    span: Duration,
    cpu: &crate::load::summary::CpuSpan,
) -> Result<(), Failure> {
    let mut total = Tally::new()?;
    for tally in tallies {
        total.add(tally)?;
    }
    let report = total.report(span, cpu.us_per_message(total.messages)?);
    match global.output {
        Output::Json => output::print_json(&report)?,
        Output::Table => output::print(&text(&report))?,
    }
    match (total.calls > total.errors, total.said) {
        (true, Some(said)) => output::tell(&format!("{} calls failed, for example: {said}", total.errors)),
        (true, None) => {}
        (false, said) => {
            return Err(Failure::failed(format!("no call worked: {}", said.unwrap_or("none ended".into()))));
        }
    }
    Ok(())
}

fn text(report: &Report) -> String {
    let cpu = report.cpu_us_per_message.map_or(String::new(), |us| format!("cpu       {us:.2} us/message\n"));
    format!(
        "messages  {} in {:.1} s = {:.0}/s ({} calls, {} failed)\nlatency   p50 {:.2} ms  p99 {:.2} ms  p99.9 {:.2} ms  max {:.2} ms\n{cpu}",
        report.messages,
        report.seconds,
        report.messages_per_s,
        report.calls,
        report.errors,
        report.p50_ms,
        report.p99_ms,
        report.p999_ms,
        report.max_ms,
    )
}
