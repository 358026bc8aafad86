//! `raftmq store dump`: the entries of the logs in a data folder, one after the other, as they are read.

use super::FolderArgs;
use super::folder::{Folder, Group};
use crate::cli::{Global, Output};
use crate::exit::Failure;
use crate::output::{self, Lines};
use clap::Args;
use raftmq_model::batch::Batch;
use raftmq_model::machine::{Carried, carried};
use raftmq_model::meta::MetaCommand;
use raftmq_model::record::{RecordView, property};
use raftmq_store::EntryKind;
use raftmq_store::consume_queue::{ConsumeQueues, OffsetFinder};
use raftmq_store::inspect::{
    self, Contents, Findings, LogWalk, WalkedEntry, command_name, kind_name, open_queues, position,
};
use serde::Serialize;
use std::sync::Arc;

/// Which folder, and which entries of it.
#[derive(Debug, Args)]
pub(crate) struct DumpArgs {
    #[command(flatten)]
    folder: FolderArgs,
    /// The first entry.
    #[arg(long, value_name = "INDEX")]
    from: Option<u64>,
    /// The last entry.
    #[arg(long, value_name = "INDEX")]
    to: Option<u64>,
    /// At most so many entries of each group.
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Print the bodies of messages too.
    #[arg(long)]
    body: bool,
}

#[derive(Serialize)]
struct EntryLine {
    group: String,
    index: u64,
    term: u64,
    kind: &'static str,
    file: String,
    at: u64,
    bytes: u64,
    /// Log time, of a batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    now_ms: Option<i64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    commands: Vec<CommandPart>,
    /// What a membership entry says.
    #[serde(skip_serializing_if = "Option::is_none")]
    membership: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[derive(Serialize)]
struct CommandPart {
    kind: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    messages: Vec<MessagePart>,
}

#[derive(Serialize)]
struct MessagePart {
    topic: u64,
    name: Option<String>,
    queue: u32,
    /// Null when the message is in no queue: it was a repeat, or is not applied yet.
    queue_offset: Option<u64>,
    physical: u64,
    message_id: Option<String>,
    tag: Option<String>,
    body_bytes: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<String>,
    /// A body that is no text, in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    body_hex: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Runs the command. What is damaged is told on stderr and left out.
pub(super) fn run(global: &Global, args: &DumpArgs) -> Result<(), Failure> {
    let folder = Folder::open(&args.folder)?;
    let mut lines = Lines::new();
    let mut damages = 0;
    for group in &folder.groups {
        let mut findings = Findings::default();
        let goes_on = dump(global.output, &folder, group, args, &mut lines, &mut findings)?;
        damages += findings.damages();
        if !goes_on {
            return Ok(());
        }
    }
    lines.end()?;
    match damages {
        0 => Ok(()),
        _ => Err(Failure::failed("what is damaged was left out; `raftmq store verify` tells all of it")),
    }
}

/// Prints one group; false when nobody reads any more.
fn dump(
    output: Output,
    folder: &Folder,
    group: &Group,
    args: &DumpArgs,
    lines: &mut Lines,
    findings: &mut Findings,
) -> Result<bool, Failure> {
    let queues = match &group.folder.queues {
        Some(dir) if folder.io.exists(dir).unwrap_or(false) => open_queues(&folder.io, dir, findings),
        _ => None,
    };
    let finder = queues.as_ref().map(ConsumeQueues::finder);
    let mut printer = Printer { group, finder, body: args.body };
    let (from, to) = (args.from.unwrap_or(0), args.to.unwrap_or(u64::MAX));
    let (mut left, mut told) = (args.limit.unwrap_or(u64::MAX), 0);
    let Some(mut walk) = LogWalk::open(Arc::clone(&folder.io), &group.folder.log, findings) else { return Ok(true) };
    while left > 0 {
        let walked = walk.next(findings);
        for finding in &findings.list()[told..] {
            output::tell(&format!("{}: {finding}", group.name));
        }
        told = findings.list().len();
        let Some(walked) = walked.filter(|walked| walked.entry.index <= to) else { break };
        if walked.entry.index < from || walked.purged {
            continue;
        }
        left -= 1;
        let line = printer.line(&walked);
        let goes_on = match output {
            Output::Json => lines.json(&line)?,
            Output::Table => lines.text(&text(&line))?,
        };
        if !goes_on {
            return Ok(false);
        }
    }
    Ok(true)
}

struct Printer<'a> {
    group: &'a Group,
    finder: Option<OffsetFinder<'a>>,
    body: bool,
}

impl Printer<'_> {
    fn line(&mut self, walked: &WalkedEntry) -> EntryLine {
        let entry = &walked.entry;
        let mut line = EntryLine {
            group: self.group.name.clone(),
            index: entry.index,
            term: entry.term,
            kind: kind_name(entry.kind),
            file: walked.file.display().to_string(),
            at: walked.at,
            bytes: walked.frame_bytes,
            now_ms: None,
            commands: Vec::new(),
            membership: None,
            error: None,
        };
        match (entry.kind, self.group.folder.contents) {
            (EntryKind::Blank, _) => {}
            (EntryKind::Membership, _) => {
                line.membership = Some(String::from_utf8_lossy(&entry.payload).into_owned());
            }
            (EntryKind::Batch, Contents::Messages) => self.commands(walked, &mut line),
            (EntryKind::Batch, _) => meta_commands(walked, &mut line),
        }
        line
    }

