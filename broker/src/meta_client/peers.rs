//! Which namesrv node to ask, and how.

use raftmq_model::ids::NodeId;
use raftmq_proto::meta::meta_client::MetaClient as Grpc;
use raftmq_proto::meta::{HeartbeatRequest, ProposeReply, ProposeRequest, WatchEvent, WatchRequest};
use raftmq_raft::{PeerChannel, RaftNode};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tonic::service::Routes;
use tonic::{Status, Streaming};

/// A full copy of the meta state comes as one message.
const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// The namesrv nodes and the one that answered last.
pub(super) struct MetaPeers {
    /// The own node first, if it is one.
    nodes: Vec<MetaPeer>,
    preferred: AtomicUsize,
    /// Keeps the connections' owner alive.
    _raft: Arc<RaftNode>,
}

/// One namesrv node. Clones share the connection.
#[derive(Clone)]
pub(super) enum MetaPeer {
    /// This process: no connection is needed, and a peer connection to oneself is refused.
    Own(Grpc<Routes>),
    /// Another node.
    Other(Grpc<PeerChannel>),
}

impl MetaPeers {
    /// `own_service` is the service of the own node, which is asked first when it is there.
    pub(super) fn new(
        own: NodeId,
        mut nodes: Vec<NodeId>,
        own_service: Option<Routes>,
        raft: Arc<RaftNode>,
    ) -> MetaPeers {
        nodes.retain(|node| *node != own);
        nodes.sort_unstable();
        nodes.dedup();
        if !nodes.is_empty() {
            // Not all nodes ask the same one first.
            let first = own.0 as usize % nodes.len();
            nodes.rotate_left(first);
        }
        let limit = |grpc: Grpc<PeerChannel>| grpc.max_decoding_message_size(MESSAGE_BYTES_MAX);
        let others = nodes.into_iter().map(|node| MetaPeer::Other(limit(Grpc::new(raft.channel(node)))));
        let own =
            own_service.map(|service| MetaPeer::Own(Grpc::new(service).max_decoding_message_size(MESSAGE_BYTES_MAX)));
        MetaPeers { nodes: own.into_iter().chain(others).collect(), preferred: AtomicUsize::new(0), _raft: raft }
    }

    pub(super) fn count(&self) -> usize {
        self.nodes.len()
    }

    /// Position of the node that answered last.
    pub(super) fn preferred(&self) -> usize {
        self.preferred.load(Ordering::Relaxed)
    }

    /// Remembers that the node at `at` answers.
    pub(super) fn prefer(&self, at: usize) {
        self.preferred.store(at % self.nodes.len().max(1), Ordering::Relaxed);
    }

    /// The node at position `at`, counted around; `None` when there is no namesrv node at all.
    pub(super) fn at(&self, at: usize) -> Option<MetaPeer> {
        self.nodes.get(at.checked_rem(self.nodes.len())?).cloned()
    }
}

impl MetaPeer {
    pub(super) async fn watch(&mut self) -> Result<Streaming<WatchEvent>, Status> {
        let reply = match self {
            MetaPeer::Own(grpc) => grpc.watch(WatchRequest {}).await,
            MetaPeer::Other(grpc) => grpc.watch(WatchRequest {}).await,
        };
        reply.map(tonic::Response::into_inner)
    }

    pub(super) async fn propose(&mut self, request: ProposeRequest) -> Result<ProposeReply, Status> {
        let reply = match self {
            MetaPeer::Own(grpc) => grpc.propose(request).await,
            MetaPeer::Other(grpc) => grpc.propose(request).await,
        };
        reply.map(tonic::Response::into_inner)
    }

    pub(super) async fn heartbeat(&mut self, request: HeartbeatRequest) -> Result<(), Status> {
        let reply = match self {
            MetaPeer::Own(grpc) => grpc.heartbeat(request).await,
            MetaPeer::Other(grpc) => grpc.heartbeat(request).await,
        };
        reply.map(|_| ())
    }
}
