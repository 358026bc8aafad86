//! What a replica does for callers: propose, pop, wait, tell the lag; and, while it leads, its drivers.
//!
//! Nothing here decides: plans are made from the applied state and proposed, apply checks their premises (law 3), and a
//! plan that came too late is made again. All state of this folder is soft: it is dropped with the leadership.
//!
//! Files: `replica` the calls, `query` finding messages, `keys` what is needed for it, `pop`, `planner` and `attempts` taking messages,
//! `wait` and `wait_table` long polls, `dead_letter` and `config_sync` the drivers, `members` who votes, `digest` what replicas are compared
//! by, `units` damaged ConsumeQueues, `failure` why a call was not served, `replicas` all of this node's.

mod attempts;
mod config_sync;
mod dead_letter;
mod digest;
mod drivers;
mod failure;
mod keys;
mod lag;
mod letter;
mod members;
mod planner;
mod pop;
mod query;
mod replica;
mod replicas;
mod retention;
mod units;
mod wait;
mod wait_table;

pub use digest::{DIGEST_AHEAD_COUNT_MAX, DigestError, ReplicaDigest};
pub(crate) use drivers::Drivers;
pub(crate) use failure::failure;
pub use query::{QUERIES_COUNT_MAX, QUERY_BYTES_MAX, QUERY_COUNT_MAX};
pub use replica::Replica;
pub(crate) use replica::ReplicaOptions;
pub(crate) use replicas::Replicas;
#[cfg(test)]
pub(crate) use retention::forget_files;
pub use units::UnitIntegrity;
pub(crate) use units::scrub_units;
pub(crate) use wait_table::WaitTable;
