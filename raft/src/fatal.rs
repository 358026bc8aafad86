//! The one place that says why the process has to exit.

use raftmq_model::ids::GroupId;
use std::sync::Arc;
use thiserror::Error;
use tokio::sync::watch;

/// A group cannot go on: a failed write or sync, a violated invariant, a panic.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("group {group} cannot go on: {reason}")]
pub struct FatalError {
    /// The group.
    pub group: GroupId,
    /// A sentence for the log.
    pub reason: Arc<str>,
}

/// Keeps the first error; later ones follow from it.
#[derive(Clone, Default)]
pub struct FatalReport(Arc<watch::Sender<Option<FatalError>>>);

impl FatalReport {
    pub(crate) fn report(&self, group: GroupId, reason: impl Into<String>) {
        let error = FatalError { group, reason: Arc::from(reason.into()) };
        self.0.send_if_modified(|first| {
            if first.is_some() {
                return false;
            }
            tracing::error!("{error}");
            *first = Some(error);
            true
        });
    }

    pub(crate) fn watch(&self) -> watch::Receiver<Option<FatalError>> {
        self.0.subscribe()
    }
}
