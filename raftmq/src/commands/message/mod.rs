//! `raftmq message`: messages that are stored.

mod query;

use crate::cli::Global;
use crate::exit::Failure;
use clap::Subcommand;

/// What to do with messages.
#[derive(Debug, Subcommand)]
pub(crate) enum MessageCommand {
    /// Find messages of a topic by key, by message id, or by the time at which they were stored.
    Query(query::QueryArgs),
}

/// Runs the command.
pub(crate) async fn run(global: &Global, command: MessageCommand) -> Result<(), Failure> {
    match command {
        MessageCommand::Query(args) => query::run(global, args).await,
    }
}
