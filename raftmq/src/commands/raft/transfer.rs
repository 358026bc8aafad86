//! `raftmq raft transfer`: another replica leads.

use crate::cli::{Global, Output};
use crate::commands::admin;
use crate::exit::Failure;
use crate::output;
use raftmq_proto::admin::TransferLeaderRequest;
use serde::Serialize;

#[derive(Serialize)]
struct Transferred {
    group: String,
    leader: u32,
}

/// Runs the command.
pub(super) async fn run(global: &Global, group: String, to: Option<u32>) -> Result<(), Failure> {
    let request = TransferLeaderRequest { group: group.clone(), to_node: to.unwrap_or(0) };
    let leader = admin(global).await?.transfer_leader(request).await?.into_inner().leader;
    match global.output {
        Output::Json => output::print_json(&Transferred { group, leader }),
        Output::Table => output::print(&format!("{group} is led by node {leader}\n")),
    }
}
