//! The replicas that this node hosts.

use super::Replica;
use parking_lot::RwLock;
use raftmq_model::ids::GroupId;
use std::collections::BTreeMap;
use std::sync::Arc;

/// By group id. Entries are only added, until the broker shuts down.
#[derive(Default)]
pub(crate) struct Replicas(RwLock<BTreeMap<GroupId, Arc<Replica>>>);

impl Replicas {
    pub(crate) fn get(&self, group: GroupId) -> Option<Arc<Replica>> {
        self.0.read().get(&group).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Replica>> {
        self.0.read().values().cloned().collect()
    }

    pub(crate) fn add(&self, replica: Arc<Replica>) {
        self.0.write().insert(replica.id(), replica);
    }

    pub(crate) fn clear(&self) -> Vec<Arc<Replica>> {
        std::mem::take(&mut *self.0.write()).into_values().collect()
    }
}
