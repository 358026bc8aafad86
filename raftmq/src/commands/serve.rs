//! `raftmq serve`: run a node.

use crate::config::NodeConfig;
use crate::exit::Failure;
use crate::serve;
use clap::Args;
use std::path::PathBuf;

/// Which node to run.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// The node's configuration; `raftmq config default` prints one.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: PathBuf,
}

/// Runs the node until it is told to stop, or cannot go on.
pub(crate) fn run(args: &ServeArgs) -> Result<(), Failure> {
    serve::run(NodeConfig::load(&args.config)?)
}
