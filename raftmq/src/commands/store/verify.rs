//! `raftmq store verify`: is everything in a data folder as it was written?

use super::FolderArgs;
use super::folder::{Folder, Group};
use crate::cli::{Global, Output};
use crate::exit::Failure;
use crate::output::{self, Table};
use raftmq_raft::stored_vote;
use raftmq_store::inspect::{self, Finding, Findings, GroupReport, KeysReport, Severity};
use serde::Serialize;

#[derive(Serialize)]
struct Report {
    folder: String,
    #[serde(flatten)]
    owner: Option<Owner>,
    intact: bool,
    damages: u64,
    notes: u64,
    groups: Vec<GroupRow>,
    findings: Vec<FindingRow>,
}

#[derive(Serialize)]
struct Owner {
    node: u32,
    incarnation: u32,
    cluster_id: Option<String>,
}

#[derive(Serialize)]
struct GroupRow {
    name: String,
    segments: usize,
    entries: u64,
    first: Option<u64>,
    last: Option<u64>,
    term: Option<u64>,
    /// The term that the replica voted in last.
    vote_term: Option<u64>,
    applied: Option<u64>,
    messages: u64,
    queues: Option<QueuesRow>,
    /// The IndexFiles; none in a folder without them.
    #[serde(skip_serializing_if = "Option::is_none")]
    keys: Option<KeysRow>,
    damages: u64,
    notes: u64,
}

#[derive(Serialize)]
struct QueuesRow {
    queues: u64,
    units: u64,
    units_beyond: u64,
    units_in_gaps: u64,
    records_without_unit: u64,
}

#[derive(Serialize)]
pub(super) struct KeysRow {
    files: u64,
    entries: u64,
    bytes: u64,
    /// The log entry with which the index goes on.
    next: u64,
}

impl KeysRow {
    /// `None` when there is no file.
    pub(super) fn of(report: KeysReport) -> Option<KeysRow> {
        let KeysReport { files, entries, bytes, next_index } = report;
        (files > 0).then_some(KeysRow { files, entries, bytes, next: next_index })
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let KeysRow { files, entries, bytes, next } = self;
        format!("{entries} entries in {files} files, {bytes} bytes, log entries before {next}")
    }
}

#[derive(Serialize)]
struct FindingRow {
    group: Option<String>,
    severity: &'static str,
    file: String,
    at: u64,
    what: String,
}

/// Runs the command. Damage is a failure.
pub(super) fn run(global: &Global, args: &FolderArgs) -> Result<(), Failure> {
    let report = check(&Folder::open(args)?);
    match global.output {
        Output::Json => output::print_json(&report)?,
        Output::Table => output::print(&text(&report))?,
    }
    match report.damages {
        0 => Ok(()),
        damages => Err(Failure::failed(format!(
            "{} is damaged in {damages} {}; restore the replica from its peers",
            report.folder,
            if damages == 1 { "place" } else { "places" }
        ))),
    }
}

fn check(folder: &Folder) -> Report {
    let mut findings = Findings::default();
    let identity = folder.identity(&mut findings);
    folder.check_placement(identity.as_ref(), &mut findings);
    folder.check_stamps(identity.as_ref(), &mut findings);
    let owner = identity.map(|identity| Owner {
        node: identity.node.0,
        incarnation: identity.incarnation,
        cluster_id: identity.cluster_id,
    });
    let (mut damages, mut notes) = (findings.damages(), findings.notes());
    let mut rows: Vec<FindingRow> = findings.list().iter().map(|finding| row(None, finding)).collect();
    let mut groups = Vec::new();
    for group in &folder.groups {
        let (group_row, findings) = check_group(folder, group);
        (damages, notes) = (damages + group_row.damages, notes + group_row.notes);
        rows.extend(findings.list().iter().map(|finding| row(Some(&group.name), finding)));
        groups.push(group_row);
    }
    let path = folder.path.display().to_string();
    Report { folder: path, owner, intact: damages == 0, damages, notes, groups, findings: rows }
}

