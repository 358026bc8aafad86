//! The death detector: one ping stream to each peer node.
//!
//! The stream says nothing that heartbeats do not say. What counts is how it ends: a process that dies closes it at
//! once, and its host refuses the next connect. That is a proof which comes in a millisecond, where silence would have to
//! be waited for. A peer that is only silent (stopped, cut off) is left to Raft's timeouts.
//!
//! Its echoes also say whether the peer's volume is full, which Raft itself has no word for. What a peer said last counts
//! until it says something else: a silent one has no more room for that.

use crate::network::PeerLink;
use crate::peers::PeerState;
use raftmq_model::ids::NodeId;
use raftmq_proto::raft::PingFrame;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};
use tokio_stream::wrappers::ReceiverStream;

/// A frame goes out this often.
const PING_INTERVAL: Duration = Duration::from_secs(1);
/// A peer that does not echo for this long is silent.
const ECHO_TIMEOUT: Duration = Duration::from_secs(3);
/// Time between the beginnings of two tries to reach a peer.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// How many deaths may wait to be handled.
pub(crate) const DEATHS_MAX: usize = 64;

/// All peers' states, and whom to tell of a death.
#[derive(Clone)]
pub(crate) struct Liveness {
    states: Arc<watch::Sender<BTreeMap<NodeId, PeerState>>>,
    full: Arc<watch::Sender<BTreeSet<NodeId>>>,
    deaths: mpsc::Sender<NodeId>,
}

enum End {
    /// The stream ended, or the peer could not be reached, for whatever reason.
    Lost,
    /// The peer's host refuses connects.
    Refused,
}

impl Liveness {
    pub(crate) fn new(deaths: mpsc::Sender<NodeId>) -> Liveness {
        Liveness { states: Arc::default(), full: Arc::default(), deaths }
    }

    pub(crate) fn watch(&self) -> watch::Receiver<BTreeMap<NodeId, PeerState>> {
        self.states.subscribe()
    }

    /// The peers whose volume is full.
    pub(crate) fn watch_full(&self) -> watch::Receiver<BTreeSet<NodeId>> {
        self.full.subscribe()
    }

    pub(crate) fn is_full(&self, node: NodeId) -> bool {
        self.full.borrow().contains(&node)
    }

    pub(crate) fn state(&self, node: NodeId) -> PeerState {
        self.states.borrow().get(&node).copied().unwrap_or(PeerState::Unknown)
    }

    /// Watches one peer until the task is stopped.
    pub(crate) async fn follow(self, link: Arc<PeerLink>) {
        let node = link.node();
        let mut boot = None;
        loop {
            let started = Instant::now();
            match self.session(&link, &mut boot).await {
                End::Refused => {
                    if self.set(node, PeerState::Dead) {
                        tracing::info!(peer = node.0, "the peer's process is gone");
                        self.died(node);
                    }
                }
                End::Lost => {
                    self.set(node, PeerState::Silent);
                }
            }
            // The end of a stream that lasted is no proof of death: the next connect, at once, is.
            tokio::time::sleep_until(started + RETRY_PAUSE).await;
        }
    }

    async fn session(&self, link: &Arc<PeerLink>, boot: &mut Option<u64>) -> End {
        let mut client = match link.connect_now().await {
            Ok(client) => client,
            Err(_) if link.refused() => return End::Refused,
            Err(_) => return End::Lost,
        };
        let (frames, outgoing) = mpsc::channel(1);
        let _ = frames.try_send(ping(0));
        let echoes = timeout(ECHO_TIMEOUT, client.ping(ReceiverStream::new(outgoing))).await;
        let mut echoes = match echoes {
            Ok(Ok(echoes)) => echoes.into_inner(),
            Ok(Err(status)) => {
                if status.code() == tonic::Code::FailedPrecondition {
                    link.identity().log_refusal(link.node().0, status.message());
                    tokio::time::sleep(PING_INTERVAL).await;
                }
                return End::Lost;
            }
            Err(_) => return End::Lost,
        };
        let mut sequence = 0;
        while let Ok(Ok(Some(echo))) = timeout(ECHO_TIMEOUT, echoes.message()).await {
            // Another process answers: the one before died between two connects.
            if boot.replace(echo.boot).is_some_and(|before| before != echo.boot) {
                self.died(link.node());
            }
            self.set(link.node(), PeerState::Alive);
            self.set_full(link.node(), echo.volume_full);
            // The pause must end with the stream, and with an echo that nobody asked for: it brings news.
            match timeout(PING_INTERVAL, echoes.message()).await {
                Ok(Ok(None) | Err(_)) => break,
                Ok(Ok(Some(news))) => self.set_full(link.node(), news.volume_full),
                Err(_) => {}
            }
            sequence += 1;
            if frames.send(ping(sequence)).await.is_err() {
                break;
            }
        }
        End::Lost
    }

    /// Answers whether that is news.
    fn set(&self, node: NodeId, state: PeerState) -> bool {
        self.states.send_if_modified(|states| states.insert(node, state) != Some(state))
    }

    fn set_full(&self, node: NodeId, is_full: bool) {
        self.full.send_if_modified(|full| if is_full { full.insert(node) } else { full.remove(&node) });
    }

    fn died(&self, node: NodeId) {
        if self.deaths.try_send(node).is_err() {
            tracing::warn!(peer = node.0, "too many deaths at once: Raft's timeouts decide about this one");
        }
    }
}

fn ping(sequence: u64) -> PingFrame {
    PingFrame { sequence, ..PingFrame::default() }
}
