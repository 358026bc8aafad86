//! How far consumer groups are behind.

use super::Replica;
use super::failure::of_propose;
use raftmq_model::ids::ConsumerGroupUid;
use raftmq_proto::forward::{Failure, LagRequest, QueueLag};

impl Replica {
    /// Cursors and what is in flight, per consumer group and queue that it took something from. Linearizable.
    ///
    /// # Errors
    /// NOT_LEADER or NOT_READY; UNKNOWN when the leadership could not be confirmed.
    pub async fn lag(&self, request: &LagRequest) -> Result<Vec<QueueLag>, Failure> {
        self.leading()?;
        self.group.read_barrier().await.map_err(of_propose)?;
        let group = (request.consumer_group_uid != 0).then_some(ConsumerGroupUid(request.consumer_group_uid));
        let state = self.view.state();
        let lags = state.progress(group).filter_map(|progress| {
            let consumed = progress.consumed;
            Some(QueueLag {
                consumer_group_uid: consumed.consumer_group.0,
                topic_uid: consumed.topic.0,
                queue_id: consumed.queue.0,
                max_offset: state.queue_max(consumed.topic, consumed.queue)?.0,
                cursor: progress.cursor.0,
                in_flight_count: progress.in_flight_count as u64,
            })
        });
        Ok(lags.collect())
    }
}
