//! The client port is open while this node can reach a majority of all nodes, itself among them. Cut off from it, the
//! node closes the port and all its connections, so that SDKs move to a node that can serve them.

use super::born::Born;
use super::busy;
use super::node::Node;
use crate::client_port::{ClientPort, OpenClientPort};
use crate::exit::Failure;
use raftmq_model::ids::NodeId;
use raftmq_raft::PeerState;
use rustls::ServerConfig;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Wait before the port is tried again when it cannot be opened at once.
const REOPEN_MS: u64 = 200;

/// Opens and closes the client port until `stop`; answers the port if it is open then.
pub(super) async fn keep_client_port(
    node: &Arc<Node>,
    born: &Arc<Born>,
    tls: Arc<ServerConfig>,
    stop: impl Future<Output = ()>,
) -> Result<Option<OpenClientPort>, Failure> {
    let port = node.client_port(tls);
    let routes = tonic::service::Routes::new(born.edge.messaging_service());
    let mut reach = Reach::new(node, born.raft.peers_alive());
    let mut open: Option<OpenClientPort> = None;
    tokio::pin!(stop);
    loop {
        let step = async {
            match open.is_some() {
                true => reach.lost().await,
                false => reach.found().await,
            }
        };
        tokio::select! {
            () = &mut stop => return Ok(open),
            () = step => {}
        }
        open = match open.take() {
            Some(port) => {
                tracing::warn!("no majority of the nodes answers: the client port is closed");
                port.cut().await;
                None
            }
            None => Some(open_port(node, &port, &routes).await?),
        };
    }
}

async fn open_port(node: &Node, port: &ClientPort, routes: &tonic::service::Routes) -> Result<OpenClientPort, Failure> {
    let mut attempts = 0;
    loop {
        match port.listen().await {
            Ok(listener) => {
                tracing::info!(address = %port.address, "client port open");
                return Ok(port.open(listener, routes.clone()));
            }
            // Another process may have taken the port while it was closed; it was free at the start.
            Err(error) if attempts >= REOPEN_ATTEMPTS => {
                return Err(busy("client_listen", &node.config.client_listen, &error));
            }
            Err(_) => {
                attempts += 1;
                tokio::time::sleep(Duration::from_millis(REOPEN_MS)).await;
            }
        }
    }
}

const REOPEN_ATTEMPTS: u32 = 25;

/// Whether a majority of all nodes is reachable.
struct Reach {
    own: NodeId,
    nodes: Vec<NodeId>,
    alive: watch::Receiver<BTreeMap<NodeId, PeerState>>,
    /// 0: never lost.
    isolation_ms: u64,
}

impl Reach {
    fn new(node: &Node, alive: watch::Receiver<BTreeMap<NodeId, PeerState>>) -> Reach {
        let nodes = node.links.peers().map(|peer| NodeId(peer.id)).collect();
        Reach { own: node.id(), nodes, alive, isolation_ms: node.config.limits.isolation_ms }
    }

    fn majority(&mut self) -> bool {
        let alive = self.alive.borrow_and_update();
        has_majority(self.own, &self.nodes, &alive)
    }

    /// Waits until a majority is reachable.
    async fn found(&mut self) {
        while self.isolation_ms > 0 && !self.majority() {
            if self.alive.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    /// Waits until no majority has been reachable for `isolation_ms`.
    async fn lost(&mut self) {
        let mut since: Option<Instant> = None;
        loop {
            since = match (self.isolation_ms > 0 && !self.majority(), since) {
                (false, _) => None,
                (true, None) => Some(Instant::now()),
                (true, since) => since,
            };
            let deadline = since.map(|since| since + Duration::from_millis(self.isolation_ms));
            let over = async {
                match deadline {
                    Some(deadline) => tokio::time::sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = over => return,
                changed = self.alive.changed() => if changed.is_err() { return std::future::pending().await },
            }
        }
    }
}

fn has_majority(own: NodeId, nodes: &[NodeId], alive: &BTreeMap<NodeId, PeerState>) -> bool {
    let reachable = |node: &&NodeId| **node == own || alive.get(node) == Some(&PeerState::Alive);
    nodes.iter().filter(reachable).count() * 2 > nodes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reach(nodes: u32, isolation_ms: u64) -> (watch::Sender<BTreeMap<NodeId, PeerState>>, Reach) {
        let (sender, alive) = watch::channel(BTreeMap::new());
        (sender, Reach { own: NodeId(1), nodes: (1..=nodes).map(NodeId).collect(), alive, isolation_ms })
    }

    #[tokio::test]
    async fn one_node_alone_is_its_own_majority() {
        reach(1, 1500).1.found().await;
    }

    #[tokio::test]
    async fn a_majority_is_lost_only_after_the_whole_time_without_it() {
        let (states, mut reach) = reach(3, 50);
        assert!(!reach.majority());
        states.send_modify(|alive| alive.extend([(NodeId(2), PeerState::Alive)]));
        reach.found().await;
        // A majority by another peer is one all the same.
        states.send_modify(|alive| {
            alive.insert(NodeId(2), PeerState::Silent);
            alive.insert(NodeId(3), PeerState::Alive);
        });
        let watched = tokio::time::timeout(Duration::from_millis(100), reach.lost()).await;
        assert!(watched.is_err(), "the majority was never lost");
        let started = Instant::now();
        states.send_modify(|alive| alive.extend([(NodeId(3), PeerState::Dead)]));
        reach.lost().await;
        assert!(started.elapsed() >= Duration::from_millis(50));
    }

    #[tokio::test]
    async fn with_isolation_off_the_port_stays_open() {
        let (_states, mut reach) = reach(3, 0);
        reach.found().await;
        assert!(tokio::time::timeout(Duration::from_millis(20), reach.lost()).await.is_err());
    }
}
