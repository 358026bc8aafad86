//! Reports of who leads the broker groups: the newest one of each group, until the meta group has it.

use super::{MetaError, Shared};
use parking_lot::Mutex;
use raftmq_model::ids::{GroupId, NodeId};
use raftmq_model::meta::{MetaOp, MetaView, ReportLeader};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// One report gets this long before the next group's turn.
const REPORT_MS_MAX: u64 = 3_000;
/// The wait after a round in which the meta group could not be reached.
const PAUSE_MS: u64 = 200;

/// At most one report for each group.
#[derive(Default)]
pub(super) struct LeaderReports {
    pending: Mutex<BTreeMap<GroupId, (u64, NodeId)>>,
    news: Notify,
}

impl LeaderReports {
    /// Keeps the report, unless one of a higher term waits already.
    pub(super) fn put(&self, group: GroupId, term: u64, node: NodeId) {
        let mut pending = self.pending.lock();
        if pending.get(&group).is_none_or(|(known, _)| *known <= term) {
            pending.insert(group, (term, node));
            drop(pending);
            self.news.notify_one();
        }
    }

    /// Forgets reports that the view is past, and gives those that can be proposed: of groups that the view knows.
    pub(super) fn due(&self, view: &MetaView) -> Vec<ReportLeader> {
        let mut pending = self.pending.lock();
        pending
            .retain(|group, (term, _)| view.broker_groups.get(&group.0).is_none_or(|known| known.leader_term < *term));
        let known = pending.iter().filter(|(group, _)| view.broker_groups.contains_key(&group.0));
        known.map(|(group, (term, node))| ReportLeader { group: group.0, term: *term, node: node.0 }).collect()
    }

    fn remove(&self, report: &ReportLeader) {
        let mut pending = self.pending.lock();
        let group = GroupId(report.group);
        if pending.get(&group) == Some(&(report.term, NodeId(report.node))) {
            pending.remove(&group);
        }
    }
}

/// Runs for ever.
pub(super) async fn deliver(shared: Arc<Shared>) {
    let mut revision = shared.revision.subscribe();
    loop {
        revision.mark_unchanged();
        let mut cut_off = false;
        for report in shared.reports.due(&shared.view()) {
            let deadline = Instant::now() + Duration::from_millis(REPORT_MS_MAX);
            match shared.propose(MetaOp::ReportLeader(report.clone()), deadline).await {
                Ok(_) => shared.reports.remove(&report),
                Err(error @ (MetaError::Refused(_) | MetaError::NotFound(_) | MetaError::Conflict(_))) => {
                    tracing::debug!(%error, "a leader report was refused");
                    shared.reports.remove(&report);
                }
                Err(MetaError::Unavailable | MetaError::Unknown) => cut_off = true,
            }
        }
        if cut_off {
            tokio::time::sleep(Duration::from_millis(PAUSE_MS)).await;
            continue;
        }
        tokio::select! {
            () = shared.reports.news.notified() => {}
            changed = revision.changed() => if changed.is_err() { return },
        }
    }
}
