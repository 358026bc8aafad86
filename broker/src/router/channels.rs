//! Connections to peers for forwarded calls, apart from those that Raft uses.

use crate::forward::MESSAGE_BYTES_MAX;
use parking_lot::Mutex;
use raftmq_model::ids::NodeId;
use raftmq_proto::forward::forward_client::ForwardClient;
use raftmq_raft::{PeerChannel, RaftNode};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A few connections to each peer, taken in turn. They are made when first used and again after they broke.
pub(super) struct PeerChannels {
    raft: Arc<RaftNode>,
    per_peer: usize,
    open: Mutex<BTreeMap<NodeId, Vec<PeerChannel>>>,
    turn: AtomicUsize,
}

impl PeerChannels {
    pub(super) fn new(raft: Arc<RaftNode>, per_peer: usize) -> PeerChannels {
        PeerChannels { raft, per_peer: per_peer.max(1), open: Mutex::default(), turn: AtomicUsize::new(0) }
    }

    /// A client over one of the connections to `node`.
    pub(super) fn client(&self, node: NodeId) -> ForwardClient<PeerChannel> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % self.per_peer;
        let mut open = self.open.lock();
        let channels = open.entry(node).or_default();
        let channel = match channels.get(turn) {
            Some(channel) => channel.clone(),
            None => {
                let channel = self.raft.channel(node);
                channels.push(channel.clone());
                channel
            }
        };
        ForwardClient::new(channel)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX)
    }
}
