//! Takes messages: asks the leaders of the topic's broker groups, one ready group at a time, until there is something or
//! the long poll is over.
//!
//! With one group a pop is tried first (it answers at once) and a wait parks the call at the leader. With several, a wait
//! is parked at each leader and whichever wakes first is popped from; the order in which they are asked rotates from call
//! to call. A group without a leader only takes part when it has one again. What is taken is released when it cannot be
//! handed over (`taken`).

use super::taken::{self, Taken};
use super::{Cluster, Service};
use crate::router::RouteError;
use crate::status::Refusal;
use futures::stream::{FuturesUnordered, StreamExt};
use raftmq_model::command::HandleKey;
use raftmq_model::config::TopicConfig;
use raftmq_model::filter::TagFilter;
use raftmq_model::ids::{ConsumerGroupUid, GroupId};
use raftmq_model::receipt::{ReceiptHandle, cluster_code};
use raftmq_proto::forward::{PopRequest, PoppedMessage};
use raftmq_proto::v2::Code;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Empty pops in a row that are followed by the next without a pause: a filter may skip much before it finds something.
const EAGER_POPS_COUNT_MAX: u32 = 64;
/// Pause after that, so that a wrong hint cannot spin.
const IDLE_POP_PAUSE: Duration = Duration::from_millis(10);

/// What a client asks for.
#[derive(Clone, Debug)]
pub struct Receive {
    /// Topic name.
    pub topic: String,
    /// Consumer group name.
    pub consumer_group: String,
    /// Which messages.
    pub filter: TagFilter,
    /// At most this many, 1 to 32.
    pub batch_count: u32,
    /// How long they stay invisible.
    pub invisible_ms: u64,
    /// Names the attempt; empty: none.
    pub attempt_id: String,
    /// When to answer with nothing.
    pub poll_until: Instant,
    /// The latest moment for a pop that is under way.
    pub deadline: Instant,
}

/// One message taken, with its handle.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// What the leader gave.
    pub message: PoppedMessage,
    /// The handle to finish it.
    pub receipt_handle: String,
}

impl<C: Cluster> Service<C> {
    /// Takes messages; empty when the poll is over without any. They are released unless [`Taken::handed_over`] is called.
    ///
    /// # Errors
    ///
    /// The topic or the group is unknown or may not be read, or no broker group could be asked.
    pub async fn receive(self: &Arc<Self>, receive: &Receive) -> Result<Taken<C>, Refusal> {
        let topic = self.topic(&receive.topic, receive.deadline).await?;
        let consumer_group = self.consumer_group_or_create(&receive.consumer_group, receive.deadline).await?;
        if !topic.readable() || topic.queue_groups.is_empty() {
            return Err(Refusal::new(
                Code::Forbidden,
                format!("The topic {:?} cannot be read at present.", topic.name),
            ));
        }
        if !consumer_group.consume_enabled {
            return Err(Refusal::new(
                Code::Forbidden,
                format!("The consumer group {:?} may not receive at present.", consumer_group.name),
            ));
        }
        let poll = Poll {
            service: self,
            receive,
            topic: &topic,
            consumer_group: consumer_group.uid(),
            cluster: cluster_code(&self.cluster.view().cluster_id),
        };
        let groups = hosting_groups(&topic);
        match groups.as_slice() {
            [group] => poll.one(*group).await,
            _ => poll.several(groups, self.next_rotation()).await,
        }
    }
}

/// The broker groups that host a queue of the topic, in the order of their first queue.
fn hosting_groups(topic: &TopicConfig) -> Vec<GroupId> {
    let mut groups: Vec<GroupId> = Vec::with_capacity(1);
    for group in topic.queue_groups.iter().map(|group| GroupId(*group)) {
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    groups
}

/// One receive under way.
struct Poll<'a, C> {
    service: &'a Arc<Service<C>>,
    receive: &'a Receive,
    topic: &'a TopicConfig,
    consumer_group: ConsumerGroupUid,
    cluster: u32,
}

impl<C: Cluster> Poll<'_, C> {
    async fn one(&self, group: GroupId) -> Result<Taken<C>, Refusal> {
        let mut empties = 0;
        loop {
            let taken = self.pop(group).await?;
            if !taken.deliveries.is_empty() {
                return Ok(taken);
            }
            match self.wait(group, &mut empties).await {
                Ok(true) => {}
                Ok(false) => return Ok(Taken::nothing(self.service)),
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn several(&self, mut groups: Vec<GroupId>, rotation: usize) -> Result<Taken<C>, Refusal> {
        let count = groups.len();
        groups.rotate_left(rotation % count);
        let mut waits: FuturesUnordered<_> = groups.into_iter().map(|group| self.wait_from(group, 0)).collect();
        let mut quiet_count = 0;
        let mut failure = None;
        while let Some((group, empties, woken)) = waits.next().await {
            let popped = match woken {
                Ok(true) => self.pop(group).await,
                Ok(false) => {
                    quiet_count += 1;
                    continue;
                }
                Err(error) => Err(error.into()),
            };
            match popped {
                Ok(taken) if !taken.deliveries.is_empty() => return Ok(taken),
                Ok(_) => waits.push(self.wait_from(group, empties)),
                // The other groups may still have something.
                Err(refusal) => failure = Some(refusal),
            }
        }
        match failure {
            Some(refusal) if quiet_count == 0 => Err(refusal),
            _ => Ok(Taken::nothing(self.service)),
        }
    }

    async fn wait_from(&self, group: GroupId, mut empties: u32) -> (GroupId, u32, Result<bool, RouteError>) {
        let woken = self.wait(group, &mut empties).await;
        (group, empties, woken)
    }

    /// `true`: a pop may yield something now. `false`: the poll is over.
    async fn wait(&self, group: GroupId, empties: &mut u32) -> Result<bool, RouteError> {
        *empties += 1;
        if *empties > EAGER_POPS_COUNT_MAX {
            tokio::time::sleep(IDLE_POP_PAUSE).await;
        }
        let left = self.receive.poll_until.saturating_duration_since(Instant::now());
        if left.is_zero() && *empties > 1 {
            return Ok(false);
        }
        let (topic, attempt_id) = (self.topic.uid(), &self.receive.attempt_id);
        let wait = self.service.cluster.wait(group, topic, self.consumer_group, attempt_id, left);
        match tokio::time::timeout_at(self.receive.deadline, wait).await {
            // Nothing was taken by a wait, whatever became of it.
            Ok(Err(RouteError::Unknown)) | Err(_) => Err(RouteError::NoLeader),
            Ok(woken) => woken,
        }
    }

    async fn pop(&self, group: GroupId) -> Result<Taken<C>, Refusal> {
        let receive = self.receive;
        let request = PopRequest {
            group_id: group.0,
            topic_uid: self.topic.uid,
            consumer_group_uid: self.consumer_group.0,
            batch_count: receive.batch_count,
            invisible_ms: receive.invisible_ms,
            tags: receive.filter.tags().to_vec(),
            attempt_id: receive.attempt_id.clone(),
            ..PopRequest::default()
        };
        let (topic, consumer_group, cluster) = (self.topic.uid, self.consumer_group.0, self.cluster);
        let handle_of = move |message: &PoppedMessage| {
            let key = HandleKey {
                consumer_group,
                topic,
                queue: message.queue_id,
                offset: message.queue_offset,
                attempt: message.attempt,
                popped_at: message.popped_at,
            };
            (key, ReceiptHandle { cluster, group, key }.encode())
        };
        Ok(taken::take(self.service, group, request, receive.deadline, handle_of).await?)
    }
}
