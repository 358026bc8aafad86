//! The command line: what exists and how it is spelled. What each command does is in `commands/`, one file each.

use crate::commands;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// A message broker with RocketMQ's semantics in which everything goes through Raft.
#[derive(Debug, Parser)]
#[command(name = "raftmq", version, propagate_version = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Flags that every command takes.
#[derive(Clone, Debug, Args)]
pub(crate) struct Global {
    /// How results are printed.
    #[arg(short = 'o', long = "output", global = true, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
    /// Addresses (host:port, separated by commas) of one or more nodes: admin ports, for `bench` client ports. Without
    /// it: the nodes of the playground.
    #[arg(long, global = true, value_delimiter = ',')]
    pub(crate) endpoints: Vec<String>,
    /// The playground's folder. Without it: the one that was started last.
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
}

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// Aligned for people.
    Table,
    /// One JSON document for programs.
    Json,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a node.
    Serve(commands::serve::ServeArgs),
    /// Configuration files.
    #[command(subcommand, arg_required_else_help = true)]
    Config(commands::config::ConfigCommand),
    /// The whole cluster.
    #[command(subcommand, arg_required_else_help = true)]
    Cluster(commands::cluster::ClusterCommand),
    /// Topics.
    #[command(subcommand, arg_required_else_help = true)]
    Topic(commands::topic::TopicCommand),
    /// Consumer groups.
    #[command(subcommand, arg_required_else_help = true)]
    Group(commands::group::GroupCommand),
    /// Messages that are stored.
    #[command(subcommand, arg_required_else_help = true)]
    Message(commands::message::MessageCommand),
    /// Raft groups.
    #[command(subcommand, arg_required_else_help = true)]
    Raft(commands::raft::RaftCommand),
    /// The replicas of a node.
    #[command(subcommand, arg_required_else_help = true)]
    Replica(commands::replica::ReplicaCommand),
    /// The data folder of a node that does not run.
    #[command(subcommand, arg_required_else_help = true)]
    Store(commands::store::StoreCommand),
    /// A cluster of real processes on this machine, to try things and to break them.
    Playground(commands::playground::PlaygroundArgs),
    /// Start a cluster, load it, kill the leader, and count what was lost.
    Demo(commands::demo::DemoArgs),
    /// Load a cluster and measure.
    #[command(subcommand, arg_required_else_help = true)]
    Bench(commands::bench::BenchCommand),
}

#[cfg(test)]
mod tests;
