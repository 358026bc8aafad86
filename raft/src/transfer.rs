//! Hands leadership over without losing a call.

use crate::errors::TransferError;
use crate::leadership::Leadership;
use crate::membership::is_outlived;
use crate::proposer::Proposer;
use crate::types::{Raft, node_of};
use openraft::async_runtime::WatchReceiver;
use raftmq_model::ids::NodeId;
use std::time::Duration;
use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, timeout_at};

/// Entries under way have this long to be answered before the hand-over.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
/// A new leader must show up within this time.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(2);

/// How well a node would lead: whether it is alive, and then whether it has room on its disk.
pub(crate) type Rank = (bool, bool);

/// One group's hand-overs; one at a time.
pub(crate) struct Transfer {
    node: NodeId,
    raft: Raft,
    proposer: Proposer,
    leadership: watch::Receiver<Leadership>,
    under_way: Mutex<()>,
}

impl Transfer {
    pub(crate) fn new(
        node: NodeId,
        raft: Raft,
        proposer: Proposer,
        leadership: watch::Receiver<Leadership>,
    ) -> Transfer {
        Transfer { node, raft, proposer, leadership, under_way: Mutex::new(()) }
    }

    /// Hands over to `to`, or to the most advanced of the voters that `rank` highest, and answers who leads then.
    pub(crate) async fn run(&self, to: Option<NodeId>, rank: impl Fn(NodeId) -> Rank) -> Result<NodeId, TransferError> {
        let _one = self.under_way.try_lock().map_err(|_| TransferError::UnderWay)?;
        let leadership = *self.leadership.borrow();
        if leadership.leader != Some(self.node) {
            return Err(TransferError::NotLeader { leader: leadership.leader });
        }
        if to == Some(self.node) {
            return Ok(self.node);
        }
        let target = self.choose(to, rank)?;
        let deadline = Instant::now() + DRAIN_TIMEOUT;
        // Proposals wait in the queue from here on. After the change they are refused with the new leader's name, before
        // anything of them is in a log.
        let pause = timeout_at(deadline, self.proposer.pause()).await.map_err(|_| TransferError::TimedOut)?;
        let _pause = pause.ok_or(TransferError::Stopped)?;
        self.caught_up(target, deadline).await?;
        self.raft.trigger().transfer_leader(target).await.map_err(|_| TransferError::Stopped)?;
        self.changed(leadership.term).await
    }

    fn choose(&self, to: Option<NodeId>, rank: impl Fn(NodeId) -> Rank) -> Result<u64, TransferError> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let membership = metrics.membership_config.membership();
        let matched =
            |id: u64| metrics.replication.as_ref().and_then(|all| all.get(&id)).and_then(|at| at.map(|at| at.index));
        // One whose node lives on under a later id has no process that could lead.
        let others = membership.voter_ids().filter(|id| node_of(*id) != self.node && !is_outlived(membership, *id));
        let wanted = others.filter(|id| to.is_none_or(|to| node_of(*id) == to));
        let best = wanted.max_by_key(|id| (rank(node_of(*id)), matched(*id), std::cmp::Reverse(*id)));
        best.ok_or(TransferError::NoSuchVoter)
    }

    /// Waits until `target` has this leader's whole log.
    async fn caught_up(&self, target: u64, deadline: Instant) -> Result<(), TransferError> {
        let mut metrics = self.raft.metrics();
        loop {
            let (last, matched) = {
                let now = metrics.borrow_and_update();
                let matched = now.replication.as_ref().and_then(|all| all.get(&target).copied().flatten());
                (now.last_log_index, matched.map(|id| id.index))
            };
            if matched >= last {
                return Ok(());
            }
            let changed = timeout_at(deadline, metrics.changed()).await.map_err(|_| TransferError::TimedOut)?;
            changed.map_err(|_| TransferError::Stopped)?;
        }
    }

    async fn changed(&self, old_term: u64) -> Result<NodeId, TransferError> {
        let mut leadership = self.leadership.clone();
        let deadline = Instant::now() + CHANGE_TIMEOUT;
        let new = timeout_at(deadline, leadership.wait_for(|now| now.term > old_term && now.leader.is_some())).await;
        let new = new.map_err(|_| TransferError::TimedOut)?.map_err(|_| TransferError::Stopped)?;
        new.leader.ok_or(TransferError::TimedOut)
    }
}
