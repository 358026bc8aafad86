//! The pure core of raftmq: what a message is, what a command means, what apply answers.
//!
//! No IO, no clock, no randomness, no threads: the same input gives the same output on each replica (law 2). Time comes
//! in as [`ids::Timestamp`] arguments; the one way to ask for it is the [`clock::Clock`] trait, which only runtimes implement.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod batch;
pub mod clock;
pub mod command;
pub mod config;
pub mod filter;
pub mod ids;
pub mod limit;
pub mod machine;
pub mod meta;
pub mod name;
pub mod placement;
pub mod planted;
mod reader;
pub mod receipt;
pub mod record;
pub mod retention;
