//! Replacing a lost disk: `raftmq replica replace NODE`.
//!
//! ```text
//! the node runs on an empty folder   1. is it empty, and does each of its groups live on without it?
//!                                    2. the meta group places its replicas anew: ReplaceNode, the next incarnation
//!                                    3. Adopt: the node writes cluster id, incarnation and placement, then starts its groups
//!                                    4. the groups' leaders take the new replicas in: see raftmq_raft, membership
//! ```
//! Interrupted before 3, it is run again and takes one more incarnation; from 3 on it ends without help. A replica's former
//! self never votes again: the meta group knows a later one, and peers call it by that.

use super::admin::meta_status;
use super::birth::adopt;
use super::born::Born;
use super::node::Node;
use crate::admin_client::connect_one;
use raftmq_model::ids::{GroupId, NodeId};
use raftmq_model::meta::{Birth, BrokerGroupRecord, MetaOp, MetaView, NodeRecord, ReplaceNode};
use raftmq_proto::admin::ReplaceReplicaRequest;
use raftmq_proto::peer::StatusReply;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tonic::Status;

/// How long one question to a node may take.
const STATUS_MS: u64 = 2000;
/// How long the meta group may take to decide.
const DECIDE_MS: u64 = 10_000;

type Statuses = BTreeMap<u32, StatusReply>;

/// Makes node `id`, whose folder is empty, a member again; answers its incarnation. Its replicas catch up afterwards.
pub(super) async fn replace(node: &Arc<Node>, id: u32) -> Result<u32, Status> {
    // Before anything is asked: what a replacement before this one did to the node must be seen.
    let _one = node.birth.lock().await;
    let answers = node.links.statuses(Duration::from_millis(STATUS_MS)).await;
    let statuses: Statuses = answers.into_iter().filter_map(|(id, answer)| Some((id, answer.ok()?))).collect();
    let Some(born) = node.born() else { return pass_on(&statuses, id).await };
    let view = born.meta.view();
    let record = view.nodes.get(&id).ok_or_else(|| Status::not_found(format!("there is no node {id}")))?;
    let status = statuses.get(&id).ok_or_else(|| {
        Status::unavailable(format!("node {id} does not answer: start it with an empty data folder first"))
    })?;
    if !status.cluster_id.is_empty() {
        return under_way(&view, record, status, &statuses);
    }
    if (status.namesrv, status.broker) != (record.namesrv, record.broker) {
        let sentence = format!("the configuration of node {id} has other roles than the cluster knows it by");
        return Err(Status::failed_precondition(sentence));
    }
    check_quorums(&view, id, &statuses).map_err(Status::failed_precondition)?;
    let incarnation = record.incarnation + 1;
    let birth = decide(&born, ReplaceNode { node: id, incarnation }).await?;
    adopt(node, &birth, id).await?;
    tracing::info!(node = id, incarnation, "the node's replicas are placed anew");
    Ok(incarnation)
}

/// A node whose own disk is empty has another one do it.
async fn pass_on(statuses: &Statuses, id: u32) -> Result<u32, Status> {
    let member = statuses.values().find(|status| !status.cluster_id.is_empty() && status.node_id != id);
    let member = member.ok_or_else(|| {
        Status::failed_precondition("no node that answers belongs to a cluster; run `raftmq cluster init` to make one")
    })?;
    let admin = connect_one(&member.admin_address).await;
    let mut admin = admin.map_err(|error| Status::unavailable(format!("node {}: {error}", member.node_id)))?;
    admin.replace_replica(ReplaceReplicaRequest { node: id }).await.map(|reply| reply.into_inner().incarnation)
}

/// The node has a cluster: a replacement that goes on, or nothing to replace.
fn under_way(view: &MetaView, record: &NodeRecord, status: &StatusReply, statuses: &Statuses) -> Result<u32, Status> {
    let id = record.id;
    let next = status.cluster_id == view.cluster_id && status.incarnation == record.incarnation;
    let votes = |group: GroupId| {
        let leader = leader_of(statuses, group).map(|status| status.voters.clone()).unwrap_or_default();
        let placed = view.placed(group).into_iter().find(|replica| replica.node == NodeId(id));
        placed.is_none_or(|replica| leader.contains(&replica.to_u64()))
    };
    if next && record.incarnation > 1 && !groups_on(view, id).into_iter().all(|(group, _)| votes(group)) {
        return Ok(record.incarnation);
    }
    Err(Status::failed_precondition(format!(
        "node {id} runs and has its data; to give it up, stop it, move its data folder away and start it again first"
    )))
}

/// The groups with a replica on the node, by id and name.
fn groups_on(view: &MetaView, node: u32) -> Vec<(GroupId, String)> {
    let all = view.broker_groups.values().map(|group| (GroupId(group.id), group.name.clone()));
    let all = std::iter::once((GroupId::META, "namesrv".to_owned())).chain(all);
    all.filter(|(group, _)| view.placed(*group).iter().any(|replica| replica.node.0 == node)).collect()
}

fn leader_of(statuses: &Statuses, group: GroupId) -> Option<&raftmq_proto::peer::ReplicaStatus> {
    let replicas = statuses.values().flat_map(|status| &status.replicas);
    replicas.filter(|replica| replica.group_id == group.0 && replica.ready).max_by_key(|replica| replica.term)
}

