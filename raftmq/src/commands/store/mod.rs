//! `raftmq store`: look at the data folder of a node that does not run. Nothing in it is changed, but by `cut`.

mod cut;
mod dump;
mod folder;
mod stats;
mod verify;

use crate::cli::Global;
use crate::exit::Failure;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// What to do with a data folder. The node must be stopped.
#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Check every file of the folder; exit code 1 when there is damage.
    Verify(FolderArgs),
    /// Print the entries of the logs, in order.
    Dump(dump::DumpArgs),
    /// Cut a log where it has lost committed entries, so that the node starts and gets them from the others.
    Cut(cut::CutArgs),
    /// Print counts of the logs, and a digest with which replicas can be compared.
    Stats(stats::StatsArgs),
}

/// Which folder, and what of it.
#[derive(Debug, Args)]
pub(crate) struct FolderArgs {
    /// The node's data folder (`data_dir`; of a playground: DIR/node-N/data).
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// Only this group, named as `raftmq cluster status` does: namesrv, broker-1.
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
}

/// Runs the command.
pub(crate) fn run(global: &Global, command: &StoreCommand) -> Result<(), Failure> {
    match command {
        StoreCommand::Verify(args) => verify::run(global, args),
        StoreCommand::Cut(args) => cut::run(global, args),
        StoreCommand::Dump(args) => dump::run(global, args),
        StoreCommand::Stats(args) => stats::run(global, args),
    }
}
