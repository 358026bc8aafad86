//! Stores messages: the topic takes them, each finds its queue, each broker group gets one proposal.
//!
//! The queue is the rendezvous choice of the message id, so that a retry through any node meets the same group's memory
//! of stored ids. A group without a leader for longer than `leaderless_skip_ms` is passed over: its messages go elsewhere
//! rather than wait. That is longer than a send is tried for, or a retry would be stored a second time there.
//!
//! Allocations of a message: the command's buffer (the record is encoded into it, once), the list of commands, and what
//! the decoded request already owns and moves into its [`Draft`].

use super::{Cluster, Service};
use crate::clients::Sdk;
use crate::router::RouteError;
use crate::status::Refusal;
use bytes::Bytes;
use raftmq_model::command::append::AppendWriter;
use raftmq_model::command::{AppendOutcome, Outcome};
use raftmq_model::config::{TopicConfig, TopicType};
use raftmq_model::ids::{GroupId, QueueId, QueueOffset};
use raftmq_model::placement::rendezvous;
use raftmq_model::record::Record;
use raftmq_proto::v2::Code;
use std::time::Duration;
use tokio::time::Instant;

/// A command is closed when it has this many bytes; one message may be larger than that on its own.
const COMMAND_BYTES_MAX: usize = 1 << 20;
/// Room for what an entry has beside body and properties, so that the usual message is written without growing.
const ENTRY_EXTRA_BYTES: usize = 320;
/// Pause before an overloaded group is asked again for a client that does not do so itself ...
const OVERLOAD_PAUSE: Duration = Duration::from_millis(20);
/// ... and before one whose disk is full is.
const DISK_FULL_PAUSE: Duration = Duration::from_millis(250);

/// What kind of message its properties make it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageKind {
    /// None of the others.
    Normal,
    /// Has a message group.
    Fifo,
    /// Has a delivery time.
    Delay,
    /// A half message.
    Transaction,
    /// Has a priority.
    Priority,
    /// Has a lite topic.
    Lite,
}

impl MessageKind {
    fn text(self) -> &'static str {
        match self {
            MessageKind::Normal => "NORMAL",
            MessageKind::Fifo => "FIFO",
            MessageKind::Delay => "DELAY",
            MessageKind::Transaction => "TRANSACTION",
            MessageKind::Priority => "PRIORITY",
            MessageKind::Lite => "LITE",
        }
    }
}

/// A checked message on its way to a queue.
#[derive(Clone, Debug)]
pub struct Draft {
    /// The client's id of it, 1 to 255 bytes.
    pub message_id: String,
    /// What its properties make it.
    pub kind: MessageKind,
    /// Hash of its tag.
    pub tags_code: i64,
    /// The record; its queue is chosen here.
    pub record: Record,
}

/// What became of one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Produced {
    /// The client's id of it.
    pub message_id: String,
    /// Where it is, or why it is not.
    pub result: Result<Stored, Refusal>,
}

/// Where a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The queue.
    pub queue: QueueId,
    /// Its offset there.
    pub offset: QueueOffset,
}

impl<C: Cluster> Service<C> {
    /// Stores `drafts` in the topic `name`; one answer for each, in order.
    ///
    /// # Errors
    ///
    /// What concerns all of them: the topic is unknown, takes other messages or is not writable.
    pub async fn produce(
        &self,
        name: &str,
        mut drafts: Vec<Draft>,
        sdk: Sdk,
        deadline: Instant,
    ) -> Result<Vec<Produced>, Refusal> {
        let topic = self.topic_or_create(name, deadline).await?;
        check_kinds(&topic, &drafts)?;
        if !topic.writable() || topic.queue_groups.is_empty() {
            return Err(Refusal::new(Code::Forbidden, format!("The topic {name:?} takes no messages at present.")));
        }
        let mut results = vec![Err(lost()); drafts.len()];
        let batches = self.place(&topic, &mut drafts, &mut results);
        // Bodies are in the commands now; only the ids are still needed.
        let ids: Vec<String> = drafts.into_iter().map(|draft| draft.message_id).collect();
        match <[Batch; 1]>::try_from(batches) {
            Ok([batch]) => self.propose_batch(batch, sdk, deadline).await.fill(&mut results),
            Err(batches) => {
                let proposals = batches.into_iter().map(|batch| self.propose_batch(batch, sdk, deadline));
                for answered in futures::future::join_all(proposals).await {
                    answered.fill(&mut results);
                }
            }
        }
        Ok(ids.into_iter().zip(results).map(|(message_id, result)| Produced { message_id, result }).collect())
    }

