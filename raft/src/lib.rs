//! Raft groups: the only crate that knows which Raft library is inside.
//!
//! A [`RaftNode`] hosts any number of groups on a runtime of its own and serves the peer port. Each [`Group`] ties a
//! [`Machine`] (what commands mean) to a [`raftmq_store::commit_log::CommitLog`] (where they lie): commands that are
//! proposed at the same time share one log entry, which is acknowledged when a majority has it on disk and the machine
//! here has applied it.
//!
//! What this crate promises to the rest: votes and log writes keep one order on disk; nothing is applied before it is
//! durable here; a leader is `ready` only when it applied an entry of its own term; a read barrier never rests on a
//! lease; every peer call names its cluster and both nodes.

mod adaptor;
mod bookkeeping;
mod codec;
mod config;
mod durable;
mod early_election;
mod errors;
mod fatal;
mod group;
mod identity;
mod integrity;
mod leadership;
mod liveness;
mod log_store;
mod machine;
mod membership;
mod network;
mod node;
mod offline;
mod options;
mod peers;
mod port;
mod proposer;
mod purge;
mod service;
mod stamps;
mod status;
mod transfer;
mod types;
mod wire;

pub use errors::{CompactError, InitializeError, OpenError, ProposeError, ServeError, StartError, TransferError};
pub use fatal::FatalError;
pub use group::Group;
pub use identity::{PeerClientInterceptor, PeerIdentity, PeerServerInterceptor};
pub use integrity::GroupIntegrity;
pub use leadership::Leadership;
pub use machine::{Entry, KeptSnapshot, Machine};
pub use network::{PeerChannel, PeerConnection, Tcp, Transport};
pub use node::RaftNode;
pub use offline::{StoredVote, stored_applied, stored_vote};
pub use options::{
    ENTRY_BYTES_HARD_MAX, ENTRY_BYTES_MAX, GroupOptions, PIPELINE_DEPTH, QUEUE_BYTES_MAX, QUEUE_COUNT_MAX,
    RaftNodeOptions, SCRUB_BYTES_PER_SECOND_MAX, SCRUB_INTERVAL_MS,
};
pub use peers::{PeerAddresses, PeerState};
pub use port::PeerPort;
pub use raftmq_store::commit_log::CommitLogOptions;
pub use stamps::{STAMP_MS, StampError, StampOptions};
pub use status::{GroupStatus, Member, Role};

/// For this crate's own tests of the storage contract; not part of the interface.
#[doc(hidden)]
pub mod internals {
    pub use crate::adaptor::Adaptor;
    pub use crate::fatal::FatalReport;
    pub use crate::log_store::LogStore;
    pub use crate::types::{Payload, TypeConfig};

    /// What a machine is given behind the entry of that term and index, in a group without members.
    #[must_use]
    pub fn bookkeeping(term: u64, index: u64) -> bytes::Bytes {
        let books = crate::bookkeeping::Bookkeeping {
            applied: Some(crate::types::log_id((term, index))),
            ..crate::bookkeeping::Bookkeeping::default()
        };
        books.encode(&books.membership_json().unwrap_or_default())
    }
}
