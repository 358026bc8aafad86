//! ConsumeQueue units against the log that they follow.
//!
//! A unit has no checksum (RocketMQ's layout). But the log says what it must be: the unit of queue offset N is the record of its
//! queue that lies between those of the units N - 1 and N + 1. So a damaged unit is written anew from the log by the replica itself.
//!
//! ```text
//! a receive, a query ─▶ a unit that does not lead to a message of its queue, in its place ─┐
//! scrub: every record of the log ─▶ its unit, or none (a repeat) ─────────────────────────┴▶ repair
//!
//! units     .. N-2   N-1   [N]   N+1 ..       the nearest units on both sides that lead to records of their queue
//! log       .. | r | r |  x r x  | r | ..     the records of the queue between those: as many as there are units in between
//! ```
//! Nothing is written unless the numbers agree. Any thread may repair: the log gives the same units to all.
//!
//! | file | holds |
//! |---|---|
//! | `repair` | one damaged unit with its damaged neighbours |
//! | `find` | searches in a queue that may be damaged |
//! | `scrub` | looks at every record and its unit, within a budget of bytes |

mod find;
mod repair;
mod scrub;

pub(crate) use find::{find, find_or_repaired, first_behind};
pub(crate) use repair::Units;
pub(crate) use scrub::UnitScrub;

use raftmq_model::batch::Batch;
use raftmq_model::command::Command;
use raftmq_model::ids::{Position, QueueId, QueueOffset, TopicUid};
use raftmq_model::machine::{Carried, carried};
use raftmq_model::record::RecordView;
use raftmq_store::consume_queue::ConsumeQueues;
use raftmq_store::{EntryKind, StoredEntry};
use std::io;
use std::path::PathBuf;

/// A unit that does not lead to the message of its offset.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{} is damaged at byte {at} (unit {offset} of queue {queue}, topic {topic})", file.display())]
pub(crate) struct UnitDamage {
    pub(crate) topic: TopicUid,
    pub(crate) queue: QueueId,
    pub(crate) offset: QueueOffset,
    file: PathBuf,
    at: u64,
}

impl UnitDamage {
    /// The damage of that unit, as an error.
    pub(crate) fn error(queues: &ConsumeQueues, topic: TopicUid, queue: QueueId, offset: QueueOffset) -> io::Error {
        let (file, at) = queues.place(topic, queue, offset);
        io::Error::new(io::ErrorKind::InvalidData, UnitDamage { topic, queue, offset, file, at })
    }

    /// The damage that a call failed with, if it was one.
    pub(crate) fn of(error: &io::Error) -> Option<&UnitDamage> {
        error.get_ref().and_then(|inner| inner.downcast_ref())
    }
}

/// Whether bytes that a unit leads to are a record of that topic and queue. `None`: the topic's name is not known.
pub(crate) fn is_of_queue(record: &[u8], topic: Option<&str>, queue: QueueId) -> bool {
    RecordView::parse(record)
        .is_ok_and(|record| record.queue_id() == queue.0 && topic.is_none_or(|name| name == record.topic()))
}

/// Shows the records that an entry carries, in order.
fn each_record(entry: &StoredEntry, mut visit: impl FnMut(&Carried<'_>)) -> io::Result<()> {
    if entry.kind != EntryKind::Batch {
        return Ok(());
    }
    let batch = Batch::decode(entry.payload.clone()).map_err(|error| {
        let (index, at) = (entry.index, entry.payload_offset);
        io::Error::new(io::ErrorKind::InvalidData, format!("entry {index} at offset {at} is no batch: {error}"))
    })?;
    let at = Position { term: entry.term, index: entry.index, payload_offset: entry.payload_offset };
    for (command_at, bytes) in batch.commands() {
        // What could not be decoded was refused, and stored nothing.
        let Ok(command) = Command::decode(bytes) else { continue };
        carried(at, command_at, &command).iter().for_each(&mut visit);
    }
    Ok(())
}
