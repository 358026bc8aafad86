//! `raftmq store cut`: cut a log where it has lost committed entries, so that the node starts and gets them from the others.
//!
//! This is the one command that changes a folder. A node does not do it by itself: a replica that has less than it has
//! acknowledged must not count as one that has it, and only an operator can see that the others have everything.

use super::FolderArgs;
use super::folder::{Folder, Group};
use crate::cli::{Global, Output};
use crate::exit::Failure;
use crate::output;
use clap::Args;
use raftmq_store::RealIo;
use raftmq_store::commit_log::{CommitLogOptions, cut_damage, segment_bytes_and_purged};
use raftmq_store::inspect::Findings;
use serde::Serialize;
use std::path::Path;

/// What to cut.
#[derive(Debug, Args)]
pub(crate) struct CutArgs {
    #[command(flatten)]
    folder: FolderArgs,
    /// All other replicas are in sync, as `raftmq cluster status` shows: they have what is cut off here.
    #[arg(long, required = true)]
    others_are_in_sync: bool,
}

#[derive(Serialize)]
struct Done {
    group: String,
    /// The last entry of the log as it is now.
    last: Option<u64>,
    cut_bytes: u64,
    /// State and ConsumeQueues were ahead of that and are made anew from the log at the next start.
    state_removed: bool,
}

/// Runs the command.
pub(super) fn run(global: &Global, args: &CutArgs) -> Result<(), Failure> {
    let folder = Folder::open(&args.folder)?;
    let mut groups = folder.groups.iter();
    let (Some(group), None) = (groups.next().filter(|_| args.folder.group.is_some()), groups.next()) else {
        return Err(Failure::usage("say which group: --group NAME, as `raftmq store verify` names it"));
    };
    let done = cut(&folder, group)?;
    match global.output {
        Output::Json => output::print_json(&done),
        Output::Table => output::print(&done.text()),
    }
}

fn cut(folder: &Folder, group: &Group) -> Result<Done, Failure> {
    let dir = &group.folder.log;
    let failed = |error: &dyn std::fmt::Display| Failure::failed(format!("{}: {error}", dir.display()));
    let found = segment_bytes_and_purged(&RealIo, dir).map_err(|error| failed(&error))?;
    let (segment_bytes_max, purged) = found.ok_or_else(|| failed(&"there is no log"))?;
    if purged.is_some() {
        // The state could not be made anew from what is left.
        return Err(failed(&"the log does not reach back to its beginning: the replica must be replaced"));
    }
    let applied = group.checkpoint(&*folder.io, &mut Findings::default()).and_then(|checkpoint| checkpoint.applied);
    let cut = cut_damage(CommitLogOptions { segment_bytes_max, ..CommitLogOptions::new(dir) });
    let cut = cut.map_err(|error| failed(&error))?;
    let last = cut.last.map(|(_, index)| index);
    let state_removed = applied.is_some_and(|(_, applied)| last.is_none_or(|last| last < applied));
    if state_removed {
        for dir in group.derived() {
            remove(&dir).map_err(|error| Failure::failed(format!("{} cannot be removed: {error}", dir.display())))?;
        }
    }
    Ok(Done { group: group.name.clone(), last, cut_bytes: cut.bytes, state_removed })
}

fn remove(dir: &Path) -> std::io::Result<()> {
    if dir.exists() { std::fs::remove_dir_all(dir) } else { Ok(()) }
}

impl Done {
    fn text(&self) -> String {
        let ends = self.last.map_or("is empty now".to_owned(), |last| format!("ends at entry {last} now"));
        let state = if self.state_removed { "; its state is made anew from it at the next start" } else { "" };
        format!("the log of {} {ends}, {} bytes were cut{state}\n", self.group, self.cut_bytes)
    }
}
