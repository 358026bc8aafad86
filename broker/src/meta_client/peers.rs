//! Which namesrv node to ask.

use raftmq_model::ids::NodeId;
use raftmq_proto::meta::meta_client::MetaClient as Grpc;
use raftmq_raft::{PeerChannel, RaftNode};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A full copy of the meta state comes as one message.
const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// The namesrv nodes and the one that answered last.
pub(super) struct MetaPeers {
    raft: Arc<RaftNode>,
    /// The own node first, if it is one.
    nodes: Vec<NodeId>,
    preferred: AtomicUsize,
}

impl MetaPeers {
    pub(super) fn new(own: NodeId, mut nodes: Vec<NodeId>, raft: Arc<RaftNode>) -> MetaPeers {
        nodes.sort_unstable();
        nodes.dedup();
        // Other nodes spread over the namesrv nodes by their own id.
        if let Some(at) = nodes.iter().position(|node| *node == own) {
            nodes.rotate_left(at);
        } else if !nodes.is_empty() {
            let at = own.0 as usize % nodes.len();
            nodes.rotate_left(at);
        }
        MetaPeers { raft, nodes, preferred: AtomicUsize::new(0) }
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
    pub(super) fn client(&self, at: usize) -> Option<Grpc<PeerChannel>> {
        let node = *self.nodes.get(at.checked_rem(self.nodes.len())?)?;
        let grpc = Grpc::new(self.raft.channel(node));
        Some(grpc.max_decoding_message_size(MESSAGE_BYTES_MAX))
    }
}
