//! Tells the meta leader that this node lives.

use super::Shared;
use raftmq_proto::meta::HeartbeatRequest;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::MissedTickBehavior;

/// A namesrv node that does not answer for this long is passed over.
const ATTEMPT_MS_MAX: u64 = 500;

/// Runs for ever: one heartbeat each `interval`, to the first namesrv node that takes it.
pub(super) async fn beat(shared: Arc<Shared>, interval: Duration) {
    let mut ticks = tokio::time::interval(interval.max(Duration::from_millis(1)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let first = shared.peers.preferred();
        for at in first..first + shared.peers.count() {
            if beat_once(&shared, at).await {
                break;
            }
        }
    }
}

async fn beat_once(shared: &Shared, at: usize) -> bool {
    let Some(mut client) = shared.peers.at(at) else { return false };
    let call = client.heartbeat(HeartbeatRequest { node_id: shared.node.0 });
    matches!(tokio::time::timeout(Duration::from_millis(ATTEMPT_MS_MAX), call).await, Ok(Ok(_)))
}