    /// Encodes each draft into the batch of the broker group that hosts its queue.
    fn place(&self, topic: &TopicConfig, drafts: &mut [Draft], results: &mut [Result<Stored, Refusal>]) -> Vec<Batch> {
        let passed_over = self.passed_over(topic);
        let mut batches: Vec<Batch> = Vec::with_capacity(1);
        for (index, draft) in drafts.iter_mut().enumerate() {
            let queues = (0u32..)
                .zip(&topic.queue_groups)
                .filter(|(_, group)| !passed_over.contains(group))
                .map(|(queue, _)| QueueId(queue));
            let Some(queue) = rendezvous(draft.message_id.as_bytes(), queues) else { continue };
            let Some(group) = topic.group_of(queue) else { continue };
            draft.record.queue_id = queue.0;
            let position = batches.iter().position(|batch| batch.group == group).unwrap_or_else(|| {
                batches.push(Batch::new(group));
                batches.len() - 1
            });
            if let Err(refusal) = batches[position].push(topic, queue, index, draft) {
                results[index] = Err(refusal);
            }
        }
        batches.iter_mut().for_each(Batch::close);
        batches.retain(|batch| !batch.commands.is_empty());
        batches
    }

    /// The broker groups of the topic that have had no leader for too long, unless that is all of them.
    fn passed_over(&self, topic: &TopicConfig) -> Vec<u32> {
        let patience = Duration::from_millis(self.options.leaderless_skip_ms);
        let mut groups: Vec<u32> = Vec::new();
        for group in &topic.queue_groups {
            if !groups.contains(group) {
                groups.push(*group);
            }
        }
        if groups.len() < 2 {
            return Vec::new();
        }
        let all = groups.len();
        groups.retain(|group| self.cluster.leaderless_for(GroupId(*group)).is_some_and(|time| time > patience));
        if groups.len() == all { Vec::new() } else { groups }
    }

    async fn propose_batch(&self, batch: Batch, sdk: Sdk, deadline: Instant) -> Answered {
        let Batch { group, commands, counts, entries, .. } = batch;
        let outcomes = if sdk == Sdk::Python {
            self.propose_patiently(group, commands, deadline).await
        } else {
            self.cluster.propose(group, commands, deadline).await
        };
        Answered { entries, counts, outcomes }
    }

    /// The Python SDK alone takes "too many requests" as final, so the node queues for it.
    async fn propose_patiently(
        &self,
        group: GroupId,
        commands: Vec<Bytes>,
        deadline: Instant,
    ) -> Result<Vec<Outcome>, RouteError> {
        loop {
            let result = self.cluster.propose(group, commands.clone(), deadline).await;
            let pause = match &result {
                Err(RouteError::Overloaded) => OVERLOAD_PAUSE,
                Err(RouteError::DiskFull(_)) => DISK_FULL_PAUSE,
                _ => return result,
            };
            if Instant::now() + pause >= deadline {
                return result;
            }
            tokio::time::sleep(pause).await;
        }
    }
}

/// Commands for one broker group.
struct Batch {
    group: GroupId,
    commands: Vec<Bytes>,
    /// Messages of each command.
    counts: Vec<u32>,
    /// The place in the request of each message, over all commands.
    entries: Vec<usize>,
    open: Option<AppendWriter>,
}

impl Batch {
    fn new(group: GroupId) -> Batch {
        Batch { group, commands: Vec::with_capacity(1), counts: Vec::with_capacity(1), entries: Vec::new(), open: None }
    }

