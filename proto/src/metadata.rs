//! Metadata keys of gRPC calls, public and internal.

/// The client's id; mandatory on public calls.
pub const CLIENT_ID: &str = "x-mq-client-id";
/// The SDK's language, for example `JAVA`; the Node SDK says `HTTP`.
pub const LANGUAGE: &str = "x-mq-language";
/// The SDK's version.
pub const CLIENT_VERSION: &str = "x-mq-client-version";
/// The namespace; empty is the default one.
pub const NAMESPACE: &str = "x-mq-namespace";
/// A request's id, for logs.
pub const REQUEST_ID: &str = "x-mq-request-id";

/// Peer calls: the cluster that the caller belongs to.
pub const PEER_CLUSTER_ID: &str = "raftmq-cluster-id";
/// Peer calls: the node that calls.
pub const PEER_FROM_NODE: &str = "raftmq-from-node";
/// Peer calls: the node that is meant.
pub const PEER_TO_NODE: &str = "raftmq-to-node";
