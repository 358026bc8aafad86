//! Frames of other replicas.

use crate::network::PeerLinks;
use crate::peers::PeerAddresses;
use bytes::Bytes;
use raftmq_model::ids::{GroupId, NodeId, PhysicalOffset};
use raftmq_proto::raft::FrameRequest;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use tonic::Code;

/// A peer may take this long for one frame.
const ASK_TIMEOUT: Duration = Duration::from_secs(5);

/// Asks the peers of one group's replica.
#[derive(Clone)]
pub(crate) struct FrameSource {
    pub(crate) group: GroupId,
    pub(crate) node: NodeId,
    pub(crate) peers: PeerAddresses,
    pub(crate) links: Arc<PeerLinks>,
}

/// What the peers said.
pub(crate) enum Asked {
    /// The frame, from that node.
    Frame(NodeId, Bytes),
    /// No peer gave it; all that there are answered, if so.
    Nobody { all_answered: bool },
}

impl FrameSource {
    /// Whether there is anybody to ask.
    pub(crate) fn has_peers(&self) -> bool {
        self.peers.all().keys().any(|node| *node != self.node)
    }

    /// Asks `first`, if it is a peer, and then the others, once each, for the committed frame at `offset`.
    pub(crate) async fn ask(&self, first: Option<NodeId>, offset: PhysicalOffset) -> Asked {
        let mut nodes: Vec<NodeId> = self.peers.all().into_keys().filter(|node| *node != self.node).collect();
        nodes.sort_by_key(|node| (Some(*node) != first, *node));
        let mut all_answered = true;
        for node in nodes {
            let request = FrameRequest { group_id: self.group.0, offset: offset.0 };
            let mut client = self.links.to(node).snapshot();
            match timeout(ASK_TIMEOUT, client.frame(request)).await {
                Ok(Ok(reply)) => return Asked::Frame(node, reply.into_inner().frame),
                Ok(Err(status)) if matches!(status.code(), Code::NotFound | Code::DataLoss) => {
                    tracing::debug!(group = self.group.0, peer = node.0, %offset, "no frame: {}", status.message());
                }
                Ok(Err(_)) | Err(_) => all_answered = false,
            }
        }
        Asked::Nobody { all_answered }
    }
}
