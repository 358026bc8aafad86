//! What a consumer does with a message it has: acknowledge it, change when it is visible again, give it up.
//!
//! A handle is judged in apply only. Here it is decoded and compared with what the request says about it, so that a mix-up
//! of clients does not finish somebody else's message.

use super::{Cluster, Service};
use crate::status::Refusal;
use raftmq_model::command::{Ack, ChangeInvisible, Command, HandleKey, HandleOutcome, Outcome};
use raftmq_model::ids::GroupId;
use raftmq_model::meta::MetaView;
use raftmq_model::name;
use raftmq_model::receipt::{ReceiptHandle, cluster_code};
use raftmq_proto::v2::Code;
use tokio::time::Instant;

/// The answer to one handle.
pub type HandleAnswer = Result<(), Refusal>;

impl<C: Cluster> Service<C> {
    /// Finishes messages; one answer for each handle, in order.
    ///
    /// # Errors
    ///
    /// A name that cannot be.
    pub async fn ack(
        &self,
        topic: &str,
        consumer_group: &str,
        handles: &[&str],
        deadline: Instant,
    ) -> Result<Vec<HandleAnswer>, Refusal> {
        let view = self.judging_view(topic, consumer_group)?;
        let mut answers: Vec<HandleAnswer> = Vec::with_capacity(handles.len());
        let mut batches: Vec<AckBatch> = Vec::with_capacity(1);
        for (index, text) in handles.iter().enumerate() {
            match decode(&view, topic, consumer_group, text) {
                Ok(handle) => {
                    answers.push(Err(lost()));
                    AckBatch::of(&mut batches, handle.group).push(index, handle.key);
                }
                Err(refusal) => answers.push(Err(refusal)),
            }
        }
        let proposals = batches.into_iter().map(|batch| self.propose_acks(batch, deadline));
        for (entries, outcomes) in futures::future::join_all(proposals).await {
            for (position, index) in entries.into_iter().enumerate() {
                answers[index] = match &outcomes {
                    Ok(outcomes) => outcomes.get(position).copied().map_or_else(|| Err(lost()), acked),
                    Err(refusal) => Err(refusal.clone()),
                };
            }
        }
        Ok(answers)
    }

    async fn propose_acks(
        &self,
        batch: AckBatch,
        deadline: Instant,
    ) -> (Vec<usize>, Result<Vec<HandleOutcome>, Refusal>) {
        let command = Command::Ack(Ack { handles: batch.handles });
        (batch.entries, self.propose_for_handles(batch.group, &command, deadline).await)
    }

    /// Makes a message visible again `invisible_ms` from now; the handle that is good from now on.
    ///
    /// # Errors
    ///
    /// The handle is malformed or no longer the newest, or the group could not be asked.
    pub async fn change_invisible(
        &self,
        topic: &str,
        consumer_group: &str,
        handle: &str,
        invisible_ms: u64,
        deadline: Instant,
    ) -> Result<String, Refusal> {
        let view = self.judging_view(topic, consumer_group)?;
        let decoded = decode(&view, topic, consumer_group, handle)?;
        // Proposed again after an unknown outcome, the command is known by this number.
        let (request, _) = uuid::Uuid::new_v4().as_u64_pair();
        let change = ChangeInvisible { handle: Some(decoded.key), invisible_ms, request };
        let command = Command::ChangeInvisible(change);
        let outcomes = self.propose_for_handles(decoded.group, &command, deadline).await?;
        match outcomes.first() {
            Some(HandleOutcome::Renewed { popped_at }) => {
                let key = HandleKey { popped_at: *popped_at, ..decoded.key };
                Ok(ReceiptHandle { key, ..decoded }.encode())
            }
            Some(HandleOutcome::Done) => Ok(handle.to_owned()),
            Some(HandleOutcome::Superseded) => Err(superseded()),
            Some(HandleOutcome::Gone) => Err(gone()),
            None => Err(lost()),
        }
    }

