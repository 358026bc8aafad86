//! A cluster in memory: stores what is proposed and gives it out again, or fails as it is told to.

use crate::meta_client::MetaError;
use crate::router::RouteError;
use crate::service::Cluster;
use bytes::Bytes;
use parking_lot::Mutex;
use raftmq_model::clock::Clock;
use raftmq_model::command::{AppendEntry, AppendOutcome, Command, HandleKey, HandleOutcome, Outcome};
use raftmq_model::config::{ConsumerGroupConfig, Permission, TopicConfig, TopicType};
use raftmq_model::ids::{
    ConsumerGroupUid, GroupId, NodeId, PhysicalOffset, QueueOffset, ReplicaId, Timestamp, TopicUid,
};
use raftmq_model::meta::{BrokerGroupRecord, CreateTopic, MetaChange, MetaRecord, MetaRecordBox, MetaView, NodeRecord};
use raftmq_proto::forward::{PopRequest, PoppedMessage};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

pub(super) const CLUSTER_ID: &str = "c1";
pub(super) const NOW_MS: i64 = 1_750_000_000_456;
pub(super) const TOPIC_UID: u64 = 7;
pub(super) const GROUP_UID: u64 = 9;
const QUEUE_COUNT: u32 = 8;

/// A clock that stands.
pub(super) struct FixedClock;

impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        Timestamp(NOW_MS)
    }
}

/// See the module.
pub(super) struct Fake {
    view: watch::Sender<Arc<MetaView>>,
    state: Mutex<State>,
    arrived: Notify,
}

#[derive(Default)]
pub(super) struct State {
    /// Messages to be popped, by group.
    pub(super) stored: BTreeMap<GroupId, VecDeque<PoppedMessage>>,
    /// Entries as they were proposed.
    pub(super) appended: Vec<(GroupId, AppendEntry)>,
    /// Other commands as they were proposed.
    pub(super) commands: Vec<(GroupId, Command)>,
    /// Pops as they were asked for.
    pub(super) pops: Vec<(GroupId, PopRequest)>,
    /// Proposals and pops of these groups fail.
    pub(super) failures: BTreeMap<GroupId, RouteError>,
    /// These groups have had no leader for so long.
    pub(super) leaderless: BTreeMap<GroupId, Duration>,
    /// What handles are answered with, by queue offset; done where nothing is said.
    pub(super) handles: BTreeMap<u64, HandleOutcome>,
    /// Pops have taken, and wait for this before they answer.
    pub(super) pop_gate: Option<Arc<Notify>>,
    /// Topics are not created.
    pub(super) meta_failure: Option<MetaError>,
}

impl Fake {
    /// Three nodes, one broker group, one topic `orders`, one consumer group `billing`.
    pub(super) fn one_group() -> Fake {
        Fake::groups(1)
    }

    /// Three nodes, broker groups 1.. whose queues alternate.
    pub(super) fn groups(count: u32) -> Fake {
        let node = |id: u32| {
            MetaRecord::Node(NodeRecord {
                id,
                incarnation: 1,
                namesrv: true,
                broker: true,
                client_address: format!("10.0.0.{id}:8081"),
                peer_address: format!("10.0.0.{id}:8082"),
                admin_address: String::new(),
                alive: true,
            })
        };
        let group = |id: u32| {
            MetaRecord::BrokerGroup(BrokerGroupRecord {
                id,
                name: format!("broker-{id}"),
                replicas: (1..=3).map(|n| ReplicaId { node: NodeId(n), incarnation: 1 }.to_u64()).collect(),
                leader_node: 1,
                leader_term: 1,
            })
        };
        let mut records: Vec<MetaRecord> = (1..=3).map(node).chain((1..=count).map(group)).collect();
        records.push(MetaRecord::Topic(topic("orders", TOPIC_UID, count)));
        records.push(MetaRecord::ConsumerGroup(consumer_group("billing", GROUP_UID)));
        let fake = Fake::unborn();
        fake.change(records);
        fake
    }

    /// A node that knows nothing yet.
    pub(super) fn unborn() -> Fake {
        Fake { view: watch::Sender::default(), state: Mutex::default(), arrived: Notify::new() }
    }

    /// Changes what the node knows.
    pub(super) fn change(&self, records: Vec<MetaRecord>) {
        self.view.send_modify(|view| {
            let reset = view.revision == 0;
            let records = records.into_iter().map(|record| MetaRecordBox { record: Some(record) }).collect();
            let change = MetaChange { revision: view.revision + 1, reset, cluster_id: CLUSTER_ID.to_owned(), records };
            Arc::make_mut(view).take(&change);
        });
    }

    pub(super) fn state(&self) -> parking_lot::MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Waits until something was proposed for which `seen` says something.
    pub(super) async fn proposed<T>(&self, seen: impl Fn(&Command) -> Option<T>) -> T {
        loop {
            let arrived = self.arrived.notified();
            if let Some(found) = self.state().commands.iter().find_map(|(_, command)| seen(command)) {
                return found;
            }
            arrived.await;
        }
    }

    pub(super) fn fail(&self, group: u32, error: RouteError) {
        self.state().failures.insert(GroupId(group), error);
    }

    fn failure(&self, group: GroupId) -> Result<(), RouteError> {
        self.state().failures.get(&group).cloned().map_or(Ok(()), Err)
    }

