//! Keeps the meta group's voters where its own state places them, while this node leads.

use crate::runtime::Hub;
use raftmq_model::ids::GroupId;
use raftmq_raft::Group;
use std::sync::Arc;
use tokio::sync::watch;

/// Runs until the group is closed. The placement that this replica has applied is enough: each step is safe by an old one.
pub(crate) async fn keep(group: Group, hub: Arc<Hub>) {
    let (sender, placed) = watch::channel(hub.view().placed(GroupId::META));
    let follow = async {
        let mut changes = hub.watch();
        while changes.next().await.is_some() {
            let now = hub.view().placed(GroupId::META);
            sender.send_if_modified(|placed| {
                *placed != now && {
                    *placed = now;
                    true
                }
            });
        }
    };
    tokio::select! {
        () = follow => {}
        () = group.keep_members(placed) => {}
    }
}
