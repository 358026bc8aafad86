//! Producers send numbered messages while consumers receive and acknowledge them; at the end the topic is drained.
//!
//! Messages of other runs that the topic still holds are acknowledged and left out of the history: each message carries
//! the id of its run as a property.

use super::Recorder;
use super::messages::{RUN_PROPERTY, batch_count, body, message, summary};
use crate::history::{Answer, Call, Delivery, Event, Phase};
use anyhow::{Context, Result, anyhow};
use raftmq_client::{
    Client, ClientError, ClientOptions, Code, Connector, FilterExpression, Message, Producer, ReceivedMessage,
    SendError, SimpleConsumer,
};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// How long received messages stay invisible: the least that the API allows.
pub const INVISIBLE: Duration = Duration::from_secs(10);
const RECEIVE_BATCH_COUNT: u32 = 16;
/// Default of [`Options::quiet_complete`].
pub const QUIET_COMPLETE: Duration = Duration::from_secs(3);
/// Default of [`Options::quiet_missing`]: in-flight messages have come back by then.
pub const QUIET_MISSING: Duration = Duration::from_secs(25);
/// Of so many receives one tries an old handle.
const PROBE_ONE_OF: u64 = 4;
/// Of so many receives one hangs up before it has an answer, if it takes long.
const HANG_UP_ONE_OF: u64 = 8;
/// After at most this.
const HANG_UP_MS_MAX: u64 = 400;
/// Of so many messages one is not acknowledged at its first delivery.
const KEEP_ONE_OF: u64 = 16;
/// Pause of a consumer whose receive failed, so that it does not spin.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(50);
const EVENTS_COUNT_MAX: usize = 40_000_000;
/// Sends of an open loop that wait for their answers, at most; past that it waits too.
const OPEN_COUNT_MAX: usize = 4_096;

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Nodes of the cluster, `host:port` each.
    pub endpoints: Vec<String>,
    /// An existing topic of ordinary messages from which nothing was purged yet.
    pub topic: String,
    /// The consumer group; no one else may use it. Further groups have its name and a number.
    pub group: String,
    /// How many consumer groups read the topic, each on its own.
    pub groups_count: u32,
    /// Unique to this run.
    pub run: String,
    /// For how long producers send.
    pub produce: Duration,
    /// Ends that earlier when it becomes true.
    pub stop: watch::Receiver<bool>,
    /// Longest drain after that; a topic that is not empty by then decides nothing.
    pub drain_max: Duration,
    /// Tasks that send.
    pub producers: u32,
    /// Tasks that receive, for each group.
    pub consumers: u32,
    /// Each producer sends so often, at most.
    pub interval: Duration,
    /// The longest body; most are a few bytes.
    pub body_bytes_max: usize,
    /// Talk to the endpoints in turn instead of following routes.
    pub direct: bool,
    /// The topic is drained when nothing came for so long and nothing is missing.
    pub quiet_complete: Duration,
    /// The same while acknowledged messages are missing; longer than messages stay invisible.
    pub quiet_missing: Duration,
    /// Behave as some clients do: consumers hang up while they wait, leave messages unacknowledged at first, use old handles;
    /// producers send batches, and the first of several does not wait for answers.
    pub untidy: bool,
    /// How to connect; none: TCP.
    pub connector: Option<Connector>,
}

/// What the tasks share.
struct Run {
    options: Options,
    client: Client,
    recorder: Recorder,
    progress: Mutex<Progress>,
}

/// What decides when the topic is drained.
struct Progress {
    /// Ids of sends that were answered OK and have not been received, for each group.
    missing: Vec<BTreeSet<String>>,
    received: Vec<BTreeSet<String>>,
    last_news: Instant,
    /// When producers ended.
    produced_at: Option<Instant>,
}

/// Runs the workload and answers its history.
///
/// # Errors
/// For faults of the harness only: bad options, a task that died, a history that is not whole.
pub async fn run(options: Options) -> Result<Vec<Event>> {
    let client_options = ClientOptions {
        direct: options.direct,
        await_duration: Duration::from_secs(5),
        request_timeout: Duration::from_secs(2),
        connector: options.connector.clone(),
        client_name: "jepsen".to_owned(),
        ..ClientOptions::default()
    };
    let client = Client::connect(options.endpoints.clone(), client_options).await.context("bad endpoints")?;
    let none = vec![BTreeSet::new(); options.groups_count.max(1) as usize];
    let progress = Progress { missing: none.clone(), received: none, last_news: Instant::now(), produced_at: None };
    let run =
        Arc::new(Run { options, client, recorder: Recorder::new(EVENTS_COUNT_MAX), progress: Mutex::new(progress) });
    let mut producers = JoinSet::new();
    let mut consumers = JoinSet::new();
    let produce_until = Instant::now() + run.options.produce;
    for process in 0..run.options.producers {
        producers.spawn(run.clone().produce(process, produce_until));
    }
    let groups_count = run.options.groups_count.max(1);
    for at in 0..run.options.consumers * groups_count {
        consumers.spawn(run.clone().consume(run.options.producers + at, at % groups_count));
    }
    while let Some(joined) = producers.join_next().await {
        joined.context("a producer task died")?;
    }
    run.with(|progress| {
        progress.produced_at = Some(Instant::now());
        progress.last_news = Instant::now();
    });
    let mut drained = true;
    while let Some(joined) = consumers.join_next().await {
        drained &= joined.context("a consumer task died")?;
    }
    if drained {
        let op = run.recorder.invoke(0, Call::Drained);
        run.recorder.complete(0, op, Phase::Ok { answer: Answer::Done });
    }
    let run = Arc::into_inner(run).context("a task outlived the run")?;
    run.recorder.into_events().map_err(|_| anyhow!("the run made more than {EVENTS_COUNT_MAX} events"))
}

