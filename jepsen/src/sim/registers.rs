//! Somebody who changes and looks at the settings of consumer groups through any node's metadata client: each group is a
//! register with versions, used for a while and then left for a new one. See [`crate::checker::register`].

use super::interpose;
use super::world::World;
use crate::checker::linearizable::OPERATIONS_COUNT_MAX;
use crate::checker::register::{self, Report};
use crate::history::{Answer, Call, Change, Event, Phase};
use raftmq_broker::meta_client::{MetaClient, MetaError};
use raftmq_model::config::ConsumerGroupConfig;
use raftmq_model::meta::{MetaAnswer, MetaOp};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

const PAUSE_MS: std::ops::Range<u64> = 50..1_000;
/// How long one operation may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// On one register.
const OPERATIONS_COUNT: u32 = 40;
const _: () = assert!(OPERATIONS_COUNT as usize <= OPERATIONS_COUNT_MAX);
const VALUES: std::ops::Range<u32> = 1..10_000;
/// How often a change without a premise is made on top of what others changed meanwhile.
const SET_COUNT_MAX: usize = 8;
/// No record has it: who names it only looks.
const NO_VERSION: u64 = u64::MAX;

/// The register in use, as it was last seen.
#[derive(Clone)]
struct Current {
    seen: ConsumerGroupConfig,
    left_count: u32,
}

#[derive(Default)]
struct Book {
    events: Vec<Event>,
    current: Option<Current>,
    ops_count: u64,
}

/// See the module.
pub(super) struct Registers {
    chance: StdRng,
    next_us: u64,
    made_count: u32,
    book: Arc<Mutex<Book>>,
}

impl Registers {
    pub(super) fn new(seed: u64) -> Registers {
        let chance = StdRng::seed_from_u64(seed ^ 0x5245_4749);
        Registers { chance, next_us: 0, made_count: 0, book: Arc::default() }
    }

    /// Asks something when it is time to.
    pub(super) fn step(&mut self, world: &World) {
        if world.now_us() < self.next_us {
            return;
        }
        self.next_us = world.now_us() + self.chance.random_range(PAUSE_MS) * 1_000;
        let Some((machine, meta)) = world.somebody(&mut self.chance) else { return };
        let (mut book, shared) = (lock(&self.book), Arc::clone(&self.book));
        let Some(current) = book.current.as_mut().filter(|current| current.left_count > 0) else {
            self.made_count += 1;
            machine.spawn(make(meta, shared, format!("register-{}", self.made_count)));
            return;
        };
        current.left_count -= 1;
        let seen = current.seen.clone();
        let new = Some(self.chance.random_range(VALUES)).filter(|new| *new != seen.attempts_max);
        let change = match self.chance.random_range(0..10) {
            0..4 => Change { value: None, if_version: None },
            4..8 => Change { value: new, if_version: Some(seen.version) },
            _ => Change { value: new, if_version: None },
        };
        let op = book.push(None, Phase::Invoke { call: Call::Register { name: seen.name.clone(), change } });
        machine.spawn(ask(meta, shared, op, seen, change));
    }

    pub(super) fn judge(&self) -> Report {
        register::check(&lock(&self.book).events)
    }
}

impl Book {
    /// Notes an event of an operation, a new one without a number.
    fn push(&mut self, op: Option<u64>, phase: Phase) -> u64 {
        let op = op.unwrap_or_else(|| {
            self.ops_count += 1;
            self.ops_count
        });
        self.events.push(Event { at_us: interpose::now_ns() / 1_000, process: 0, op, phase });
        op
    }

    fn saw(&mut self, group: &ConsumerGroupConfig) {
        if let Some(current) = self.current.as_mut().filter(|current| current.seen.uid == group.uid) {
            current.seen = group.clone();
        }
    }
}

fn lock(book: &Mutex<Book>) -> MutexGuard<'_, Book> {
    book.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn make(meta: Arc<MetaClient>, book: Arc<Mutex<Book>>, name: String) {
    let group = ConsumerGroupConfig { name, attempts_max: 16, consume_enabled: true, ..Default::default() };
    let answer = meta.propose(MetaOp::CreateConsumerGroup(group), Instant::now() + PATIENCE).await;
    let Ok(MetaAnswer::ConsumerGroup(seen)) = answer else { return };
    let mut book = lock(&book);
    // Another one may have been made meanwhile: the later one is used.
    let call = Call::MadeRegister { name: seen.name.clone(), version: seen.version, value: seen.attempts_max };
    book.push(None, Phase::Invoke { call });
    book.current = Some(Current { seen, left_count: OPERATIONS_COUNT });
}

async fn ask(meta: Arc<MetaClient>, book: Arc<Mutex<Book>>, op: u64, seen: ConsumerGroupConfig, change: Change) {
    let phase = match change {
        Change { value: None, .. } => look(&meta, &seen).await,
        Change { value: Some(value), if_version } => set(&meta, &seen, value, if_version).await,
    };
    let mut book = lock(&book);
    let (phase, group) = match phase {
        Ok(Seen::Holds(group)) => {
            let answer = Answer::Holds { version: group.version, value: group.attempts_max };
            (Phase::Ok { answer }, Some(group))
        }
        Ok(Seen::Conflict(group)) => (Phase::Ok { answer: Answer::Conflict }, Some(group)),
        Err(MetaError::Unknown) => (Phase::Unknown { error: MetaError::Unknown.to_string() }, None),
        Err(error) => (Phase::Fail { error: error.to_string() }, None),
    };
    group.iter().for_each(|group| book.saw(group));
    book.push(Some(op), phase);
}

enum Seen {
    Holds(ConsumerGroupConfig),
    Conflict(ConsumerGroupConfig),
}

async fn alter(meta: &MetaClient, asked: ConsumerGroupConfig) -> Result<Seen, MetaError> {
    match meta.propose(MetaOp::AlterConsumerGroup(asked), Instant::now() + PATIENCE).await {
        Ok(MetaAnswer::ConsumerGroup(group)) => Ok(Seen::Holds(group)),
        Err(MetaError::Conflict(group)) => Ok(Seen::Conflict(*group)),
        Ok(_) => Err(MetaError::Unknown),
        Err(error) => Err(error),
    }
}

/// A change that cannot be made: the answer says what is there.
async fn look(meta: &MetaClient, seen: &ConsumerGroupConfig) -> Result<Seen, MetaError> {
    let (Seen::Holds(group) | Seen::Conflict(group)) =
        alter(meta, ConsumerGroupConfig { version: NO_VERSION, ..seen.clone() }).await?;
    Ok(Seen::Holds(group))
}

/// Without a premise: on top of whatever is there, as the admin service does it.
async fn set(
    meta: &MetaClient,
    seen: &ConsumerGroupConfig,
    attempts_max: u32,
    if_version: Option<u64>,
) -> Result<Seen, MetaError> {
    let version = if_version.unwrap_or(seen.version);
    let mut asked = ConsumerGroupConfig { version, attempts_max, ..seen.clone() };
    for _ in 0..SET_COUNT_MAX {
        match alter(meta, asked).await? {
            Seen::Conflict(now) if if_version.is_none() => asked = ConsumerGroupConfig { attempts_max, ..now },
            answer => return Ok(answer),
        }
    }
    Err(MetaError::Refused("others were quicker each time".to_owned()))
}
