//! Clients change and look at the settings of consumer groups through the admin ports of all nodes: each group is a register
//! with versions, used for a while and then left for a new one, so that each history stays short.
//!
//! The value is `attempts_max`. A change that changes nothing goes through the metadata group's log like any other, so that its
//! answer is a look at what is there.

use super::Recorder;
use crate::checker::linearizable::OPERATIONS_COUNT_MAX;
use crate::history::{Answer, Call, Change, Event, Phase};
use anyhow::{Context, Result, anyhow};
use raftmq_proto::admin::admin_client::AdminClient;
use raftmq_proto::admin::{AlterGroupRequest, CreateGroupRequest, Group};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

const EVENTS_COUNT_MAX: usize = 1_000_000;
/// Of all clients together, on one register.
const OPERATIONS_COUNT: usize = 48;
const _: () = assert!(OPERATIONS_COUNT <= OPERATIONS_COUNT_MAX);
const CLIENTS_COUNT: u32 = 4;
const CONNECT_MAX: Duration = Duration::from_secs(1);
const REQUEST_MAX: Duration = Duration::from_secs(3);
/// Between two operations of a client.
const PAUSE_MS: std::ops::Range<u64> = 100..900;
/// What registers are set to.
const VALUES: std::ops::Range<u32> = 1..10_000;
/// Names the harness's consumer groups.
const PREFIX: &str = "register";

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Admin ports, `host:port` each.
    pub admins: Vec<String>,
    /// Unique to this run.
    pub run: String,
    /// All chance comes from it.
    pub seed: u64,
    /// Ends the workload.
    pub stop: watch::Receiver<bool>,
}

struct Run {
    nodes: Vec<AdminClient<Channel>>,
    recorder: Recorder,
    stop: watch::Receiver<bool>,
}

/// The register in use and what is known of it; it is used up after so many operations.
struct Current {
    name: String,
    left_count: usize,
    last: (u64, u32),
}

/// Runs until it is stopped and answers the history.
///
/// # Errors
/// For faults of the harness only.
pub async fn run(options: Options) -> Result<Vec<Event>> {
    let node = |address: &String| -> Result<AdminClient<Channel>> {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).context("a bad admin address")?;
        Ok(AdminClient::new(endpoint.connect_timeout(CONNECT_MAX).timeout(REQUEST_MAX).connect_lazy()))
    };
    let nodes = options.admins.iter().map(node).collect::<Result<Vec<_>>>()?;
    let run = Arc::new(Run { nodes, recorder: Recorder::new(EVENTS_COUNT_MAX), stop: options.stop.clone() });
    let mut number = 0;
    while !*run.stop.borrow() {
        number += 1;
        let name = format!("{PREFIX}-{}-{number}", options.run);
        let Some(last) = run.make(&name, number).await else { continue };
        let current = Arc::new(Mutex::new(Current { name, left_count: OPERATIONS_COUNT, last }));
        let mut clients = JoinSet::new();
        for process in 0..CLIENTS_COUNT {
            let rng = StdRng::seed_from_u64(options.seed ^ (number as u64) << 8 ^ u64::from(process));
            clients.spawn(run.clone().use_up(process, Arc::clone(&current), rng));
        }
        while let Some(joined) = clients.join_next().await {
            joined.context("a client task died")?;
        }
    }
    let run = Arc::into_inner(run).context("a task outlived the run")?;
    run.recorder.into_events().map_err(|_| anyhow!("the run made more than {EVENTS_COUNT_MAX} events"))
}

impl Run {
    /// A new register; `None`: no certain answer, so that it may or may not be there.
    async fn make(&self, name: &str, number: usize) -> Option<(u64, u32)> {
        let mut node = self.nodes[number % self.nodes.len()].clone();
        let request = CreateGroupRequest { name: name.to_owned(), fifo: false, attempts_max: 0 };
        match node.create_group(request).await {
            Ok(made) => {
                let Group { version, attempts_max, .. } = made.into_inner();
                self.recorder.invoke(0, Call::MadeRegister { name: name.to_owned(), version, value: attempts_max });
                Some((version, attempts_max))
            }
            Err(_) => {
                tokio::time::sleep(Duration::from_millis(PAUSE_MS.start)).await;
                None
            }
        }
    }

    async fn use_up(self: Arc<Run>, process: u32, current: Arc<Mutex<Current>>, mut rng: StdRng) {
        let lock = || current.lock().unwrap_or_else(PoisonError::into_inner);
        while !*self.stop.borrow() {
            tokio::time::sleep(Duration::from_millis(rng.random_range(PAUSE_MS))).await;
            let (name, (version, value)) = {
                let mut current = lock();
                if current.left_count == 0 {
                    return;
                }
                current.left_count -= 1;
                (current.name.clone(), current.last)
            };
            let new = Some(rng.random_range(VALUES)).filter(|new| *new != value);
            let change = match rng.random_range(0..10) {
                0..4 => Change { value: None, if_version: None },
                4..8 => Change { value: new, if_version: Some(version) },
                _ => Change { value: new, if_version: None },
            };
            let node = self.nodes[rng.random_range(0..self.nodes.len())].clone();
            let op = self.recorder.invoke(process, Call::Register { name: name.clone(), change });
            let phase = ask(node, name, change).await;
            if let Phase::Ok { answer: Answer::Holds { version, value } } = &phase {
                lock().last = (*version, *value);
            }
            self.recorder.complete(process, op, phase);
        }
    }
}

async fn ask(mut node: AdminClient<Channel>, name: String, change: Change) -> Phase {
    let Change { value: attempts_max, if_version: version } = change;
    let request = AlterGroupRequest { name, fifo: None, attempts_max, consume_enabled: None, version };
    match node.alter_group(request).await.map(tonic::Response::into_inner) {
        Ok(Group { version, attempts_max, .. }) => Phase::Ok { answer: Answer::Holds { version, value: attempts_max } },
        Err(status) if sent(&status, Code::Aborted) && version.is_some() => Phase::Ok { answer: Answer::Conflict },
        // Others were quicker each time that the node tried.
        Err(status) if sent(&status, Code::Aborted) => Phase::Fail { error: status.to_string() },
        // The node's copy does not have it yet: nothing was asked of the metadata group.
        Err(status) if sent(&status, Code::NotFound) => Phase::Fail { error: status.to_string() },
        Err(status) => Phase::Unknown { error: status.to_string() },
    }
}

/// Whether a server said so, rather than a broken connection.
fn sent(status: &Status, code: Code) -> bool {
    status.code() == code && std::error::Error::source(status).is_none()
}