impl Progress {
    /// A send was answered OK.
    fn stored(&mut self, id: String) {
        for (missing, received) in self.missing.iter_mut().zip(&self.received) {
            if !received.contains(&id) {
                missing.insert(id.clone());
            }
        }
    }
}

impl Run {
    fn with<T>(&self, change: impl FnOnce(&mut Progress) -> T) -> T {
        change(&mut self.progress.lock().unwrap_or_else(PoisonError::into_inner))
    }

    async fn produce(self: Arc<Run>, process: u32, until: Instant) {
        let Options { interval, untidy, producers, .. } = self.options;
        let open = untidy && process == 0 && producers > 1;
        let producer = self.client.producer();
        let mut pace = tokio::time::interval(interval.max(Duration::from_millis(1)));
        pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut on_their_way = JoinSet::new();
        let mut number = 0;
        loop {
            pace.tick().await;
            if Instant::now() >= until || *self.options.stop.borrow() {
                break;
            }
            let count = if untidy { batch_count(number) } else { 1 };
            let send = self.clone().send(producer.clone(), process, number..number + count);
            number += count;
            if !open {
                send.await;
                continue;
            }
            on_their_way.spawn(send);
            while on_their_way.try_join_next().is_some() {}
            if on_their_way.len() >= OPEN_COUNT_MAX {
                on_their_way.join_next().await;
            }
        }
        while on_their_way.join_next().await.is_some() {}
    }

    /// Sends the messages of a range of numbers in one call.
    async fn send(self: Arc<Run>, producer: Producer, process: u32, numbers: std::ops::Range<u64>) {
        let Options { topic, run, body_bytes_max, .. } = &self.options;
        let mut sends: Vec<(u64, String)> = Vec::new();
        let mut messages: Vec<Message> = Vec::new();
        for number in numbers {
            let (id, body) = (self.client.next_message_id(), body(process, number, *body_bytes_max));
            let call = Call::Send { message_id: id.clone(), body: summary(&body) };
            messages.push(message(topic, run, &id, body));
            sends.push((self.recorder.invoke(process, call), id));
        }
        let mut answers = match producer.send_many(messages).await {
            Ok(answers) => answers,
            Err(error) => vec![Err(error); sends.len()],
        }
        .into_iter();
        for (op, id) in sends {
            match answers.next() {
                Some(Ok(receipt)) => {
                    self.recorder.complete(process, op, Phase::Ok { answer: Answer::Sent { offset: receipt.offset } });
                    self.with(|progress| progress.stored(id));
                }
                Some(Err(error)) => self.recorder.complete(process, op, failed_send(&error)),
                None => self.recorder.complete(process, op, Phase::Unknown { error: "no entry".to_owned() }),
            }
        }
    }

    /// Receives until the topic is drained (`true`) or the time is up (`false`).
    async fn consume(self: Arc<Run>, process: u32, group: u32) -> bool {
        let Options { group: name, topic, .. } = &self.options;
        let name = if group == 0 { name.clone() } else { format!("{name}-{group}") };
        let consumer = self.client.simple_consumer(&name, topic, FilterExpression::all());
        loop {
            let produced_at = self.with(|progress| progress.produced_at);
            let drain = produced_at.is_some();
            if produced_at.is_some_and(|at| at.elapsed() > self.options.drain_max) {
                return false;
            }
            let op = self.recorder.invoke(process, Call::Receive { drain, group });
            let Some(received) = self.receive(&consumer, op, drain).await else {
                self.recorder.complete(process, op, Phase::Unknown { error: "hung up".to_owned() });
                continue;
            };
            match received {
                Ok(messages) => {
                    let (ours, foreign): (Vec<_>, Vec<_>) =
                        messages.into_iter().partition(|message| self.is_ours(message));
                    self.received(process, group, op, &ours);
                    let empty = ours.is_empty() && foreign.is_empty();
                    let mut ours = ours;
                    let untidy = self.options.untidy;
                    if let Some(first) = ours.first_mut().filter(|_| untidy && op.is_multiple_of(PROBE_ONE_OF)) {
                        self.probe(process, group, &consumer, first).await;
                    }
                    let turn =
                        |message: &ReceivedMessage| message.queue_offset.unsigned_abs().is_multiple_of(KEEP_ONE_OF);
                    ours.retain(|message| !untidy || drain || message.delivery_attempt > 1 || !turn(message));
                    let acks = ours.iter().map(|message| message.message_id.clone());
                    let acks: Vec<u64> =
                        acks.map(|message_id| self.recorder.invoke(process, Call::Ack { message_id, group })).collect();
                    self.acked(process, &acks, consumer.ack_many(&ours).await);
                    // Left-overs of other runs: nobody counts whether this succeeds.
                    let _ = consumer.ack_many(&foreign).await;
                    if drain && empty && self.is_drained() {
                        return true;
                    }
                }
                Err(error) => {
                    self.recorder.complete(process, op, Phase::Unknown { error: error.to_string() });
                    tokio::time::sleep(PAUSE_AFTER_ERROR).await;
                }
            }
        }
    }

