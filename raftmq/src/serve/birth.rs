//! Birth of a cluster: `raftmq cluster init`, once.
//!
//! ```text
//! any node -> the node with the lowest id -> 1. ask all nodes what they are
//!                                            2. Adopt: each writes cluster id and placement, then starts its groups
//!                                            3. Initialize each group on the node that shall lead it first
//!                                            4. the meta group's first command: Birth
//! ```
//! One node coordinates, one birth at a time, so that two operators cannot make two clusters. Each step is idempotent: a
//! birth that was interrupted anywhere is finished by running it again, with the cluster id that a node knows already.

use super::born::own_record;
use super::node::{Node, decode_birth};
use crate::admin_client::connect_one;
use crate::config::Role;
use prost::Message;
use raftmq_model::ids::{NodeId, ReplicaId};
use raftmq_model::meta::{Birth, BrokerGroupRecord, MetaOp, NodeRecord};
use raftmq_proto::admin::ClusterInitRequest;
use raftmq_proto::peer::{AdoptRequest, InitializeRequest, StatusReply};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tonic::{Code, Status};

/// How long a birth may take.
const BIRTH_MS: u64 = 25_000;
/// How long one question to a peer may take.
const STEP_MS: u64 = 2000;
/// How often a peer that starts is asked again.
const POLL_MS: u64 = 20;
/// Replicas of a broker group, where there are enough nodes.
const REPLICA_COUNT: usize = 3;
/// Broker groups that a cluster may be born with.
const BROKER_GROUP_COUNT_MAX: u32 = 64;

type Statuses = BTreeMap<u32, StatusReply>;

/// Makes one cluster of the configured nodes, or finishes what was begun; answers its id. `broker_groups` 0: one, or as
/// many as there are.
pub(super) async fn init(node: &Arc<Node>, broker_groups: u32) -> Result<String, Status> {
    if broker_groups > BROKER_GROUP_COUNT_MAX {
        return Err(Status::invalid_argument(format!(
            "a cluster is born with at most {BROKER_GROUP_COUNT_MAX} broker groups"
        )));
    }
    if let Some(cluster_id) = complete(node, broker_groups)? {
        return Ok(cluster_id);
    }
    let coordinator = node.links.peers().map(|peer| peer.id).min().unwrap_or(node.config.node_id);
    if coordinator != node.config.node_id {
        return pass_on(node, coordinator, broker_groups).await;
    }
    let _one = node.birth.lock().await;
    let deadline = Instant::now() + Duration::from_millis(BIRTH_MS);
    let statuses = ask_all(node).await?;
    let birth = match known_birth(&statuses)? {
        Some(birth) => {
            let birth = check_known(birth, node, broker_groups)?;
            check_no_disk_was_lost(node, &birth, &statuses, deadline).await?;
            birth
        }
        None => new_birth(node, &statuses, broker_groups.max(1))?,
    };
    adopt_all(node, &birth).await?;
    wait_for_replicas(node, &birth, deadline).await?;
    initialize_all(node, &birth, deadline).await?;
    propose_birth(node, &birth, deadline).await?;
    Ok(birth.cluster_id)
}

/// The cluster's id when the birth is complete already.
fn complete(node: &Node, broker_groups: u32) -> Result<Option<String>, Status> {
    let Some(birth) = node.placement() else { return Ok(None) };
    let known = node.born().is_some_and(|born| born.meta.view().cluster_id == birth.cluster_id);
    if !known {
        return Ok(None);
    }
    check_groups(&birth, broker_groups)?;
    Ok(Some(birth.cluster_id.clone()))
}

async fn pass_on(node: &Node, coordinator: u32, broker_groups: u32) -> Result<String, Status> {
    let status = node.links.status(coordinator, Duration::from_millis(STEP_MS)).await;
    let status = status.map_err(|status| silent(coordinator, &status))?;
    let admin = connect_one(&status.admin_address).await;
    let mut admin =
        admin.map_err(|error| Status::unavailable(format!("node {coordinator} does not answer: {error}")))?;
    admin.cluster_init(ClusterInitRequest { broker_groups }).await.map(|reply| reply.into_inner().cluster_id)
}

