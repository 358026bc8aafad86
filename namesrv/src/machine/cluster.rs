//! Birth, nodes, and who leads the broker groups.

use super::MetaState;
use super::limits::{BROKER_GROUP_COUNT_MAX, LABEL_BYTES_MAX, NODE_COUNT_MAX};
use super::plan::{Plan, Rejection, ensure};
use raftmq_model::ids::{NodeId, ReplicaId};
use raftmq_model::meta::{Birth, BrokerGroupRecord, MetaRecord, NodeRecord, ReplaceNode, ReportLeader, SetAlive};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Sizes that a group of voters may have.
const VOTER_COUNTS: [usize; 3] = [1, 3, 5];

impl MetaState {
    pub(super) fn plan_birth(&self, birth: &Birth) -> Result<Plan, Rejection> {
        if !self.cluster_id.is_empty() {
            ensure(self.cluster_id == birth.cluster_id, || {
                format!("the cluster exists already, under the id {}", self.cluster_id)
            })?;
            // The same birth again, after an answer that got lost.
            return Ok(Plan::done(Vec::new()));
        }
        check_label("the cluster id", &birth.cluster_id)?;
        let nodes = check_nodes(&birth.nodes)?;
        check_broker_groups(&birth.broker_groups, &nodes)?;
        let nodes = birth.nodes.iter().map(|node| MetaRecord::Node(NodeRecord { alive: true, ..node.clone() }));
        let groups = birth.broker_groups.iter().map(|group| {
            // Nobody leads yet, whatever the caller wrote.
            MetaRecord::BrokerGroup(BrokerGroupRecord { leader_node: 0, leader_term: 0, ..group.clone() })
        });
        let plan = Plan::done(nodes.chain(groups).collect());
        Ok(Plan { birth_of: Some(birth.cluster_id.clone()), ..plan })
    }

    /// A new node counts as alive; a known one keeps what was last decided about it.
    pub(super) fn plan_put_node(&self, node: &NodeRecord) -> Result<Plan, Rejection> {
        check_node(node)?;
        let known = self.nodes.get(&node.id);
        match known {
            Some(known) => ensure(node.incarnation == known.incarnation, || {
                let (id, known, given) = (node.id, known.incarnation, node.incarnation);
                match given < known {
                    true => {
                        format!("node {id} is known as incarnation {known}: an earlier one ({given}) never comes back")
                    }
                    false => format!(
                        "node {id} is known as incarnation {known}: it is not replaced by one that says {given}"
                    ),
                }
            })?,
            None => {
                ensure(self.nodes.len() < NODE_COUNT_MAX, || format!("a cluster has at most {NODE_COUNT_MAX} nodes"))?
            }
        }
        let record = NodeRecord { alive: known.is_none_or(|known| known.alive), ..node.clone() };
        if known.is_some_and(|known| **known == record) {
            return Ok(Plan::done(Vec::new()));
        }
        Ok(Plan::done(vec![MetaRecord::Node(record)]))
    }

    /// All replicas of the node are placed anew in one step. One that is placed already is not placed again.
    pub(super) fn plan_replace_node(&self, replace: &ReplaceNode) -> Result<Plan, Rejection> {
        let ReplaceNode { node: id, incarnation } = *replace;
        let Some(node) = self.nodes.get(&id) else {
            return Err(Rejection::NotFound(format!("there is no node {id}")));
        };
        ensure(incarnation >= node.incarnation, || {
            format!(
                "node {id} is known as incarnation {}: an earlier one ({incarnation}) never comes back",
                node.incarnation
            )
        })?;
        if incarnation == node.incarnation {
            return Ok(Plan::done(Vec::new()));
        }
        let next = ReplicaId { node: NodeId(id), incarnation }.to_u64();
        let here = |replica: u64| ReplicaId::from_u64(replica).node.0 == id;
        let groups = self.broker_groups.values().filter(|group| group.replicas.iter().copied().any(here));
        let groups = groups.map(|group| {
            let replicas = group.replicas.iter().map(|replica| if here(*replica) { next } else { *replica }).collect();
            MetaRecord::BrokerGroup(BrokerGroupRecord { replicas, ..group.as_ref().clone() })
        });
        let node = MetaRecord::Node(NodeRecord { incarnation, ..node.as_ref().clone() });
        Ok(Plan::done(std::iter::once(node).chain(groups).collect()))
    }

    pub(super) fn plan_set_alive(&self, set: &SetAlive) -> Result<Plan, Rejection> {
        let Some(node) = self.nodes.get(&set.node) else {
            return Err(Rejection::NotFound(format!("there is no node {}", set.node)));
        };
        if node.alive == set.alive {
            return Ok(Plan::done(Vec::new()));
        }
        Ok(Plan::done(vec![MetaRecord::Node(NodeRecord { alive: set.alive, ..node.as_ref().clone() })]))
    }

