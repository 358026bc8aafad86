//! Who leads, and whether it may serve.

use crate::fatal::FatalReport;
use crate::types::{Raft, TypeConfig, node_of};
use openraft::ServerState;
use openraft::async_runtime::WatchReceiver;
use openraft::errors::Fatal;
use raftmq_model::ids::{GroupId, NodeId};
use raftmq_model::planted::{self, Planted};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// A group that ended says why within this time.
const REASON_TIMEOUT: Duration = Duration::from_secs(1);

/// What a replica knows of its group's leader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leadership {
    /// The replica's term. A leader belongs to a term; a lower term never overrules a higher one.
    pub term: u64,
    /// The node whose replica leads in this term, when known.
    pub leader: Option<NodeId>,
    /// This replica leads and has applied an entry of its own term: only then its state contains everything that was
    /// acknowledged before (law 7).
    pub ready: bool,
}

/// Keeps one group's [`Leadership`] until the group ends.
pub(crate) struct Follow {
    pub(crate) group: GroupId,
    pub(crate) raft: Raft,
    pub(crate) applied_term: watch::Receiver<u64>,
    pub(crate) sender: watch::Sender<Leadership>,
    pub(crate) fatal: FatalReport,
    pub(crate) closing: Arc<AtomicBool>,
}

impl Follow {
    pub(crate) async fn run(mut self) {
        let mut server = self.raft.server_metrics();
        loop {
            let current = self.current(&server.borrow_and_update());
            self.sender.send_if_modified(|last| std::mem::replace(last, current) != current);
            let goes_on = tokio::select! {
                changed = server.changed() => changed.is_ok(),
                changed = self.applied_term.changed() => changed.is_ok(),
            };
            if !goes_on {
                break;
            }
        }
        self.ended().await;
    }

    fn current(&self, server: &openraft::metrics::RaftServerMetrics<TypeConfig>) -> Leadership {
        let term = server.vote.leader_id.term;
        let leads = server.state == ServerState::Leader && server.current_leader == Some(server.id);
        Leadership {
            term,
            leader: server.current_leader.map(node_of),
            ready: leads && (*self.applied_term.borrow() == term || planted::is(Planted::ReadyTooEarly)),
        }
    }

    async fn ended(&self) {
        self.sender.send_modify(|last| *last = Leadership { term: last.term, leader: None, ready: false });
        if self.closing.load(Ordering::Relaxed) {
            return;
        }
        match tokio::time::timeout(REASON_TIMEOUT, self.reason()).await {
            Ok(Fatal::Stopped) => {}
            Ok(fatal) => self.fatal.report(self.group, fatal.to_string()),
            Err(_) => self.fatal.report(self.group, "the task that applies entries ended"),
        }
    }

    async fn reason(&self) -> Fatal<TypeConfig> {
        let mut metrics = self.raft.metrics();
        loop {
            if let Err(fatal) = &metrics.borrow_and_update().running_state {
                return fatal.clone();
            }
            if metrics.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }
}
