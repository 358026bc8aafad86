//! Somebody who changes the cluster's topics all the time, through any node: what was answered must be so in the end, on all
//! nodes.

use super::world::World;
use raftmq_broker::meta_client::{MetaClient, MetaError};
use raftmq_model::config::{Permission, TopicType};
use raftmq_model::meta::{CreateTopic, MetaAnswer, MetaOp, MetaView};
use rand::rngs::StdRng;
use rand::seq::IteratorRandom;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

const PAUSE_MS: std::ops::Range<u64> = 200..3_000;
/// How long one change may take.
const PATIENCE: Duration = Duration::from_secs(5);
const QUEUES_COUNT_MAX: u32 = 8;

/// What became of a change; a task that died with its node leaves it unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Unknown,
    Done,
    Failed,
}

/// One topic of the operator. Made once, and deleted at most once.
#[derive(Clone, Debug)]
pub(super) struct Made {
    created: Fate,
    /// As the answer to its creation said.
    uid: u64,
    deleted: Option<Fate>,
}

/// See the module.
pub(super) struct Operator {
    chance: StdRng,
    next_us: u64,
    topics: Arc<Mutex<BTreeMap<String, Made>>>,
}

impl Operator {
    pub(super) fn new(seed: u64) -> Operator {
        let chance = StdRng::seed_from_u64(seed ^ 0x4F50_4552);
        Operator { chance, next_us: 0, topics: Arc::default() }
    }

    /// Changes something when it is time to.
    pub(super) fn step(&mut self, world: &World) {
        if world.now_us() < self.next_us {
            return;
        }
        self.next_us = world.now_us() + self.chance.random_range(PAUSE_MS) * 1_000;
        let Some((machine, meta)) = world.somebody(&mut self.chance) else { return };
        let topics = Arc::clone(&self.topics);
        let mut known = lock(&topics);
        let old = known.iter().filter(|(_, made)| made.created == Fate::Done && made.deleted.is_none());
        let old = old.map(|(name, made)| (name.clone(), made.uid)).choose(&mut self.chance);
        match old.filter(|_| self.chance.random_ratio(1, 3)) {
            Some((name, uid)) => {
                if let Some(made) = known.get_mut(&name) {
                    made.deleted = Some(Fate::Unknown);
                }
                drop(known);
                machine.spawn(delete(meta, topics, name, uid));
            }
            None => {
                let name = format!("made-{}", known.len());
                known.insert(name.clone(), Made { created: Fate::Unknown, uid: 0, deleted: None });
                drop(known);
                machine.spawn(create(meta, topics, name, self.chance.random_range(1..=QUEUES_COUNT_MAX)));
            }
        }
    }

    /// What is not as it was answered.
    pub(super) fn judge(&self, views: &[Option<Arc<MetaView>>]) -> Vec<String> {
        let topics = lock(&self.topics);
        views.iter().flatten().flat_map(|view| judge(&topics, &present(view))).collect()
    }

    /// Changes that were answered.
    pub(super) fn done_count(&self) -> usize {
        let topics = lock(&self.topics);
        let done =
            |made: &Made| usize::from(made.created == Fate::Done) + usize::from(made.deleted == Some(Fate::Done));
        topics.values().map(done).sum()
    }
}

fn lock(topics: &Mutex<BTreeMap<String, Made>>) -> MutexGuard<'_, BTreeMap<String, Made>> {
    topics.lock().unwrap_or_else(PoisonError::into_inner)
}

fn present(view: &MetaView) -> BTreeMap<String, u64> {
    let made = view.topics.values().filter(|topic| topic.name.starts_with("made-"));
    made.map(|topic| (topic.name.clone(), topic.uid)).collect()
}

