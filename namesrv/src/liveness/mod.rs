//! Which nodes live: soft state of the meta leader, of which only changes are proposed.

mod table;

pub use table::LivenessTable;

use crate::runtime::Hub;
use bytes::Bytes;
use parking_lot::Mutex;
use prost::Message;
use raftmq_model::ids::NodeId;
use raftmq_model::meta::{MetaCommand, MetaOp, SetAlive};
use raftmq_raft::{Group, Leadership, PeerState};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};

/// How often silence is looked for.
const JUDGE_INTERVAL_MS: u64 = 100;
/// A decision about a node that is not taken in this time is looked at anew.
const PROPOSE_TIMEOUT_MS: u64 = 2_000;

/// What a node has heard, shared by the service, which hears, and the driver, which judges.
pub(crate) struct Liveness {
    table: Mutex<LivenessTable>,
    started: Instant,
}

impl Liveness {
    pub(crate) fn new(node: NodeId, silent_ms: u64) -> Arc<Liveness> {
        let table = Mutex::new(LivenessTable::new(node.0, silent_ms));
        Arc::new(Liveness { table, started: Instant::now() })
    }

    /// A heartbeat of `node`.
    pub(crate) fn hear(&self, node: u32) {
        self.table.lock().hear(node, self.now_ms());
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// Drives the table: feeds it what Raft knows and proposes its verdicts while this node leads.
pub(crate) struct Driver {
    pub(crate) node: NodeId,
    pub(crate) group: Group,
    pub(crate) hub: Arc<Hub>,
    pub(crate) liveness: Arc<Liveness>,
    pub(crate) peers: watch::Receiver<BTreeMap<NodeId, PeerState>>,
}

impl Driver {
    /// Runs until the group or the node is closed.
    pub(crate) async fn run(mut self) {
        let mut leadership = self.group.leadership();
        let mut ticks = tokio::time::interval(Duration::from_millis(JUDGE_INTERVAL_MS));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                changed = leadership.changed() => if changed.is_err() { return },
                changed = self.peers.changed() => if changed.is_err() { return },
            }
            let verdicts = self.judge(*leadership.borrow_and_update());
            for verdict in verdicts {
                self.propose(verdict).await;
            }
        }
    }

    fn judge(&mut self, leadership: Leadership) -> Vec<SetAlive> {
        let now_ms = self.liveness.now_ms();
        let view = self.hub.view();
        let mut table = self.liveness.table.lock();
        for (node, state) in self.peers.borrow_and_update().iter() {
            table.detect(node.0, *state, now_ms);
        }
        if leadership.leader == Some(self.node) && leadership.ready {
            table.lead(now_ms);
        } else {
            table.follow();
        }
        table.judge(now_ms, view.nodes.values().map(|node| (node.id, node.alive)))
    }

    /// Proposes once; what fails is found again at the next look.
    async fn propose(&self, verdict: SetAlive) {
        let SetAlive { node, alive } = verdict;
        let command = MetaCommand { op: Some(MetaOp::SetAlive(verdict)) };
        let proposal = self.group.propose(Bytes::from(command.encode_to_vec()));
        match tokio::time::timeout(Duration::from_millis(PROPOSE_TIMEOUT_MS), proposal).await {
            Ok(Ok(_)) if alive => tracing::info!(node, "the node is alive again"),
            Ok(Ok(_)) => tracing::warn!(node, "the node is silent"),
            Ok(Err(error)) => tracing::debug!(node, alive, %error, "a liveness decision was not taken"),
            Err(_) => tracing::debug!(node, alive, "a liveness decision was not taken in time"),
        }
    }
}
