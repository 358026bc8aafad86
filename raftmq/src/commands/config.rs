//! `raftmq config`: configuration files.

use crate::config::DEFAULT_FILE;
use crate::exit::Failure;
use crate::output;
use clap::Subcommand;

/// What to do with configuration files.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print a file that documents every key with its default.
    Default,
}

/// Runs the command.
pub(crate) fn run(command: &ConfigCommand) -> Result<(), Failure> {
    match command {
        ConfigCommand::Default => output::print(DEFAULT_FILE),
    }
}
