//! What has been applied, for readers on this node: the current view, and the changes for watchers.

use bytes::Bytes;
use parking_lot::Mutex;
use prost::Message;
use raftmq_model::meta::{MetaChange, MetaRecord, MetaRecordBox, MetaView};
use std::sync::Arc;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

/// Changes kept for watchers that are behind; one that is further behind starts over from a full copy.
pub const CHANGE_COUNT_MAX: usize = 1024;
/// A change that is larger is not kept for watchers: they start over, too. Bounds what waits to 64 MiB.
pub const CHANGE_BYTES_MAX: usize = 64 << 10;

/// The published state. Readers see a state only after all of its entries are committed, applied and handed to the
/// state store.
pub struct Hub {
    published: Mutex<Published>,
}

struct Published {
    view: Arc<MetaView>,
    changes: broadcast::Sender<News>,
}

/// What goes to the watchers.
#[derive(Clone)]
enum News {
    /// An encoded [`MetaChange`].
    Change(Bytes),
    /// Too large to be kept: ask for a full copy.
    StartOver,
}

impl Hub {
    pub(super) fn new() -> Arc<Hub> {
        let changes = broadcast::Sender::new(CHANGE_COUNT_MAX);
        Arc::new(Hub { published: Mutex::new(Published { view: Arc::default(), changes }) })
    }

    /// The applied state.
    #[must_use]
    pub fn view(&self) -> Arc<MetaView> {
        Arc::clone(&self.published.lock().view)
    }

    /// The applied state as one encoded change with `reset`.
    #[must_use]
    pub fn full_change(&self) -> Bytes {
        Bytes::from(full_change(&self.view()).encode_to_vec())
    }

    /// Starts to watch: the first event is a full copy, each later one a change, without a gap.
    #[must_use]
    pub fn watch(self: &Arc<Self>) -> Watcher {
        Watcher { hub: Arc::clone(self), changes: None }
    }

    /// Publishes what a run of entries has changed.
    pub(super) fn publish(&self, changes: &[MetaChange]) {
        let mut published = self.published.lock();
        for change in changes {
            Arc::make_mut(&mut published.view).take(change);
            // A full copy is made when a watcher asks for it, not kept for all of them.
            let news = if change.reset || change.encoded_len() > CHANGE_BYTES_MAX {
                News::StartOver
            } else {
                News::Change(Bytes::from(change.encode_to_vec()))
            };
            // Without watchers there is nobody to tell.
            let _ = published.changes.send(news);
        }
    }

    /// Publishes a state that replaces all before, such as one that was restored or installed.
    pub(super) fn replace(&self, view: MetaView) {
        let mut published = self.published.lock();
        published.view = Arc::new(view);
        let _ = published.changes.send(News::StartOver);
    }

    fn subscribe(&self) -> (Arc<MetaView>, broadcast::Receiver<News>) {
        let published = self.published.lock();
        (Arc::clone(&published.view), published.changes.subscribe())
    }
}

/// One watcher's place in the stream of changes.
pub struct Watcher {
    hub: Arc<Hub>,
    /// `None`: the next event is a full copy.
    changes: Option<broadcast::Receiver<News>>,
}

impl Watcher {
    /// The next encoded [`MetaChange`]; `None` when the namesrv is gone. May be cancelled without losing an event.
    pub async fn next(&mut self) -> Option<Bytes> {
        if let Some(changes) = &mut self.changes {
            match changes.recv().await {
                Ok(News::Change(change)) => return Some(change),
                Ok(News::StartOver) | Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        }
        let (view, changes) = self.hub.subscribe();
        self.changes = Some(changes);
        Some(Bytes::from(full_change(&view).encode_to_vec()))
    }
}

/// A view as one change that starts over.
fn full_change(view: &MetaView) -> MetaChange {
    let nodes = view.nodes.values().map(|node| MetaRecord::Node(node.as_ref().clone()));
    let broker_groups = view.broker_groups.values().map(|group| MetaRecord::BrokerGroup(group.as_ref().clone()));
    let topics = view.topics.values().map(|topic| MetaRecord::Topic(topic.as_ref().clone()));
    let groups = view.consumer_groups.values().map(|group| MetaRecord::ConsumerGroup(group.as_ref().clone()));
    let records = nodes.chain(broker_groups).chain(topics).chain(groups);
    MetaChange {
        revision: view.revision,
        reset: true,
        cluster_id: view.cluster_id.clone(),
        records: records.map(|record| MetaRecordBox { record: Some(record) }).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use raftmq_model::meta::NodeRecord;

    fn change(revision: u64) -> MetaChange {
        let node = NodeRecord { id: revision as u32, ..NodeRecord::default() };
        let records = vec![MetaRecordBox { record: Some(MetaRecord::Node(node)) }];
        MetaChange { revision, records, ..MetaChange::default() }
    }

    async fn take(view: &mut MetaView, watcher: &mut Watcher) -> MetaChange {
        let change = MetaChange::decode(watcher.next().await.unwrap()).unwrap();
        view.take(&change);
        change
    }

    #[tokio::test]
    async fn a_watcher_gets_a_full_copy_and_then_each_change() {
        let hub = Hub::new();
        hub.publish(&[change(3)]);
        let (mut view, mut watcher) = (MetaView::default(), hub.watch());
        let first = take(&mut view, &mut watcher).await;
        assert!(first.reset);
        assert_eq!(first.revision, 3);
        hub.publish(&[change(4), change(7)]);
        assert_eq!(take(&mut view, &mut watcher).await.revision, 4);
        assert_eq!(take(&mut view, &mut watcher).await.revision, 7);
        assert_eq!(view, *hub.view());
    }

    #[tokio::test]
    async fn a_watcher_that_lags_starts_over() {
        let hub = Hub::new();
        let (mut view, mut watcher) = (MetaView::default(), hub.watch());
        take(&mut view, &mut watcher).await;
        for revision in 1..=CHANGE_COUNT_MAX as u64 + 1 {
            hub.publish(&[change(revision)]);
        }
        let event = take(&mut view, &mut watcher).await;
        assert!(event.reset);
        assert_eq!(view, *hub.view());
        hub.publish(&[change(5000)]);
        assert!(!take(&mut view, &mut watcher).await.reset);
        assert_eq!(view, *hub.view());
    }

    #[tokio::test]
    async fn a_reset_and_a_large_change_are_full_copies() {
        let hub = Hub::new();
        let (mut view, mut watcher) = (MetaView::default(), hub.watch());
        take(&mut view, &mut watcher).await;
        hub.replace(MetaView { cluster_id: "c1".to_owned(), revision: 9, ..MetaView::default() });
        let event = take(&mut view, &mut watcher).await;
        assert!(event.reset);
        assert_eq!((event.revision, event.cluster_id.as_str()), (9, "c1"));
        let large = MetaChange { records: (0..100_000).flat_map(|id| change(id).records).collect(), ..change(10) };
        hub.publish(&[large]);
        assert!(take(&mut view, &mut watcher).await.reset);
        assert_eq!(view, *hub.view());
    }
}
