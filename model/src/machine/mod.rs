//! The replicated state machine of a broker group: `apply(state, position, command) -> (outcome, changes)`.
//!
//! [`GroupState`] is a pure function of the committed log (law 2): nothing in here reads a clock, an environment or a
//! hash map's order. The runtime feeds it each command of each entry in log order, then calls
//! [`GroupState::flush_dirty`] once at the end of a run of entries and writes what is in [`Changes`] as one batch:
//!
//! ```text
//! for entry in run {
//!     for command in entry { outcome = state.apply(at, command_at, batch.now, &command, &mut changes) }
//!     state.end_entry(at, &mut changes);   // true: the run ends here and its state is kept as a snapshot
//! }
//! state.flush_dirty(&mut changes);   // queue offsets, cursors, log clock: at most one key each per run
//! append changes.enqueues to the ConsumeQueues, write changes.writes and the applied index as one state-store batch,
//! drop the ConsumeQueues of changes.topics_removed
//! ```
//!
//! After a restart: [`Loader`] (or [`GroupState::load`]) takes the pairs of the last checkpoint, then
//! [`GroupState::remember_append`] refills the stored-once window from the entries
//! [`GroupState::window_replay_from`] `..= checkpoint`, then `apply` goes on behind the checkpoint.
//!
//! | file | holds |
//! |---|---|
//! | `append`, `config`, `pop`, `handles`, `dead_letter` | one command family each |
//! | `consumption` | cursor, in-flight records and their due order, per consumer group and queue |
//! | `attempts` | which batch an attempt id was given |
//! | `window` | stored-once window: message id to first receipt |
//! | `retention` | snapshots and the purge point |
//! | `key/` | one file per key type of the state store |
//! | `load`, `digest`, `query` | back from pairs; comparing replicas; what the leader's planner asks |
//! | `carried` | the records in a command, for tools that read a log |

mod append;
mod attempts;
mod carried;
mod changes;
mod config;
mod consumption;
mod dead_letter;
mod digest;
mod handles;
pub mod key;
mod limits;
mod load;
mod pop;
mod query;
mod retention;
mod window;

pub use carried::{Carried, carried};
pub use changes::{Changes, Enqueue, Write};
pub use consumption::{ConsumedQueue, InFlight};
pub use digest::Mix;
pub use limits::{
    ATTEMPT_ID_BYTES_MAX, ATTEMPT_IDS_COUNT_MAX, ATTEMPT_IDS_MS, IN_FLIGHT_COUNT_MAX, Limits, POP_COUNT_MAX,
    STORED_ONCE_COUNT_MAX, STORED_ONCE_ID_BYTES_MAX, STORED_ONCE_MS,
};
pub use load::{LoadError, Loader};
pub use query::{QueueProgress, Repeated};
pub use retention::{Purged, SNAPSHOT_POINTS_COUNT_MAX, SnapshotPoint};

use crate::command::{Command, Outcome};
use crate::config::{ConsumerGroupConfig, TopicConfig};
use crate::ids::{ConsumerGroupUid, GroupId, Position, QueueId, QueueOffset, Timestamp, TopicUid};
use attempts::Attempts;
use consumption::{Consumption, Flight};
use retention::Retention;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use window::StoredOnce;

/// The state of one broker group. One thread owns it; readers are served through that owner.
#[derive(Clone, Debug)]
pub struct GroupState {
    group: GroupId,
    limits: Limits,
    /// The log clock: the greatest time that an applied command carried.
    now: Timestamp,
    topics: BTreeMap<TopicUid, Topic>,
    topics_removed: BTreeSet<TopicUid>,
    consumer_groups: BTreeMap<ConsumerGroupUid, ConsumerGroup>,
    consumer_groups_removed: BTreeSet<ConsumerGroupUid>,
    consumptions: BTreeMap<ConsumedQueue, Consumption>,
    /// In-flight messages that had their last attempt, by the time when that is over.
    exhausted: BTreeSet<(Timestamp, ConsumedQueue, QueueOffset)>,
    window: StoredOnce,
    retention: Retention,
    dirty: Dirty,
}

/// A topic as this group knows it, with the queues that this group hosts.
#[derive(Clone, Debug)]
struct Topic {
    config: Arc<TopicConfig>,
    queues: BTreeMap<QueueId, Queue>,
}

/// A queue that this group hosts.
#[derive(Clone, Copy, Debug, Default)]
struct Queue {
    /// Offset of the next message.
    next: QueueOffset,
    /// Offset of the first message that was not purged.
    min: QueueOffset,
    dirty: bool,
}

/// A consumer group as this group knows it.
#[derive(Clone, Debug)]
struct ConsumerGroup {
    config: Arc<ConsumerGroupConfig>,
    attempts: Attempts,
}

