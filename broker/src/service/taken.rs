//! Messages that were taken for a caller, until they are handed over.
//!
//! A caller can go away between the moment when its messages are in flight and the moment when its answer is written: a
//! deadline, a connection that breaks. Nobody would have the messages then until their invisible time is over, a minute
//! for a push consumer. So a pop runs to its end whether its caller listens or not ([`take`]), and what was not handed over
//! is released when it is dropped: visible again after [`RELEASED_VISIBLE_MS`], as RocketMQ's proxy does it. Handles and
//! attempt ids stay good, so a caller who asks again under the same attempt id gets the batch again at once. A batch that
//! was given out before under its attempt id is never released: an earlier call may have it.

use super::{Cluster, Delivery, Service};
use raftmq_model::command::{Command, HandleKey, Release, ReleaseEntry};
use raftmq_model::ids::GroupId;
use raftmq_proto::forward::{PopRequest, PoppedMessage};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::router::RouteError;

/// When messages that were not handed over become visible again. Not at once: a caller whose connection broke asks again,
/// and its attempt id should find the batch.
pub const RELEASED_VISIBLE_MS: u64 = 1_000;
/// How long a pop goes on whose caller went away. Longer than a pop takes that a leader has; one that still looks for a
/// leader must not take messages for nobody.
const ABANDONED_POP_GRACE: Duration = Duration::from_millis(1_000);
/// How long a release may look for the leader. After that the invisible time has to do.
const RELEASE_PATIENCE: Duration = Duration::from_millis(3_000);

/// See the module.
pub struct Taken<C: Cluster> {
    service: Arc<Service<C>>,
    /// Where the messages can be released; emptied when they are handed over.
    entries: BTreeMap<GroupId, Vec<ReleaseEntry>>,
    /// The messages.
    pub deliveries: Vec<Delivery>,
}

impl<C: Cluster> Taken<C> {
    /// Nothing was taken.
    pub(super) fn nothing(service: &Arc<Service<C>>) -> Taken<C> {
        Taken { service: Arc::clone(service), entries: BTreeMap::new(), deliveries: Vec::new() }
    }

    /// The caller has the messages, as far as this node can know.
    pub fn handed_over(&mut self) {
        self.entries.clear();
    }
}

impl<C: Cluster> Drop for Taken<C> {
    fn drop(&mut self) {
        let entries = std::mem::take(&mut self.entries);
        if entries.is_empty() {
            return;
        }
        // Without a runtime the node is going down, and the invisible time has to do.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let service = Arc::clone(&self.service);
            runtime.spawn(async move { release(&service.cluster, entries).await });
        }
    }
}

async fn release<C: Cluster>(cluster: &C, entries: BTreeMap<GroupId, Vec<ReleaseEntry>>) {
    for (group, messages) in entries {
        let count = messages.len();
        let command = Command::Release(Release { messages, after_ms: RELEASED_VISIBLE_MS });
        let deadline = Instant::now() + RELEASE_PATIENCE;
        match cluster.propose(group, vec![command.encode()], deadline).await {
            Ok(_) => tracing::debug!(%group, count, "a receiver went away: its messages were released"),
            Err(error) => tracing::debug!(%group, count, %error, "a receiver went away: its messages stay in flight"),
        }
    }
}

/// Takes messages from `group`. Dropped before the end, it goes on without its caller and releases what it gets.
pub(super) async fn take<C: Cluster>(
    service: &Arc<Service<C>>,
    group: GroupId,
    request: PopRequest,
    deadline: Instant,
    handle_of: impl Fn(&PoppedMessage) -> (HandleKey, String) + Send + 'static,
) -> Result<Taken<C>, RouteError> {
    let (listens, gone) = oneshot::channel::<()>();
    let service = Arc::clone(service);
    let pop = tokio::spawn(async move {
        let abandoned = async {
            let _ = gone.await;
            tokio::time::sleep(ABANDONED_POP_GRACE).await;
        };
        let messages = tokio::select! {
            biased;
            popped = service.cluster.pop(group, request, deadline) => popped?,
            () = abandoned => return Err(RouteError::Unknown),
        };
        let mut taken = Taken::nothing(&service);
        for message in messages {
            let (key, receipt_handle) = handle_of(&message);
            if message.visible_at_ms != 0 {
                let entry = ReleaseEntry { handle: Some(key), visible_at_ms: message.visible_at_ms };
                taken.entries.entry(group).or_default().push(entry);
            }
            taken.deliveries.push(Delivery { message, receipt_handle });
        }
        Ok(taken)
    });
    let taken = pop.await;
    drop(listens);
    // The task ends early only with the runtime.
    taken.unwrap_or(Err(RouteError::Unknown))
}
