//! Who speaks on a peer connection: every call names the cluster and both nodes, and the server refuses what is not
//! meant for it (law 9).

use parking_lot::Mutex;
use raftmq_model::ids::NodeId;
use raftmq_proto::metadata::{PEER_CLUSTER_ID, PEER_FROM_NODE, PEER_TO_NODE};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::service::Interceptor;
use tonic::{Request, Status};

/// One refusal per peer is logged in this time.
const REFUSAL_LOG_INTERVAL: Duration = Duration::from_secs(60);
/// Peers whose last refusal is remembered for the log.
const REFUSAL_PEERS_MAX: usize = 1024;

/// This node's name among its peers. Clones share it.
#[derive(Clone)]
pub struct PeerIdentity(Arc<Inner>);

struct Inner {
    node: NodeId,
    /// Empty before the node was adopted.
    cluster_id: Mutex<Arc<str>>,
    refused: Mutex<BTreeMap<u32, Instant>>,
}

impl PeerIdentity {
    /// The identity of `node`; `cluster_id` is empty while the node belongs to none.
    #[must_use]
    pub fn new(node: NodeId, cluster_id: &str) -> PeerIdentity {
        let inner = Inner { node, cluster_id: Mutex::new(Arc::from(cluster_id)), refused: Mutex::default() };
        PeerIdentity(Arc::new(inner))
    }

    /// This node.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.0.node
    }

    /// The cluster, empty when there is none yet.
    #[must_use]
    pub fn cluster_id(&self) -> Arc<str> {
        Arc::clone(&self.0.cluster_id.lock())
    }

    /// Sets the cluster of a node that had none. Answers `false`, and changes nothing, when it has another one.
    #[must_use]
    pub fn adopt(&self, cluster_id: &str) -> bool {
        let mut current = self.0.cluster_id.lock();
        if current.is_empty() {
            *current = Arc::from(cluster_id);
        }
        **current == *cluster_id
    }

    /// Adds the identity to calls to node `to`.
    #[must_use]
    pub fn client(&self, to: NodeId) -> PeerClientInterceptor {
        PeerClientInterceptor { identity: self.clone(), to }
    }

    /// Refuses calls that are not meant for this node.
    #[must_use]
    pub fn server(&self) -> PeerServerInterceptor {
        PeerServerInterceptor { identity: self.clone() }
    }

    /// The calling node, when the call is meant for this node.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION` with a sentence.
    pub fn check(&self, metadata: &MetadataMap) -> Result<NodeId, Status> {
        let from = text(metadata, PEER_FROM_NODE).parse::<u32>();
        let verdict = self.judge(metadata);
        match (verdict, from) {
            (Ok(()), Ok(from)) => Ok(NodeId(from)),
            (Ok(()), Err(_)) => Err(Status::failed_precondition("the call does not say which node it comes from")),
            (Err(sentence), from) => {
                self.log_refusal(from.unwrap_or(0), &sentence);
                Err(Status::failed_precondition(sentence))
            }
        }
    }

    fn judge(&self, metadata: &MetadataMap) -> Result<(), String> {
        let ours = self.cluster_id();
        let theirs = text(metadata, PEER_CLUSTER_ID);
        let node = self.0.node;
        if ours.is_empty() {
            return Err(format!("node {node} does not belong to a cluster yet"));
        }
        if theirs != &*ours {
            return Err(format!("node {node} belongs to cluster {ours}, the call comes from cluster \"{theirs}\""));
        }
        let to = text(metadata, PEER_TO_NODE);
        if to.parse() != Ok(node.0) {
            return Err(format!("this is node {node}, the call is for node \"{to}\": check the peer addresses"));
        }
        if text(metadata, PEER_FROM_NODE).parse() == Ok(node.0) {
            return Err(format!("another process says that it is node {node} too"));
        }
        Ok(())
    }

    /// Logs a refusal by or of a peer, once in a while per peer. Answers whether it was logged.
    pub(crate) fn log_refusal(&self, peer: u32, sentence: &str) -> bool {
        let now = Instant::now();
        let mut refused = self.0.refused.lock();
        let recent = refused.get(&peer).is_some_and(|at| now.duration_since(*at) < REFUSAL_LOG_INTERVAL);
        if recent {
            return false;
        }
        if refused.len() >= REFUSAL_PEERS_MAX {
            refused.clear();
        }
        refused.insert(peer, now);
        tracing::warn!(peer, "peer call refused: {sentence}");
        true
    }
}

fn text<'a>(metadata: &'a MetadataMap, key: &str) -> &'a str {
    metadata.get(key).and_then(|value| value.to_str().ok()).unwrap_or("")
}

/// Client side of [`PeerIdentity`].
#[derive(Clone)]
pub struct PeerClientInterceptor {
    identity: PeerIdentity,
    to: NodeId,
}

impl Interceptor for PeerClientInterceptor {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let metadata = request.metadata_mut();
        let cluster_id = self.identity.cluster_id();
        let cluster_id = MetadataValue::try_from(&*cluster_id)
            .map_err(|_| Status::internal("the cluster id cannot be sent as metadata"))?;
        metadata.insert(PEER_CLUSTER_ID, cluster_id);
        metadata.insert(PEER_FROM_NODE, MetadataValue::from(self.identity.node().0));
        metadata.insert(PEER_TO_NODE, MetadataValue::from(self.to.0));
        Ok(request)
    }
}

/// Server side of [`PeerIdentity`]. Handlers find the calling [`NodeId`] in the request's extensions.
#[derive(Clone)]
pub struct PeerServerInterceptor {
    identity: PeerIdentity,
}

impl Interceptor for PeerServerInterceptor {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let from = self.identity.check(request.metadata())?;
        request.extensions_mut().insert(from);
        Ok(request)
    }
}
