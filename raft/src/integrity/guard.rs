//! What a replica does not do while its log is damaged (law 8).

use crate::group::{Core, Group};
use openraft::async_runtime::WatchReceiver;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;

/// A leader hands over when it is not repaired within this time; also the time between two tries.
const PATIENCE: Duration = Duration::from_millis(500);

/// Keeps a damaged replica from campaigning, and has it hand leadership over when it is not repaired soon. Ends with the log's
/// repairs. A replica that is the only voter goes on: nobody else can lead.
pub(crate) async fn guard(core: Weak<Core>, mut damaged: watch::Receiver<u64>) {
    loop {
        let is_damaged = *damaged.borrow_and_update() > 0;
        {
            let Some(core) = core.upgrade() else { return };
            core.raft.runtime_config().elect(!is_damaged || is_only_voter(&core));
        }
        if !is_damaged {
            if damaged.changed().await.is_err() {
                return;
            }
            continue;
        }
        match timeout(PATIENCE, damaged.changed()).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return,
            Err(_) => {
                let Some(core) = core.upgrade() else { return };
                hand_over(core).await;
            }
        }
    }
}

fn is_only_voter(core: &Core) -> bool {
    core.raft.metrics().borrow_watched().membership_config.membership().voter_ids().count() <= 1
}

async fn hand_over(core: Arc<Core>) {
    let leads = core.leadership.borrow().leader == Some(core.replica.node);
    if !leads || is_only_voter(&core) {
        return;
    }
    let group = core.group.0;
    match Group::new(core).transfer_leader(None).await {
        Ok(leader) => tracing::info!(group, leader = leader.0, "handed the leadership over: the log is damaged"),
        Err(error) => tracing::warn!(group, %error, "the log is damaged and the leadership stays"),
    }
}