fn silent(id: u32, status: &Status) -> Status {
    match status.code() {
        Code::FailedPrecondition => Status::failed_precondition(status.message()),
        _ => {
            Status::unavailable(format!("node {id} does not answer; all configured nodes must run for `cluster init`"))
        }
    }
}

/// What all nodes are. Error: one that does not answer, or is not the one that the configuration says.
async fn ask_all(node: &Node) -> Result<Statuses, Status> {
    let mut statuses = Statuses::new();
    for (id, status) in node.links.statuses(Duration::from_millis(STEP_MS)).await {
        let status = status.map_err(|status| silent(id, &status))?;
        let peer = node.links.peers().find(|peer| peer.id == id);
        let roles = (status.namesrv, status.broker);
        let configured = peer.map(|peer| (peer.roles.contains(&Role::Namesrv), peer.roles.contains(&Role::Broker)));
        if Some(roles) != configured {
            return Err(Status::failed_precondition(format!(
                "the configurations of node {} and node {id} differ about the roles of node {id}",
                node.config.node_id
            )));
        }
        statuses.insert(id, status);
    }
    Ok(statuses)
}

/// The birth record that nodes have from a birth that was begun.
fn known_birth(statuses: &Statuses) -> Result<Option<Birth>, Status> {
    let adopted: Vec<(&u32, &StatusReply)> =
        statuses.iter().filter(|(_, status)| !status.cluster_id.is_empty()).collect();
    let clusters: BTreeSet<&str> = adopted.iter().map(|(_, status)| status.cluster_id.as_str()).collect();
    if clusters.len() > 1 {
        let said = adopted.iter().map(|(id, status)| format!("node {id} to cluster {}", status.cluster_id));
        return Err(Status::failed_precondition(format!(
            "the nodes belong to different clusters: {}",
            said.collect::<Vec<_>>().join(", ")
        )));
    }
    match adopted.first() {
        Some((_, status)) => decode_birth(&status.birth).map(Some).map_err(Status::internal),
        None => Ok(None),
    }
}

fn check_known(birth: Birth, node: &Node, broker_groups: u32) -> Result<Birth, Status> {
    let recorded: BTreeSet<u32> = birth.nodes.iter().map(|node| node.id).collect();
    let configured: BTreeSet<u32> = node.links.peers().map(|peer| peer.id).collect();
    if recorded != configured {
        return Err(Status::failed_precondition(format!(
            "cluster {} has the nodes {recorded:?}, the configuration has {configured:?}",
            birth.cluster_id
        )));
    }
    check_groups(&birth, broker_groups)?;
    Ok(birth)
}

fn check_groups(birth: &Birth, broker_groups: u32) -> Result<(), Status> {
    let has = birth.broker_groups.len();
    match broker_groups {
        0 => Ok(()),
        wanted if wanted as usize == has => Ok(()),
        wanted => Err(Status::failed_precondition(format!(
            "cluster {} exists already, with {has} broker groups and not {wanted}",
            birth.cluster_id
        ))),
    }
}

/// A birth that was interrupted may be finished; an empty disk in a cluster that has lived is a lost one, and the node must
/// not vote as its former self (law 9). Groups are initialized only when all nodes were adopted, so a replica with a
/// history tells the two apart.
async fn check_no_disk_was_lost(
    node: &Node,
    birth: &Birth,
    statuses: &Statuses,
    deadline: Instant,
) -> Result<(), Status> {
    let Some((empty, _)) = statuses.iter().find(|(_, status)| status.cluster_id.is_empty()) else { return Ok(()) };
    for record in birth.nodes.iter().filter(|record| statuses.get(&record.id).is_some_and(|s| !s.cluster_id.is_empty()))
    {
        let status = wait_for_replicas_of(node, birth, record, deadline).await?;
        if status.replicas.iter().any(|replica| replica.term > 0 || replica.last_index > 0) {
            return Err(Status::failed_precondition(format!(
                "the disk of node {empty} is empty, but cluster {} has lived with it: `raftmq replica replace {empty}` makes it a member again",
                birth.cluster_id
            )));
        }
    }
    Ok(())
}

