//! The real back end: nodes as processes, each in a network namespace of its own, with its data on a file system of its own.
//!
//! ```text
//! this process --- bridge --- veth --- namespace 1: raftmq serve, data on a loop-mounted ext4 image
//!  (workload)        |------- veth --- namespace 2 ...
//! ```
//! Needs root and the tools of `./dev setup faults`. Everything is named after this process and taken down when
//! [`RealCluster`] is dropped; [`clean`] takes down what processes left that were killed. Only processes that were started
//! here are ended, by id. Blocking: the nemesis has a thread of its own.

mod clock;
mod cluster;
mod facilities;
mod faults;
mod injection;
mod network;
mod node;
mod run;
mod shell;
mod volume;

pub use cluster::RealCluster;
pub use network::clean;
pub use run::{Options, Outcome, run};
