//! Notices that this node's disk is an older copy of itself: put back from a backup, or rolled back with its machine.
//!
//! Such a disk may have forgotten votes and entries that were acknowledged, and Raft cannot tell it from one that is only
//! behind. So each node's disk has a stamp that grows ([`raftmq_store::stamps`]). Nodes tell each other all that they know,
//! and a node that hears of a higher stamp of its own than it has ends: before it opens a group at the start, and later.
//!
//! ```text
//! start    ask all until a majority (this node counts) has answered; then the stamp grows by one, and all are told
//! running  every interval: ask all, for the stamp must not grow past what a peer knows; grow by one; tell all
//! ```
//! The node itself judges, and not the peer: calls may overtake each other, so that what a peer is told may be out of date
//! when it is read.

use crate::identity::PeerIdentity;
use crate::network::{PeerLink, PeerLinks};
use crate::peers::PeerAddresses;
use futures::future::join_all;
use parking_lot::Mutex;
use raftmq_model::ids::{NodeId, ReplicaId};
use raftmq_proto::raft as pb;
use raftmq_proto::raft::stamps_server;
use raftmq_store::{Io, Stamp, Stamps, StampsError};
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tonic::{Code, Request, Response, Status};

/// The stamp of a disk grows at least this often.
pub const STAMP_MS: u64 = 60_000;
/// How long a peer may take to answer.
const ASK_MS_MAX: u64 = 500;
/// Pause of a node that starts, before it asks again.
const ASK_PAUSE_MS: u64 = 50;
/// How often a node that waits for its peers says so.
const LOG_MS: u64 = 5_000;

/// Where a node keeps stamps, and how often its own grows.
#[derive(Clone)]
pub struct StampOptions {
    /// The file system.
    pub io: Arc<dyn Io>,
    /// The node's folder, in which the file `stamps` is.
    pub dir: PathBuf,
    /// The own stamp grows this often ([`STAMP_MS`]). What happened since it grew last is forgotten unnoticed.
    pub interval_ms: u64,
}

/// Why a node must not go on.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StampError {
    /// Its disk is an older copy.
    #[error(
        "{} is an older copy of the disk of node {node}: it has stamp {own}, and node {peer} knows that it had stamp {known}",
        dir.display()
    )]
    Older {
        /// The folder.
        dir: PathBuf,
        /// This node.
        node: NodeId,
        /// The stamp of its disk.
        own: u64,
        /// Who knows better.
        peer: NodeId,
        /// The stamp that the disk had.
        known: u64,
    },
    /// Stamps cannot be read or written.
    #[error("{0}")]
    Failed(Arc<str>),
}

impl From<StampsError> for StampError {
    fn from(error: StampsError) -> StampError {
        StampError::Failed(Arc::from(error.to_string()))
    }
}

/// The stamps of a node as its tasks and handlers share them.
#[derive(Clone)]
pub(crate) struct SharedStamps(Option<Arc<Inner>>);

struct Inner {
    own: ReplicaId,
    dir: PathBuf,
    interval: Duration,
    threaded: bool,
    /// Held while the file is written.
    stamps: Mutex<Stamps>,
    /// What the file says, for those who must not wait for it.
    known: Mutex<Arc<[Stamp]>>,
    end: watch::Sender<Option<StampError>>,
}

impl SharedStamps {
    /// Reads the stamps. Without options there are none, and nothing is ever noticed.
    pub(crate) fn open(own: ReplicaId, options: Option<&StampOptions>) -> Result<SharedStamps, StampError> {
        let Some(StampOptions { io, dir, interval_ms }) = options else { return Ok(SharedStamps(None)) };
        let stamps = Stamps::open(Arc::clone(io), dir, own)?;
        let inner = Inner {
            own,
            dir: dir.clone(),
            interval: Duration::from_millis(*interval_ms),
            threaded: io.allows_threads(),
            known: Mutex::new(stamps.all().into()),
            stamps: Mutex::new(stamps),
            end: watch::Sender::new(None),
        };
        Ok(SharedStamps(Some(Arc::new(inner))))
    }

    /// Returns when the node must not go on.
    pub(crate) async fn ended(self) -> StampError {
        if let Some(inner) = &self.0 {
            let mut end = inner.end.subscribe();
            let error = end.wait_for(Option::is_some).await.ok().and_then(|error| error.clone());
            if let Some(error) = error {
                return error;
            }
        }
        std::future::pending().await
    }

    /// What a node does before it opens its groups: see the module.
    pub(crate) async fn check(&self, peers: &Peers) -> Result<(), StampError> {
        let Some(inner) = &self.0 else { return Ok(()) };
        let mut heard = BTreeSet::new();
        let mut log_at = Instant::now() + Duration::from_millis(LOG_MS);
        loop {
            heard.extend(inner.ask_all(peers).await);
            inner.ended()?;
            let nodes = peers.others().len() + 1;
            if (heard.len() + 1) * 2 > nodes {
                break;
            }
            if Instant::now() >= log_at {
                log_at += Duration::from_millis(LOG_MS);
                tracing::info!(
                    "waiting for a majority of the {nodes} nodes to say how far they know this disk; {} of the others did",
                    heard.len()
                );
            }
            sleep(Duration::from_millis(ASK_PAUSE_MS)).await;
        }
        inner.write(|stamps| stamps.advance().map(drop)).await;
        inner.ended()
    }

