//! Everything that runs on a node that belongs to a cluster.

use super::clock::SystemClock;
use super::node::{Node, address};
use super::peer_service::{self, voters};
use super::stamps;
use crate::config::Role;
use crate::exit::Failure;
use raftmq_broker::edge::{Edge, EdgeOptions};
use raftmq_broker::meta_client::{MetaClient, MetaClientOptions};
use raftmq_broker::options::BrokerLimits;
use raftmq_broker::{Broker, BrokerOptions};
use raftmq_model::clock::Clock;
use raftmq_model::ids::{GroupId, NodeId};
use raftmq_model::machine::Limits;
use raftmq_model::meta::{Birth, BrokerGroupRecord, MetaOp, NodeRecord};
use raftmq_namesrv::{Namesrv, NamesrvOptions};
use raftmq_raft::{Group, PeerAddresses, PeerPort, RaftNode, RaftNodeOptions, StampOptions, StartError};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long one attempt to tell the meta group this node's addresses may take.
const PUT_NODE_MS: u64 = 5000;

/// What runs.
pub(crate) struct Born {
    pub(super) raft: Arc<RaftNode>,
    pub(super) meta: Arc<MetaClient>,
    pub(super) broker: Arc<Broker>,
    pub(super) edge: Arc<Edge>,
    namesrv: Option<Arc<Namesrv>>,
}

impl Born {
    /// The groups that have a replica here, ascending by id.
    pub(super) fn groups(&self) -> Vec<(GroupId, Group)> {
        let meta = self.namesrv.iter().map(|namesrv| (GroupId::META, namesrv.group().clone()));
        let mut groups: Vec<_> = meta.chain(self.broker.groups()).collect();
        groups.sort_by_key(|(id, _)| *id);
        groups
    }

    /// Stops all groups, without a hand-over. Nothing is acknowledged from here on.
    pub(super) async fn close(&self) {
        self.broker.shutdown().await;
        self.raft.shutdown().await;
    }

    /// One of them.
    pub(super) fn group(&self, id: GroupId) -> Option<Group> {
        self.groups().into_iter().find(|(candidate, _)| *candidate == id).map(|(_, group)| group)
    }
}

/// Starts the Raft groups of this node, its meta client and its broker, then the peer port: before that, only stamps are
/// answered there.
pub(super) async fn start(node: Arc<Node>, peer_listener: TcpListener) -> Result<Arc<Born>, Failure> {
    let birth = node.placement().ok_or_else(|| Failure::failed("the node does not belong to a cluster"))?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let raft = Arc::new(start_raft(&node, &birth, Arc::clone(&clock))?);
    let port = raft.listen(peer_listener).await.map_err(|error| Failure::usage(format!("peer_listen: {error}")))?;
    raft.check_stamps().await.map_err(|error| stamps::failure(node.id(), &error))?;
    let namesrv = match node.config.has_role(Role::Namesrv) {
        true => Some(open_namesrv(&node, &raft, Arc::clone(&clock)).await?),
        false => None,
    };
    let namesrvs = birth.nodes.iter().filter(|record| record.namesrv).map(|record| NodeId(record.id)).collect();
    let meta = MetaClient::start(MetaClientOptions {
        own_service: namesrv.as_ref().map(|namesrv| namesrv.local()),
        ..MetaClientOptions::new(node.id(), namesrvs, Arc::clone(&raft))
    });
    let broker = Broker::start(broker_options(&node, &birth, &raft, &meta, Arc::clone(&clock)))
        .await
        .map_err(|error| Failure::fatal(error.to_string()))?;
    for record in birth.broker_groups.iter().filter(|record| hosts(&node, &birth, record)) {
        broker.host_group(record.clone()).await.map_err(|error| Failure::fatal(error.to_string()))?;
    }
    if let Some(namesrv) = &namesrv {
        broker.hand_over_when_full(namesrv.group().clone());
    }
    let edge = Edge::new(broker.router().clone(), Arc::clone(&meta), clock, edge_options(&node));
    let born = Arc::new(Born { raft, meta, broker, edge, namesrv });
    node.set_born(Arc::clone(&born));
    open_port(&node, &born, port);
    tokio::spawn(tell_addresses(Arc::clone(&node), Arc::clone(&born)));
    Ok(born)
}

fn start_raft(node: &Node, birth: &Birth, clock: Arc<dyn Clock>) -> Result<RaftNode, Failure> {
    let peers = node.links.peers().map(|peer| (NodeId(peer.id), peer.peer.clone())).collect();
    let (peers, limits) = (PeerAddresses::new(peers), &node.config.limits);
    let options = RaftNodeOptions {
        scrub_bytes_per_second_max: limits.scrub_bytes_per_second_max,
        scrub_interval_ms: limits.scrub_interval_ms,
        stamps: Some(StampOptions {
            io: Arc::clone(&node.io),
            dir: node.config.data_dir.clone(),
            interval_ms: limits.stamp_ms,
        }),
        ..RaftNodeOptions::new(node.id(), node.incarnation(), birth.cluster_id.clone(), clock, peers)
    };
    RaftNode::start(options).map_err(|error| match error {
        StartError::Stamps(error) => stamps::failure(node.id(), &error),
        StartError::Threads(error) => Failure::failed(format!("the Raft runtime cannot start: {error}")),
    })
}

