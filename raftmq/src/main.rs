//! `raftmq`: one binary for nodes, operators and people who want to try it.
//!
//! `cli` says what the command line takes, `commands` holds one file for each command, `serve` is a node, `playground` a
//! cluster of them on one machine, `load` a small client of the public API for `demo` and `bench`.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod admin_client;
mod cli;
mod client_port;
mod commands;
mod config;
mod context;
mod demo;
mod exit;
mod load;
mod output;
mod playground;
mod serve;

use clap::Parser;
use raftmq_model::planted;
use std::process::ExitCode;

const _: () = assert!(!planted::POSSIBLE, "the product is never built with planted faults");

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    // Mistakes on the command line end here, with clap's message and exit code 2.
    let cli = cli::Cli::parse();
    match commands::run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::tell(&format!("raftmq: {failure}"));
            ExitCode::from(failure.kind as u8)
        }
    }
}
