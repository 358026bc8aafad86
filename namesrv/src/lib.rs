//! The meta group ("namesrv"): what a cluster is made of, as a replicated state machine.
//!
//! - [`machine`]: the pure state machine: topics, consumer groups, nodes, who leads which broker group.
//! - [`runtime`]: the machine over a state store, as Raft drives it, and what it publishes.
//! - [`service`]: `raftmq.meta.v1.Meta` for peers and for the own node.
//! - [`liveness`]: which nodes live.
//!
//! [`Namesrv::open`] puts them together.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod liveness;
pub mod machine;
mod members;
mod namesrv;
pub mod runtime;
pub mod service;

pub use namesrv::{Namesrv, NamesrvError, NamesrvOptions};
