//! Hosts what the meta group places on this node.

use super::Broker;
use raftmq_model::ids::ReplicaId;
use raftmq_model::meta::BrokerGroupRecord;
use std::sync::Weak;

/// Opens each replica that the node's copy of the meta group names and that is not open yet; runs until the broker or
/// the meta client is gone. A replica that does not open is logged and tried again at the next change.
pub(super) async fn follow(broker: Weak<Broker>) {
    let Some(mut changed) = broker.upgrade().map(|broker| broker.options.meta.changed()) else { return };
    loop {
        changed.mark_unchanged();
        {
            let Some(broker) = broker.upgrade() else { return };
            for record in placed_here(&broker) {
                let group = record.id;
                if let Err(error) = broker.host_group(record).await {
                    tracing::error!(group, %error, "a replica that is placed here does not open");
                }
            }
        }
        if changed.changed().await.is_err() {
            return;
        }
    }
}

fn placed_here(broker: &Broker) -> Vec<BrokerGroupRecord> {
    let replica = ReplicaId { node: broker.options.node, incarnation: broker.options.incarnation };
    let view = broker.options.meta.view();
    let groups = view.broker_groups.values();
    groups.filter(|record| record.replicas.contains(&replica.to_u64())).map(|record| record.as_ref().clone()).collect()
}
