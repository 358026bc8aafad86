//! What `QueryRoute` and `QueryAssignment` share: the lanes of the caller's SDK over the nodes of the cluster.

use crate::clients::Sdk;
use crate::edge::EdgeOptions;
use crate::route_lanes::{Lane, LaneNode, lanes};
use crate::status::Refusal;
use raftmq_model::config::TopicConfig;
use raftmq_model::ids::ReplicaId;
use raftmq_model::meta::MetaView;
use raftmq_proto::v2::{Broker, Code, MessageQueue, MessageType, Permission, Resource};
use std::collections::BTreeSet;

/// The lanes for a client of `sdk`: over the nodes that host the topic first, since a call is cheapest there.
///
/// # Errors
///
/// This node knows no node's address yet.
pub(super) fn lanes_for(
    view: &MetaView,
    options: &EdgeOptions,
    topic: &TopicConfig,
    sdk: Sdk,
) -> Result<Vec<Lane>, Refusal> {
    let hosting: BTreeSet<u32> = topic
        .queue_groups
        .iter()
        .filter_map(|group| view.broker_groups.get(group))
        .flat_map(|group| group.replicas.iter().map(|replica| ReplicaId::from_u64(*replica).node.0))
        .collect();
    let mut nodes: Vec<LaneNode> = view
        .nodes
        .values()
        .filter(|node| node.broker && !node.client_address.is_empty())
        .map(|node| LaneNode {
            id: node.id,
            address: node.client_address.clone(),
            alive: node.alive || node.id == options.node.0,
        })
        .collect();
    nodes.sort_by_key(|node| (!hosting.contains(&node.id), node.id));
    let lanes = lanes(sdk, &nodes);
    if lanes.is_empty() {
        return Err(Refusal::new(Code::HaNotAvailable, "No node with a client address is known yet; try again."));
    }
    Ok(lanes)
}

/// A lane's queue with this id, as clients see it.
pub(super) fn queue_of(lane: Lane, id: i32, resource: &Resource, topic: &TopicConfig) -> MessageQueue {
    let permission = match (topic.readable(), topic.writable()) {
        (true, true) => Permission::ReadWrite,
        (true, false) => Permission::Read,
        (false, true) => Permission::Write,
        (false, false) => Permission::None,
    };
    MessageQueue {
        topic: Some(resource.clone()),
        id,
        permission: permission as i32,
        broker: Some(Broker { name: lane.name, id: 0, endpoints: Some(lane.endpoints) }),
        accept_message_types: vec![message_type(topic) as i32],
    }
}

fn message_type(topic: &TopicConfig) -> MessageType {
    MessageType::try_from(topic.topic_type).unwrap_or(MessageType::Unspecified)
}
