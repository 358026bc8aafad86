//! The broker of raftmq: one node's replicas of broker groups, and the way to them.
//!
//! ```text
//!  edge (grpc/, service/)   what clients say            any node
//!    └ router               finds the leader            any node
//!        └ forward          the same calls, over gRPC   leader's node
//!            └ leader/      plans, proposes, answers    leader's node
//!                └ machine  applies the committed log   each replica
//! ```
//!
//! The leader plans, the log decides (law 3): `leader/` reads the applied state and proposes; only `machine` changes it.
//! Everything here runs on the broker runtime, but for `machine`, which the raft runtime drives.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

// Leader side.
mod broker;
pub mod forward;
pub mod leader;
mod log_clock;
pub mod machine;
pub mod options;
pub mod router;
mod units;
pub mod volume;

// The node's copy of the meta group.
pub mod meta_client;

// Edge side.
pub mod clients;
pub mod deadline;
pub mod edge;
pub mod grpc;
pub mod route_lanes;
pub mod service;
pub mod settings;
pub mod status;

pub use broker::{Broker, HostError, StartError, decode_placement};
pub use options::BrokerOptions;
pub use router::{RouteError, Router};
