//! What a node is from its start on, born or not.

use super::born::Born;
use super::peer_links::PeerLinks;
use super::placement;
use super::states::States;
use crate::client_port::{ClientPort, ClientPortLimits, tls};
use crate::config::{NodeConfig, Role};
use crate::exit::Failure;
use openssl::ssl::SslAcceptor;
use parking_lot::Mutex;
use prost::Message;
use raftmq_model::ids::NodeId;
use raftmq_model::meta::Birth;
use raftmq_store::{DataDir, Io, RealIo};
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use tokio::sync::{Mutex as AsyncMutex, watch};

/// The life of a node on a disk that it has not been on before. One that replaces a lost disk is told its life when it is
/// adopted, so an empty disk never stands in for a lost one: see `birth` and `replace`.
const FIRST_INCARNATION: u32 = 1;

/// A node. Shared by its services.
pub(crate) struct Node {
    pub(super) config: NodeConfig,
    pub(super) io: Arc<dyn Io>,
    pub(super) links: PeerLinks,
    /// State stores of the groups.
    pub(super) states: States,
    /// One birth at a time.
    pub(super) birth: AsyncMutex<()>,
    /// Locked while the process lives.
    data_dir: Mutex<DataDir>,
    placement: watch::Sender<Option<Arc<Birth>>>,
    born: OnceLock<Arc<Born>>,
}

/// Why a node does not become part of a cluster.
#[derive(Debug, thiserror::Error)]
pub(super) enum AdoptError {
    /// It is part of another one.
    #[error("node {node} belongs to cluster {ours} and cannot join cluster {theirs}")]
    OtherCluster {
        /// This node.
        node: u32,
        /// Its cluster.
        ours: String,
        /// The other one.
        theirs: String,
    },
    /// The record says something else than this node.
    #[error("{0}")]
    Mismatch(String),
    /// The folder cannot be written.
    #[error("node {node} cannot write its folder: {source}")]
    Write {
        /// This node.
        node: u32,
        /// What the system says.
        source: std::io::Error,
    },
}

impl Node {
    /// Opens and locks the node's folder.
    pub(super) fn open(config: NodeConfig) -> Result<Node, Failure> {
        let io: Arc<dyn Io> = Arc::new(RealIo);
        let data_dir = DataDir::open(Arc::clone(&io), &config.data_dir, NodeId(config.node_id), FIRST_INCARNATION)
            .map_err(|error| Failure::usage(format!("data_dir: {error}")))?;
        let identity = data_dir.identity();
        let placement = match &identity.cluster_id {
            None => None,
            Some(cluster_id) => Some(Arc::new(read_placement(io.as_ref(), &config, cluster_id)?)),
        };
        let links = PeerLinks::new(&config);
        Ok(Node {
            config,
            io,
            links,
            states: States::new(),
            birth: AsyncMutex::new(()),
            data_dir: Mutex::new(data_dir),
            placement: watch::Sender::new(placement),
            born: OnceLock::new(),
        })
    }

    /// This node's id.
    pub(super) fn id(&self) -> NodeId {
        NodeId(self.config.node_id)
    }

    /// Which life of the node this is; open until it is adopted.
    pub(super) fn incarnation(&self) -> u32 {
        self.data_dir.lock().identity().incarnation
    }

    /// The birth record of the cluster that this node belongs to.
    pub(super) fn placement(&self) -> Option<Arc<Birth>> {
        self.placement.borrow().clone()
    }

    /// Tells when the node belongs to a cluster.
    pub(super) fn adopted(&self) -> watch::Receiver<Option<Arc<Birth>>> {
        self.placement.subscribe()
    }

    /// What runs since the birth; `None` while the node waits for it or starts.
    pub(super) fn born(&self) -> Option<Arc<Born>> {
        self.born.get().cloned()
    }

    /// Enters what runs. Only once.
    pub(super) fn set_born(&self, born: Arc<Born>) {
        assert!(self.born.set(born).is_ok(), "a node is born once");
    }