    /// Moves a message to the dead-letter topic of its consumer group. A message that is gone is fine.
    ///
    /// # Errors
    ///
    /// Like [`Service::change_invisible`].
    pub async fn dead_letter(
        &self,
        topic: &str,
        consumer_group: &str,
        handle: &str,
        deadline: Instant,
    ) -> HandleAnswer {
        let view = self.judging_view(topic, consumer_group)?;
        let decoded = decode(&view, topic, consumer_group, handle)?;
        acked(self.cluster.dead_letter(decoded.group, decoded.key, deadline).await?)
    }

    fn judging_view(&self, topic: &str, consumer_group: &str) -> Result<std::sync::Arc<MetaView>, Refusal> {
        name::check_topic(topic)?;
        name::check_consumer_group(consumer_group)?;
        Ok(self.cluster.view())
    }

    async fn propose_for_handles(
        &self,
        group: GroupId,
        command: &Command,
        deadline: Instant,
    ) -> Result<Vec<HandleOutcome>, Refusal> {
        let outcomes = self.cluster.propose(group, vec![command.encode()], deadline).await?;
        match outcomes.into_iter().next() {
            Some(Outcome::Handles(handles)) => Ok(handles),
            Some(Outcome::UnknownTopic | Outcome::UnknownConsumerGroup) => Err(gone()),
            Some(Outcome::Refused(sentence)) => Err(Refusal::new(Code::InternalServerError, sentence)),
            Some(Outcome::Append(_) | Outcome::Done | Outcome::Pop(_)) | None => Err(lost()),
        }
    }
}

/// Handles for one broker group.
struct AckBatch {
    group: GroupId,
    handles: Vec<HandleKey>,
    /// The place in the request of each handle.
    entries: Vec<usize>,
}

impl AckBatch {
    fn of(batches: &mut Vec<AckBatch>, group: GroupId) -> &mut AckBatch {
        let position = batches.iter().position(|batch| batch.group == group).unwrap_or_else(|| {
            batches.push(AckBatch { group, handles: Vec::with_capacity(1), entries: Vec::with_capacity(1) });
            batches.len() - 1
        });
        &mut batches[position]
    }

    fn push(&mut self, index: usize, handle: HandleKey) {
        self.handles.push(handle);
        self.entries.push(index);
    }
}

/// Reads a handle and compares it with the names of the request, as far as this node knows them: its copy of the meta
/// group may be behind the node that gave the handle out.
fn decode(view: &MetaView, topic: &str, consumer_group: &str, text: &str) -> Result<ReceiptHandle, Refusal> {
    let handle = ReceiptHandle::decode(text)?;
    let invalid = |sentence: &'static str| Err(Refusal::new(Code::InvalidReceiptHandle, sentence));
    if view.revision > 0 && handle.cluster != cluster_code(&view.cluster_id) {
        return invalid("The receipt handle is of another cluster.");
    }
    if view.revision > 0 && !view.broker_groups.is_empty() && !view.broker_groups.contains_key(&handle.group.0) {
        return invalid("The receipt handle names a broker group that does not exist.");
    }
    if view.topics.get(topic).is_some_and(|known| known.uid != handle.key.topic) {
        return invalid("The receipt handle is of another topic.");
    }
    if view.consumer_groups.get(consumer_group).is_some_and(|known| known.uid != handle.key.consumer_group) {
        return invalid("The receipt handle is of another consumer group.");
    }
    Ok(handle)
}

/// An ack of a message that is gone is done: a repeated ack is common after a fail-over.
fn acked(outcome: HandleOutcome) -> HandleAnswer {
    match outcome {
        HandleOutcome::Done | HandleOutcome::Gone | HandleOutcome::Renewed { .. } => Ok(()),
        HandleOutcome::Superseded => Err(superseded()),
    }
}

fn superseded() -> Refusal {
    Refusal::new(
        Code::InvalidReceiptHandle,
        "The receipt handle is no longer good: the message was delivered again, or its invisible duration was changed.",
    )
}

fn gone() -> Refusal {
    Refusal::new(Code::InvalidReceiptHandle, "The message of the receipt handle is finished or deleted.")
}

fn lost() -> Refusal {
    Refusal::new(Code::InternalServerError, "The broker group answered something else than was asked.")
}
