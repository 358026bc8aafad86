//! Stopping gently: leadership first, then calls. Everything within `drain_ms`.

use super::born::Born;
use super::node::Node;
use crate::client_port::OpenClientPort;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Hands over what this node leads and lets running calls finish.
pub(super) async fn drain(node: &Node, born: &Arc<Born>, open: Option<OpenClientPort>) {
    let deadline = Instant::now() + Duration::from_millis(node.config.limits.drain_ms);
    tracing::info!("the node stops");
    let led = born.groups().into_iter().filter(|(_, group)| group.leadership().borrow().leader == Some(node.id()));
    let transfers = led.map(|(id, group)| async move {
        match tokio::time::timeout_at(deadline, group.transfer_leader(None)).await {
            Ok(Ok(leader)) => tracing::info!("group {id} is led by node {leader} now"),
            Ok(Err(error)) => tracing::warn!("group {id} was not handed over: {error}"),
            Err(_) => tracing::warn!("group {id} was not handed over in time"),
        }
    });
    futures::future::join_all(transfers).await;
    if let Some(open) = open {
        open.drain(deadline.saturating_duration_since(Instant::now())).await;
    }
    tracing::info!("the node has handed over and stops");
}
