//! `raftmq replica`: the replicas of a node.

mod replace;

use crate::cli::Global;
use crate::exit::Failure;
use clap::Subcommand;

/// What to do with replicas.
#[derive(Debug, Subcommand)]
pub(crate) enum ReplicaCommand {
    /// Make a node whose disk was lost, and that runs on an empty folder now, a member again: its replicas get what the
    /// others have, and then their votes. Running it again is harmless.
    Replace {
        /// The node's id.
        node: u32,
        /// Return when it is decided; the replicas catch up on their own.
        #[arg(long)]
        no_wait: bool,
        /// Seconds to wait until all replicas of the node vote. Longer ones go on on their own.
        #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
        wait_s: u64,
    },
}

/// Runs the command.
pub(crate) async fn run(global: &Global, command: ReplicaCommand) -> Result<(), Failure> {
    match command {
        ReplicaCommand::Replace { node, no_wait, wait_s } => replace::run(global, node, no_wait, wait_s).await,
    }
}
