//! `raftmq raft`: Raft groups.

mod digest;
mod transfer;

use crate::cli::Global;
use crate::exit::Failure;
use clap::Subcommand;

/// What to do with Raft groups.
#[derive(Debug, Subcommand)]
pub(crate) enum RaftCommand {
    /// Hand a group's leadership to another replica, without losing a call.
    Transfer {
        /// The group's name, as `raftmq cluster status` shows it.
        group: String,
        /// The node to lead. Without it: the replica that is furthest.
        #[arg(long, value_name = "NODE")]
        to: Option<u32>,
    },
    /// Compare the replicas of broker groups at one entry of their logs, while they serve.
    Digest {
        /// The group's name, as `raftmq cluster status` shows it. Without it: all broker groups.
        #[arg(long, value_name = "NAME")]
        group: Option<String>,
    },
}

/// Runs the command.
pub(crate) async fn run(global: &Global, command: RaftCommand) -> Result<(), Failure> {
    match command {
        RaftCommand::Transfer { group, to } => transfer::run(global, group, to).await,
        RaftCommand::Digest { group } => digest::run(global, group).await,
    }
}
