//! One link per peer, made when first used.

use super::link::PeerLink;
use super::transport::Transport;
use crate::identity::PeerIdentity;
use crate::peers::PeerAddresses;
use parking_lot::Mutex;
use raftmq_model::ids::NodeId;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) struct PeerLinks {
    addresses: PeerAddresses,
    identity: PeerIdentity,
    transport: Arc<dyn Transport>,
    links: Mutex<BTreeMap<NodeId, Arc<PeerLink>>>,
}

impl PeerLinks {
    pub(crate) fn new(
        addresses: PeerAddresses,
        identity: PeerIdentity,
        transport: Arc<dyn Transport>,
    ) -> Arc<PeerLinks> {
        Arc::new(PeerLinks { addresses, identity, transport, links: Mutex::default() })
    }

    pub(crate) fn to(&self, node: NodeId) -> Arc<PeerLink> {
        let mut links = self.links.lock();
        let make = || PeerLink::new(node, self.addresses.clone(), self.identity.clone(), Arc::clone(&self.transport));
        Arc::clone(links.entry(node).or_insert_with(make))
    }
}