    /// One receive; `None` when it hung up.
    async fn receive(
        &self,
        consumer: &SimpleConsumer,
        op: u64,
        drain: bool,
    ) -> Option<Result<Vec<ReceivedMessage>, ClientError>> {
        let received = consumer.receive(RECEIVE_BATCH_COUNT, INVISIBLE);
        if !self.options.untidy || drain || !op.is_multiple_of(HANG_UP_ONE_OF) {
            return Some(received.await);
        }
        // Another patience each time.
        let patience = Duration::from_millis(op.wrapping_mul(37) % HANG_UP_MS_MAX);
        tokio::time::timeout(patience, received).await.ok()
    }

    /// Gets a message a new handle, and acks it by the old one, which must be refused.
    async fn probe(&self, process: u32, group: u32, consumer: &SimpleConsumer, message: &mut ReceivedMessage) {
        let old = message.clone();
        if consumer.change_invisible_duration(message, INVISIBLE).await.is_err() {
            return;
        }
        let op = self.recorder.invoke(process, Call::StaleAck { message_id: old.message_id.clone(), group });
        let phase = match consumer.ack(&old).await {
            Ok(()) => Phase::Ok { answer: Answer::Done },
            Err(error) if error.code() == Some(Code::InvalidReceiptHandle) => Phase::Fail { error: error.to_string() },
            Err(error) => Phase::Unknown { error: error.to_string() },
        };
        self.recorder.complete(process, op, phase);
    }

    fn is_drained(&self) -> bool {
        let Options { quiet_complete, quiet_missing, .. } = self.options;
        self.with(|progress| {
            let needed = if progress.missing.iter().all(BTreeSet::is_empty) { quiet_complete } else { quiet_missing };
            progress.last_news.elapsed() >= needed
        })
    }

    fn is_ours(&self, message: &ReceivedMessage) -> bool {
        message.properties.get(RUN_PROPERTY) == Some(&self.options.run)
    }

    fn received(&self, process: u32, group: u32, op: u64, messages: &[ReceivedMessage]) {
        let delivery = |message: &ReceivedMessage| Delivery {
            message_id: message.message_id.clone(),
            body: summary(&message.body),
            queue: message.queue_id,
            offset: message.queue_offset,
            attempt: message.delivery_attempt,
        };
        let answer = Answer::Received { messages: messages.iter().map(delivery).collect() };
        self.recorder.complete(process, op, Phase::Ok { answer });
        self.with(|progress| {
            let (missing, received) = (&mut progress.missing[group as usize], &mut progress.received[group as usize]);
            for message in messages {
                missing.remove(&message.message_id);
                received.insert(message.message_id.clone());
            }
            if !messages.is_empty() {
                progress.last_news = Instant::now();
            }
        });
    }

    fn acked(&self, process: u32, ops: &[u64], answers: Result<Vec<Result<(), ClientError>>, ClientError>) {
        for (place, op) in ops.iter().enumerate() {
            let answer = match &answers {
                Ok(answers) => answers.get(place).cloned().unwrap_or(Err(ClientError::Malformed("no entry"))),
                Err(error) => Err(error.clone()),
            };
            let phase = match answer {
                Ok(()) => Phase::Ok { answer: Answer::Done },
                // An earlier attempt may have had its effect, which the client does not tell for acks.
                Err(error) => Phase::Unknown { error: error.to_string() },
            };
            self.recorder.complete(process, *op, phase);
        }
    }
}

/// `fail` only when it is certain that nothing was stored.
fn failed_send(error: &SendError) -> Phase {
    if error.maybe_stored {
        Phase::Unknown { error: error.to_string() }
    } else {
        Phase::Fail { error: error.to_string() }
    }
}
