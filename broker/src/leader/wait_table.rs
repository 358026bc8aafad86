//! Who waits for messages of a topic, per consumer group; apply wakes them.
//!
//! A waiter is one registered `Notified` future of its (topic, consumer group): thousands of them cost a map entry and a
//! few hundred bytes each, no task and no thread. A wake-up is a hint; waiters look at the state again, and also do so
//! by themselves now and then (`wait.rs`), so that a hint given to a caller that went away is not missed for long.

use parking_lot::Mutex;
use raftmq_model::ids::{ConsumerGroupUid, TopicUid};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Notify;

type Key = (TopicUid, ConsumerGroupUid);

/// See the module. Shared between one replica's machine and its waits.
#[derive(Default)]
pub(crate) struct WaitTable {
    spots: Mutex<BTreeMap<Key, Arc<Spot>>>,
    parked: AtomicUsize,
}

/// The waiters of one consumer group on one topic.
#[derive(Default)]
struct Spot {
    notify: Notify,
    parked: AtomicUsize,
}

/// One waiter's place; leaves the table when dropped.
pub(super) struct Place {
    table: Arc<WaitTable>,
    key: Key,
    spot: Arc<Spot>,
}

impl WaitTable {
    /// A place for one more waiter; `None` past `count_max`.
    pub(super) fn enter(
        self: &Arc<Self>,
        topic: TopicUid,
        consumer_group: ConsumerGroupUid,
        count_max: usize,
    ) -> Option<Place> {
        if self.parked.fetch_add(1, Ordering::Relaxed) >= count_max {
            self.parked.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let key = (topic, consumer_group);
        let mut spots = self.spots.lock();
        let spot = Arc::clone(spots.entry(key).or_default());
        spot.parked.fetch_add(1, Ordering::Relaxed);
        drop(spots);
        Some(Place { table: Arc::clone(self), key, spot })
    }

    /// `count` messages were appended to `topic`: one waiter of each consumer group for each of them.
    pub(crate) fn appended(&self, topic: TopicUid, count: usize) {
        if self.parked.load(Ordering::Relaxed) == 0 {
            return;
        }
        let first = (topic, ConsumerGroupUid(0));
        let last = (topic, ConsumerGroupUid(u64::MAX));
        for (_, spot) in self.spots.lock().range(first..=last) {
            spot.wake(count);
        }
    }

    /// Something became visible, or will sooner, for one consumer group.
    pub(crate) fn changed(&self, topic: TopicUid, consumer_group: ConsumerGroupUid, count: usize) {
        if self.parked.load(Ordering::Relaxed) == 0 {
            return;
        }
        if let Some(spot) = self.spots.lock().get(&(topic, consumer_group)) {
            spot.wake(count);
        }
    }

    /// Waiters now.
    #[cfg(test)]
    fn parked(&self) -> usize {
        self.parked.load(Ordering::Relaxed)
    }
}

impl Spot {
    fn wake(&self, count: usize) {
        for _ in 0..count.min(self.parked.load(Ordering::Relaxed)) {
            self.notify.notify_one();
        }
    }
}

impl Place {
    /// Resolves at the next wake-up. Enable it before looking at the state.
    pub(super) fn woken(&self) -> tokio::sync::futures::Notified<'_> {
        self.spot.notify.notified()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut spots = self.table.spots.lock();
        self.table.parked.fetch_sub(1, Ordering::Relaxed);
        if self.spot.parked.fetch_sub(1, Ordering::Relaxed) == 1 {
            spots.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_message_wakes_one_waiter_of_each_consumer_group() {
        let table = Arc::new(WaitTable::default());
        let (topic, a, b) = (TopicUid(1), ConsumerGroupUid(1), ConsumerGroupUid(2));
        let places = [(topic, a), (topic, a), (topic, b), (TopicUid(2), a)]
            .map(|(topic, group)| table.enter(topic, group, 10).unwrap());
        let mut woken: Vec<_> = places.iter().map(|place| Box::pin(place.woken())).collect();
        for waiter in &mut woken {
            assert!(!waiter.as_mut().enable());
        }
        table.appended(topic, 1);
        let ready: Vec<bool> = woken.iter_mut().map(|waiter| waiter.as_mut().enable()).collect();
        assert_eq!(ready, [true, false, true, false]);
    }

    #[test]
    fn places_are_bounded_and_given_back() {
        let table = Arc::new(WaitTable::default());
        let place = table.enter(TopicUid(1), ConsumerGroupUid(1), 1).unwrap();
        assert!(table.enter(TopicUid(1), ConsumerGroupUid(1), 1).is_none());
        drop(place);
        assert_eq!(table.parked(), 0);
        assert!(table.spots.lock().is_empty());
        assert!(table.enter(TopicUid(1), ConsumerGroupUid(1), 1).is_some());
    }
}
