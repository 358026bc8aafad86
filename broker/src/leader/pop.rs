//! Taking messages: a round plans over the queues that this group hosts, proposes all plans at once and reads what was
//! taken. Answers at once, also with nothing.

use super::Replica;
use super::failure::{failure, of_read};
use super::planner::{Ask, Fate, Plan};
use crate::units::UnitDamage;
use bytes::Bytes;
use prost::Message;
use raftmq_model::command::{Command, Outcome, Pop, PopOutcome};
use raftmq_model::config::{ConsumerGroupConfig, TopicConfig};
use raftmq_model::filter::TagFilter;
use raftmq_model::ids::{ConsumerGroupUid, QueueId, QueueOffset, TopicUid};
use raftmq_proto::forward::{Failure, PopRequest, PoppedMessage, failure::Kind};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::time::{Instant, timeout_at};

/// Rounds of one receive: more are needed when plans turn out stale, or when a filter skips all that one plan looks at.
const ROUNDS_COUNT_MAX: usize = 8;

/// Repairs of ConsumeQueue units that one round of plans waits for.
const REPAIRS_COUNT_MAX: usize = 64;

/// What one receive is about.
struct Receive {
    topic: Arc<TopicConfig>,
    consumer_group: Arc<ConsumerGroupConfig>,
    filter: TagFilter,
    invisible_ms: u64,
    attempt_id: String,
    count_max: usize,
    deadline: Instant,
}

impl Replica {
    /// Takes messages of one topic for one consumer group from the queues that this group hosts, until `deadline`.
    ///
    /// # Errors
    /// See [`Failure`]; after UNKNOWN, messages may be in flight.
    pub async fn pop(&self, request: &PopRequest, deadline: Instant) -> Result<Vec<PoppedMessage>, Failure> {
        self.leading()?;
        let receive = self.receive(request, deadline).await?;
        if !receive.consumer_group.consume_enabled || !receive.topic.readable() {
            return Ok(Vec::new());
        }
        let (group, topic) = (receive.consumer_group.uid(), receive.topic.uid());
        let turn = self.attempts.turn(group, topic, &receive.attempt_id);
        let Ok(_turn) = timeout_at(receive.deadline, turn).await else {
            return Err(failure(Kind::Unknown, "an earlier receive of the same attempt id did not end in time"));
        };
        let repeated = self.repeated(&receive);
        if !repeated.is_empty() {
            let mut messages = self.take(&receive, repeated).await?;
            if !messages.is_empty() {
                // Another call was given the batch before and may have it: it is not this call's to release.
                messages.iter_mut().for_each(|message| message.visible_at_ms = 0);
                return Ok(messages);
            }
        }
        for _ in 0..ROUNDS_COUNT_MAX {
            let plans = self.plans_repaired(&receive).await?;
            if plans.is_empty() {
                break;
            }
            let messages = self.take(&receive, plans).await?;
            if !messages.is_empty() || Instant::now() >= receive.deadline {
                return Ok(messages);
            }
        }
        Ok(Vec::new())
    }

    /// As [`Replica::plans`]; damaged units that it meets are repaired first.
    async fn plans_repaired(&self, receive: &Receive) -> Result<Vec<Step>, Failure> {
        let mut repairs = 0;
        loop {
            let (queue, error) = match self.plans(receive) {
                Ok(plans) => return Ok(plans),
                Err(failed) => failed,
            };
            match UnitDamage::of(&error) {
                Some(damage) if repairs < REPAIRS_COUNT_MAX => {
                    repairs += 1;
                    self.repair_unit(damage, Kind::Invalid, receive.deadline).await?;
                }
                _ => {
                    let topic = receive.topic.uid();
                    tracing::error!(group = %self.id(), %topic, %queue, %error, "cannot plan a receive");
                    return Err(of_read(Kind::Invalid, &format!("a message of queue {queue}"), &error));
                }
            }
        }
    }

