//! The peer service: birth of a cluster, and what this node's replicas say (their digests: `replica_digest.rs`). Served on
//! the peer port, before and after the birth.

use super::node::{AdoptError, Node, decode_birth};
use super::replica_digest;
use crate::config::Role;
use prost::Message;
use raftmq_broker::leader::UnitIntegrity;
use raftmq_broker::volume::VolumeStatus;
use raftmq_model::ids::{GroupId, NodeId, ReplicaId};
use raftmq_proto::metadata::{PEER_FROM_NODE, PEER_TO_NODE};
use raftmq_proto::peer::peer_server::{Peer, PeerServer};
use raftmq_proto::peer::{
    AdoptReply, AdoptRequest, DigestReply, DigestRequest, InitializeReply, InitializeRequest, Integrity, PingReply,
    PingRequest, ReplicaStatus, StatusReply, StatusRequest, TransferReply, TransferRequest, Volume,
};
use raftmq_raft::{Group, InitializeError, TransferError};
use std::sync::Arc;
use tonic::{Request, Response, Status};

/// Serves `raftmq.peer.v1.Peer`.
pub(super) struct PeerService {
    node: Arc<Node>,
}

/// The service for a node.
pub(super) fn server(node: Arc<Node>) -> PeerServer<PeerService> {
    PeerServer::new(PeerService { node })
}

impl PeerService {
    /// Refuses a call that is meant for another node, or that comes from a node with this node's id at another address.
    fn check<T>(&self, request: &Request<T>) -> Result<(), Status> {
        let text = |key| request.metadata().get(key).and_then(|value| value.to_str().ok()).unwrap_or("");
        let own = self.node.config.node_id;
        if text(PEER_TO_NODE).parse() == Ok(own) {
            return Ok(());
        }
        let sentence = format!(
            "this is node {own}, the call is for node {}: check the peer addresses of node {}",
            text(PEER_TO_NODE),
            text(PEER_FROM_NODE)
        );
        tracing::warn!("peer call refused: {sentence}");
        Err(Status::failed_precondition(sentence))
    }

    fn group(&self, id: u32) -> Result<Group, Status> {
        let born = self.node.born().ok_or_else(|| Status::unavailable("the node is starting"))?;
        born.group(GroupId(id)).ok_or_else(|| Status::not_found(format!("this node has no replica of group {id}")))
    }

    fn status(&self) -> StatusReply {
        let config = &self.node.config;
        let placement = self.node.placement();
        let born = self.node.born();
        let groups = born.as_ref().map(|born| born.groups()).unwrap_or_default();
        StatusReply {
            cluster_id: placement.as_ref().map(|birth| birth.cluster_id.clone()).unwrap_or_default(),
            node_id: config.node_id,
            version: env!("CARGO_PKG_VERSION").into(),
            namesrv: config.has_role(Role::Namesrv),
            broker: config.has_role(Role::Broker),
            replicas: groups
                .iter()
                .map(|(id, group)| {
                    let replica = born.as_ref().and_then(|born| born.broker.replica(*id));
                    replica_status(*id, group, replica.map(|replica| replica.unit_integrity()).unwrap_or_default())
                })
                .collect(),
            client_address: config.advertised_client_address.clone(),
            peer_address: config.own().map(|own| own.peer.clone()).unwrap_or_default(),
            admin_address: config.reachable_admin_address(),
            incarnation: self.node.incarnation(),
            birth: placement.map(|birth| birth.encode_to_vec()).unwrap_or_default().into(),
            durability: config.durability.to_string(),
            volume: born.and_then(|born| volume_of(born.broker.volume())),
        }
    }
}

/// `None` for a volume that does not say its size.
fn volume_of(status: VolumeStatus) -> Option<Volume> {
    let raftmq_store::Volume { total_bytes, available_bytes } = status.volume;
    let full = status.is_full();
    (status.volume != raftmq_store::Volume::BOUNDLESS).then_some(Volume { total_bytes, available_bytes, full })
}

fn replica_status(id: GroupId, group: &Group, units: UnitIntegrity) -> ReplicaStatus {
    let status = group.status();
    let members = |voter| {
        let members = status.members.iter().filter(move |member| member.voter == voter);
        members.map(|member| member.replica.to_u64()).collect()
    };
    ReplicaStatus {
        group_id: id.0,
        role: status.role.to_string(),
        term: status.term,
        leader_node: status.leader.map_or(0, |node| node.0),
        last_index: status.last.unwrap_or(0),
        committed_index: status.committed.map_or(0, |(_, index)| index),
        applied_index: status.applied.map_or(0, |(_, index)| index),
        matched_index: status.matched.iter().map(|(node, index)| (node.0, *index)).collect(),
        ready: group.leadership().borrow().ready,
        first_index: group.log().first_index(),
        voters: members(true),
        learners: members(false),
        integrity: Some(integrity(group, units)),
    }
}

