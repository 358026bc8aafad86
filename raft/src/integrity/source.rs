//! Frames of other replicas.

use crate::network::PeerLinks;
use crate::peers::PeerAddresses;
use bytes::Bytes;
use raftmq_model::ids::{GroupId, NodeId, PhysicalOffset};
use raftmq_proto::raft::{FrameReply, FrameRequest};
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
    /// All peers have purged it, and have everything up to this entry committed and on their disks.
    Purged(u64),
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
        let (mut all_answered, mut purged, nodes_count) = (true, Vec::new(), nodes.len());
        for node in nodes {
            let request = FrameRequest { group_id: self.group.0, offset: offset.0 };
            let mut client = self.links.to(node).snapshot();
            match timeout(ASK_TIMEOUT, client.frame(request)).await {
                Ok(Ok(reply)) => {
                    let FrameReply { frame, committed_index } = reply.into_inner();
                    if !frame.is_empty() {
                        return Asked::Frame(node, frame);
                    }
                    purged.push(committed_index);
                }
                Ok(Err(status)) if matches!(status.code(), Code::NotFound | Code::DataLoss) => {
                    tracing::debug!(group = self.group.0, peer = node.0, %offset, "no frame: {}", status.message());
                }
                Ok(Err(_)) | Err(_) => all_answered = false,
            }
        }
        match purged.iter().min() {
            Some(committed) if purged.len() == nodes_count => Asked::Purged(*committed),
            // Who has purged it has everything behind it, too: this replica waits until all can say so.
            purged => Asked::Nobody { all_answered: all_answered && purged.is_none() },
        }
    }
}