fn new_birth(node: &Node, statuses: &Statuses, broker_groups: u32) -> Result<Birth, Status> {
    let nodes: Vec<NodeRecord> = statuses.iter().map(|(id, status)| node_record(*id, status)).collect();
    assert!(nodes.contains(&own_record(node)), "a node says the same about itself on both ways");
    let brokers: Vec<ReplicaId> = nodes
        .iter()
        .filter(|node| node.broker)
        .map(|node| ReplicaId { node: NodeId(node.id), incarnation: node.incarnation })
        .collect();
    if brokers.is_empty() {
        return Err(Status::failed_precondition("no node has the role \"broker\""));
    }
    let cluster_id = uuid::Uuid::new_v4().simple().to_string();
    Ok(Birth { cluster_id, nodes, broker_groups: place(&brokers, broker_groups) })
}

fn node_record(id: u32, status: &StatusReply) -> NodeRecord {
    NodeRecord {
        id,
        incarnation: status.incarnation,
        namesrv: status.namesrv,
        broker: status.broker,
        client_address: status.client_address.clone(),
        peer_address: status.peer_address.clone(),
        admin_address: status.admin_address.clone(),
        alive: true,
    }
}

/// Spreads broker groups over the broker nodes in turn. A group's first replica leads it first.
fn place(brokers: &[ReplicaId], broker_groups: u32) -> Vec<BrokerGroupRecord> {
    // Two voters are worse than one: both must live.
    let voters = if brokers.len() >= REPLICA_COUNT { REPLICA_COUNT } else { 1 };
    (0..broker_groups as usize)
        .map(|group| BrokerGroupRecord {
            id: group as u32 + 1,
            name: format!("broker-{}", group + 1),
            replicas: (0..voters).map(|replica| brokers[(group + replica) % brokers.len()].to_u64()).collect(),
            leader_node: 0,
            leader_term: 0,
        })
        .collect()
}

async fn adopt_all(node: &Node, birth: &Birth) -> Result<(), Status> {
    for record in &birth.nodes {
        adopt(node, birth, record.id).await?;
    }
    Ok(())
}

/// Tells one node that it is part of the cluster.
pub(super) async fn adopt(node: &Node, birth: &Birth, id: u32) -> Result<(), Status> {
    let body = AdoptRequest { cluster_id: birth.cluster_id.clone(), birth: birth.encode_to_vec().into() };
    let request = node.links.request(id, body, Duration::from_millis(STEP_MS));
    node.links.client(id)?.adopt(request).await.map(|_| ())
}

/// Which groups have a replica on a node.
fn groups_of(birth: &Birth, node: &NodeRecord) -> BTreeSet<u32> {
    let here = |replicas: &[u64]| replicas.iter().any(|id| ReplicaId::from_u64(*id).node.0 == node.id);
    let brokers = birth.broker_groups.iter().filter(|group| here(&group.replicas)).map(|group| group.id);
    brokers.chain(node.namesrv.then_some(0)).collect()
}

/// Waits until each node runs the replicas that the record places there.
async fn wait_for_replicas(node: &Node, birth: &Birth, deadline: Instant) -> Result<(), Status> {
    for record in &birth.nodes {
        wait_for_replicas_of(node, birth, record, deadline).await?;
    }
    Ok(())
}