    /// Makes this node part of a cluster, durably. Idempotent for the same cluster.
    pub(super) fn adopt(&self, cluster_id: &str, birth: Birth) -> Result<(), AdoptError> {
        let node = self.config.node_id;
        let data_dir = self.data_dir.lock();
        let identity = data_dir.identity();
        if let Some(ours) = identity.cluster_id.as_ref().filter(|ours| *ours != cluster_id) {
            return Err(AdoptError::OtherCluster { node, ours: ours.clone(), theirs: cluster_id.to_owned() });
        }
        let incarnation = self.check_birth(cluster_id, &birth).map_err(AdoptError::Mismatch)?;
        if identity.cluster_id.is_some() {
            let was = identity.incarnation;
            // `cluster init` again, with the record of the birth, which is older than a replaced disk.
            return match incarnation <= was {
                true => Ok(()),
                false => Err(AdoptError::Mismatch(format!("node {node} is incarnation {was} and stays that"))),
            };
        }
        placement::write(self.io.as_ref(), &self.config.data_dir, &birth)
            .map_err(|source| AdoptError::Write { node, source })?;
        data_dir
            .adopt(cluster_id, incarnation)
            .map_err(|error| AdoptError::Write { node, source: std::io::Error::other(error) })?;
        tracing::info!(cluster_id, incarnation, "the node is part of a cluster");
        self.placement.send_replace(Some(Arc::new(birth)));
        Ok(())
    }

    /// The incarnation that the record knows this node by.
    fn check_birth(&self, cluster_id: &str, birth: &Birth) -> Result<u32, String> {
        let id = self.config.node_id;
        if cluster_id.is_empty() || birth.cluster_id != cluster_id {
            return Err("the birth record is of another cluster".into());
        }
        let own = birth.nodes.iter().find(|node| node.id == id);
        let own = own.ok_or_else(|| format!("the birth record has no node {id}"))?;
        if own.incarnation < FIRST_INCARNATION {
            return Err(format!("the birth record has no incarnation of node {id}"));
        }
        let roles = (self.config.has_role(Role::Namesrv), self.config.has_role(Role::Broker));
        if (own.namesrv, own.broker) != roles {
            return Err(format!("the birth record and the configuration of node {id} differ about its roles"));
        }
        Ok(own.incarnation)
    }

    /// TLS of the client port.
    pub(super) fn tls(&self) -> Result<SslAcceptor, Failure> {
        let advertised = &self.config.advertised_client_address;
        let host = advertised.rsplit_once(':').map_or(advertised.as_str(), |(host, _)| host);
        tls::acceptor(&self.config.tls, host.trim_start_matches('[').trim_end_matches(']'))
    }

    /// The client port, not open yet.
    pub(super) fn client_port(&self, tls: SslAcceptor) -> ClientPort {
        let limits = &self.config.limits;
        ClientPort {
            address: address(&self.config.client_listen),
            limits: ClientPortLimits {
                connections_count_max: limits.client_connections_count as usize,
                handshakes_count_max: limits.client_handshakes_count as usize,
                handshake_ms_max: limits.client_handshake_ms,
                calls_count_max: limits.client_calls_per_connection_count,
            },
            tls,
        }
    }
}

/// A listen address; the configuration was checked, so this only names what is impossible.
pub(super) fn address(text: &str) -> SocketAddr {
    let parsed = text.parse();
    assert!(parsed.is_ok(), "listen addresses are checked with the configuration");
    parsed.unwrap_or_else(|_| SocketAddr::from(([127, 0, 0, 1], 0)))
}

fn read_placement(io: &dyn Io, config: &NodeConfig, cluster_id: &str) -> Result<Birth, Failure> {
    let dir = config.data_dir.display();
    let birth =
        placement::read(io, &config.data_dir).map_err(|error| Failure::usage(format!("data_dir: {dir}: {error}")))?;
    let birth = birth.ok_or_else(|| {
        Failure::usage(format!("data_dir: {dir} belongs to cluster {cluster_id} but its birth record is missing"))
    })?;
    if birth.cluster_id != cluster_id {
        return Err(Failure::usage(format!(
            "data_dir: {dir} belongs to cluster {cluster_id}, its birth record to {}",
            birth.cluster_id
        )));
    }
    let configured: Vec<u32> = sorted(config.peers.iter().map(|peer| peer.id));
    let recorded: Vec<u32> = sorted(birth.nodes.iter().map(|node| node.id));
    if configured != recorded {
        return Err(Failure::usage(format!(
            "peers has the nodes {configured:?}, cluster {cluster_id} was born with the nodes {recorded:?}"
        )));
    }
    Ok(birth)
}

fn sorted(ids: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut ids: Vec<u32> = ids.collect();
    ids.sort_unstable();
    ids
}

/// A birth record from the bytes that a peer sent.
pub(super) fn decode_birth(bytes: &[u8]) -> Result<Birth, String> {
    Birth::decode(bytes).map_err(|error| format!("the birth record cannot be read: {error}"))
}
