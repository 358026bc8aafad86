//! What a replica does not do while its log is damaged (law 8).

use crate::group::Core;
use crate::peers::PeerState;
use crate::types::node_of;
use openraft::async_runtime::WatchReceiver;
use raftmq_model::ids::NodeId;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;

/// A leader hands over when it is not repaired within this time.
const PATIENCE: Duration = Duration::from_millis(500);
/// Between two tries at most. Proposals wait during each.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Keeps a damaged replica from campaigning, and has it hand leadership over when it is not repaired soon. Ends with the log's
/// repairs. A replica that is the only voter goes on: nobody else can lead.
pub(crate) async fn guard(core: Weak<Core>, mut damaged: watch::Receiver<u64>) {
    let (mut pause, mut tries) = (PATIENCE, 0);
    loop {
        let is_damaged = *damaged.borrow_and_update() > 0;
        {
            let Some(core) = core.upgrade() else { return };
            core.raft.runtime_config().elect(!is_damaged || is_only_voter(&core));
        }
        if !is_damaged {
            (pause, tries) = (PATIENCE, 0);
            if damaged.changed().await.is_err() {
                return;
            }
            continue;
        }
        match timeout(pause, damaged.changed()).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return,
            Err(_) => {
                let Some(core) = core.upgrade() else { return };
                if hand_over(&core, tries).await {
                    (pause, tries) = (PATIENCE, 0);
                } else {
                    (pause, tries) = (PAUSE_MAX.min(pause * 2), tries + 1);
                }
            }
        }
    }
}

fn is_only_voter(core: &Core) -> bool {
    core.raft.metrics().borrow_watched().membership_config.membership().voter_ids().count() <= 1
}

/// The voter to try: another one each time, since one that is damaged, too, does not take it. Those that are well come first.
fn target(core: &Core, tries: usize) -> Option<NodeId> {
    let metrics = core.raft.metrics();
    let metrics = metrics.borrow_watched();
    let own = core.replica.node;
    let mut others: Vec<NodeId> =
        metrics.membership_config.membership().voter_ids().map(node_of).filter(|node| *node != own).collect();
    let ill = |node| (core.liveness.state(node) != PeerState::Alive, core.liveness.is_full(node));
    others.sort_by_key(|node| (ill(*node), *node));
    others.dedup();
    (!others.is_empty()).then(|| others[tries % others.len()])
}

/// False when it was tried and failed.
async fn hand_over(core: &Arc<Core>, tries: usize) -> bool {
    let leads = core.leadership.borrow().leader == Some(core.replica.node);
    if !leads {
        return true;
    }
    let Some(target) = target(core, tries) else { return true };
    let group = core.group.0;
    let rank = |_| (true, true);
    match core.transfer.run(Some(target), rank).await {
        Ok(leader) => {
            tracing::info!(group, leader = leader.0, "handed the leadership over: the log is damaged");
            true
        }
        Err(error) => {
            tracing::warn!(group, to = target.0, %error, "the log is damaged and the leadership stays");
            false
        }
    }
}
