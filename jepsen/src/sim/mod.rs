//! The simulated back end: a whole cluster in one thread, on simulated time, network and disks; one seed decides everything.
//!
//! ```text
//! interpose   clocks and chance of this thread, underneath all libraries
//! net, stream connections: latency, loss, cuts, resets
//! host        a node: the product's raft, namesrv and broker code on a runtime of its own
//! operator    creates and deletes topics all the time
//! invariants  what must hold inside the cluster at every moment
//! wipe        a lost disk, and the operator who replaces it
//! restore     an older copy of a disk, put back
//! plan        which fault comes when: a pure function of the seed
//! rot         flips bits on one node, in some seeds or when asked to
//! world       machines and network, step by step; carries the faults out
//! run         one seed: birth, workload under faults, healing, judgement
//! ```
//! Time goes in steps of a millisecond, the shortest latency of the network. In each step every node runs until all its
//! tasks wait for something later.

mod host;
mod interpose;
mod invariants;
mod net;
mod operator;
mod plan;
mod registers;
mod restore;
mod retention;
mod rot;
mod run;
mod stream;
mod wipe;
mod world;

pub use net::{Host, LATENCY_US_MIN, Listener, Net, Weather};
pub use plan::{Event, Fault, Whom, plan};
pub use run::{Options, Outcome, run};
pub use stream::SimStream;