async fn create(meta: Arc<MetaClient>, topics: Arc<Mutex<BTreeMap<String, Made>>>, name: String, queue_count: u32) {
    let (topic_type, permission) = (TopicType::Normal as i32, Permission::ReadWrite as i32);
    let op = MetaOp::CreateTopic(CreateTopic { name: name.clone(), topic_type, permission, queue_count });
    let answer = meta.propose(op, Instant::now() + PATIENCE).await;
    if let Some(made) = lock(&topics).get_mut(&name) {
        (made.created, made.uid) = match &answer {
            Ok(MetaAnswer::Topic(topic)) => (Fate::Done, topic.uid),
            Ok(_) | Err(MetaError::Unknown) => (Fate::Unknown, 0),
            Err(_) => (Fate::Failed, 0),
        };
    }
}

async fn delete(meta: Arc<MetaClient>, topics: Arc<Mutex<BTreeMap<String, Made>>>, name: String, uid: u64) {
    let answer = meta.propose(MetaOp::DeleteTopic(uid), Instant::now() + PATIENCE).await;
    if let Some(made) = lock(&topics).get_mut(&name) {
        made.deleted = Some(match &answer {
            Ok(_) => Fate::Done,
            Err(MetaError::Unknown) => Fate::Unknown,
            Err(_) => Fate::Failed,
        });
    }
}

/// What of `present` (name and uid of each topic) contradicts what was answered.
fn judge(topics: &BTreeMap<String, Made>, present: &BTreeMap<String, u64>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, made) in topics {
        let there = present.get(name);
        let deleted = made.deleted.unwrap_or(Fate::Failed);
        match (made.created, deleted, there) {
            (Fate::Done, Fate::Failed, None) => wrong.push(format!("topic {name} was created and is not there")),
            (Fate::Done, _, Some(uid)) if *uid != made.uid => {
                wrong.push(format!("topic {name} was created with uid {} and has uid {uid}", made.uid));
            }
            (_, Fate::Done, Some(_)) => wrong.push(format!("topic {name} was deleted and is there")),
            (Fate::Failed, _, Some(_)) => wrong.push(format!("topic {name} was surely not created and is there")),
            _ => {}
        }
    }
    let unknown = present.keys().filter(|name| !topics.contains_key(*name));
    wrong.extend(unknown.map(|name| format!("topic {name} is there and nobody made it")));
    let uids: BTreeSet<u64> = present.values().copied().collect();
    if uids.len() != present.len() {
        wrong.push(format!("two topics have one uid: {present:?}"));
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(created: Fate, deleted: Option<Fate>) -> BTreeMap<String, Made> {
        [("made-0".to_owned(), Made { created, uid: 5, deleted })].into()
    }

    #[test]
    fn answers_are_held_to() {
        let there: BTreeMap<String, u64> = [("made-0".to_owned(), 5)].into();
        let gone = BTreeMap::new();
        let fine = |topics: &BTreeMap<String, Made>, present: &BTreeMap<String, u64>| judge(topics, present).is_empty();
        let created = made(Fate::Done, None);
        assert!(fine(&created, &there) && !fine(&created, &gone));
        let deleted = made(Fate::Done, Some(Fate::Done));
        assert!(fine(&deleted, &gone) && !fine(&deleted, &there));
        for unknown in [made(Fate::Unknown, None), made(Fate::Done, Some(Fate::Unknown))] {
            assert!(fine(&unknown, &there) && fine(&unknown, &gone));
        }
        let failed = made(Fate::Failed, None);
        assert!(fine(&failed, &gone) && !fine(&failed, &there));
        assert!(!fine(&created, &[("made-0".to_owned(), 6)].into()), "another uid");
        assert!(!fine(&BTreeMap::new(), &there), "nobody made it");
        let twins = [("made-0".to_owned(), 5), ("made-1".to_owned(), 5)].into();
        let mut two = created.clone();
        two.insert("made-1".to_owned(), Made { created: Fate::Done, uid: 5, deleted: None });
        assert!(!fine(&two, &twins), "one uid twice");
    }
}