    fn push(&mut self, topic: &TopicConfig, queue: QueueId, index: usize, draft: &Draft) -> Result<(), Refusal> {
        let room = draft.record.body.len() + ENTRY_EXTRA_BYTES;
        if self.open.as_ref().is_some_and(|writer| writer.len() + room > COMMAND_BYTES_MAX) {
            self.close();
        }
        let writer = self.open.get_or_insert_with(|| AppendWriter::with_capacity(room));
        writer.push_record(topic.uid(), queue, draft.tags_code, draft.message_id.as_bytes(), &draft.record)?;
        self.entries.push(index);
        Ok(())
    }

    fn close(&mut self) {
        if let Some(writer) = self.open.take()
            && writer.count() > 0
        {
            self.counts.push(writer.count());
            self.commands.push(writer.finish());
        }
    }
}

/// What became of a [`Batch`].
struct Answered {
    entries: Vec<usize>,
    counts: Vec<u32>,
    outcomes: Result<Vec<Outcome>, RouteError>,
}

impl Answered {
    fn fill(self, answers: &mut [Result<Stored, Refusal>]) {
        let mut put = |index: &usize, answer| {
            if let Some(place) = answers.get_mut(*index) {
                *place = answer;
            }
        };
        let outcomes = match self.outcomes {
            Ok(outcomes) => outcomes,
            Err(error) => {
                let refusal = Refusal::from(error);
                self.entries.iter().for_each(|index| put(index, Err(refusal.clone())));
                return;
            }
        };
        let mut entries = self.entries.as_slice();
        for (outcome, count) in outcomes.iter().zip(&self.counts) {
            let (here, rest) = entries.split_at(entries.len().min(*count as usize));
            entries = rest;
            match outcome {
                Outcome::Append(list) if list.len() == here.len() => {
                    here.iter().zip(list).for_each(|(index, entry)| put(index, stored(entry)));
                }
                other => {
                    let refusal = refused(other);
                    here.iter().for_each(|index| put(index, Err(refusal.clone())));
                }
            }
        }
    }
}

fn stored(outcome: &AppendOutcome) -> Result<Stored, Refusal> {
    match outcome {
        AppendOutcome::Stored { queue, offset, .. } => Ok(Stored { queue: *queue, offset: *offset }),
        AppendOutcome::UnknownTopic => Err(Refusal::new(Code::TopicNotFound, "The topic was deleted.")),
        AppendOutcome::UnknownQueue => Err(Refusal::new(
            Code::InternalServerError,
            "The broker group does not host the queue yet; nothing was stored, try again.",
        )),
    }
}

fn refused(outcome: &Outcome) -> Refusal {
    match outcome {
        Outcome::UnknownTopic => Refusal::new(Code::TopicNotFound, "The topic was deleted."),
        Outcome::Refused(sentence) => Refusal::new(Code::InternalServerError, sentence.clone()),
        Outcome::Append(_) | Outcome::Done | Outcome::Pop(_) | Outcome::Handles(_) | Outcome::UnknownConsumerGroup => {
            lost()
        }
    }
}

/// The answer of a message whose outcome never came.
fn lost() -> Refusal {
    Refusal::new(Code::InternalServerError, "The broker group answered something else than was asked.")
}

/// A topic takes messages of its own type only; types other than NORMAL are not served yet.
fn check_kinds(topic: &TopicConfig, drafts: &[Draft]) -> Result<(), Refusal> {
    let taken = match topic.topic_type() {
        TopicType::Normal => MessageKind::Normal,
        TopicType::Fifo => MessageKind::Fifo,
        TopicType::Delay => MessageKind::Delay,
        TopicType::Transaction => MessageKind::Transaction,
        TopicType::Unspecified => {
            return Err(Refusal::new(Code::InternalServerError, format!("The topic {:?} has no type.", topic.name)));
        }
    };
    if let Some(other) = drafts.iter().find(|draft| draft.kind != taken) {
        return Err(Refusal::new(
            Code::MessagePropertyConflictWithType,
            format!(
                "The topic {:?} takes {} messages, this is a {} message.",
                topic.name,
                taken.text(),
                other.kind.text()
            ),
        ));
    }
    if taken != MessageKind::Normal {
        return Err(Refusal::not_implemented("Topics of another type than NORMAL are not served yet."));
    }
    Ok(())
}
