//! `raftmq bench receive`.

use super::{Tally, finish};
use crate::cli::Global;
use crate::context::{self, Port};
use crate::exit::Failure;
use crate::load::endpoints::Endpoints;
use crate::load::receive::{Subscription, ack, attempt_id, receive};
use crate::load::summary::{CpuSpan, record};
use clap::Args;
use std::time::{Duration, Instant};

/// Wait after a failed call, so that an endpoint that is down does not become a busy loop.
const ERROR_PAUSE_MS: u64 = 5;

/// Load of receives and acks.
#[derive(Debug, Args)]
pub(crate) struct ReceiveArgs {
    /// Receivers.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    in_flight: u32,
    /// Messages that one call may bring.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1024))]
    batch: u32,
    /// Measured time; ends earlier when there is nothing more to receive.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// The topic.
    #[arg(long, default_value = "bench")]
    topic: String,
    /// The consumer group.
    #[arg(long, default_value = "bench")]
    group: String,
    /// Processes whose CPU time is told per message.
    #[arg(long, value_delimiter = ',')]
    pids: Vec<u32>,
}

/// Runs the command. A latency is that of a receive that brought messages, with its ack.
pub(super) async fn run(global: &Global, args: &ReceiveArgs) -> Result<(), Failure> {
    let endpoints = Endpoints::new(&context::endpoints(global, Port::Client)?)?;
    let queues = endpoints.route(&args.topic).await?;
    if queues.is_empty() {
        return Err(Failure::failed(format!("topic {} has no queue", args.topic)));
    }
    let cpu = CpuSpan::begin(&args.pids)?;
    let started = Instant::now();
    let until = started + Duration::from_secs(args.seconds);
    let workers: Vec<_> = (0..args.in_flight as usize)
        .map(|worker| {
            let from = Subscription {
                topic: args.topic.clone(),
                group: args.group.clone(),
                batch_count: args.batch,
                queue: queues[worker % queues.len()].clone(),
            };
            tokio::spawn(work(endpoints.clone(), from, worker, until))
        })
        .collect();
    let mut tallies = Vec::new();
    let mut ended = started;
    for worker in workers {
        let (tally, last) = worker.await.map_err(|error| Failure::failed(format!("a receiver ended: {error}")))??;
        ended = ended.max(last);
        tallies.push(tally);
    }
    finish(global, &tallies, ended.saturating_duration_since(started), &cpu)
}

/// Receives until the end, or until a whole long poll brings nothing. Also answers when the last message came.
async fn work(
    endpoints: Endpoints,
    from: Subscription,
    first: usize,
    until: Instant,
) -> Result<(Tally, Instant), Failure> {
    let mut tally = Tally::new()?;
    let mut endpoint = first;
    let mut last = Instant::now();
    let mut attempt = attempt_id();
    while Instant::now() < until {
        let mut client = endpoints.nth(endpoint);
        let started = Instant::now();
        tally.calls += 1;
        let worked = match receive(&mut client, &from, &attempt).await {
            Ok(messages) if messages.is_empty() => break,
            Ok(messages) => {
                attempt = attempt_id();
                ack(&mut client, &from, &messages).await.map(|()| messages.len())
            }
            Err(said) => Err(said),
        };
        match worked {
            Ok(count) => {
                last = Instant::now();
                record(&mut tally.latencies, last - started);
                tally.messages += count as u64;
            }
            Err(said) => {
                tally.errors += 1;
                tally.said = Some(said);
                endpoint += 1;
                tokio::time::sleep(Duration::from_millis(ERROR_PAUSE_MS)).await;
            }
        }
    }
    Ok((tally, last))
}
