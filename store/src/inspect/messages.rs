//! What the payload of an entry holds.

use bytes::Bytes;
use raftmq_model::batch::Batch;
use raftmq_model::command::Command;
use raftmq_model::ids::{Position, Timestamp};

use crate::commit_log::{EntryKind, StoredEntry};

/// What a group's log is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Contents {
    /// Anything: payloads are not looked at.
    Opaque,
    /// Batches of commands that only their own crate can read (the meta group).
    Batches,
    /// Batches of a broker group's commands.
    Messages,
}

/// The commands of an entry that could be read.
#[derive(Debug)]
pub struct Commands {
    /// Log time of the entry.
    pub now: Timestamp,
    /// Each command with its offset in the payload; `None` for one that this build cannot read, which apply refuses.
    pub commands: Vec<(u32, Option<Command>)>,
}

/// The commands of a broker group's entry; `None` when it carries no batch.
///
/// # Errors
/// A sentence when the payload is no batch.
pub fn commands(entry: &StoredEntry) -> Result<Option<Commands>, String> {
    if entry.kind != EntryKind::Batch {
        return Ok(None);
    }
    let batch = batch(entry.payload.clone())?;
    let commands = batch.commands().map(|(at, bytes)| (at, Command::decode(bytes).ok())).collect();
    Ok(Some(Commands { now: batch.now, commands }))
}

/// The batch in a payload.
pub(super) fn batch(payload: Bytes) -> Result<Batch, String> {
    Batch::decode(payload).map_err(|error| error.to_string())
}

/// Where an entry stands, as the rules want to know it.
#[must_use]
pub fn position(entry: &StoredEntry) -> Position {
    Position { term: entry.term, index: entry.index, payload_offset: entry.payload_offset }
}
