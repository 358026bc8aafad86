//! A node with an empty disk: it answers the peer service and waits for `cluster init`. It never forms or joins a cluster
//! by itself.

use super::node::Node;
use super::peer_service;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;

/// How long answers under way may take when the peer port passes to the Raft node.
const HAND_OVER_MS: u64 = 500;
/// How long to wait for peers that may know a cluster already.
const ASK_MS: u64 = 1000;

/// Serves the peer port on `listener` until the node was adopted. The caller keeps the socket open beyond that, so that
/// no peer is refused while the node starts.
pub(super) async fn until_adopted(node: Arc<Node>, listener: TcpListener) {
    let mut adopted = node.adopted();
    let mut stop = node.adopted();
    let server = Server::builder().add_service(peer_service::server(Arc::clone(&node))).serve_with_incoming_shutdown(
        TcpListenerStream::new(listener),
        async move {
            let _ = stop.wait_for(Option::is_some).await;
        },
    );
    let server = tokio::spawn(server);
    tracing::info!("the disk is empty: waiting for `raftmq cluster init`");
    tokio::select! {
        () = warn_about_a_known_cluster(&node) => {}
        _ = adopted.wait_for(Option::is_some) => {}
    }
    let _ = adopted.wait_for(Option::is_some).await;
    // The answer to Adopt is on its way; connections that stay open are cut.
    let abort = server.abort_handle();
    if tokio::time::timeout(Duration::from_millis(HAND_OVER_MS), server).await.is_err() {
        abort.abort();
    }
}

/// An empty disk under an id that a cluster knows already is a mistake of the operator, or a lost disk: say so.
async fn warn_about_a_known_cluster(node: &Node) {
    for (peer, status) in node.links.statuses(Duration::from_millis(ASK_MS)).await {
        match status {
            Ok(status) if !status.cluster_id.is_empty() => tracing::warn!(
                "node {peer} belongs to cluster {}, but the disk of node {} is empty: its data folder was lost, or the node is new and not yet a member",
                status.cluster_id,
                node.config.node_id
            ),
            _ => {}
        }
    }
}
