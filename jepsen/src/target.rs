//! What workloads talk to: the nodes of one cluster, real or simulated, one attempt at a time.
//!
//! A back end makes a [`Target`]: over TCP for processes, over a simulated network for nodes in this process. Workloads build
//! the generated clients on a [`Transport`] and never retry by themselves: a retry that nobody sees makes outcomes that
//! nobody can judge. They take time from `tokio::time` and chance from a seed, so that a simulated run is a function of its
//! seed.

use std::error::Error;

/// Calls to one port of one node. It neither retries nor follows routes; a node that is down answers with an error.
pub type Transport = tower::util::BoxCloneSyncService<
    http::Request<tonic::body::Body>,
    http::Response<tonic::body::Body>,
    Box<dyn Error + Send + Sync>,
>;

/// One node, as clients and operators reach it.
#[derive(Clone, Debug)]
pub struct NodeAccess {
    /// Its id.
    pub id: u32,
    /// Its client port: `raftmq_proto::v2::messaging_service_client::MessagingServiceClient` goes over it.
    pub client: Transport,
    /// Its admin port: `raftmq_proto::admin::admin_client::AdminClient` goes over it.
    pub admin: Transport,
}

/// The nodes of one cluster, ascending by id.
#[derive(Clone, Debug)]
pub struct Target {
    /// All of them, also those that are down.
    pub nodes: Vec<NodeAccess>,
}
