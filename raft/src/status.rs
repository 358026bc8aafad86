//! What a replica says about itself.

use crate::types::{Raft, node_of, term_index};
use openraft::ServerState;
use openraft::async_runtime::WatchReceiver;
use raftmq_model::ids::{NodeId, ReplicaId};
use std::collections::BTreeMap;
use std::fmt;

/// What a replica does in its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It takes proposals.
    Leader,
    /// It follows and may vote.
    Follower,
    /// It asks for votes.
    Candidate,
    /// It follows and has no vote.
    Learner,
    /// It was closed.
    Closed,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Leader => "leader",
            Role::Follower => "follower",
            Role::Candidate => "candidate",
            Role::Learner => "learner",
            Role::Closed => "closed",
        })
    }
}

/// A member of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The replica.
    pub replica: ReplicaId,
    /// It votes; else it is a learner.
    pub voter: bool,
}

/// A replica at one moment. Log positions are (term, index).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupStatus {
    /// What this replica does.
    pub role: Role,
    /// Its current term.
    pub term: u64,
    /// The node that leads, when known.
    pub leader: Option<NodeId>,
    /// Index of the last entry of its log.
    pub last: Option<u64>,
    /// The last entry that it knows to be committed.
    pub committed: Option<(u64, u64)>,
    /// The last entry that it applied.
    pub applied: Option<(u64, u64)>,
    /// The voters, by node.
    pub voters: Vec<NodeId>,
    /// All members, by the last membership in this replica's log.
    pub members: Vec<Member>,
    /// On the leader: the last index that each replica has for sure, by node; of several lives of a node, the last one's.
    pub matched: BTreeMap<NodeId, u64>,
}

pub(crate) fn of(raft: &Raft) -> GroupStatus {
    let metrics = raft.metrics().borrow_watched().clone();
    let role = match metrics.state {
        ServerState::Leader => Role::Leader,
        ServerState::Follower => Role::Follower,
        ServerState::Candidate => Role::Candidate,
        ServerState::Learner => Role::Learner,
        ServerState::Shutdown => Role::Closed,
    };
    let matched = metrics.replication.iter().flatten();
    let membership = metrics.membership_config.membership();
    let members = membership.voter_ids().map(|id| (id, true)).chain(membership.learner_ids().map(|id| (id, false)));
    GroupStatus {
        role,
        term: metrics.current_term,
        leader: metrics.current_leader.map(node_of),
        last: metrics.last_log_index,
        committed: metrics.local_committed.as_ref().map(term_index),
        applied: metrics.last_applied.as_ref().map(term_index),
        voters: membership.voter_ids().map(node_of).collect(),
        members: members.map(|(id, voter)| Member { replica: ReplicaId::from_u64(id), voter }).collect(),
        // Ascending by life: the last one of a node counts, even when nothing is known of it yet.
        matched: matched.map(|(id, at)| (node_of(*id), at.as_ref().map_or(0, |at| at.index))).collect(),
    }
}