async fn open_namesrv(node: &Node, raft: &Arc<RaftNode>, clock: Arc<dyn Clock>) -> Result<Arc<Namesrv>, Failure> {
    let dir = node.config.data_dir.join("meta");
    let options = NamesrvOptions {
        io: Arc::clone(&node.io),
        durability: node.config.durability.into(),
        ..NamesrvOptions::new(node.id(), Arc::clone(raft), dir, clock)
    };
    let state_dir = options.dir.join("state");
    let state = node.states.open(&state_dir).map_err(|error| {
        Failure::fatal(format!("the state of the meta group in {} cannot be opened: {error}", state_dir.display()))
    })?;
    let opened = Namesrv::open_with(options, Arc::new(state)).await;
    opened.map(Arc::new).map_err(|error| Failure::fatal(error.to_string()))
}

fn broker_options(
    node: &Node,
    birth: &Birth,
    raft: &Arc<RaftNode>,
    meta: &Arc<MetaClient>,
    clock: Arc<dyn Clock>,
) -> BrokerOptions {
    let config = &node.config;
    BrokerOptions {
        node: node.id(),
        incarnation: node.incarnation(),
        cluster_id: birth.cluster_id.clone(),
        data_dir: config.data_dir.clone(),
        raft: Arc::clone(raft),
        meta: Arc::clone(meta),
        clock,
        io: Arc::clone(&node.io),
        open_state: node.states.opener(),
        segment_bytes_max: config.segment_bytes_max,
        retention_ms: config.retention_ms,
        retention_bytes_max: config.retention_bytes_max,
        purge_when_disk_short: config.purge_when_disk_short,
        key_index: config.key_index,
        durability: config.durability.into(),
        auto_create_topics: config.auto_create_topics,
        auto_create_consumer_groups: config.auto_create_consumer_groups,
        topic_queue_count: config.topic_queue_count,
        store_host: store_host(&config.advertised_client_address, &config.client_listen),
        rules: Limits::default(),
        limits: BrokerLimits {
            disk_reserve_bytes: config.limits.disk_reserve_bytes,
            disk_used_percent_max: config.limits.disk_used_percent_max,
            disk_check_ms: config.limits.disk_check_ms,
            retention_check_ms: config.limits.retention_check_ms,
            scrub_bytes_per_second_max: config.limits.scrub_bytes_per_second_max,
            scrub_interval_ms: config.limits.scrub_interval_ms,
            ..BrokerLimits::default()
        },
    }
}

fn edge_options(node: &Node) -> EdgeOptions {
    let config = &node.config;
    let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    EdgeOptions {
        auto_create_topics: config.auto_create_topics,
        auto_create_consumer_groups: config.auto_create_consumer_groups,
        topic_queue_count: config.topic_queue_count,
        request_bytes_max: bytes(config.limits.client_request_bytes_max),
        in_flight_bytes_max: bytes(config.limits.client_in_flight_bytes_max),
        ..EdgeOptions::new(node.id(), store_host(&config.advertised_client_address, &config.client_listen))
    }
}

/// The address in records. An advertised name is left to clients to resolve; records then show the listen address.
fn store_host(advertised: &str, listen: &str) -> SocketAddr {
    advertised.parse().unwrap_or_else(|_| address(listen))
}

fn hosts(node: &Node, birth: &Birth, record: &BrokerGroupRecord) -> bool {
    voters(birth, GroupId(record.id)).iter().any(|replica| replica.node == node.id())
}

fn open_port(node: &Arc<Node>, born: &Born, port: PeerPort) {
    let mut routes = tonic::service::Routes::builder();
    routes.add_service(peer_service::server(Arc::clone(node)));
    routes.add_service(born.broker.forward_service());
    if let Some(namesrv) = &born.namesrv {
        routes.add_service(namesrv.service());
    }
    port.open(routes.routes());
    tracing::info!(address = node.config.peer_listen, "peer port open");
}

/// What this node is, for the meta group.
pub(super) fn own_record(node: &Node) -> NodeRecord {
    NodeRecord {
        id: node.config.node_id,
        incarnation: node.incarnation(),
        namesrv: node.config.has_role(Role::Namesrv),
        broker: node.config.has_role(Role::Broker),
        client_address: node.config.advertised_client_address.clone(),
        peer_address: node.config.own().map(|own| own.peer.clone()).unwrap_or_default(),
        admin_address: node.config.reachable_admin_address(),
        alive: true,
    }
}

/// Once the cluster is known: has the meta group take this node's addresses when they changed since it last ran.
async fn tell_addresses(node: Arc<Node>, born: Arc<Born>) {
    let own = own_record(&node);
    let mut changed = born.meta.changed();
    loop {
        if let Some(known) = born.meta.view().nodes.get(&own.id) {
            let same = NodeRecord { alive: true, ..known.as_ref().clone() } == own;
            if same {
                return;
            }
            let deadline = Instant::now() + Duration::from_millis(PUT_NODE_MS);
            match born.meta.propose(MetaOp::PutNode(own.clone()), deadline).await {
                Ok(_) => return,
                Err(error) => tracing::warn!("the meta group did not take this node's addresses: {error}"),
            }
        }
        if changed.changed().await.is_err() {
            return;
        }
    }
}
