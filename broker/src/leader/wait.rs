//! Long polls: park until a pop may yield something.

use super::Replica;
use super::failure::failure;
use super::pop::attempt_id_of;
use raftmq_model::ids::{ConsumerGroupUid, QueueId, TopicUid};
use raftmq_model::machine::ConsumedQueue;
use raftmq_proto::forward::{Failure, WaitRequest, failure::Kind};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// A parked waiter looks again at least this often: a hint may have gone to a caller that is no more.
const LOOK_AGAIN: Duration = Duration::from_millis(1_000);
/// A due time is looked at this much later, so that the clock of the look is not before it.
const DUE_GRACE: Duration = Duration::from_millis(1);

impl Replica {
    /// Answers `true` as soon as a pop of this topic and consumer group may yield a message, `false` after `wait_ms`. A batch
    /// that the attempt id of the request was given before, and whose answer the caller did not get, counts too: without
    /// that it would stay in flight until its invisible time is over.
    ///
    /// # Errors
    /// NOT_LEADER or NOT_READY, also when the leadership ends in mid-wait; OVERLOADED when too many wait.
    pub async fn wait(&self, request: &WaitRequest) -> Result<bool, Failure> {
        let deadline = Instant::now() + Duration::from_millis(request.wait_ms.into());
        let (topic, consumer_group) = (TopicUid(request.topic_uid), ConsumerGroupUid(request.consumer_group_uid));
        let mut leadership = self.leadership();
        leadership.mark_unchanged();
        self.leading()?;
        let may_yield =
            || self.ready(topic, consumer_group) || self.has_batch_of(topic, consumer_group, &request.attempt_id);
        if may_yield() {
            return Ok(true);
        }
        let place = self
            .waits
            .enter(topic, consumer_group, self.limits.waiters_count_max)
            .ok_or_else(|| failure(Kind::Overloaded, "too many receivers wait at this leader"))?;
        loop {
            let mut woken = std::pin::pin!(place.woken());
            // Registered before the look, so that a message that comes in between is not missed.
            woken.as_mut().enable();
            if may_yield() {
                return Ok(true);
            }
            if Instant::now() >= deadline {
                return Ok(false);
            }
            tokio::select! {
                () = woken => {}
                () = sleep_until(self.look_again(topic, consumer_group).min(deadline)) => {}
                changed = leadership.changed() => {
                    if changed.is_err() {
                        return Err(failure(Kind::NotReady, "the group is closed"));
                    }
                    self.leading()?;
                }
            }
        }
    }

    fn ready(&self, topic: TopicUid, consumer_group: ConsumerGroupUid) -> bool {
        let queues: Vec<QueueId> = {
            let state = self.view.state();
            let Some(config) = state.topic(topic).filter(|config| config.readable()) else { return false };
            // A consumer group that is not known yet will be, by its first pop.
            if state.consumer_group(consumer_group).is_some_and(|group| !group.consume_enabled) {
                return false;
            }
            config.queues_of(self.id()).collect()
        };
        let now = self.clock.now();
        queues
            .into_iter()
            .any(|queue| self.planner.may_yield(&self.view, ConsumedQueue { consumer_group, topic, queue }, now))
    }

    /// Whether a call before this one, or one that nobody listens to any more, took a batch under this attempt id.
    fn has_batch_of(&self, topic: TopicUid, consumer_group: ConsumerGroupUid, attempt_id: &str) -> bool {
        if attempt_id.is_empty() {
            return false;
        }
        let state = self.view.state();
        let Some(config) = state.topic(topic) else { return false };
        let mut queues = config.queues_of(self.id());
        queues.any(|queue| {
            let repeated = state.repeated(consumer_group, topic, &attempt_id_of(attempt_id, queue));
            repeated.is_some_and(|repeated| !repeated.messages.is_empty())
        })
    }

    /// When to look again without being woken: the next due time, but soon in any case.
    fn look_again(&self, topic: TopicUid, consumer_group: ConsumerGroupUid) -> Instant {
        let due = self.view.state().next_due(consumer_group, topic);
        let pause = due.map_or(LOOK_AGAIN, |due| Duration::from_millis(due.ms_since(self.clock.now())) + DUE_GRACE);
        Instant::now() + pause.min(LOOK_AGAIN)
    }
}
