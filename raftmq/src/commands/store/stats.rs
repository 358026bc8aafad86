//! `raftmq store stats`: how much is in the logs of a data folder, and a digest with which replicas can be compared.

use super::FolderArgs;
use super::folder::{Folder, Group};
use super::verify::KeysRow;
use crate::cli::{Global, Output};
use crate::exit::Failure;
use crate::output::{self, Table};
use clap::Args;
use raftmq_model::ids::TopicUid;
use raftmq_store::consume_queue::QueueRange;
use raftmq_store::inspect::{Finding, Findings, LogStats, LogWalk, Severity, key_stats, open_queues};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Which folder, and up to where.
#[derive(Debug, Args)]
pub(crate) struct StatsArgs {
    #[command(flatten)]
    folder: FolderArgs,
    /// Count from this entry on: replicas that have forgotten different parts of their logs are compared from the same
    /// one.
    #[arg(long, value_name = "INDEX")]
    from: Option<u64>,
    /// Count up to this entry, so that replicas whose logs end differently can be compared.
    #[arg(long, value_name = "INDEX")]
    at: Option<u64>,
}

#[derive(Serialize)]
struct Report {
    folder: String,
    groups: Vec<GroupStats>,
}

#[derive(Serialize)]
struct GroupStats {
    name: String,
    segments: usize,
    segment_bytes: u64,
    purged: Option<u64>,
    first: Option<u64>,
    last: Option<u64>,
    committed: Option<u64>,
    applied: Option<u64>,
    entries: u64,
    bytes: u64,
    kinds: BTreeMap<&'static str, u64>,
    commands: BTreeMap<&'static str, u64>,
    terms: Vec<Term>,
    topics: Vec<Topic>,
    /// The IndexFiles; none in a folder without them.
    #[serde(skip_serializing_if = "Option::is_none")]
    keys: Option<KeysRow>,
    /// Over the entries `first..=last`.
    digest: String,
    /// What of it is damaged; see `verify`.
    damages: u64,
}

#[derive(Serialize)]
struct Term {
    term: u64,
    first: u64,
    last: u64,
}

#[derive(Serialize)]
struct Topic {
    uid: u64,
    name: String,
    messages: u64,
    bytes: u64,
    queues: u64,
    units: u64,
}

/// Runs the command.
pub(super) fn run(global: &Global, args: &StatsArgs) -> Result<(), Failure> {
    let folder = Folder::open(&args.folder)?;
    let mut report = Report { folder: folder.path.display().to_string(), groups: Vec::new() };
    let mut damages = 0;
    for group in &folder.groups {
        let mut findings = Findings::default();
        if let Some(stats) = count(&folder, group, args, &mut findings) {
            report.groups.push(stats);
        }
        damages += findings.damages();
        if let Some(first) = first_damage(&findings) {
            output::tell(&format!("{}: {first}", group.name));
        }
    }
    match global.output {
        Output::Json => output::print_json(&report)?,
        Output::Table => output::print(&text(&report))?,
    }
    match damages {
        0 => Ok(()),
        _ => Err(Failure::failed("what is damaged is not counted; `raftmq store verify` tells all of it")),
    }
}

fn first_damage(findings: &Findings) -> Option<&Finding> {
    findings.list().iter().find(|finding| finding.severity == Severity::Damage)
}