async fn wait_for_replicas_of(
    node: &Node,
    birth: &Birth,
    record: &NodeRecord,
    deadline: Instant,
) -> Result<StatusReply, Status> {
    let wanted = groups_of(birth, record);
    loop {
        if let Ok(status) = node.links.status(record.id, Duration::from_millis(STEP_MS)).await {
            let running: BTreeSet<u32> = status.replicas.iter().map(|replica| replica.group_id).collect();
            if running == wanted {
                return Ok(status);
            }
        }
        if Instant::now() >= deadline {
            return Err(Status::deadline_exceeded(format!("node {} does not start its groups", record.id)));
        }
        tokio::time::sleep(Duration::from_millis(POLL_MS)).await;
    }
}

/// Writes each group's first membership, on the node that shall lead it first.
async fn initialize_all(node: &Node, birth: &Birth, deadline: Instant) -> Result<(), Status> {
    let meta = birth.nodes.iter().find(|record| record.namesrv).map(|record| (0, record.id));
    let first = |group: &BrokerGroupRecord| Some((group.id, ReplicaId::from_u64(*group.replicas.first()?).node.0));
    for (group_id, leader) in meta.into_iter().chain(birth.broker_groups.iter().filter_map(first)) {
        let timeout = deadline.saturating_duration_since(Instant::now());
        let request = node.links.request(leader, InitializeRequest { group_id }, timeout);
        node.links.client(leader)?.initialize(request).await?;
    }
    Ok(())
}

async fn propose_birth(node: &Node, birth: &Birth, deadline: Instant) -> Result<(), Status> {
    let mut adopted = node.adopted();
    // This node was adopted like the others, by a call of the peer service.
    let _ = adopted.wait_for(Option::is_some).await;
    let born = node.born().ok_or_else(|| Status::unavailable("the node is starting"))?;
    born.meta.propose(MetaOp::Birth(birth.clone()), deadline).await.map_err(super::admin::meta_status)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn brokers(count: u32) -> Vec<ReplicaId> {
        (1..=count).map(|node| ReplicaId { node: NodeId(node), incarnation: 1 }).collect()
    }

    fn nodes(record: &BrokerGroupRecord) -> Vec<u32> {
        record.replicas.iter().map(|id| ReplicaId::from_u64(*id).node.0).collect()
    }

    #[test]
    fn one_group_is_on_the_first_three_nodes() {
        let groups = place(&brokers(5), 1);
        assert_eq!((groups.len(), nodes(&groups[0])), (1, vec![1, 2, 3]));
        assert_eq!(groups[0].name, "broker-1");
    }

    #[test]
    fn several_groups_take_turns() {
        let groups = place(&brokers(3), 4);
        let placed: Vec<Vec<u32>> = groups.iter().map(nodes).collect();
        assert_eq!(placed, [vec![1, 2, 3], vec![2, 3, 1], vec![3, 1, 2], vec![1, 2, 3]]);
    }

    #[test]
    fn fewer_than_three_nodes_hold_one_replica_of_each_group() {
        assert_eq!(place(&brokers(2), 2).iter().map(nodes).collect::<Vec<_>>(), [vec![1], vec![2]]);
        assert_eq!(place(&brokers(1), 1).iter().map(nodes).collect::<Vec<_>>(), [vec![1]]);
    }

    #[test]
    fn nodes_of_different_clusters_do_not_become_one() {
        let status = |cluster_id: &str| StatusReply { cluster_id: cluster_id.into(), ..Default::default() };
        let statuses = [(1, status("a")), (2, status("b")), (3, status(""))].into();
        let error = known_birth(&statuses).expect_err("refused");
        assert!(error.message().contains("node 1 to cluster a, node 2 to cluster b"), "{error}");
    }

    #[test]
    fn an_interrupted_birth_is_continued_with_its_record() {
        let birth = Birth { cluster_id: "a".into(), ..Birth::default() };
        let adopted = StatusReply { cluster_id: "a".into(), birth: birth.encode_to_vec().into(), ..Default::default() };
        let statuses = [(1, StatusReply::default()), (2, adopted)].into();
        assert_eq!(known_birth(&statuses).expect("agree"), Some(birth));
    }
}
