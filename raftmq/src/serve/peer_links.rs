//! Connections to the peer service of all configured nodes, the own one among them. They work before a cluster is born,
//! so they do not go through the Raft node.

use crate::config::{NodeConfig, Peer};
use raftmq_proto::metadata::{PEER_FROM_NODE, PEER_TO_NODE};
use raftmq_proto::peer::peer_client::PeerClient;
use raftmq_proto::peer::{PingRequest, StatusReply, StatusRequest};
use std::collections::BTreeMap;
use std::time::Duration;
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Request, Status};

/// How long a connection attempt may take.
const CONNECT_MS: u64 = 500;
/// A connection whose peer answers no HTTP/2 ping for this long is given up and made anew.
const KEEPALIVE_MS: u64 = 1000;

/// One lazy connection to each configured node.
pub(super) struct PeerLinks {
    from: u32,
    links: BTreeMap<u32, Link>,
}

struct Link {
    peer: Peer,
    client: PeerClient<Channel>,
}

impl PeerLinks {
    /// Links to the nodes of a checked configuration; nothing is connected yet. They live on the current runtime.
    pub(super) fn new(config: &NodeConfig) -> PeerLinks {
        let link = |peer: &Peer| {
            let endpoint = crate::admin_client::endpoint(&peer.peer).ok()?;
            let channel = endpoint
                .connect_timeout(Duration::from_millis(CONNECT_MS))
                .http2_keep_alive_interval(Duration::from_millis(KEEPALIVE_MS))
                .keep_alive_timeout(Duration::from_millis(KEEPALIVE_MS))
                .connect_lazy();
            Some((peer.id, Link { peer: peer.clone(), client: PeerClient::new(channel) }))
        };
        PeerLinks { from: config.node_id, links: config.peers.iter().filter_map(link).collect() }
    }

    /// All configured nodes, ascending by id.
    pub(super) fn peers(&self) -> impl Iterator<Item = &Peer> {
        self.links.values().map(|link| &link.peer)
    }

    /// A client of one node's peer service.
    pub(super) fn client(&self, node: u32) -> Result<PeerClient<Channel>, Status> {
        self.links
            .get(&node)
            .map(|link| link.client.clone())
            .ok_or_else(|| Status::not_found(format!("there is no node {node}")))
    }

    /// A request that says from whom to whom it goes, with a deadline.
    pub(super) fn request<T>(&self, to: u32, body: T, timeout: Duration) -> Request<T> {
        let mut request = Request::new(body);
        request.set_timeout(timeout);
        request.metadata_mut().insert(PEER_FROM_NODE, MetadataValue::from(self.from));
        request.metadata_mut().insert(PEER_TO_NODE, MetadataValue::from(to));
        request
    }

    /// What one node says about itself.
    pub(super) async fn status(&self, node: u32, timeout: Duration) -> Result<StatusReply, Status> {
        let mut client = self.client(node)?;
        let call = client.status(self.request(node, StatusRequest {}, timeout));
        // The request's own deadline is the server's; a server that went silent is cut here.
        match tokio::time::timeout(timeout, call).await {
            Ok(reply) => reply.map(tonic::Response::into_inner),
            Err(_) => Err(Status::deadline_exceeded(format!("node {node} does not answer"))),
        }
    }

    /// Whether one node answers within `timeout`.
    pub(super) async fn ping(&self, node: u32, timeout: Duration) -> bool {
        let Ok(mut client) = self.client(node) else { return false };
        let call = client.ping(self.request(node, PingRequest {}, timeout));
        matches!(tokio::time::timeout(timeout, call).await, Ok(Ok(_)))
    }

    /// What all nodes say, at the same time; by node id.
    pub(super) async fn statuses(&self, timeout: Duration) -> BTreeMap<u32, Result<StatusReply, Status>> {
        let asked = self.links.keys().map(|node| async move { (*node, self.status(*node, timeout).await) });
        futures::future::join_all(asked).await.into_iter().collect()
    }
}