/// What changed since the last [`GroupState::flush_dirty`] and is written there, however often it changed.
#[derive(Clone, Debug, Default)]
struct Dirty {
    queues: Vec<(TopicUid, QueueId)>,
    cursors: Vec<ConsumedQueue>,
    clock: bool,
    /// What was last written under [`key::window_from`].
    window_from: Option<key::window_from::WindowFrom>,
}

impl GroupState {
    /// The empty state of a group before its first entry.
    #[must_use]
    pub fn new(group: GroupId) -> GroupState {
        GroupState::with_limits(group, Limits::default())
    }

    /// As [`GroupState::new`] with other limits. They are part of the rules: every replica must use the same.
    #[must_use]
    pub fn with_limits(group: GroupId, limits: Limits) -> GroupState {
        GroupState {
            group,
            limits,
            now: Timestamp::default(),
            topics: BTreeMap::new(),
            topics_removed: BTreeSet::new(),
            consumer_groups: BTreeMap::new(),
            consumer_groups_removed: BTreeSet::new(),
            consumptions: BTreeMap::new(),
            exhausted: BTreeSet::new(),
            window: StoredOnce::new(limits),
            retention: Retention::default(),
            dirty: Dirty::default(),
        }
    }

    /// Applies one command. `at` is its entry's position, `command_at` the offset of the encoded command in the
    /// entry's payload, `now` the time that the batch carries. Changes are added to `changes`; see the module's header
    /// for what the caller does with them.
    pub fn apply(
        &mut self,
        at: Position,
        command_at: u32,
        now: Timestamp,
        command: &Command,
        changes: &mut Changes,
    ) -> Outcome {
        if now > self.now {
            self.now = now;
            self.dirty.clock = true;
        }
        self.window.evict(self.now);
        match command {
            Command::Append(append) => self.append(at, command_at, append, changes),
            Command::PutTopic(config) => self.put_topic(config, changes),
            Command::DeleteTopic { uid } => self.delete_topic(TopicUid(*uid), changes),
            Command::PutConsumerGroup(config) => self.put_consumer_group(config, changes),
            Command::DeleteConsumerGroup { uid } => self.delete_consumer_group(ConsumerGroupUid(*uid), changes),
            Command::Pop(pop) => self.pop(at, command_at, pop, changes),
            Command::Ack(ack) => self.ack(ack, changes),
            Command::ChangeInvisible(change) => self.change_invisible(at, change, changes),
            Command::Release(release) => self.release(release, changes),
            Command::DeadLetter(letter) => self.dead_letter(at, command_at, letter, changes),
            Command::Snapshot => self.snapshot(),
            Command::Purge { upto_index } => self.purge(*upto_index, changes),
        }
    }

    /// Adds the keys of what changed since the last call: next offsets of queues, cursors, the log clock, and where
    /// the replay of the stored-once window begins. To be called once at the end of a run of entries, before the
    /// changes are written.
    pub fn flush_dirty(&mut self, changes: &mut Changes) {
        for (topic, queue) in std::mem::take(&mut self.dirty.queues) {
            if let Some(entry) = self.topics.get_mut(&topic).and_then(|t| t.queues.get_mut(&queue)) {
                entry.dirty = false;
                changes.put(key::queue::key(topic, queue), key::queue::value(entry.next));
            }
        }
        for consumed in std::mem::take(&mut self.dirty.cursors) {
            if let Some(consumption) = self.consumptions.get_mut(&consumed) {
                consumption.dirty = false;
                changes.put(key::cursor::key(consumed), key::cursor::value(consumption.cursor));
            }
        }
        if std::mem::take(&mut self.dirty.clock) {
            changes.put(key::clock::key(), key::clock::value(self.now));
        }
        let from = self.window.replay_from();
        if self.dirty.window_from != Some(from) {
            self.dirty.window_from = Some(from);
            changes.put(key::window_from::key(), key::window_from::value(from));
        }
        self.window.drop_outlived_pairs(changes);
    }

    /// What `consumed` has in flight, to be changed; `None` while its consumer group or its cursor is not known.
    fn flight(&mut self, consumed: ConsumedQueue) -> Option<Flight<'_>> {
        let group = self.consumer_groups.get_mut(&consumed.consumer_group)?;
        Some(Flight {
            consumed,
            attempts_max: attempts_max(&group.config),
            queue: self.consumptions.get_mut(&consumed)?,
            attempts: &mut group.attempts,
            exhausted: &mut self.exhausted,
        })
    }
}

/// A consumer group's attempts, at least one.
fn attempts_max(config: &ConsumerGroupConfig) -> u32 {
    config.attempts_max.max(1)
}
