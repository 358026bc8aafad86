//! The whole cluster as its nodes tell it, and handing leadership over.

use super::super::node::{Node, decode_birth};
use crate::config::{Peer, Role};
use raftmq_model::ids::ReplicaId;
use raftmq_model::meta::Birth;
use raftmq_proto::admin::{
    BrokerGroup, ClusterStatusReply, Integrity, Node as NodeView, Replica, TransferLeaderRequest, Volume,
};
use raftmq_proto::peer::{ReplicaStatus, StatusReply, TransferRequest};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tonic::Status;

/// How long a node may take to tell its status; one that takes longer counts as not alive.
const STATUS_MS: u64 = 1000;
/// How long a leader may take to hand over.
const TRANSFER_MS: u64 = 10_000;

/// The name of the meta group.
const META_NAME: &str = "namesrv";

type Statuses = BTreeMap<u32, StatusReply>;

/// Asks all nodes and puts their answers together.
pub(super) async fn status(node: &Arc<Node>) -> ClusterStatusReply {
    let answers = node.links.statuses(Duration::from_millis(STATUS_MS)).await;
    let statuses: Statuses = answers.into_iter().filter_map(|(id, answer)| Some((id, answer.ok()?))).collect();
    // A node that waits for its birth tells what the others know: it may have lost its disk.
    let birth = node.placement().or_else(|| birth_of_peers(&statuses).map(Arc::new));
    ClusterStatusReply {
        cluster_id: birth.as_ref().map(|birth| birth.cluster_id.clone()).unwrap_or_default(),
        nodes: node.links.peers().map(|peer| node_view(peer, statuses.get(&peer.id), birth.as_deref())).collect(),
        groups: birth.map(|birth| groups(&birth, &statuses)).unwrap_or_default(),
    }
}

fn birth_of_peers(statuses: &Statuses) -> Option<Birth> {
    statuses.values().filter(|status| !status.birth.is_empty()).find_map(|status| decode_birth(&status.birth).ok())
}

fn node_view(peer: &Peer, status: Option<&StatusReply>, birth: Option<&Birth>) -> NodeView {
    let born = birth.and_then(|birth| birth.nodes.iter().find(|node| node.id == peer.id));
    let or_born = |now: Option<&String>, at_birth: Option<&String>| now.or(at_birth).cloned().unwrap_or_default();
    let roles = peer.roles.iter().map(|role| match role {
        Role::Namesrv => "namesrv".to_string(),
        Role::Broker => "broker".to_string(),
    });
    NodeView {
        id: peer.id,
        roles: roles.collect(),
        alive: status.is_some(),
        client: or_born(status.map(|status| &status.client_address), born.map(|node| &node.client_address)),
        peer: peer.peer.clone(),
        admin: or_born(status.map(|status| &status.admin_address), born.map(|node| &node.admin_address)),
        version: status.map(|status| status.version.clone()).unwrap_or_default(),
        durability: status.map(|status| status.durability.clone()).unwrap_or_default(),
        volume: status.and_then(|status| status.volume).map(|volume| Volume {
            total_bytes: volume.total_bytes,
            available_bytes: volume.available_bytes,
            full: volume.full,
        }),
    }
}

/// The meta group and the broker groups, ascending by id.
fn groups(birth: &Birth, statuses: &Statuses) -> Vec<BrokerGroup> {
    let namesrvs = birth.nodes.iter().filter(|node| node.namesrv).map(|node| node.id).collect();
    let meta = group_view(0, META_NAME, namesrvs, statuses);
    let brokers = birth.broker_groups.iter().map(|record| {
        let nodes = record.replicas.iter().map(|id| ReplicaId::from_u64(*id).node.0).collect();
        group_view(record.id, &record.name, nodes, statuses)
    });
    std::iter::once(meta).chain(brokers).collect()
}

fn group_view(id: u32, name: &str, nodes: Vec<u32>, statuses: &Statuses) -> BrokerGroup {
    let replica = |node: &u32| statuses.get(node)?.replicas.iter().find(|replica| replica.group_id == id);
    let found: BTreeMap<u32, &ReplicaStatus> = nodes.iter().filter_map(|node| Some((*node, replica(node)?))).collect();
    // Two replicas can say that they lead, for a moment: the one in the higher term is right (law 7).
    let leader = found.iter().filter(|(_, status)| status.role == "leader").max_by_key(|(_, status)| status.term);
    let replicas = nodes.iter().map(|node| {
        // A node that answers without the replica waits for its birth, starts, or has lost its disk.
        let absent = if statuses.contains_key(node) { "missing" } else { "unreachable" };
        replica_view(*node, found.get(node).copied().ok_or(absent), leader.map(|(_, status)| *status))
    });
    let members = leader.map(|(_, status)| Members::of(status)).unwrap_or_default();
    let replicas = replicas.map(|replica| members.place(replica));
    BrokerGroup {
        id,
        name: name.into(),
        leader: leader.map_or(0, |(node, _)| *node),
        term: found.values().map(|status| status.term).max().unwrap_or(0),
        committed: found.values().map(|status| status.committed_index).max().unwrap_or(0),
        replicas: replicas.collect(),
        ready: leader.is_some_and(|(_, status)| status.ready),
        changing: members.changing,
    }
}

/// The leader's membership, by node: the last life of each, and whether it votes.
#[derive(Default)]
struct Members {
    by_node: BTreeMap<u32, (u32, bool)>,
    changing: bool,
}