    /// What a node does while it runs: see the module.
    pub(crate) async fn keep(self, peers: Peers) {
        let Some(inner) = &self.0 else { return };
        loop {
            inner.ask_all(&peers).await;
            sleep(inner.interval).await;
            inner.ask_all(&peers).await;
            if inner.ended().is_err() {
                return;
            }
            inner.write(|stamps| stamps.advance().map(drop)).await;
        }
    }
}

impl Inner {
    fn ended(&self) -> Result<(), StampError> {
        self.end.borrow().clone().map_or(Ok(()), Err)
    }

    fn end(&self, error: StampError) {
        self.end.send_if_modified(|first| {
            let is_first = first.is_none();
            if is_first {
                tracing::error!("{error}");
                *first = Some(error);
            }
            is_first
        });
    }

    fn known(&self) -> Arc<[Stamp]> {
        Arc::clone(&self.known.lock())
    }

    /// Tells all peers what is known here and hears what they know; who answered.
    async fn ask_all(self: &Arc<Self>, peers: &Peers) -> Vec<NodeId> {
        let asked = peers.others().into_iter().map(|node| self.ask(peers.links.to(node)));
        join_all(asked).await.into_iter().flatten().collect()
    }

    async fn ask(self: &Arc<Self>, link: Arc<PeerLink>) -> Option<NodeId> {
        let request = pb::StampsRequest { stamps: to_wire(&self.known()) };
        let mut client = link.stamps();
        match timeout(Duration::from_millis(ASK_MS_MAX), client.exchange(request)).await {
            Ok(Ok(reply)) => {
                self.hear(&from_wire(reply.into_inner().stamps), link.node()).await;
                Some(link.node())
            }
            // A node with an empty disk, or of an earlier version of the program: it knows of no stamps.
            Ok(Err(status)) if status.code() == Code::Unimplemented => Some(link.node()),
            Ok(Err(status)) => {
                if status.code() == Code::FailedPrecondition {
                    link.identity().log_refusal(link.node().0, status.message());
                }
                None
            }
            Err(_) => None,
        }
    }

    /// Judges and keeps what `peer` knows.
    async fn hear(self: &Arc<Self>, heard: &[Stamp], peer: NodeId) {
        let highest = heard.iter().filter(|stamp| stamp.replica == self.own).map(|stamp| stamp.stamp).max();
        let own = self.known().iter().find(|stamp| stamp.replica == self.own).map_or(0, |stamp| stamp.stamp);
        if let Some(known) = highest.filter(|known| *known > own) {
            self.end(StampError::Older { dir: self.dir.clone(), node: self.own.node, own, peer, known });
        }
        let heard = heard.to_vec();
        self.write(move |stamps| stamps.learn(&heard)).await;
    }

    /// Writes the file, off the threads of the runtime where that may be; a call that is given up is finished all the same.
    async fn write(self: &Arc<Self>, write: impl FnOnce(&mut Stamps) -> io::Result<()> + Send + 'static) {
        let inner = Arc::clone(self);
        let write = move || {
            let mut stamps = inner.stamps.lock();
            match write(&mut stamps) {
                Ok(()) => *inner.known.lock() = stamps.all().into(),
                Err(error) => inner.end(failed(stamps.file(), &error)),
            }
        };
        if self.threaded {
            // It ends early only with the runtime.
            let _ = tokio::task::spawn_blocking(write).await;
        } else {
            write();
        }
    }
}

fn failed(file: &Path, error: &io::Error) -> StampError {
    StampError::Failed(Arc::from(format!("{} cannot be written: {error}", file.display())))
}

/// Whom to ask.
#[derive(Clone)]
pub(crate) struct Peers {
    pub(crate) own: NodeId,
    pub(crate) addresses: PeerAddresses,
    pub(crate) links: Arc<PeerLinks>,
}

impl Peers {
    fn others(&self) -> Vec<NodeId> {
        self.addresses.all().into_keys().filter(|node| *node != self.own).collect()
    }
}

/// The service `raftmq.raft.v1.Stamps`.
#[derive(Clone)]
pub(crate) struct StampService {
    pub(crate) stamps: SharedStamps,
    pub(crate) identity: PeerIdentity,
}

#[tonic::async_trait]
impl stamps_server::Stamps for StampService {
    async fn exchange(&self, request: Request<pb::StampsRequest>) -> Result<Response<pb::StampsReply>, Status> {
        let none = || Status::unimplemented("this node keeps no stamps");
        let inner = self.stamps.0.as_ref().ok_or_else(none)?;
        let from = request.extensions().get::<NodeId>().copied().unwrap_or(NodeId(0));
        let told = from_wire(request.into_inner().stamps);
        for stamp in told.iter().filter(|stamp| stamp.replica.node == from) {
            let known =
                inner.known().iter().find(|known| known.replica == stamp.replica).map_or(0, |known| known.stamp);
            if stamp.stamp < known {
                let sentence = format!("node {from} has stamp {}, and had {known}: its disk is older", stamp.stamp);
                self.identity.log_refusal(from.0, &sentence);
            }
        }
        inner.hear(&told, from).await;
        Ok(Response::new(pb::StampsReply { stamps: to_wire(&inner.known()) }))
    }
}

fn to_wire(stamps: &[Stamp]) -> Vec<pb::Stamp> {
    stamps.iter().map(|known| pb::Stamp { replica: known.replica.to_u64(), stamp: known.stamp }).collect()
}

fn from_wire(stamps: Vec<pb::Stamp>) -> Vec<Stamp> {
    let stamp = |told: pb::Stamp| Stamp { replica: ReplicaId::from_u64(told.replica), stamp: told.stamp };
    stamps.into_iter().map(stamp).collect()
}
