//! One receive at a time for each attempt id.
//!
//! A receive that is asked again while the first one still runs (a connection broke in mid-call) would find nothing to
//! repeat yet and take other messages: it waits for the first one instead, and then gets the same batch.

use parking_lot::Mutex;
use raftmq_model::ids::{ConsumerGroupUid, TopicUid};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::OwnedMutexGuard;

type Key = (ConsumerGroupUid, TopicUid, String);

/// The attempt ids of receives that run. Bounded by the calls that are served at a time.
#[derive(Default)]
pub(super) struct Attempts(Mutex<BTreeMap<Key, Arc<tokio::sync::Mutex<()>>>>);

/// Lets the next receive of the same attempt id go when dropped.
pub(super) struct Turn {
    attempts: Arc<Attempts>,
    key: Key,
    guard: Option<OwnedMutexGuard<()>>,
}

impl Attempts {
    /// Waits until no other receive of this attempt id runs; at once when there is no attempt id.
    pub(super) async fn turn(
        self: &Arc<Self>,
        consumer_group: ConsumerGroupUid,
        topic: TopicUid,
        attempt_id: &str,
    ) -> Option<Turn> {
        if attempt_id.is_empty() {
            return None;
        }
        let key = (consumer_group, topic, attempt_id.to_owned());
        let lock = Arc::clone(self.0.lock().entry(key.clone()).or_default());
        // Made before the wait, so that a caller that goes away in mid-wait cleans up, too.
        let mut turn = Turn { attempts: Arc::clone(self), key, guard: None };
        turn.guard = Some(lock.lock_owned().await);
        Some(turn)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut attempts = self.attempts.0.lock();
        self.guard = None;
        // One reference is the map's own: nobody else has, or waits for, the turn.
        if attempts.get(&self.key).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            attempts.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[tokio::test]
    async fn the_same_attempt_waits_its_turn_and_leaves_nothing_behind() {
        let attempts = Arc::new(Attempts::default());
        let turn = |id: &'static str| {
            let attempts = Arc::clone(&attempts);
            async move { attempts.turn(ConsumerGroupUid(1), TopicUid(1), id).await }.boxed()
        };
        let first = turn("a").await;
        let mut second = turn("a");
        assert!((&mut second).now_or_never().is_none());
        assert!(turn("b").now_or_never().flatten().is_some(), "another attempt does not wait");
        drop(first);
        let second = second.await;
        let mut third = turn("a");
        assert!((&mut third).now_or_never().is_none());
        drop(third);
        drop(second);
        assert!(attempts.0.lock().is_empty());
        assert!(turn("").await.is_none());
    }
}
