//! Keeps the group's voters where the meta group places them, while this replica leads.

use super::Replica;
use std::sync::Arc;
use tokio::sync::watch;

impl Replica {
    /// Runs until the group or the meta client is gone. The node's copy of the placement is enough: each step is safe by an old
    /// one.
    pub(super) async fn keep_members(self: Arc<Self>) {
        let mut changed = self.meta.changed();
        let (sender, placed) = watch::channel(self.meta.view().placed(self.id()));
        let follow = async {
            while changed.changed().await.is_ok() {
                let now = self.meta.view().placed(self.id());
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
            () = self.group.clone().keep_members(placed) => {}
        }
    }
}
