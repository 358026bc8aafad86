//! A node: one process in one or both roles.
//!
//! ```text
//! start     configuration, folder (locked), peer port and admin port
//! waiting   a node with an empty disk answers Status and Adopt, nothing else, until `cluster init` reaches it
//! stamps    peers say whether the disk is an older copy of itself; then the node must not run
//! born      Raft groups, meta client, broker; the client port opens as soon as a majority of the peers answers
//! draining  after SIGTERM: hand leadership over, finish calls, exit 0
//! ```
//! A fatal error of the store or of a Raft group ends the process with one log line and exit code 70 (law 8).

mod admin;
mod birth;
mod born;
mod clock;
mod drain;
mod isolation;
mod logging;
mod node;
mod peer_links;
mod peer_service;
pub(crate) mod placement;
mod reach;
mod replace;
mod replica_digest;
mod stamps;
mod states;
mod topics;
mod waiting;

use crate::config::NodeConfig;
use crate::exit::{Failure, end_now};
use node::Node;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Runs a node until it is told to stop.
pub(crate) fn run(config: NodeConfig) -> Result<(), Failure> {
    logging::start(&config.log_level);
    raise_open_files();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("broker")
        .build()
        .map_err(|error| Failure::failed(format!("no threads can be started: {error}")))?;
    let outcome = runtime.block_on(serve(config));
    // Handlers that still run must not keep the process; what they did not answer is the client's to retry.
    runtime.shutdown_background();
    outcome
}

/// How long groups, and then their state stores, may take to be closed at the end.
const CLOSE_MS_MAX: u64 = 2000;

async fn serve(config: NodeConfig) -> Result<(), Failure> {
    // Everything that can be a mistake of the operator is found out before the first line is logged.
    let node = Arc::new(Node::open(config)?);
    let outcome = live(&node).await;
    let bound = Duration::from_millis(CLOSE_MS_MAX);
    if let Some(born) = node.born()
        && tokio::time::timeout(bound, born.close()).await.is_err()
    {
        tracing::warn!("the groups are not closed in time");
    }
    node.states.closed(bound).await;
    outcome
}

async fn live(node: &Arc<Node>) -> Result<(), Failure> {
    let mut stop = Stop::new()?;
    let tls = node.tls()?;
    let config = &node.config;
    let peer_listener = bind("peer_listen", &config.peer_listen)?;
    let admin_listener = bind("admin_listen", &config.admin_listen)?;
    drop(bind("client_listen", &config.client_listen)?);
    tracing::info!(node = config.node_id, incarnation = node.incarnation(), folder = %config.data_dir.display(), "the node starts");
    admin::serve(Arc::clone(node), admin_listener)?;
    if node.placement().is_none() {
        let listener = peer_listener.try_clone().and_then(tokio::net::TcpListener::from_std);
        let listener = listener.map_err(|error| busy("peer_listen", &config.peer_listen, &error))?;
        tokio::select! {
            () = waiting::until_adopted(Arc::clone(node), listener) => {}
            () = stop.wanted() => return Ok(()),
        }
    }
    // A damaged log waits for peers, perhaps long.
    let born = tokio::select! {
        born = born::start(Arc::clone(node), peer_listener) => born?,
        () = stop.wanted() => return Ok(()),
    };
    let mut fatal = born.raft.fatal();
    tokio::select! {
        error = fatal.wait_for(Option::is_some) => {
            end_now(&fatal_failure(error.ok().and_then(|error| error.clone())))
        }
        error = born.raft.stamps_ended() => end_now(&stamps::failure(node.id(), &error)),
        sentence = replace::outlived(node, &born) => end_now(&Failure::fatal(sentence)),
        outcome = isolation::keep_client_port(node, &born, tls, stop.wanted()) => {
            let open = outcome?;
            drain::drain(node, &born, open).await;
            Ok(())
        }
    }
}

fn fatal_failure(error: Option<raftmq_raft::FatalError>) -> Failure {
    match error {
        Some(error) => Failure::fatal(error.to_string()),
        None => Failure::fatal("the Raft runtime is gone"),
    }
}

/// Each client connection is an open file: takes as many as the system allows this process.
fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }) {
        tracing::warn!(%error, "the number of open files cannot be raised");
    }
}

/// Listens on a checked address. The listener does not block.
fn bind(key: &str, listen: &str) -> Result<std::net::TcpListener, Failure> {
    let listener = std::net::TcpListener::bind(node::address(listen));
    let listener = listener.and_then(|listener| listener.set_nonblocking(true).map(|()| listener));
    listener.map_err(|error| busy(key, listen, &error))
}

/// A port that cannot be listened on, as a sentence.
fn busy(key: &str, address: &str, error: &std::io::Error) -> Failure {
    match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            Failure::usage(format!("{key}: {address} is in use by another process; stop it or choose another port"))
        }
        _ => Failure::usage(format!("{key}: {address} cannot be listened on: {error}")),
    }
}

/// SIGTERM and SIGINT. SIGHUP is ignored: a node outlives its terminal.
struct Stop {
    terminate: Signal,
    interrupt: Signal,
    _hangup: Signal,
}

impl Stop {
    fn new() -> Result<Stop, Failure> {
        let catch = |kind| signal(kind).map_err(|error| Failure::failed(format!("signals cannot be caught: {error}")));
        Ok(Stop {
            terminate: catch(SignalKind::terminate())?,
            interrupt: catch(SignalKind::interrupt())?,
            _hangup: catch(SignalKind::hangup())?,
        })
    }

    async fn wanted(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
