//! Sending.

use crate::attempts::Attempts;
use crate::error::{ClientError, SendError, check};
use crate::message::Message;
use crate::node::Node;
use crate::session::Session;
use raftmq_proto::v2;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;

/// Sends messages. Cheap to clone; clones share a client id.
#[derive(Clone, Debug)]
pub struct Producer {
    session: Arc<Session>,
    turn: Arc<AtomicUsize>,
}

/// A stored message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The message's id.
    pub message_id: String,
    /// Its offset in its queue.
    pub offset: i64,
    /// Attempts that it took.
    pub attempts: u32,
    /// The endpoint that answered.
    pub endpoint: String,
}

/// A request on its way: the messages without an answer yet, with their places in the caller's list.
struct Outgoing {
    pending: Vec<(usize, v2::Message)>,
    answers: Vec<Option<Result<Receipt, SendError>>>,
}

impl Producer {
    pub(crate) fn new(session: Session) -> Producer {
        // Producers do not all start with the same lane.
        let turn = Arc::new(AtomicUsize::new(usize::from(rand::random::<u16>())));
        Producer { session: Arc::new(session), turn }
    }

    /// The client id that the server sees.
    #[must_use]
    pub fn client_id(&self) -> &str {
        self.session.client_id()
    }

    /// Sends one message and answers when it is stored.
    ///
    /// # Errors
    /// After [`crate::ClientOptions::attempts_max`] attempts, or at once for an error that no retry mends.
    pub async fn send(&self, message: Message) -> Result<Receipt, SendError> {
        let mut answers = self.send_many(vec![message]).await?;
        answers.pop().unwrap_or(Err(surely_not(ClientError::Malformed("no entry"))))
    }

    /// Sends messages of one topic in one request; each is answered on its own. Messages with a retryable answer are sent
    /// again, the others not.
    ///
    /// # Errors
    /// For what concerns the request as a whole: no message, several topics, no route. Everything else is in the answers,
    /// which are in the order of `messages`.
    pub async fn send_many(&self, messages: Vec<Message>) -> Result<Vec<Result<Receipt, SendError>>, SendError> {
        let first = messages.first().ok_or_else(|| surely_not(ClientError::MixedTopics))?;
        if messages.iter().any(|message| message.topic() != first.topic()) {
            return Err(surely_not(ClientError::MixedTopics));
        }
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let route = self.session.nodes_to_send(first.topic(), first.group(), turn).await;
        let (nodes, queue) = route.map_err(surely_not)?;
        let mut outgoing = self.outgoing(messages, queue.id);
        let mut attempts = Attempts::new(self.session.options(), nodes);
        while let Some(node) = attempts.next().await {
            let answer = self.send_at(&node, &outgoing).await;
            if let Err(error) = &answer {
                let again = attempts.failed(&node, error);
                if !again {
                    outgoing.give_up(error, &attempts);
                    break;
                }
                continue;
            }
            node.answered();
            if let Some(error) = outgoing.take(answer.unwrap_or_default(), &node, &attempts) {
                let again = attempts.failed(&node, &error);
                if !again {
                    outgoing.give_up(&error, &attempts);
                    break;
                }
            }
            if outgoing.pending.is_empty() {
                break;
            }
        }
        Ok(outgoing.finish())
    }

    fn outgoing(&self, messages: Vec<Message>, queue_id: i32) -> Outgoing {
        let now = SystemTime::now();
        let answers = vec![None; messages.len()];
        let wire = |message: Message| {
            let id = message.message_id().map_or_else(|| self.session.shared.ids.next_id(), str::to_owned);
            let topic = self.session.resource(message.topic());
            let mut wire = message.into_wire(topic, id, now);
            if let Some(system) = &mut wire.system_properties {
                system.queue_id = queue_id;
            }
            wire
        };
        Outgoing { pending: messages.into_iter().map(wire).enumerate().collect(), answers }
    }

    /// One attempt. `Ok` has one entry for each pending message; its own status says whether it is stored.
    async fn send_at(&self, node: &Node, outgoing: &Outgoing) -> Result<Vec<v2::SendResultEntry>, ClientError> {
        let messages = outgoing.pending.iter().map(|(_, message)| message.clone()).collect();
        let request = self.session.request(v2::SendMessageRequest { messages });
        let answer = node.stub().send_message(request).await;
        let answer = answer.map_err(|status| ClientError::from_grpc(node.address(), &status))?.into_inner();
        if answer.entries.len() == outgoing.pending.len() {
            return Ok(answer.entries);
        }
        check(answer.status)?;
        Err(ClientError::Malformed("another number of entries than messages"))
    }
}

/// An error of a request that was never sent.
fn surely_not(cause: ClientError) -> SendError {
    SendError { cause, attempts: 0, maybe_stored: false }
}

impl Outgoing {
    /// Takes the entries of one answer over. What can be sent again stays pending; the worst of its errors is returned.
    fn take(&mut self, entries: Vec<v2::SendResultEntry>, node: &Node, attempts: &Attempts<'_>) -> Option<ClientError> {
        let mut retry = None;
        let mut pending = Vec::new();
        for ((place, message), entry) in std::mem::take(&mut self.pending).into_iter().zip(entries) {
            match check(entry.status) {
                Ok(()) => {
                    let receipt = Receipt {
                        message_id: entry.message_id,
                        offset: entry.offset,
                        attempts: attempts.made(),
                        endpoint: node.address().to_owned(),
                    };
                    self.answers[place] = Some(Ok(receipt));
                }
                Err(error) if error.is_retryable() => {
                    if retry.as_ref().is_none_or(|known: &ClientError| !known.maybe_done()) {
                        retry = Some(error);
                    }
                    pending.push((place, message));
                }
                Err(cause) => {
                    let maybe_stored = attempts.maybe_done();
                    self.answers[place] = Some(Err(SendError { cause, attempts: attempts.made(), maybe_stored }));
                }
            }
        }
        self.pending = pending;
        retry
    }

    /// Answers all that is pending with this error.
    fn give_up(&mut self, error: &ClientError, attempts: &Attempts<'_>) {
        for (place, _) in self.pending.drain(..) {
            let (cause, maybe_stored) = (error.clone(), attempts.maybe_done());
            self.answers[place] = Some(Err(SendError { cause, attempts: attempts.made(), maybe_stored }));
        }
    }

    fn finish(self) -> Vec<Result<Receipt, SendError>> {
        let none = || Err(surely_not(ClientError::Malformed("no answer to this message")));
        self.answers.into_iter().map(|answer| answer.unwrap_or_else(none)).collect()
    }
}
