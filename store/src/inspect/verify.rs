//! Everything about one group that can be checked without a node: its log, and its ConsumeQueues and IndexFiles against it.

use super::finding::Findings;
use super::keys::{KeysCheck, KeysReport};
use super::log::{LogWalk, WalkedEntry};
use super::log_files::LogFacts;
use super::messages::{self, Contents};
use super::queues::{QueuesCheck, QueuesReport};
use crate::commit_log::{EntryId, EntryKind, manifest};
use crate::consume_queue::ConsumeQueues;
use crate::io::Io;
use crate::snapshots::Snapshots;
use raftmq_model::ids::{PhysicalOffset, QueueId, QueueOffset, TopicUid};
use raftmq_model::machine::carried;
use raftmq_model::record::RecordView;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where a group lies in a data folder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupFolder {
    /// Its log.
    pub log: PathBuf,
    /// Its ConsumeQueues, if it is a broker group.
    pub queues: Option<PathBuf>,
    /// Its IndexFiles, if it is a broker group.
    pub keys: Option<PathBuf>,
    /// Its snapshots, if it is a broker group.
    pub snapshots: Option<PathBuf>,
    /// What its entries hold.
    pub contents: Contents,
}

/// What the state of a group says about its log and its queues, as of its last checkpoint.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Checkpoint {
    /// The last entry that the state has applied; none in a state that is empty.
    pub applied: Option<EntryId>,
    /// The next offset of each queue.
    pub queues: Vec<(TopicUid, QueueId, QueueOffset)>,
}

/// What was checked.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct GroupReport {
    /// The log, beside its entries.
    pub log: LogFacts,
    /// The first entry that is intact and not purged.
    pub first: Option<EntryId>,
    /// The last entry that is intact, or the purged one.
    pub last: Option<EntryId>,
    /// Intact entries that are not purged.
    pub entries: u64,
    /// Messages in them.
    pub messages: u64,
    /// The ConsumeQueues.
    pub queues: Option<QueuesReport>,
    /// The IndexFiles.
    pub keys: Option<KeysReport>,
}

/// Reads a whole group and adds what is wrong to `findings`. Without a checkpoint the queues cannot be judged and are
/// not looked at.
pub fn verify(
    io: &Arc<dyn Io>,
    group: &GroupFolder,
    checkpoint: Option<&Checkpoint>,
    findings: &mut Findings,
) -> GroupReport {
    let Some(mut walk) = LogWalk::open(Arc::clone(io), &group.log, findings) else {
        return GroupReport::default();
    };
    let report = GroupReport { log: walk.facts().clone(), ..GroupReport::default() };
    let start = PhysicalOffset(walk.facts().start);
    let queues = begin_queues(io, group, checkpoint, start, findings);
    let keys = group.keys.as_ref().map(|dir| KeysCheck::begin(Arc::clone(io), dir, start, findings));
    if let Some(dir) = &group.snapshots {
        verify_snapshots(&Snapshots::new(dir, Arc::clone(io)), walk.facts().purged, findings);
    }
    let applied = checkpoint.and_then(|checkpoint| checkpoint.applied);
    if let Some((_, applied)) = applied {
        walk.known_durable(applied);
    }
    let mut verification = Verification { contents: group.contents, applied, queues, keys, gaps_seen: 0, report };
    while let Some(walked) = walk.next(findings) {
        verification.pass_gaps(&walk, findings);
        verification.entry(&walked, findings);
    }
    verification.pass_gaps(&walk, findings);
    verification.finish(&walk, &group.log, findings)
}

struct Verification {
    contents: Contents,
    applied: Option<EntryId>,
    queues: Option<QueuesCheck>,
    keys: Option<KeysCheck>,
    gaps_seen: usize,
    report: GroupReport,
}

impl Verification {
    fn pass_gaps(&mut self, walk: &LogWalk, findings: &mut Findings) {
        if let Some(queues) = &mut self.queues {
            for gap in &walk.gaps()[self.gaps_seen..] {
                queues.gap(*gap, findings);
            }
        }
        self.gaps_seen = walk.gaps().len();
    }

    fn entry(&mut self, walked: &WalkedEntry, findings: &mut Findings) {
        let entry = &walked.entry;
        let id = (entry.term, entry.index);
        if !walked.purged {
            self.report.first.get_or_insert(id);
            self.report.entries += 1;
        }
        if let Some((term, index)) = self.applied
            && index == entry.index
            && term != entry.term
        {
            let what =
                format!("entry {index} has the term {}, the state has applied it with the term {term}", entry.term);
            findings.damage(&walked.file, walked.at, what);
        }
        if entry.kind != EntryKind::Batch {
            return;
        }
        if let Some(keys) = self.keys.as_mut().filter(|_| !walked.purged) {
            keys.entry(entry, findings);
        }
        let outcome = match self.contents {
            Contents::Opaque => Ok(()),
            Contents::Batches => messages::batch(entry.payload.clone()).map(|_| ()),
            Contents::Messages => self.messages(walked, findings),
        };
        if let Err(reason) = outcome {
            let what = format!("the payload of entry {} cannot be read: {reason}", entry.index);
            findings.damage(&walked.file, walked.at, what);
        }
    }