/// Each group of the node must have a leader and a majority of its voters without it: else what it acknowledged may be lost
/// with the disk, and nothing could be decided.
fn check_quorums(view: &MetaView, id: u32, statuses: &Statuses) -> Result<(), String> {
    for (group, name) in groups_on(view, id) {
        let placed = view.placed(group);
        let others: Vec<u32> = placed.iter().map(|replica| replica.node.0).filter(|node| *node != id).collect();
        if others.is_empty() {
            return Err(format!("{name} had its only replica on node {id}: what it held is lost with that disk"));
        }
        let follows = |node: &&u32| {
            let replicas = statuses.get(node).map(|status| status.replicas.as_slice()).unwrap_or_default();
            let roles = ["leader", "follower"];
            replicas.iter().any(|replica| replica.group_id == group.0 && roles.contains(&replica.role.as_str()))
        };
        let living = others.iter().filter(follows).count();
        if living * 2 <= placed.len() || leader_of(statuses, group).is_none() {
            return Err(format!(
                "{name} has no majority without node {id}: {living} of its {} replicas serve; start the others first",
                placed.len()
            ));
        }
    }
    Ok(())
}

/// Has the meta group place the node's replicas anew, and answers the cluster as it is then, for the node to keep.
async fn decide(born: &Born, replace: ReplaceNode) -> Result<Birth, Status> {
    let deadline = Instant::now() + Duration::from_millis(DECIDE_MS);
    born.meta.propose(MetaOp::ReplaceNode(replace.clone()), deadline).await.map_err(meta_status)?;
    let view = born.meta.view();
    if view.nodes.get(&replace.node).map(|node| node.incarnation) != Some(replace.incarnation) {
        return Err(Status::unavailable("this node does not hear from the meta group; ask again"));
    }
    let groups = view.broker_groups.values();
    Ok(Birth {
        cluster_id: view.cluster_id.clone(),
        nodes: view.nodes.values().map(|node| node.as_ref().clone()).collect(),
        broker_groups: groups
            .map(|group| BrokerGroupRecord { leader_node: 0, leader_term: 0, ..group.as_ref().clone() })
            .collect(),
    })
}

/// Returns when the cluster knows a later incarnation of this node: its disk counts as lost.
pub(super) async fn outlived(node: &Node, born: &Born) -> String {
    let (id, own) = (node.config.node_id, node.incarnation());
    let (mut changed, mut called) = (born.meta.changed(), born.raft.outlived());
    loop {
        let recorded = born.meta.view().nodes.get(&id).map_or(0, |record| record.incarnation);
        let known = called.borrow_and_update().map_or(recorded, |replica| recorded.max(replica.incarnation));
        if known > own {
            return format!(
                "node {id} was replaced: the cluster knows it as incarnation {known}, and {} holds incarnation {own}; start it with an empty folder",
                node.config.data_dir.display()
            );
        }
        let heard = tokio::select! {
            heard = changed.changed() => heard,
            heard = called.changed() => heard,
        };
        if heard.is_err() {
            return std::future::pending().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use raftmq_model::ids::ReplicaId;
    use raftmq_proto::peer::ReplicaStatus;

    fn view() -> MetaView {
        let id = |node| ReplicaId { node: NodeId(node), incarnation: 1 }.to_u64();
        let group = |group, nodes: &[u32]| {
            let replicas = nodes.iter().copied().map(id).collect();
            Arc::new(BrokerGroupRecord { id: group, name: format!("broker-{group}"), replicas, ..Default::default() })
        };
        let node = |id| Arc::new(NodeRecord { id, incarnation: 1, namesrv: true, ..Default::default() });
        MetaView {
            nodes: (1..=3).map(|id| (id, node(id))).collect(),
            broker_groups: [(1, group(1, &[1, 2, 3])), (2, group(2, &[2]))].into(),
            ..Default::default()
        }
    }

    fn serving(node: u32, leads: bool) -> (u32, StatusReply) {
        let replica = |group_id| ReplicaStatus {
            group_id,
            role: if leads { "leader" } else { "follower" }.into(),
            ready: leads,
            ..Default::default()
        };
        (node, StatusReply { node_id: node, replicas: vec![replica(0), replica(1)], ..Default::default() })
    }

    #[test]
    fn a_disk_is_replaced_only_where_all_its_groups_live_on() {
        let both: Statuses = [serving(1, true), serving(2, false)].into();
        assert_eq!(check_quorums(&view(), 3, &both), Ok(()));
        let one: Statuses = [serving(1, true)].into();
        let error = check_quorums(&view(), 3, &one).expect_err("no majority");
        assert!(error.contains("namesrv has no majority without node 3: 1 of its 3"), "{error}");
        let leaderless: Statuses = [serving(1, false), serving(2, false)].into();
        assert!(check_quorums(&view(), 3, &leaderless).is_err());
        let third: Statuses = [serving(1, true), serving(3, false)].into();
        let error = check_quorums(&view(), 2, &third).expect_err("the only replica");
        assert!(error.contains("broker-2 had its only replica on node 2"), "{error}");
    }
}