fn check_group(folder: &Folder, group: &Group) -> (GroupRow, Findings) {
    let mut findings = Findings::default();
    group.check_placement(&*folder.io, &mut findings);
    let checkpoint = group.checkpoint(&*folder.io, &mut findings);
    let report = inspect::verify(&folder.io, &group.folder, checkpoint.as_ref(), &mut findings);
    let vote_term = vote_term(group, &report, &mut findings);
    let queues = report.queues.map(|queues| QueuesRow {
        queues: queues.queues,
        units: queues.units,
        units_beyond: queues.units_beyond,
        units_in_gaps: queues.units_in_gaps,
        records_without_unit: queues.records_without_unit,
    });
    let row = GroupRow {
        name: group.name.clone(),
        segments: report.log.segments,
        entries: report.entries,
        first: report.first.map(|(_, index)| index),
        last: report.last.map(|(_, index)| index),
        term: report.last.map(|(term, _)| term),
        vote_term,
        applied: checkpoint.and_then(|checkpoint| checkpoint.applied).map(|(_, index)| index),
        messages: report.messages,
        queues,
        keys: report.keys.and_then(KeysRow::of),
        damages: findings.damages(),
        notes: findings.notes(),
    };
    (row, findings)
}

/// The term of the vote. No entry comes from a later term: a replica notes a term before it takes anything in it.
fn vote_term(group: &Group, report: &GroupReport, findings: &mut Findings) -> Option<u64> {
    let file = group.folder.log.join("vote");
    let vote = match stored_vote(report.log.vote.as_ref()?) {
        Ok(vote) => vote,
        Err(error) => {
            findings.damage(file, 0, error.to_string());
            return None;
        }
    };
    if let Some((term, index)) = report.last
        && vote.term < term
    {
        let what = format!("the vote is of term {}, and entry {index} of the later term {term}", vote.term);
        findings.damage(file, 0, what);
    }
    Some(vote.term)
}

fn severity(finding: &Finding) -> &'static str {
    match finding.severity {
        Severity::Note => "note",
        Severity::Damage => "damage",
    }
}

fn row(group: Option<&str>, finding: &Finding) -> FindingRow {
    FindingRow {
        group: group.map(str::to_owned),
        severity: severity(finding),
        file: finding.file.display().to_string(),
        at: finding.at,
        what: finding.what.clone(),
    }
}

fn text(report: &Report) -> String {
    let mut text = table(report).render();
    for FindingRow { severity, file, at, what, .. } in &report.findings {
        text.push_str(&format!("{severity}: {file} at byte {at}: {what}\n"));
    }
    let left_out = report.damages + report.notes - report.findings.len() as u64;
    if left_out > 0 {
        text.push_str(&format!("and {left_out} more\n"));
    }
    let verdict = match (report.damages, report.notes) {
        (0, 0) => "intact".to_owned(),
        (0, _) => "intact; the next start repairs what the notes tell".to_owned(),
        (damages, _) => format!("DAMAGED, findings: {damages}"),
    };
    text.push_str(&format!("{}: {verdict}\n", report.folder));
    text
}

fn table(report: &Report) -> Table {
    let header = [
        "GROUP", "SEGMENTS", "ENTRIES", "FIRST", "LAST", "TERM", "VOTE", "APPLIED", "MESSAGES", "QUEUES", "UNITS",
        "KEYS", "DAMAGE", "NOTES",
    ];
    let number = |value: Option<u64>| value.map_or_else(|| "-".into(), |value| value.to_string());
    let mut table = Table::new(&header);
    for group in &report.groups {
        let queues = group.queues.as_ref();
        table.row([
            group.name.clone(),
            group.segments.to_string(),
            group.entries.to_string(),
            number(group.first),
            number(group.last),
            number(group.term),
            number(group.vote_term),
            number(group.applied),
            group.messages.to_string(),
            number(queues.map(|queues| queues.queues)),
            number(queues.map(|queues| queues.units)),
            number(group.keys.as_ref().map(|keys| keys.entries)),
            group.damages.to_string(),
            group.notes.to_string(),
        ]);
    }
    table
}