fn count(folder: &Folder, group: &Group, args: &StatsArgs, findings: &mut Findings) -> Option<GroupStats> {
    let mut walk = LogWalk::open(Arc::clone(&folder.io), &group.folder.log, findings)?;
    let (from, at) = (args.from.unwrap_or(0), args.at.unwrap_or(u64::MAX));
    let mut stats = LogStats::default();
    while let Some(walked) = walk.next(findings) {
        let index = walked.entry.index;
        if index > at {
            break;
        }
        if index >= from && !walked.purged {
            stats.add(&walked, group.folder.contents);
        }
    }
    let ranges = match &group.folder.queues {
        Some(dir) if folder.io.exists(dir).unwrap_or(false) => {
            open_queues(&folder.io, dir, findings).map_or_else(Vec::new, |queues| queues.queues())
        }
        _ => Vec::new(),
    };
    let applied = group.checkpoint(&*folder.io, findings).and_then(|checkpoint| checkpoint.applied);
    let facts = walk.facts();
    Some(GroupStats {
        name: group.name.clone(),
        segments: facts.segments,
        segment_bytes: facts.segment_bytes,
        purged: facts.purged.map(|(_, index)| index),
        first: stats.first.map(|(_, index)| index),
        last: stats.last.map(|(_, index)| index),
        committed: facts.committed.map(|(_, index)| index),
        applied: applied.map(|(_, index)| index),
        entries: stats.entries,
        bytes: stats.bytes,
        digest: format!("{:016x}", stats.digest()),
        topics: topics(&stats, &ranges),
        keys: group.folder.keys.as_ref().and_then(|dir| KeysRow::of(key_stats(&folder.io, dir, findings))),
        terms: stats.terms.iter().map(|run| Term { term: run.term, first: run.first, last: run.last }).collect(),
        kinds: stats.kinds,
        commands: stats.commands,
        damages: findings.damages(),
    })
}

/// Topics that are in the log or have queues.
fn topics(stats: &LogStats, ranges: &[QueueRange]) -> Vec<Topic> {
    let new = |uid: TopicUid| Topic { uid: uid.0, name: String::new(), messages: 0, bytes: 0, queues: 0, units: 0 };
    let mut topics: BTreeMap<TopicUid, Topic> = BTreeMap::new();
    for (uid, counted) in &stats.topics {
        let topic = topics.entry(*uid).or_insert_with(|| new(*uid));
        (topic.name, topic.messages, topic.bytes) = (counted.name.clone(), counted.messages, counted.bytes);
    }
    for range in ranges {
        let topic = topics.entry(range.topic).or_insert_with(|| new(range.topic));
        topic.queues += 1;
        topic.units += range.max.0 - range.min.0;
    }
    topics.into_values().collect()
}

fn text(report: &Report) -> String {
    let blocks = report.groups.iter().map(|group| format!("{}{}", summary(group), topic_table(group)));
    blocks.collect::<Vec<_>>().join("\n")
}

fn summary(group: &GroupStats) -> String {
    let number = |value: Option<u64>| value.map_or_else(|| "-".into(), |value| value.to_string());
    let counts = |counts: &BTreeMap<&'static str, u64>| {
        let counts: Vec<String> = counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
        counts.join(", ")
    };
    let terms = match (group.terms.first(), group.terms.last()) {
        (Some(first), Some(last)) => format!("{} to {} ({} in the log)", first.term, last.term, group.terms.len()),
        _ => "-".into(),
    };
    let (first, last) = (number(group.first), number(group.last));
    let lines = [
        ("group", group.name.clone()),
        ("entries", format!("{} from {first} to {last}, {}", group.entries, counts(&group.kinds))),
        ("terms", terms),
        ("purged", number(group.purged)),
        ("committed", format!("{} at least", number(group.committed))),
        ("applied", number(group.applied)),
        ("log", format!("{} bytes in {} segments of {}", group.bytes, group.segments, group.segment_bytes)),
        ("keys", group.keys.as_ref().map(KeysRow::text).unwrap_or_default()),
        ("commands", counts(&group.commands)),
        ("digest", format!("{} over the entries {first} to {last}", group.digest)),
    ];
    let lines = lines.iter().filter(|(_, value)| !value.is_empty());
    lines.map(|(name, value)| format!("{name:<11}{value}\n")).collect()
}

fn topic_table(group: &GroupStats) -> String {
    if group.topics.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&["UID", "TOPIC", "MESSAGES", "BYTES", "QUEUES", "UNITS"]);
    for topic in &group.topics {
        table.row([
            topic.uid.to_string(),
            if topic.name.is_empty() { "-".into() } else { topic.name.clone() },
            topic.messages.to_string(),
            topic.bytes.to_string(),
            topic.queues.to_string(),
            topic.units.to_string(),
        ]);
    }
    table.render()
}