    fn apply(&self, group: GroupId, command: Command) -> Outcome {
        let mut state = self.state();
        match command {
            Command::Append(append) => {
                Outcome::Append(append.entries.into_iter().map(|entry| state.append(group, entry)).collect())
            }
            Command::Ack(ref ack) => {
                let outcomes = ack.handles.iter().map(|handle| state.judge(handle)).collect();
                state.commands.push((group, command));
                Outcome::Handles(outcomes)
            }
            Command::ChangeInvisible(ref change) => {
                let handle = change.handle.unwrap();
                let outcome = match state.judge(&handle) {
                    HandleOutcome::Done => HandleOutcome::Renewed { popped_at: handle.popped_at + 1 },
                    other => other,
                };
                state.commands.push((group, command));
                Outcome::Handles(vec![outcome])
            }
            Command::Release(ref release) => {
                let outcomes = vec![HandleOutcome::Done; release.messages.len()];
                state.commands.push((group, command));
                Outcome::Handles(outcomes)
            }
            other => panic!("an edge does not propose {other:?}"),
        }
    }
}

impl State {
    fn append(&mut self, group: GroupId, entry: AppendEntry) -> AppendOutcome {
        let queue = self.stored.entry(group).or_default();
        let offset = self.appended.iter().filter(|(_, other)| other.queue == entry.queue).count() as u64;
        queue.push_back(PoppedMessage {
            queue_id: entry.queue.0,
            queue_offset: offset,
            physical_offset: 0,
            attempt: 1,
            popped_at: 100,
            visible_at_ms: NOW_MS + 30_000,
            record: entry.record.clone(),
        });
        let stored = AppendOutcome::Stored {
            queue: entry.queue,
            offset: QueueOffset(offset),
            physical: PhysicalOffset(0),
            repeated: false,
        };
        self.appended.push((group, entry));
        stored
    }

    fn judge(&self, handle: &HandleKey) -> HandleOutcome {
        self.handles.get(&handle.offset).copied().unwrap_or(HandleOutcome::Done)
    }
}

pub(super) fn topic(name: &str, uid: u64, group_count: u32) -> TopicConfig {
    TopicConfig {
        uid,
        version: 1,
        name: name.to_owned(),
        topic_type: TopicType::Normal as i32,
        permission: Permission::ReadWrite as i32,
        queue_groups: (0..QUEUE_COUNT).map(|queue| 1 + queue % group_count).collect(),
    }
}

pub(super) fn consumer_group(name: &str, uid: u64) -> ConsumerGroupConfig {
    ConsumerGroupConfig { uid, version: 1, name: name.to_owned(), fifo: false, attempts_max: 17, consume_enabled: true }
}

impl Cluster for Arc<Fake> {
    fn view(&self) -> Arc<MetaView> {
        Arc::clone(&self.view.borrow())
    }

    async fn first_view(&self, deadline: Instant) -> Option<Arc<MetaView>> {
        let mut known = self.view.subscribe();
        tokio::time::timeout_at(deadline, known.wait_for(|view| view.revision > 0)).await.ok()?.ok()?;
        Some(self.view())
    }

    async fn topic_or_create(&self, create: CreateTopic, _: Instant) -> Result<Arc<TopicConfig>, MetaError> {
        if let Some(error) = self.state().meta_failure.clone() {
            return Err(error);
        }
        let mut created = topic(&create.name, 70, 1);
        created.queue_groups.truncate(create.queue_count as usize);
        self.change(vec![MetaRecord::Topic(created.clone())]);
        Ok(Arc::new(created))
    }

    async fn consumer_group_or_create(
        &self,
        create: ConsumerGroupConfig,
        _: Instant,
    ) -> Result<Arc<ConsumerGroupConfig>, MetaError> {
        let created = ConsumerGroupConfig { uid: 90, version: 1, ..create };
        self.change(vec![MetaRecord::ConsumerGroup(created.clone())]);
        Ok(Arc::new(created))
    }

    async fn propose(&self, group: GroupId, commands: Vec<Bytes>, _: Instant) -> Result<Vec<Outcome>, RouteError> {
        self.failure(group)?;
        let outcomes =
            commands.into_iter().map(|command| self.apply(group, Command::decode(command).unwrap())).collect();
        self.arrived.notify_waiters();
        Ok(outcomes)
    }

    async fn pop(&self, group: GroupId, request: PopRequest, _: Instant) -> Result<Vec<PoppedMessage>, RouteError> {
        self.failure(group)?;
        let (taken, gate) = {
            let mut state = self.state();
            let count = request.batch_count as usize;
            state.pops.push((group, request));
            let queue = state.stored.entry(group).or_default();
            let taken: Vec<PoppedMessage> = queue.drain(..queue.len().min(count)).collect();
            (taken, state.pop_gate.clone())
        };
        if let Some(gate) = gate {
            gate.notified().await;
        }
        Ok(taken)
    }

    async fn wait(
        &self,
        group: GroupId,
        _: TopicUid,
        _: ConsumerGroupUid,
        _: &str,
        wait: Duration,
    ) -> Result<bool, RouteError> {
        let until = Instant::now() + wait;
        loop {
            let arrived = self.arrived.notified();
            self.failure(group)?;
            if self.state().stored.get(&group).is_some_and(|queue| !queue.is_empty()) {
                return Ok(true);
            }
            if tokio::time::timeout_at(until, arrived).await.is_err() {
                return Ok(false);
            }
        }
    }

    async fn dead_letter(&self, group: GroupId, handle: HandleKey, _: Instant) -> Result<HandleOutcome, RouteError> {
        self.failure(group)?;
        Ok(self.state().judge(&handle))
    }

    fn leaderless_for(&self, group: GroupId) -> Option<Duration> {
        self.state().leaderless.get(&group).copied()
    }
}