/// Log and ConsumeQueues together.
fn integrity(group: &Group, units: UnitIntegrity) -> Integrity {
    let integrity = group.integrity();
    Integrity {
        damaged: integrity.damaged_count + units.unrepaired_count,
        found: integrity.found_count + units.repaired_count + units.unrepaired_count,
        repaired: integrity.repaired_count + units.repaired_count,
        scrub_passes: integrity.scrub_passes_count,
        scrub_ended_ms: integrity.scrub_ended_at.map_or(0, |at| at.0),
        scrub_next: integrity.scrub_next,
    }
}

#[tonic::async_trait]
impl Peer for PeerService {
    async fn adopt(&self, request: Request<AdoptRequest>) -> Result<Response<AdoptReply>, Status> {
        self.check(&request)?;
        let AdoptRequest { cluster_id, birth } = request.into_inner();
        let birth = decode_birth(&birth).map_err(Status::invalid_argument)?;
        let node = Arc::clone(&self.node);
        // Writes and syncs files.
        let adopted = tokio::task::spawn_blocking(move || node.adopt(&cluster_id, birth)).await;
        match adopted {
            Ok(Ok(())) => Ok(Response::new(AdoptReply {})),
            Ok(Err(error @ AdoptError::Write { .. })) => Err(Status::internal(error.to_string())),
            Ok(Err(error)) => {
                tracing::warn!("birth refused: {error}");
                Err(Status::failed_precondition(error.to_string()))
            }
            Err(error) => Err(Status::internal(format!("the birth record was not written: {error}"))),
        }
    }

    async fn initialize(&self, request: Request<InitializeRequest>) -> Result<Response<InitializeReply>, Status> {
        self.check(&request)?;
        let id = request.into_inner().group_id;
        let group = self.group(id)?;
        if self.node.incarnation() > 1 {
            // It replaced one that was there at the birth: its groups have a history, which it may not have got yet.
            return Ok(Response::new(InitializeReply {}));
        }
        let birth = self.node.placement().ok_or_else(|| Status::unavailable("the node is starting"))?;
        let voters = voters(&birth, GroupId(id));
        match group.initialize(&voters).await {
            // A group that has a history was initialized before.
            Ok(()) | Err(InitializeError::NotAllowed) => Ok(Response::new(InitializeReply {})),
            Err(InitializeError::NotAVoter) => Err(Status::failed_precondition("this node has no vote in the group")),
            Err(InitializeError::Stopped) => Err(Status::unavailable("the group is closed")),
        }
    }

    async fn status(&self, request: Request<StatusRequest>) -> Result<Response<StatusReply>, Status> {
        self.check(&request)?;
        Ok(Response::new(PeerService::status(self)))
    }

    async fn ping(&self, request: Request<PingRequest>) -> Result<Response<PingReply>, Status> {
        self.check(&request)?;
        Ok(Response::new(PingReply {}))
    }

    async fn transfer(&self, request: Request<TransferRequest>) -> Result<Response<TransferReply>, Status> {
        self.check(&request)?;
        let TransferRequest { group_id, to_node } = request.into_inner();
        let group = self.group(group_id)?;
        let to = Some(NodeId(to_node)).filter(|to| to.0 != 0);
        match group.transfer_leader(to).await {
            Ok(leader) => Ok(Response::new(TransferReply { leader_node: leader.0 })),
            Err(error @ (TransferError::NotLeader { .. } | TransferError::Stopped)) => {
                Err(Status::unavailable(error.to_string()))
            }
            Err(TransferError::TimedOut) => Err(Status::aborted(TransferError::TimedOut.to_string())),
            Err(error) => Err(Status::failed_precondition(error.to_string())),
        }
    }

    async fn digest(&self, request: Request<DigestRequest>) -> Result<Response<DigestReply>, Status> {
        self.check(&request)?;
        let born = self.node.born().ok_or_else(|| Status::unavailable("the node is starting"))?;
        Ok(Response::new(replica_digest::digest(&born, request.into_inner()).await?))
    }
}

/// The first voters of a group, as the birth record says.
pub(super) fn voters(birth: &raftmq_model::meta::Birth, group: GroupId) -> Vec<ReplicaId> {
    if group == GroupId::META {
        let namesrvs = birth.nodes.iter().filter(|node| node.namesrv);
        return namesrvs.map(|node| ReplicaId { node: NodeId(node.id), incarnation: node.incarnation }).collect();
    }
    let record = birth.broker_groups.iter().find(|record| record.id == group.0);
    record.map(|record| record.replicas.iter().map(|id| ReplicaId::from_u64(*id)).collect()).unwrap_or_default()
}
