//! The commands, one file each.

pub(crate) mod bench;
pub(crate) mod cluster;
pub(crate) mod config;
pub(crate) mod demo;
pub(crate) mod group;
pub(crate) mod message;
pub(crate) mod playground;
pub(crate) mod raft;
pub(crate) mod replica;
pub(crate) mod serve;
pub(crate) mod store;
pub(crate) mod topic;

use crate::admin_client::{self, Admin};
use crate::cli::{Cli, Command, Global};
use crate::context::{self, Port};
use crate::exit::Failure;
use std::future::Future;

/// Runs what the command line asks for.
pub(crate) fn run(cli: Cli) -> Result<(), Failure> {
    let global = cli.global;
    match cli.command {
        Command::Serve(args) => serve::run(&args),
        Command::Config(command) => config::run(&command),
        Command::Cluster(command) => block_on(cluster::run(&global, command)),
        Command::Topic(command) => block_on(topic::run(&global, command)),
        Command::Group(command) => block_on(group::run(&global, command)),
        Command::Message(command) => block_on(message::run(&global, command)),
        Command::Raft(command) => block_on(raft::run(&global, command)),
        Command::Replica(command) => block_on(replica::run(&global, command)),
        Command::Playground(args) => block_on(playground::run(&global, args)),
        Command::Demo(args) => block_on(demo::run(&global, args)),
        Command::Store(command) => store::run(&global, &command),
        Command::Bench(command) => block_on(bench::run(&global, command)),
    }
}

/// Runs a command on a runtime of its own.
fn block_on<F: Future<Output = Result<(), Failure>>>(command: F) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("no threads can be started: {error}")))?;
    runtime.block_on(command)
}

/// The admin service of a node of the cluster that the flags mean.
async fn admin(global: &Global) -> Result<Admin, Failure> {
    admin_client::connect(&context::endpoints(global, Port::Admin)?).await
}
