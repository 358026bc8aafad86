//! The command that moves one message to the dead-letter topic of its consumer group.

use super::Replica;
use super::failure::failure;
use raftmq_model::command::{Command, DeadLetter, HandleKey, HandleOutcome, Outcome};
use raftmq_model::config::TopicConfig;
use raftmq_model::ids::{ConsumerGroupUid, GroupId, QueueId, QueueOffset, TopicUid};
use raftmq_model::record::{Record, property};
use raftmq_proto::forward::{Failure, failure::Kind};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// A damaged message is waited for this long; it is tried again later.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// Dead-letter topics are named after their consumer group, as RocketMQ does.
pub(super) const DEAD_LETTER_PREFIX: &str = "%DLQ%";

impl Replica {
    /// Moves the message of `handle` to the dead-letter topic, if the handle still is its newest.
    ///
    /// # Errors
    /// See [`Failure`]; INVALID when the consumer group has no dead-letter topic in this group.
    pub async fn dead_letter(&self, handle: HandleKey) -> Result<HandleOutcome, Failure> {
        self.leading()?;
        if let Some(gone) = self.gone(&handle) {
            return Ok(gone);
        }
        let outcome = self.bury(handle).await?;
        match outcome {
            Outcome::Handles(handles) => {
                handles.first().copied().ok_or_else(|| failure(Kind::Unknown, "no answer for the handle"))
            }
            other => Err(failure(Kind::Invalid, format!("a dead letter was answered with {other:?}"))),
        }
    }

    /// Proposes the move, with the topic's record in front of it where the group does not know the topic.
    pub(super) async fn bury(&self, handle: HandleKey) -> Result<Outcome, Failure> {
        let topic = self.letter_topic(ConsumerGroupUid(handle.consumer_group))?;
        let letter = self.letter(handle, &topic).await?;
        let mut commands = Vec::new();
        let known = self.view.state().topic(topic.uid()).map(|known| known.version);
        if known < Some(topic.version) {
            commands.push(Command::PutTopic(topic.as_ref().clone()).encode());
        }
        commands.push(Command::DeadLetter(letter).encode());
        let outcome = self.propose(commands).await?.pop().unwrap_or_default();
        Outcome::decode(outcome).map_err(|error| failure(Kind::Unknown, error.to_string()))
    }

    /// A message that is not in flight needs no letter; reading it could even fail.
    fn gone(&self, handle: &HandleKey) -> Option<HandleOutcome> {
        let (group, topic) = (ConsumerGroupUid(handle.consumer_group), TopicUid(handle.topic));
        let (queue, offset) = (QueueId(handle.queue), QueueOffset(handle.offset));
        let state = self.view.state();
        let held = state.in_flight(group, topic, queue).any(|(held, _)| held == offset);
        (!held && offset < state.cursor(group, topic, queue)).then_some(HandleOutcome::Gone)
    }

    fn letter_topic(&self, consumer_group: ConsumerGroupUid) -> Result<Arc<TopicConfig>, Failure> {
        let state = self.view.state();
        let config = state.consumer_group(consumer_group).ok_or_else(|| {
            failure(Kind::Invalid, format!("consumer group {consumer_group} is not known to the broker group"))
        })?;
        let name = format!("{DEAD_LETTER_PREFIX}{}", config.name);
        let topic = self.meta.view().topics.get(&name).cloned();
        topic.ok_or_else(|| failure(Kind::Invalid, format!("there is no dead-letter topic {name}")))
    }

    async fn letter(&self, handle: HandleKey, topic: &TopicConfig) -> Result<DeadLetter, Failure> {
        let (from, queue) = (TopicUid(handle.topic), QueueId(handle.queue));
        let (place, deadline) = ((from, queue, QueueOffset(handle.offset)), Instant::now() + READ_TIMEOUT);
        let (_, record) = self.message(place, None, Kind::Invalid, deadline).await?;
        let record = Record::decode(record).map_err(|error| {
            let what = format!("message {} of queue {queue} cannot be read: {error}", handle.offset);
            failure(Kind::Invalid, what)
        })?;
        letter_of(self.id(), handle, record, topic)
    }
}

/// The record under the dead-letter topic's name: everything else of it stays, two properties say where it is from.
fn letter_of(group: GroupId, handle: HandleKey, record: Record, topic: &TopicConfig) -> Result<DeadLetter, Failure> {
    let queues: Vec<QueueId> = topic.queues_of(group).collect();
    let place = usize::try_from(handle.offset).unwrap_or(0) % queues.len().max(1);
    let queue = *queues
        .get(place)
        .ok_or_else(|| failure(Kind::Invalid, format!("{} has no queue in broker group {group}", topic.name)))?;
    let origin = record.topic.clone();
    let message_id = record.property(property::UNIQ_KEY).unwrap_or_default().to_owned();
    let mut properties: BTreeMap<String, String> = BTreeMap::new();
    properties.insert(property::DEAD_LETTER_ORIGIN_TOPIC.to_owned(), origin);
    properties.insert(property::DEAD_LETTER_ORIGIN_MESSAGE_ID.to_owned(), message_id);
    let kept = record.properties.iter().filter(|(name, _)| !properties.contains_key(name)).cloned();
    let properties = kept.chain(properties.clone()).collect();
    let attempts = i32::try_from(handle.attempt).unwrap_or(i32::MAX);
    let tags_code = raftmq_model::filter::tags_code(record.property(property::TAGS).unwrap_or_default());
    let letter =
        Record { topic: topic.name.clone(), queue_id: queue.0, reconsume_times: attempts, properties, ..record };
    Ok(DeadLetter {
        handle: Some(handle),
        letter_topic: topic.uid,
        letter_queue: queue.0,
        letter_tags_code: tags_code,
        letter: letter.encode().map_err(|error| failure(Kind::Invalid, error.to_string()))?,
    })
}
