//! `raftmq bench send`.

use super::{Tally, finish};
use crate::cli::Global;
use crate::context::{self, Port};
use crate::exit::Failure;
use crate::load::endpoints::Endpoints;
use crate::load::send::{attempt, message, message_id};
use crate::load::summary::{CpuSpan, record};
use bytes::Bytes;
use clap::Args;
use std::time::{Duration, Instant};

/// Load of sends.
#[derive(Debug, Args)]
pub(crate) struct SendArgs {
    /// Bytes of each body.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=4_194_304))]
    size: u32,
    /// Calls under way at one time.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    in_flight: u32,
    /// Messages in one call.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    batch: u32,
    /// Measured time.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// Time before that, not measured.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(0..=3600))]
    warmup_seconds: u64,
    /// The topic; the playground creates it at the first send.
    #[arg(long, default_value = "bench")]
    topic: String,
    /// Connections to each endpoint.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    connections: u32,
    /// Processes whose CPU time is told per message.
    #[arg(long, value_delimiter = ',')]
    pids: Vec<u32>,
}

/// Runs the command.
pub(super) async fn run(global: &Global, args: &SendArgs) -> Result<(), Failure> {
    let addresses = context::endpoints(global, Port::Client)?;
    let connections = (0..args.connections).map(|_| Endpoints::new(&addresses)).collect::<Result<Vec<_>, _>>()?;
    connections[0].route(&args.topic).await?;
    let body = Bytes::from(vec![b'r'; args.size as usize]);
    let measured_from = Instant::now() + Duration::from_secs(args.warmup_seconds);
    let until = measured_from + Duration::from_secs(args.seconds);
    let workers: Vec<_> = (0..args.in_flight as usize)
        .map(|worker| {
            let endpoints = connections[worker % connections.len()].clone();
            let job = Job { topic: args.topic.clone(), body: body.clone(), batch: args.batch, measured_from, until };
            tokio::spawn(job.run(endpoints, worker / connections.len()))
        })
        .collect();
    tokio::time::sleep_until(measured_from.into()).await;
    let cpu = CpuSpan::begin(&args.pids)?;
    let mut tallies = Vec::new();
    for worker in workers {
        tallies.push(worker.await.map_err(|error| Failure::failed(format!("a sender ended: {error}")))??);
    }
    finish(global, &tallies, measured_from.elapsed(), &cpu)
}

struct Job {
    topic: String,
    body: Bytes,
    batch: u32,
    measured_from: Instant,
    until: Instant,
}

impl Job {
    /// Sends until the end. A failed call is counted, and the sender goes on through the next endpoint.
    async fn run(self, endpoints: Endpoints, first: usize) -> Result<Tally, Failure> {
        let mut tally = Tally::new()?;
        let mut endpoint = first;
        let mut client = endpoints.nth(endpoint);
        loop {
            let started = Instant::now();
            if started >= self.until {
                return Ok(tally);
            }
            let ids = (0..self.batch).map(|_| message_id());
            let messages = ids.map(|id| message(&self.topic, id, self.body.clone())).collect();
            let sent = attempt(&mut client, messages).await;
            let measured = started >= self.measured_from;
            match sent {
                Ok(()) if measured => {
                    record(&mut tally.latencies, started.elapsed());
                    tally.messages += u64::from(self.batch);
                    tally.calls += 1;
                }
                Ok(()) => {}
                Err(said) => {
                    tally.calls += 1;
                    tally.errors += 1;
                    tally.said = Some(said);
                    endpoint += 1;
                    client = endpoints.nth(endpoint);
                    tokio::time::sleep(Duration::from_millis(ERROR_PAUSE_MS)).await;
                }
            }
        }
    }
}

/// Wait after a failed call, so that an endpoint that is down does not become a busy loop.
const ERROR_PAUSE_MS: u64 = 5;