    /// Reads the request and sees to it that the group knows its topic and consumer group.
    async fn receive(&self, request: &PopRequest, deadline: Instant) -> Result<Receive, Failure> {
        let (topic, consumer_group) = self.copies(request).await?;
        let filter = if request.tags.is_empty() {
            TagFilter::all()
        } else {
            TagFilter::from_tags(request.tags.iter().cloned())
                .map_err(|error| failure(Kind::Invalid, error.to_string()))?
        };
        Ok(Receive {
            topic,
            consumer_group,
            filter,
            invisible_ms: request.invisible_ms,
            attempt_id: request.attempt_id.clone(),
            count_max: request.batch_count.clamp(1, self.limits.pop_batch_count_max) as usize,
            deadline,
        })
    }

    /// The group's copies of the configurations; proposes those of the request where they are newer.
    async fn copies(&self, request: &PopRequest) -> Result<(Arc<TopicConfig>, Arc<ConsumerGroupConfig>), Failure> {
        let asked_topic = decode_config::<TopicConfig>(&request.topic_config)?;
        let asked_group = decode_config::<ConsumerGroupConfig>(&request.consumer_group_config)?;
        let (topic_uid, group_uid) = (TopicUid(request.topic_uid), ConsumerGroupUid(request.consumer_group_uid));
        let mut puts = Vec::new();
        {
            let state = self.view.state();
            let known = state.topic(topic_uid).map(|topic| topic.version);
            puts.extend(asked_topic.filter(|asked| known < Some(asked.version)).map(Command::PutTopic));
            let known = state.consumer_group(group_uid).map(|group| group.version);
            puts.extend(asked_group.filter(|asked| known < Some(asked.version)).map(Command::PutConsumerGroup));
        }
        if !puts.is_empty() {
            self.propose(puts.iter().map(Command::encode).collect()).await?;
        }
        let state = self.view.state();
        match (state.topic(topic_uid), state.consumer_group(group_uid)) {
            (Some(topic), Some(group)) => Ok((Arc::clone(topic), Arc::clone(group))),
            (None, _) => Err(failure(Kind::Invalid, format!("topic {topic_uid} is not known to the broker group"))),
            (_, None) => {
                Err(failure(Kind::Invalid, format!("consumer group {group_uid} is not known to the broker group")))
            }
        }
    }

    /// What the same attempt id was given before and still has in flight, as plans that ask for it again.
    fn repeated(&self, receive: &Receive) -> Vec<Step> {
        if receive.attempt_id.is_empty() {
            return Vec::new();
        }
        let state = self.view.state();
        let (topic, group) = (receive.topic.uid(), receive.consumer_group.uid());
        let queues = receive.topic.queues_of(self.id());
        let again = queues.filter_map(|queue| {
            let attempt_id = attempt_id_of(&receive.attempt_id, queue);
            state.repeated(group, topic, &attempt_id).filter(|repeated| !repeated.messages.is_empty())?;
            let cursor = state.cursor(group, topic, queue).0;
            Some(Step::Repeat(Pop {
                consumer_group: group.0,
                topic: topic.0,
                queue: queue.0,
                from: cursor,
                next: cursor,
                fresh: Vec::new(),
                again: Vec::new(),
                invisible_ms: receive.invisible_ms,
                attempt_id,
            }))
        });
        again.collect()
    }

    /// One round of plans over the queues, each round starting at another one. An error comes with the queue that it is of.
    fn plans(&self, receive: &Receive) -> Result<Vec<Step>, (QueueId, io::Error)> {
        let queues: Vec<QueueId> = receive.topic.queues_of(self.id()).collect();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let (mut left, mut bytes_left) = (receive.count_max, self.limits.pop_bytes_max);
        let mut plans = Vec::new();
        for i in 0..queues.len() {
            let Some(queue) = queues.get((turn % queues.len() + i) % queues.len()) else { break };
            let ask = Ask {
                consumer_group: receive.consumer_group.uid(),
                topic: receive.topic.uid(),
                queue: *queue,
                fifo: receive.consumer_group.fifo,
                filter: &receive.filter,
                invisible_ms: receive.invisible_ms,
                attempt_id: attempt_id_of(&receive.attempt_id, *queue),
                count_max: left,
                bytes_max: bytes_left,
                scan_count_max: self.limits.scan_count_max,
                now: self.clock.now(),
            };
            let plan = self.planner.plan(&self.view, self.group.log(), &ask).map_err(|error| (*queue, error))?;
            if let Some(plan) = plan {
                left = left.saturating_sub(plan.pop.fresh.len() + plan.pop.again.len());
                bytes_left = bytes_left.saturating_sub(plan.bytes);
                plans.push(Step::Take(plan));
            }
            if left == 0 || bytes_left == 0 {
                break;
            }
        }
        Ok(plans)
    }

