//! The tasks that every replica has; those of the leader sleep while another replica leads.

use super::Replica;
use std::sync::Arc;
use tokio::task::JoinSet;

/// Aborts its tasks when dropped.
pub(crate) struct Drivers {
    _tasks: JoinSet<()>,
}

impl Drivers {
    /// Starts the drivers of `replica` on the current runtime.
    pub(crate) fn start(replica: &Arc<Replica>) -> Drivers {
        let mut tasks = JoinSet::new();
        tasks.spawn(Arc::clone(replica).follow_leadership());
        tasks.spawn(Arc::clone(replica).move_dead_letters());
        tasks.spawn(Arc::clone(replica).sync_config());
        tasks.spawn(Arc::clone(replica).keep_members());
        tasks.spawn(Arc::clone(replica).retain());
        tasks.spawn(Arc::clone(replica).release_log());
        if replica.keys.is_some() {
            tasks.spawn(Arc::clone(replica).index_keys());
        }
        tasks.spawn(replica.succession().run());
        Drivers { _tasks: tasks }
    }
}
