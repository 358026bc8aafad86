//! The load: producers and consumers that use any node and go to the next one when a call fails.

use super::Plan;
use super::books::Books;
use crate::exit::Failure;
use crate::load::endpoints::Endpoints;
use crate::load::receive::{Subscription, ack, attempt_id, receive};
use crate::load::send::{attempt, message, message_id};
use bytes::Bytes;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::JoinHandle;

const TOPIC: &str = "demo";
const GROUP: &str = "demo";
const BODY_BYTES: usize = 1024;
const BATCH_COUNT: u32 = 32;
/// Wait after a failed call, so that a node that is down does not become a busy loop.
const ERROR_PAUSE_MS: u64 = 5;

/// What workers do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Send and receive.
    Load,
    /// Finish the message at hand; receive.
    Drain,
    /// End.
    Stop,
}

/// Running workers; they end when this is dropped.
pub(super) struct Load {
    phase: watch::Sender<Phase>,
    producers: parking_lot::Mutex<Vec<JoinHandle<()>>>,
}

impl Load {
    /// Starts producers and consumers.
    pub(super) async fn start(plan: &Plan, endpoints: Endpoints, books: Arc<Books>) -> Result<Load, Failure> {
        let queues = endpoints.route(TOPIC).await?;
        if queues.is_empty() {
            return Err(Failure::failed("the topic of the demo has no queue"));
        }
        let (phase, phases) = watch::channel(Phase::Load);
        let producers = (0..plan.producers as usize)
            .map(|n| tokio::spawn(produce(endpoints.clone(), n, Arc::clone(&books), phases.clone())))
            .collect();
        for n in 0..plan.consumers as usize {
            let from = Subscription {
                topic: TOPIC.into(),
                group: GROUP.into(),
                batch_count: BATCH_COUNT,
                queue: queues[n % queues.len()].clone(),
            };
            tokio::spawn(consume(endpoints.clone(), n, from, Arc::clone(&books), phases.clone()));
        }
        Ok(Load { phase, producers: parking_lot::Mutex::new(producers) })
    }

    /// Goes to the next phase.
    pub(super) fn phase(&self, phase: Phase) {
        self.phase.send_replace(phase);
    }

    /// Waits until the producers have finished the message that they had at hand.
    pub(super) async fn producers_end(&self) -> Result<(), Failure> {
        let producers = std::mem::take(&mut *self.producers.lock());
        for producer in producers {
            producer.await.map_err(|error| Failure::failed(format!("a producer ended: {error}")))?;
        }
        Ok(())
    }
}

fn over(phases: &watch::Receiver<Phase>, last: Phase) -> bool {
    // A dropped sender means that nobody waits for the load any more.
    phases.has_changed().is_err() || (*phases.borrow() as u8) > last as u8
}

/// Sends one message after the other. A send that fails is repeated under the same id through the next node, until it is
/// acknowledged or the load is over.
async fn produce(endpoints: Endpoints, first: usize, books: Arc<Books>, phases: watch::Receiver<Phase>) {
    let body = Bytes::from(vec![b'd'; BODY_BYTES]);
    let mut endpoint = first;
    while !over(&phases, Phase::Load) {
        let id = message_id();
        loop {
            let began = Instant::now();
            let mut client = endpoints.nth(endpoint);
            if attempt(&mut client, vec![message(TOPIC, id.clone(), body.clone())]).await.is_ok() {
                books.acked(id, began);
                break;
            }
            if over(&phases, Phase::Load) {
                break;
            }
            endpoint += 1;
            tokio::time::sleep(Duration::from_millis(ERROR_PAUSE_MS)).await;
        }
    }
}

/// Receives and acks, one batch after the other.
async fn consume(
    endpoints: Endpoints,
    first: usize,
    from: Subscription,
    books: Arc<Books>,
    phases: watch::Receiver<Phase>,
) {
    let mut endpoint = first;
    let mut attempt = attempt_id();
    while !over(&phases, Phase::Drain) {
        let mut client = endpoints.nth(endpoint);
        let worked = match receive(&mut client, &from, &attempt).await {
            Ok(messages) => {
                attempt = attempt_id();
                for properties in messages.iter().filter_map(|message| message.system_properties.as_ref()) {
                    books.delivered(&properties.message_id);
                }
                ack_through_any(&endpoints, endpoint, &from, &messages).await
            }
            Err(error) => Err(error),
        };
        if worked.is_err() {
            endpoint += 1;
            tokio::time::sleep(Duration::from_millis(ERROR_PAUSE_MS)).await;
        }
    }
}

/// An ack is good through any node: a failed one is repeated through each other node once.
async fn ack_through_any(
    endpoints: &Endpoints,
    first: usize,
    from: &Subscription,
    messages: &[raftmq_proto::v2::Message],
) -> Result<(), String> {
    if messages.is_empty() {
        return Ok(());
    }
    let mut last = Err("not tried".to_string());
    for endpoint in first..first + ACK_ATTEMPTS {
        last = ack(&mut endpoints.nth(endpoint), from, messages).await;
        if last.is_ok() {
            return last;
        }
    }
    last
}

const ACK_ATTEMPTS: usize = 3;