    /// Proposes the steps at once and reads what was taken.
    async fn take(&self, receive: &Receive, steps: Vec<Step>) -> Result<Vec<PoppedMessage>, Failure> {
        let commands = steps.iter().map(|step| Command::Pop(step.pop().clone()).encode()).collect();
        let outcomes = match timeout_at(receive.deadline, self.propose(commands)).await {
            Ok(outcomes) => outcomes?,
            Err(_) => return Err(failure(Kind::Unknown, "the time was over before the messages were taken")),
        };
        let mut messages = Vec::new();
        for (step, outcome) in steps.into_iter().zip(outcomes) {
            let taken = Outcome::decode(outcome).map_err(|error| failure(Kind::Unknown, error.to_string()))?;
            let records = step.settle(&taken);
            match taken {
                Outcome::Pop(PopOutcome::Taken { popped_at, visible_at, queue, messages: taken }) => {
                    for message in taken {
                        let read = self.read(receive, queue, message.offset, &records);
                        let mut popped = read.await?;
                        popped.attempt = message.attempt;
                        popped.popped_at = popped_at;
                        popped.visible_at_ms = visible_at.0;
                        messages.push(popped);
                    }
                }
                Outcome::Pop(PopOutcome::Stale { .. }) => {}
                // Deleted between plan and apply: nothing to take any more.
                Outcome::UnknownTopic | Outcome::UnknownConsumerGroup => {}
                other => return Err(failure(Kind::Invalid, format!("a receive was answered with {other:?}"))),
            }
        }
        Ok(messages)
    }

    /// The stored record of one message that was taken. When it is damaged here, waits until it is repaired.
    async fn read(
        &self,
        receive: &Receive,
        queue: QueueId,
        offset: QueueOffset,
        records: &BTreeMap<u64, Bytes>,
    ) -> Result<PoppedMessage, Failure> {
        let topic = receive.topic.uid();
        let (place, known) = ((topic, queue, offset), records.get(&offset.0));
        let (physical, record) = self.message(place, known, Kind::Unknown, receive.deadline).await?;
        Ok(PoppedMessage {
            queue_id: queue.0,
            queue_offset: offset.0,
            physical_offset: physical.0,
            attempt: 0,
            popped_at: 0,
            visible_at_ms: 0,
            record,
        })
    }
}

/// One proposal of a receive.
enum Step {
    /// A plan of the planner.
    Take(Plan),
    /// Asks for the batch of an attempt id again; stands outside the chain of plans.
    Repeat(Pop),
}

impl Step {
    fn pop(&self) -> &Pop {
        match self {
            Step::Take(plan) => &plan.pop,
            Step::Repeat(pop) => pop,
        }
    }

    /// Tells the planner how it ended; gives the records that were read while planning.
    fn settle(self, outcome: &Outcome) -> BTreeMap<u64, Bytes> {
        let Step::Take(mut plan) = self else { return BTreeMap::new() };
        let records = std::mem::take(&mut plan.records);
        let fate = match outcome {
            Outcome::Pop(PopOutcome::Taken { .. }) => Fate::Applied,
            _ => Fate::Stale,
        };
        plan.settle(&fate);
        records
    }
}

/// The attempt id of one queue: a receive may take from several queues, and an attempt id names one batch of one queue.
pub(super) fn attempt_id_of(attempt_id: &str, queue: QueueId) -> String {
    if attempt_id.is_empty() { String::new() } else { format!("{attempt_id}/{queue}") }
}

fn decode_config<T: Message + Default>(bytes: &Bytes) -> Result<Option<T>, Failure> {
    if bytes.is_empty() {
        return Ok(None);
    }
    T::decode(bytes.clone()).map(Some).map_err(|error| failure(Kind::Invalid, error.to_string()))
}
