//! How far this replica's own log is on disk: apply waits for it.

use std::io;
use tokio::sync::watch;

#[derive(Clone, Copy, Debug)]
struct State {
    /// Index of the first entry that is not durable.
    next: u64,
    /// A write or sync failed: nothing becomes durable any more.
    failed: bool,
}

/// Written by the log's IO thread, in the order of the log's operations.
#[derive(Debug)]
pub(crate) struct DurableEnd(watch::Sender<State>);

/// Waits for entries to become durable.
#[derive(Clone, Debug)]
pub struct DurableWatch(watch::Receiver<State>);

impl DurableEnd {
    pub(crate) fn new(next: u64) -> DurableEnd {
        DurableEnd(watch::Sender::new(State { next, failed: false }))
    }

    pub(crate) fn watch(&self) -> DurableWatch {
        DurableWatch(self.0.subscribe())
    }

    /// Everything before `next` is durable.
    pub(crate) fn advance(&self, next: u64) {
        self.0.send_if_modified(|state| {
            let newer = next > state.next;
            state.next = state.next.max(next);
            newer
        });
    }

    /// The log was cut: what stood at `next` and behind it is gone.
    pub(crate) fn cut(&self, next: u64) {
        self.0.send_modify(|state| state.next = state.next.min(next));
    }

    pub(crate) fn fail(&self) {
        self.0.send_modify(|state| state.failed = true);
    }
}

impl DurableWatch {
    /// For a state that hangs on no log: everything counts as durable.
    pub(crate) fn everything() -> DurableWatch {
        DurableWatch(watch::channel(State { next: u64::MAX, failed: false }).1)
    }

    /// Whether the entry at `index` is durable already.
    pub(crate) fn reached(&self, index: u64) -> bool {
        let state = self.0.borrow();
        !state.failed && state.next > index
    }

    /// Returns when the entry at `index` is durable.
    ///
    /// # Errors
    /// When a write or sync failed, or the log was closed: then it never will be.
    pub(crate) async fn wait(&mut self, index: u64) -> io::Result<()> {
        let state = self.0.wait_for(|state| state.failed || state.next > index).await;
        match state {
            Ok(state) if !state.failed => Ok(()),
            Ok(_) => Err(io::Error::other("the log cannot be written any more")),
            Err(_) => Err(io::Error::other("the log was closed")),
        }
    }
}
