//! Finds out whether a cluster keeps its promises: workloads record what clients see (`history`), checkers judge it
//! (`checker`). `CONTRACT.md` says what each outcome means; read it first.
//!
//! Checkers are pure: a history in, a verdict out. Faults of the harness are never reported as faults of the system.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod checker;
pub mod cli;
pub mod history;
pub mod nemesis;
pub mod real;
pub mod report;
pub mod sim;
pub mod workload;
