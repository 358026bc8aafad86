//! Reports to all nodes which clients live here and which said good-bye: leaders renew and release by it.

use super::Broker;
use crate::clients::Clients;
use futures::future::join_all;
use raftmq_model::ids::{NodeId, client_code};
use raftmq_proto::forward::ReportClientsRequest;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// Between two reports, when nobody says good-bye.
const REPORT_INTERVAL: Duration = Duration::from_secs(3);
/// How long one report may take; the next one says it again.
const REPORT_TIMEOUT: Duration = Duration::from_secs(1);
/// Good-byes are told this often, so that nodes which missed one hear it.
const GOOD_BYES_TOLD_COUNT: usize = 2;

/// Runs until the broker is gone.
pub(super) async fn run(broker: Weak<Broker>, clients: Arc<Clients>) {
    let mut told: Vec<(usize, u64)> = Vec::new();
    loop {
        {
            let Some(broker) = broker.upgrade() else { return };
            told.extend(clients.take_gone().into_iter().map(|client| (0, client)));
            let gone = told.iter().map(|(_, client)| *client).collect();
            let live = clients.list().iter().map(|client| client_code(&client.id)).collect();
            broker.report(ReportClientsRequest { live, gone }).await;
        }
        told.iter_mut().for_each(|(count, _)| *count += 1);
        told.retain(|(count, _)| *count < GOOD_BYES_TOLD_COUNT);
        // A pause that a good-bye ends.
        let _ = timeout(REPORT_INTERVAL, clients.someone_gone()).await;
    }
}

impl Broker {
    async fn report(&self, request: ReportClientsRequest) {
        self.holders.report(&request.live, &request.gone, Instant::now());
        if request.live.is_empty() && request.gone.is_empty() {
            return;
        }
        let view = self.options.meta.view();
        let others = view.nodes.values().filter(|node| node.broker && node.alive && node.id != self.options.node.0);
        let reports = others.map(|node| {
            let (router, request) = (self.router.clone(), request.clone());
            let node = NodeId(node.id);
            async move { timeout(REPORT_TIMEOUT, router.report_clients(node, request)).await }
        });
        // A node that does not answer hears the next one.
        let _ = join_all(reports).await;
    }
}
