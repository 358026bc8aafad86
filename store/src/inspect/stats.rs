//! Counts and a digest of one group's log.

use super::log::WalkedEntry;
use super::messages::{self, Contents};
use crate::commit_log::{EntryId, EntryKind};
use raftmq_model::command::Command;
use raftmq_model::ids::TopicUid;
use raftmq_model::machine::{Mix, carried};
use raftmq_model::record::RecordView;
use std::collections::BTreeMap;

/// Consecutive entries of one term.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TermRun {
    /// The term.
    pub term: u64,
    /// Its first entry.
    pub first: u64,
    /// Its last entry.
    pub last: u64,
}

/// What of a topic is in the log.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct TopicStats {
    /// The topic's name, from its first record that can be read.
    pub name: String,
    /// Records, repeated ones among them.
    pub messages: u64,
    /// Bytes of the records.
    pub bytes: u64,
}

/// Counts of the entries that were added.
#[derive(Clone, Default, Debug)]
pub struct LogStats {
    /// The first entry.
    pub first: Option<EntryId>,
    /// The last entry.
    pub last: Option<EntryId>,
    /// Entries.
    pub entries: u64,
    /// Bytes of their frames.
    pub bytes: u64,
    /// Terms, in order.
    pub terms: Vec<TermRun>,
    /// Entries of each kind.
    pub kinds: BTreeMap<&'static str, u64>,
    /// Commands of each kind, in a broker group's log.
    pub commands: BTreeMap<&'static str, u64>,
    /// What is in the log of each topic.
    pub topics: BTreeMap<TopicUid, TopicStats>,
    digest: Mix,
}

impl LogStats {
    /// Adds the next entry.
    pub fn add(&mut self, walked: &WalkedEntry, contents: Contents) {
        let entry = &walked.entry;
        let id = (entry.term, entry.index);
        self.first.get_or_insert(id);
        self.last = Some(id);
        self.entries += 1;
        self.bytes += walked.frame_bytes;
        match self.terms.last_mut() {
            Some(run) if run.term == entry.term => run.last = entry.index,
            _ => self.terms.push(TermRun { term: entry.term, first: entry.index, last: entry.index }),
        }
        *self.kinds.entry(kind_name(entry.kind)).or_default() += 1;
        for word in [entry.index, entry.term, entry.kind as u64] {
            self.digest.word(word);
        }
        self.digest.bytes(&entry.payload);
        if contents == Contents::Messages {
            self.add_commands(walked);
        }
    }

    /// A digest over index, term, kind and payload of all entries that were added: equal on all replicas for equal
    /// entries.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.digest.finish()
    }

    fn add_commands(&mut self, walked: &WalkedEntry) {
        // What cannot be read is for `verify` to tell.
        let Ok(Some(commands)) = messages::commands(&walked.entry) else { return };
        let at = messages::position(&walked.entry);
        for (command_at, command) in &commands.commands {
            *self.commands.entry(command.as_ref().map_or("unknown", command_name)).or_default() += 1;
            for record in command.iter().flat_map(|command| carried(at, *command_at, command)) {
                let topic = self.topics.entry(record.topic).or_default();
                topic.messages += 1;
                topic.bytes += record.record.len() as u64;
                if topic.name.is_empty()
                    && let Ok(view) = RecordView::parse(record.record)
                {
                    topic.name = view.topic().to_owned();
                }
            }
        }
    }
}

/// The name of an entry's kind.
#[must_use]
pub fn kind_name(kind: EntryKind) -> &'static str {
    match kind {
        EntryKind::Blank => "blank",
        EntryKind::Batch => "batch",
        EntryKind::Membership => "membership",
    }
}

/// The name of a command's kind.
#[must_use]
pub fn command_name(command: &Command) -> &'static str {
    match command {
        Command::Append(_) => "append",
        Command::PutTopic(_) => "put-topic",
        Command::DeleteTopic { .. } => "delete-topic",
        Command::PutConsumerGroup(_) => "put-consumer-group",
        Command::DeleteConsumerGroup { .. } => "delete-consumer-group",
        Command::Pop(_) => "pop",
        Command::Ack(_) => "ack",
        Command::ChangeInvisible(_) => "change-invisible",
        Command::DeadLetter(_) => "dead-letter",
        Command::Release(_) => "release",
        Command::Snapshot => "snapshot",
        Command::Purge { .. } => "purge",
    }
}