    fn commands(&mut self, walked: &WalkedEntry, line: &mut EntryLine) {
        let commands = match inspect::commands(&walked.entry) {
            Ok(Some(commands)) => commands,
            Ok(None) => return,
            Err(error) => {
                line.error = Some(error);
                return;
            }
        };
        line.now_ms = Some(commands.now.0);
        let at = position(&walked.entry);
        for (command_at, command) in &commands.commands {
            let kind = command.as_ref().map_or("unknown", command_name).to_owned();
            let records = command.as_ref().map(|command| carried(at, *command_at, command)).unwrap_or_default();
            let messages = records.iter().map(|record| self.message(record)).collect();
            line.commands.push(CommandPart { kind, messages });
        }
    }

    fn message(&mut self, record: &Carried<'_>) -> MessagePart {
        let found = self.finder.as_mut().map(|finder| finder.find(record.topic, record.queue, record.physical));
        let (offset, unit_error) = match found {
            Some(Ok(offset)) => (offset, None),
            Some(Err(error)) => (None, Some(format!("its unit cannot be read: {error}"))),
            None => (None, None),
        };
        let view = RecordView::parse(record.record);
        let property = |name| view.as_ref().ok().and_then(|view| view.property(name)).map(str::to_owned);
        let id = record.message_id.map(|id| String::from_utf8_lossy(id).into_owned());
        let body = view.as_ref().ok().map(|view| view.body()).filter(|_| self.body);
        let text = body.and_then(|body| std::str::from_utf8(body).ok()).map(str::to_owned);
        MessagePart {
            topic: record.topic.0,
            name: view.as_ref().ok().map(|view| view.topic().to_owned()),
            queue: record.queue.0,
            queue_offset: offset.map(|offset| offset.0),
            physical: record.physical.0,
            message_id: id.or_else(|| property(property::UNIQ_KEY)),
            tag: property(property::TAGS),
            body_bytes: view.as_ref().ok().map(|view| view.body().len()),
            body_hex: body.filter(|_| text.is_none()).map(hex),
            body: text,
            error: view.err().map(|error| error.to_string()).or(unit_error),
        }
    }
}

/// Commands of the meta group by their names.
fn meta_commands(walked: &WalkedEntry, line: &mut EntryLine) {
    match Batch::decode(walked.entry.payload.clone()) {
        Ok(batch) => {
            line.now_ms = Some(batch.now.0);
            let kinds = batch.commands().map(|(_, bytes)| meta_kind(&bytes));
            line.commands = kinds.map(|kind| CommandPart { kind, messages: Vec::new() }).collect();
        }
        Err(error) => line.error = Some(error.to_string()),
    }
}

fn meta_kind(bytes: &[u8]) -> String {
    let decoded = <MetaCommand as prost::Message>::decode(bytes).ok().and_then(|command| command.op);
    // The name of the variant, which is what its debugging form begins with.
    let name = decoded.map_or_else(|| "unknown".into(), |op| format!("{op:?}"));
    name.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default().to_owned()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A line for the entry, and an indented one for each message.
fn text(line: &EntryLine) -> String {
    let EntryLine { group, index, term, kind, file, at, bytes, .. } = line;
    let mut text = format!("{group} {index} term {term} {kind} {file}:{at} {bytes} bytes");
    if let Some(now) = line.now_ms {
        text.push_str(&format!(" at {now} ms"));
    }
    for (kind, count) in runs(&line.commands) {
        text.push_str(&if count > 1 { format!(" {kind}*{count}") } else { format!(" {kind}") });
    }
    for more in [&line.membership, &line.error].into_iter().flatten() {
        text.push_str(&format!(" {more}"));
    }
    text.push('\n');
    for message in line.commands.iter().flat_map(|command| &command.messages) {
        text.push_str(&message_text(*index, message));
    }
    text
}

/// Commands of one kind that come one after the other.
fn runs(commands: &[CommandPart]) -> Vec<(&str, usize)> {
    let mut runs: Vec<(&str, usize)> = Vec::new();
    for command in commands {
        match runs.last_mut() {
            Some((kind, count)) if *kind == command.kind => *count += 1,
            _ => runs.push((&command.kind, 1)),
        }
    }
    runs
}

fn message_text(index: u64, message: &MessagePart) -> String {
    let or = |value: Option<String>| value.unwrap_or_else(|| "-".into());
    let mut text = format!(
        "  {index} message topic {} ({}) queue {} offset {} id {} tag {} body {} bytes",
        message.topic,
        or(message.name.clone()),
        message.queue,
        or(message.queue_offset.map(|offset| offset.to_string())),
        or(message.message_id.clone()),
        or(message.tag.clone()),
        or(message.body_bytes.map(|bytes| bytes.to_string())),
    );
    if let Some(body) = &message.body {
        text.push_str(&format!(" \"{}\"", body.escape_debug()));
    }
    if let Some(hex) = &message.body_hex {
        text.push_str(&format!(" 0x{hex}"));
    }
    if let Some(error) = &message.error {
        text.push_str(&format!(" ({error})"));
    }
    text.push('\n');
    text
}