impl Members {
    fn of(leader: &ReplicaStatus) -> Members {
        let mut members = Members { changing: !leader.learners.is_empty(), ..Members::default() };
        let all = leader.learners.iter().map(|id| (id, false)).chain(leader.voters.iter().map(|id| (id, true)));
        for (replica, votes) in all.map(|(id, votes)| (ReplicaId::from_u64(*id), votes)) {
            let known = members.by_node.entry(replica.node.0).or_default();
            members.changing |= known.0 != 0;
            *known = (*known).max((replica.incarnation, votes));
        }
        members
    }

    fn place(&self, replica: Replica) -> Replica {
        let (incarnation, voter) = self.by_node.get(&replica.node).copied().unwrap_or_default();
        Replica { incarnation, voter, ..replica }
    }
}

/// A replica that tells nothing itself, with the role that says why, shows what the leader knows of it.
fn replica_view(node: u32, own: Result<&ReplicaStatus, &str>, leader: Option<&ReplicaStatus>) -> Replica {
    let matched = leader.and_then(|leader| leader.matched_index.get(&node)).copied().unwrap_or(0);
    let last = own.map_or(matched, |status| status.last_index);
    Replica {
        node,
        role: own.map_or_else(ToString::to_string, |status| status.role.clone()),
        last,
        committed: own.map_or(0, |status| status.committed_index),
        applied: own.map_or(0, |status| status.applied_index),
        lag: leader.map_or(last, |leader| leader.last_index).saturating_sub(last),
        first: own.map_or(0, |status| status.first_index),
        integrity: own.ok().and_then(|status| status.integrity).map(|of| Integrity {
            damaged: of.damaged,
            found: of.found,
            repaired: of.repaired,
            scrub_passes: of.scrub_passes,
            scrub_ended_ms: of.scrub_ended_ms,
            scrub_next: of.scrub_next,
        }),
        ..Replica::default()
    }
}

/// Asks the leader of a group to hand over; answers the node that leads then.
pub(super) async fn transfer(node: &Arc<Node>, request: TransferLeaderRequest) -> Result<u32, Status> {
    let known = status(node).await;
    let group = known.groups.iter().find(|group| group.name == request.group);
    let names = || known.groups.iter().map(|group| group.name.as_str()).collect::<Vec<_>>().join(", ");
    let group = group
        .ok_or_else(|| Status::not_found(format!("there is no group {}, there are {}", request.group, names())))?;
    if group.leader == 0 {
        return Err(Status::unavailable(format!("{} has no leader now", group.name)));
    }
    let to = request.to_node;
    if to != 0 {
        let replica = group.replicas.iter().find(|replica| replica.node == to);
        let replica =
            replica.ok_or_else(|| Status::not_found(format!("{} has no replica on node {to}", group.name)))?;
        if to == group.leader {
            return Ok(to);
        }
        if ["unreachable", "missing"].contains(&replica.role.as_str()) {
            return Err(Status::failed_precondition(format!(
                "the replica of {} on node {to} is {}, so it cannot lead",
                group.name, replica.role
            )));
        }
    }
    let mut client = node.links.client(group.leader)?;
    let body = TransferRequest { group_id: group.id, to_node: to };
    let call = client.transfer(node.links.request(group.leader, body, Duration::from_millis(TRANSFER_MS)));
    call.await.map(|reply| reply.into_inner().leader_node)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replica(role: &str, term: u64, last: u64) -> StatusReply {
        let replica = ReplicaStatus {
            group_id: 1,
            role: role.into(),
            term,
            last_index: last,
            committed_index: last,
            ready: role == "leader",
            matched_index: [(3, 4)].into(),
            ..Default::default()
        };
        StatusReply { replicas: vec![replica], ..Default::default() }
    }

    #[test]
    fn the_higher_term_leads_and_lag_is_counted_from_it() {
        let statuses =
            [(1, replica("leader", 2, 9)), (2, replica("leader", 3, 10)), (4, StatusReply::default())].into();
        let group = group_view(1, "broker-1", vec![1, 2, 3, 4], &statuses);
        assert_eq!((group.leader, group.term, group.ready), (2, 3, true));
        let lags: Vec<u64> = group.replicas.iter().map(|replica| replica.lag).collect();
        assert_eq!(lags, [1, 0, 6, 10]);
        assert_eq!(group.replicas[2].role, "unreachable");
        assert_eq!(group.replicas[3].role, "missing");
    }

    #[test]
    fn members_are_those_of_the_leader_and_a_change_is_seen_until_it_ends() {
        let id = |node, incarnation| ReplicaId { node: raftmq_model::ids::NodeId(node), incarnation }.to_u64();
        let view = |voters: &[u64], learners: &[u64]| {
            let mut leader = replica("leader", 2, 9);
            leader.replicas[0].voters = voters.to_vec();
            leader.replicas[0].learners = learners.to_vec();
            let group = group_view(1, "broker-1", vec![1, 2], &[(1, leader)].into());
            (group.changing, group.replicas[1].incarnation, group.replicas[1].voter)
        };
        assert_eq!(view(&[id(1, 1), id(2, 1)], &[]), (false, 1, true));
        assert_eq!(view(&[id(1, 1), id(2, 1)], &[id(2, 2)]), (true, 2, false));
        assert_eq!(view(&[id(1, 1), id(2, 1), id(2, 2)], &[]), (true, 2, true));
        assert_eq!(view(&[id(1, 1), id(2, 2)], &[]), (false, 2, true));
    }

    #[test]
    fn a_group_without_a_leader_says_so() {
        let statuses = [(1, replica("candidate", 2, 9))].into();
        let group = group_view(1, "broker-1", vec![1, 2, 3], &statuses);
        assert_eq!((group.leader, group.ready), (0, false));
    }
}
