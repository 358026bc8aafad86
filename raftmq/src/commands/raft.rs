//! `raftmq raft`: Raft groups.

use crate::cli::{Global, Output};
use crate::commands::admin;
use crate::exit::Failure;
use crate::output;
use clap::Subcommand;
use raftmq_proto::admin::TransferLeaderRequest;
use serde::Serialize;

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
}

#[derive(Serialize)]
struct Transferred {
    group: String,
    leader: u32,
}

/// Runs the command.
pub(crate) async fn run(global: &Global, command: RaftCommand) -> Result<(), Failure> {
    match command {
        RaftCommand::Transfer { group, to } => {
            let request = TransferLeaderRequest { group: group.clone(), to_node: to.unwrap_or(0) };
            let leader = admin(global).await?.transfer_leader(request).await?.into_inner().leader;
            match global.output {
                Output::Json => output::print_json(&Transferred { group, leader }),
                Output::Table => output::print(&format!("{group} is led by node {leader}\n")),
            }
        }
    }
}