    /// Fenced by term (law 7): a lower term never overwrites, and a term has one leader.
    pub(super) fn plan_report_leader(&self, report: &ReportLeader) -> Result<Plan, Rejection> {
        let ReportLeader { group: id, term, node } = *report;
        let Some(group) = self.broker_groups.get(&id) else {
            return Err(Rejection::NotFound(format!("there is no broker group {id}")));
        };
        ensure(term > 0, || "a leader's term counts from 1".to_owned())?;
        ensure(group.replicas.iter().any(|replica| ReplicaId::from_u64(*replica).node.0 == node), || {
            format!("node {node} has no replica of broker group {id}")
        })?;
        ensure(term >= group.leader_term, || {
            format!("broker group {id} has had a leader in term {}, after term {term}", group.leader_term)
        })?;
        if term == group.leader_term {
            ensure(node == group.leader_node, || {
                format!("broker group {id} is led by node {} in term {term}, not by node {node}", group.leader_node)
            })?;
            return Ok(Plan::done(Vec::new()));
        }
        let record = BrokerGroupRecord { leader_node: node, leader_term: term, ..group.as_ref().clone() };
        Ok(Plan::done(vec![MetaRecord::BrokerGroup(record)]))
    }

    /// Ids of all broker groups, ascending.
    pub(super) fn broker_group_ids(&self) -> Vec<u32> {
        self.broker_groups.keys().copied().collect()
    }

    /// The node's record.
    #[must_use]
    pub fn node(&self, id: u32) -> Option<&Arc<NodeRecord>> {
        self.nodes.get(&id)
    }

    /// The broker group's record.
    #[must_use]
    pub fn broker_group(&self, id: u32) -> Option<&Arc<BrokerGroupRecord>> {
        self.broker_groups.get(&id)
    }
}

fn check_label(what: &str, label: &str) -> Result<(), Rejection> {
    ensure(!label.is_empty(), || format!("{what} is empty"))?;
    ensure(label.len() <= LABEL_BYTES_MAX, || format!("{what} is longer than {LABEL_BYTES_MAX} bytes"))?;
    ensure(!label.chars().any(|c| c.is_control() || c.is_whitespace()), || {
        format!("{what} has a blank or a control character")
    })
}

fn check_node(node: &NodeRecord) -> Result<(), Rejection> {
    let id = node.id;
    ensure(id > 0, || "node ids count from 1".to_owned())?;
    ensure(node.incarnation > 0, || format!("the incarnation of node {id} counts from 1"))?;
    ensure(node.namesrv || node.broker, || format!("node {id} has no role"))?;
    check_label(&format!("the peer address of node {id}"), &node.peer_address)?;
    if node.broker {
        check_label(&format!("the client address of node {id}"), &node.client_address)?;
    }
    ensure(node.client_address.len() <= LABEL_BYTES_MAX && node.admin_address.len() <= LABEL_BYTES_MAX, || {
        format!("an address of node {id} is longer than {LABEL_BYTES_MAX} bytes")
    })
}

fn check_nodes(nodes: &[NodeRecord]) -> Result<BTreeMap<u32, &NodeRecord>, Rejection> {
    ensure(nodes.len() <= NODE_COUNT_MAX, || format!("a cluster has at most {NODE_COUNT_MAX} nodes"))?;
    ensure(nodes.iter().any(|node| node.namesrv), || "a cluster needs a node with the namesrv role".to_owned())?;
    let mut by_id = BTreeMap::new();
    for node in nodes {
        check_node(node)?;
        ensure(by_id.insert(node.id, node).is_none(), || format!("node {} is named twice", node.id))?;
    }
    Ok(by_id)
}

fn check_broker_groups(groups: &[BrokerGroupRecord], nodes: &BTreeMap<u32, &NodeRecord>) -> Result<(), Rejection> {
    ensure(groups.len() <= BROKER_GROUP_COUNT_MAX, || {
        format!("a cluster has at most {BROKER_GROUP_COUNT_MAX} broker groups")
    })?;
    let (mut ids, mut names) = (BTreeSet::new(), BTreeSet::new());
    for group in groups {
        ensure(group.id > 0, || "broker group ids count from 1".to_owned())?;
        check_label(&format!("the name of broker group {}", group.id), &group.name)?;
        ensure(ids.insert(group.id), || format!("broker group {} is named twice", group.id))?;
        ensure(names.insert(&group.name), || format!("two broker groups are called {}", group.name))?;
        check_replicas(group, nodes)?;
    }
    Ok(())
}

fn check_replicas(group: &BrokerGroupRecord, nodes: &BTreeMap<u32, &NodeRecord>) -> Result<(), Rejection> {
    ensure(VOTER_COUNTS.contains(&group.replicas.len()), || {
        format!("broker group {} has {} replicas: 1, 3 or 5 are possible", group.id, group.replicas.len())
    })?;
    let mut hosts = BTreeSet::new();
    for replica in group.replicas.iter().map(|replica| ReplicaId::from_u64(*replica)) {
        let node = nodes.get(&replica.node.0);
        ensure(node.is_some_and(|node| node.broker && node.incarnation == replica.incarnation), || {
            format!("replica {replica} of broker group {} is not on a broker node of this birth", group.id)
        })?;
        ensure(hosts.insert(replica.node), || {
            format!("broker group {} has two replicas on node {}", group.id, replica.node)
        })?;
    }
    Ok(())
}
