//! Makes the Raft library's clients of one group.

use super::connection::{Connection, Purpose};
use super::links::PeerLinks;
use crate::types::{TypeConfig, node_of};
use openraft::RaftNetworkFactory;
use raftmq_model::ids::GroupId;
use std::sync::Arc;

/// One group's network.
pub(crate) struct Network {
    group: GroupId,
    links: Arc<PeerLinks>,
}

impl Network {
    pub(crate) fn new(group: GroupId, links: Arc<PeerLinks>) -> Network {
        Network { group, links }
    }

    fn connection(&self, target: u64, purpose: Purpose) -> Connection {
        Connection::new(self.group, target, self.links.to(node_of(target)), purpose)
    }
}

impl RaftNetworkFactory<TypeConfig> for Network {
    type Network = Connection;

    async fn new_client(&mut self, target: u64, _node: &()) -> Connection {
        self.connection(target, Purpose::Log)
    }

    async fn new_heartbeat_client(&mut self, target: u64, _node: &()) -> Connection {
        self.connection(target, Purpose::Heartbeat)
    }
}