    fn messages(&mut self, walked: &WalkedEntry, findings: &mut Findings) -> Result<(), String> {
        let Some(commands) = messages::commands(&walked.entry)? else { return Ok(()) };
        let at = messages::position(&walked.entry);
        let applied = self.applied.is_some_and(|(_, applied)| walked.entry.index <= applied);
        for (command_at, command) in &commands.commands {
            let Some(command) = command else { continue };
            for record in carried(at, *command_at, command) {
                self.report.messages += u64::from(!walked.purged);
                let view = RecordView::parse(record.record);
                if let Err(error) = view.and_then(|view| view.verify_body()) {
                    let at = record.physical.0 - at.payload_offset.0 + crate::frame::HEADER_BYTES as u64 + walked.at;
                    findings.damage(&walked.file, at, format!("a message of entry {}: {error}", walked.entry.index));
                }
                if let Some(queues) = self.queues.as_mut().filter(|_| applied) {
                    queues.record(&record, findings);
                }
            }
        }
        Ok(())
    }

    /// What was purged lives on in the state only.
    fn check_purged(&self, log: &Path, findings: &mut Findings) {
        let Some((_, purged)) = self.report.log.purged.filter(|_| self.contents != Contents::Opaque) else { return };
        let applied = self.applied.map(|(_, applied)| applied);
        if applied.is_none_or(|applied| applied < purged) {
            let has = applied
                .map_or_else(|| "there is no state".into(), |applied| format!("the state has applied {applied}"));
            let what = format!("the log is purged up to entry {purged}, and {has}");
            findings.damage(manifest::path(log), 32, what);
        }
    }

    fn finish(mut self, walk: &LogWalk, log: &Path, findings: &mut Findings) -> GroupReport {
        self.report.last = walk.last();
        self.check_purged(log, findings);
        if let Some((_, applied)) = self.applied
            && walk.last().is_none_or(|(_, last)| last < applied)
        {
            let (file, at) = walk.end_place();
            let last =
                walk.last().map_or_else(|| "before its first entry".into(), |(_, last)| format!("at entry {last}"));
            findings.damage(file, at, format!("the log ends {last}, the state has applied entry {applied}"));
        }
        self.report.queues = self.queues.map(|queues| queues.finish(walk.gaps(), findings));
        self.report.keys = self.keys.map(|keys| keys.finish(walk.gaps(), findings));
        self.report
    }
}

/// Every snapshot is whole, and there is one where the log begins.
fn verify_snapshots(snapshots: &Snapshots, purged: Option<EntryId>, findings: &mut Findings) {
    let indexes = match snapshots.indexes() {
        Ok(indexes) => indexes,
        Err(error) => {
            findings.damage(snapshots.path(0), 0, format!("the snapshots cannot be listed: {error}"));
            return;
        }
    };
    for index in &indexes {
        if let Err(error) = snapshots.read(*index) {
            findings.damage(snapshots.path(*index), 0, error.to_string());
        }
    }
    if let Some((_, purged)) = purged
        && !indexes.contains(&purged)
    {
        let what = "it is missing: the log begins behind it, and a replica without the log before needs it";
        findings.damage(snapshots.path(purged), 0, what);
    }
}

fn begin_queues(
    io: &Arc<dyn Io>,
    group: &GroupFolder,
    checkpoint: Option<&Checkpoint>,
    start: PhysicalOffset,
    findings: &mut Findings,
) -> Option<QueuesCheck> {
    let (dir, checkpoint) = (group.queues.as_deref()?, checkpoint?);
    let queues = open_queues(io, dir, findings)?;
    Some(QueuesCheck::begin(queues, &checkpoint.queues, start, findings))
}

/// The ConsumeQueues in `dir`, for reading.
pub fn open_queues(io: &Arc<dyn Io>, dir: &Path, findings: &mut Findings) -> Option<ConsumeQueues> {
    match ConsumeQueues::open(dir, Arc::clone(io)) {
        Ok(queues) => Some(queues),
        Err(error) => {
            findings.damage(dir, 0, format!("the ConsumeQueues cannot be opened: {error}"));
            None
        }
    }
}
