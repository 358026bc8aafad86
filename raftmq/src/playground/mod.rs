//! A cluster of real processes on this machine: each node is `raftmq serve` with a generated configuration.
//!
//! ```text
//! DIR/playground.json      the nodes: id, pid, when the process started, addresses, data folder
//! DIR/node-N/node.toml     configuration
//! DIR/node-N/data          data folder
//! DIR/node-N/log           what the node says on stderr
//! ```
//! Only own processes are ever signalled: a pid counts only while the process that has it started when the record says,
//! with the command line that the record implies.

pub(crate) mod layout;
pub(crate) mod lifecycle;
pub(crate) mod process;
pub(crate) mod record;
