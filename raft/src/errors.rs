//! What can go wrong, as small enums.

use crate::stamps::StampError;
use raftmq_model::ids::{GroupId, NodeId};
use std::io;
use thiserror::Error;

/// Why a command has no outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ProposeError {
    /// This replica does not lead; the command is surely not in the log.
    #[error("this replica does not lead the group")]
    NotLeader {
        /// The node to ask instead, when known.
        leader: Option<NodeId>,
    },
    /// This replica leads but has not applied an entry of its own term yet; the command is surely not in the log.
    #[error("the leader is not ready yet")]
    NotReady,
    /// The queue of proposals is full; the command is surely not in the log.
    #[error("too many commands are waiting")]
    Overloaded,
    /// The commands do not fit into one entry; they are surely not in the log.
    #[error("the commands are larger than an entry may be")]
    TooLarge,
    /// The command was proposed and its fate is not known: it may be applied now, later or never.
    #[error("the outcome of the command is not known")]
    Unknown,
    /// The group was closed here; the command is surely not in the log.
    #[error("the group is closed")]
    Stopped,
}

/// Why leadership was not handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TransferError {
    /// This replica does not lead.
    #[error("this replica does not lead the group")]
    NotLeader {
        /// The node that does, when known.
        leader: Option<NodeId>,
    },
    /// The wanted node has no voting replica of the group, or there is no other voter.
    #[error("no such voter")]
    NoSuchVoter,
    /// Another transfer is under way.
    #[error("a transfer is under way already")]
    UnderWay,
    /// Nothing was handed over in time; the old leader may still lead, or the group elects.
    #[error("the transfer did not finish in time")]
    TimedOut,
    /// The group was closed here.
    #[error("the group is closed")]
    Stopped,
}

/// Why a node did not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// Threads cannot be made.
    #[error("threads cannot be started: {0}")]
    Threads(#[from] io::Error),
    /// The node's stamps cannot be read.
    #[error(transparent)]
    Stamps(#[from] StampError),
}

/// Why a replica did not forget its log.
#[derive(Debug, Error)]
pub enum CompactError {
    /// Nothing is applied yet.
    #[error("nothing is applied yet")]
    NothingApplied,
    /// The machine gives no snapshot.
    #[error("the machine gives no snapshot: {0}")]
    NoSnapshot(io::Error),
    /// The log is still needed, by a follower that is being caught up: it goes later, or with the next snapshot.
    #[error("the log is still needed")]
    Postponed,
    /// The group was closed here.
    #[error("the group is closed")]
    Stopped,
}

/// Why a group's first membership was not written.
#[derive(Debug, Error)]
pub enum InitializeError {
    /// The group has a log or a vote already.
    #[error("the group has a history already")]
    NotAllowed,
    /// The voters do not contain this replica.
    #[error("this replica is not among the voters")]
    NotAVoter,
    /// The group was closed here.
    #[error("the group is closed")]
    Stopped,
}

/// Why a replica could not be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// It is open already.
    #[error("group {0} is open already")]
    AlreadyOpen(GroupId),
    /// The log cannot be opened.
    #[error("the log of group {group} cannot be opened: {source}")]
    Log {
        /// The group.
        group: GroupId,
        /// What the store says.
        source: raftmq_store::commit_log::OpenError,
    },
    /// The log is damaged in a part that all peers have purged, and each of them has everything that this replica can have, committed and
    /// durable. So nothing hangs on what it forgets, and it may start over from a snapshot
    /// ([`raftmq_store::commit_log::start_over`]), its state first.
    #[error(
        "the log of group {group} is damaged where all peers have purged theirs; it reaches to entry {reaches} at most, and all of them \
         to {committed}: the replica has to start over from a snapshot"
    )]
    Outdated {
        /// The group.
        group: GroupId,
        /// The highest entry that the replica can have.
        reaches: u64,
        /// What all peers have.
        committed: u64,
    },
    /// The machine cannot restore its state, or the state is from another log.
    #[error("the state of group {group} cannot be used: {source}")]
    State {
        /// The group.
        group: GroupId,
        /// Why.
        source: io::Error,
    },
    /// Raft did not start.
    #[error("group {group} cannot start: {reason}")]
    Raft {
        /// The group.
        group: GroupId,
        /// Why.
        reason: String,
    },
    /// Timeouts that contradict each other.
    #[error("the Raft timeouts cannot be used: {0}")]
    Config(String),
    /// The node was shut down.
    #[error("the node is shut down")]
    Stopped,
}

/// Why the peer port is not served.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The address cannot be listened on.
    #[error("cannot listen for peers on {address}: {source}")]
    Listen {
        /// The wanted address.
        address: String,
        /// What the system says.
        source: io::Error,
    },
    /// The node was shut down.
    #[error("the node is shut down")]
    Stopped,
}
