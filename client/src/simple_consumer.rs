//! Receiving one batch at a time.

use crate::attempts::Attempts;
use crate::error::{ClientError, check};
use crate::message::{FilterExpression, ReceivedMessage};
use crate::node::Node;
use crate::session::Session;
use raftmq_proto::v2::{self, Code, receive_message_response::Content};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Receives messages of one topic for a consumer group. Cheap to clone; clones share a client id.
#[derive(Clone, Debug)]
pub struct SimpleConsumer {
    session: Arc<Session>,
    group: String,
    topic: String,
    filter: FilterExpression,
    turn: Arc<AtomicUsize>,
}

impl SimpleConsumer {
    pub(crate) fn new(session: Session, group: &str, topic: &str, filter: FilterExpression) -> SimpleConsumer {
        SimpleConsumer {
            session: Arc::new(session),
            group: group.to_owned(),
            topic: topic.to_owned(),
            filter,
            turn: Arc::new(AtomicUsize::new(usize::from(rand::random::<u16>()))),
        }
    }

    /// The client id that the server sees.
    #[must_use]
    pub fn client_id(&self) -> &str {
        self.session.client_id()
    }

    /// Up to `batch_size` messages, which stay invisible to others for `invisible`; none when the long poll
    /// ([`crate::ClientOptions::await_duration`]) ends without one.
    ///
    /// A lost call is repeated under the same attempt id, so that the server can answer with the same batch.
    ///
    /// # Errors
    /// When no attempt succeeds, or at once for an error that no retry mends.
    pub async fn receive(&self, batch_size: u32, invisible: Duration) -> Result<Vec<ReceivedMessage>, ClientError> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let (nodes, queue) = self.session.nodes_to_receive(&self.topic, turn).await?;
        let await_duration = self.session.options().await_duration;
        let request = v2::ReceiveMessageRequest {
            group: Some(self.session.resource(&self.group)),
            message_queue: Some(queue),
            filter_expression: Some(self.filter.to_wire()),
            batch_size: i32::try_from(batch_size).unwrap_or(i32::MAX),
            invisible_duration: duration(invisible),
            auto_renew: false,
            long_polling_timeout: duration(await_duration),
            attempt_id: Some(uuid::Builder::from_random_bytes(rand::random()).into_uuid().to_string()),
        };
        self.retry(nodes, |node| self.receive_at(node, request.clone())).await
    }

    async fn receive_at(
        &self,
        node: Arc<Node>,
        request: v2::ReceiveMessageRequest,
    ) -> Result<Vec<ReceivedMessage>, ClientError> {
        let broken = |status: tonic::Status| ClientError::from_grpc(node.address(), &status);
        let timeout = self.session.options().await_duration + self.session.options().request_timeout;
        let request = self.session.request_within(request, timeout);
        let mut frames = node.stub().receive_message(request).await.map_err(broken)?.into_inner();
        let (mut status, mut messages) = (None, Vec::new());
        while let Some(frame) = frames.message().await.map_err(broken)? {
            match frame.content {
                Some(Content::Status(frame)) => status = Some(frame),
                Some(Content::Message(message)) => {
                    let message = ReceivedMessage::from_wire(message, node.address());
                    messages.push(message.ok_or(ClientError::Malformed("a message without topic or properties"))?);
                }
                Some(Content::DeliveryTimestamp(_)) | None => {}
            }
        }
        match check(status) {
            Ok(()) => Ok(messages),
            Err(error) if error.code() == Some(Code::MessageNotFound) => Ok(messages),
            Err(error) => Err(error),
        }
    }

    /// Finishes one message: it is never delivered to this group again.
    ///
    /// # Errors
    /// When no attempt succeeds, or at once for an error that no retry mends, as a handle that is not good any more.
    pub async fn ack(&self, message: &ReceivedMessage) -> Result<(), ClientError> {
        let mut answers = self.ack_many(std::slice::from_ref(message)).await?;
        answers.pop().unwrap_or(Err(ClientError::Malformed("no entry")))
    }

    /// Finishes messages in one request; each is answered on its own, in order. The request is repeated when it is lost
    /// or refused as a whole; entries are not.
    ///
    /// # Errors
    /// For what concerns the request as a whole.
    pub async fn ack_many(&self, messages: &[ReceivedMessage]) -> Result<Vec<Result<(), ClientError>>, ClientError> {
        let Some(first) = messages.first() else { return Ok(Vec::new()) };
        let entries = messages.iter().map(|message| v2::AckMessageEntry {
            message_id: message.message_id.clone(),
            receipt_handle: message.receipt_handle.clone(),
            lite_topic: None,
        });
        let request = v2::AckMessageRequest {
            group: Some(self.session.resource(&self.group)),
            topic: Some(self.session.resource(&self.topic)),
            entries: entries.collect(),
        };
        let nodes = self.nodes_of(first).await?;
        self.retry(nodes, |node| self.ack_at(node, request.clone())).await
    }

    async fn ack_at(
        &self,
        node: Arc<Node>,
        request: v2::AckMessageRequest,
    ) -> Result<Vec<Result<(), ClientError>>, ClientError> {
        let count = request.entries.len();
        let answer = node.stub().ack_message(self.session.request(request)).await;
        let answer = answer.map_err(|status| ClientError::from_grpc(node.address(), &status))?.into_inner();
        let results: Vec<_> = answer.entries.into_iter().map(|entry| check(entry.status)).collect();
        if results.len() == count {
            // One message that can be tried again is a request that can be: an ack is idempotent.
            return match (&results[..], count) {
                ([Err(error)], 1) if error.is_retryable() => Err(error.clone()),
                _ => Ok(results),
            };
        }
        check(answer.status)?;
        Err(ClientError::Malformed("another number of entries than messages"))
    }

    /// Makes a message visible again `invisible` from now (at once for zero) and gives it the new receipt handle.
    ///
    /// # Errors
    /// When no attempt succeeds, or at once for an error that no retry mends; the handle stays as it was.
    pub async fn change_invisible_duration(
        &self,
        message: &mut ReceivedMessage,
        invisible: Duration,
    ) -> Result<(), ClientError> {
        let request = v2::ChangeInvisibleDurationRequest {
            group: Some(self.session.resource(&self.group)),
            topic: Some(self.session.resource(&self.topic)),
            receipt_handle: message.receipt_handle.clone(),
            invisible_duration: duration(invisible),
            message_id: message.message_id.clone(),
            lite_topic: None,
            suspend: None,
        };
        let nodes = self.nodes_of(message).await?;
        let change = |node| self.change_at(node, request.clone());
        message.receipt_handle = self.retry(nodes, change).await?;
        Ok(())
    }

    async fn change_at(
        &self,
        node: Arc<Node>,
        request: v2::ChangeInvisibleDurationRequest,
    ) -> Result<String, ClientError> {
        let answer = node.stub().change_invisible_duration(self.session.request(request)).await;
        let answer = answer.map_err(|status| ClientError::from_grpc(node.address(), &status))?.into_inner();
        check(answer.status).map(|()| answer.receipt_handle)
    }

    /// The node that a message came from, then all others.
    async fn nodes_of(&self, message: &ReceivedMessage) -> Result<Vec<Arc<Node>>, ClientError> {
        let (mut nodes, _) = self.session.nodes_to_receive(&self.topic, 0).await?;
        nodes.retain(|node| node.address() != message.endpoint);
        nodes.insert(0, self.session.attend(&message.endpoint)?);
        Ok(nodes)
    }

    async fn retry<T, F, Call>(&self, nodes: Vec<Arc<Node>>, call: F) -> Result<T, ClientError>
    where
        F: Fn(Arc<Node>) -> Call,
        Call: Future<Output = Result<T, ClientError>>,
    {
        let mut attempts = Attempts::new(self.session.options(), nodes);
        let mut last = ClientError::NoQueue(self.topic.clone());
        while let Some(node) = attempts.next().await {
            match call(node.clone()).await {
                Ok(answer) => {
                    node.answered();
                    return Ok(answer);
                }
                Err(error) => {
                    let again = attempts.failed(&node, &error);
                    last = error;
                    if !again {
                        break;
                    }
                }
            }
        }
        Err(last)
    }
}

fn duration(duration: Duration) -> Option<prost_types::Duration> {
    prost_types::Duration::try_from(duration).ok()
}
