//! Where the other nodes are, and whether their processes answer.

use raftmq_model::ids::NodeId;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::watch;

/// Peer addresses (`host:port`) by node; may be replaced while the node runs. Clones share them.
#[derive(Clone, Debug)]
pub struct PeerAddresses(Arc<watch::Sender<BTreeMap<NodeId, String>>>);

impl PeerAddresses {
    /// Starts with these addresses.
    #[must_use]
    pub fn new(addresses: BTreeMap<NodeId, String>) -> PeerAddresses {
        PeerAddresses(Arc::new(watch::Sender::new(addresses)))
    }

    /// Replaces all addresses. Open connections stay; new ones go to the new addresses.
    pub fn replace(&self, addresses: BTreeMap<NodeId, String>) {
        self.0.send_if_modified(|current| {
            let changed = *current != addresses;
            *current = addresses;
            changed
        });
    }

    /// The address of one node.
    #[must_use]
    pub fn get(&self, node: NodeId) -> Option<String> {
        self.0.borrow().get(&node).cloned()
    }

    /// All addresses.
    #[must_use]
    pub fn all(&self) -> BTreeMap<NodeId, String> {
        self.0.borrow().clone()
    }

    pub(crate) fn watch(&self) -> watch::Receiver<BTreeMap<NodeId, String>> {
        self.0.subscribe()
    }
}

/// What the death detector knows of a peer's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerState {
    /// It has not answered yet.
    Unknown,
    /// It answers.
    Alive,
    /// It stopped answering and its host does not refuse connections: stopped, cut off, or its host is down.
    Silent,
    /// Its host refuses connections: no process listens there.
    Dead,
}
