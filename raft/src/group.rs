//! A replica of a group, for those who propose and ask.

use crate::early_election::Alarms;
use crate::errors::{InitializeError, ProposeError, TransferError};
use crate::integrity::{GroupIntegrity, Progress, RepairTask, Repairs};
use crate::leadership::Leadership;
use crate::liveness::Liveness;
use crate::peers::PeerState;
use crate::proposer::Proposer;
use crate::purge::Purges;
use crate::status::{self, GroupStatus};
use crate::transfer::Transfer;
use crate::types::Raft;
use bytes::Bytes;
use openraft::ReadPolicy;
use openraft::errors::{InitializeError as RaftInitializeError, LinearizableReadError, RaftError};
use parking_lot::Mutex;
use raftmq_model::ids::{GroupId, NodeId, ReplicaId};
use raftmq_store::commit_log::CommitLog;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::watch;

/// A handle of one replica. Clones are cheap and share the replica; futures may be dropped at any time without harm to
/// other calls. Deadlines are the caller's business.
#[derive(Clone)]
pub struct Group(Arc<Core>);

pub(crate) struct Core {
    pub(crate) group: GroupId,
    pub(crate) replica: ReplicaId,
    pub(crate) raft: Raft,
    pub(crate) log: CommitLog,
    pub(crate) proposer: Proposer,
    pub(crate) transfer: Transfer,
    pub(crate) leadership: watch::Receiver<Leadership>,
    pub(crate) liveness: Liveness,
    pub(crate) alarms: Alarms,
    pub(crate) repairs: Repairs,
    pub(crate) repair_task: RepairTask,
    pub(crate) scrub: Mutex<Progress>,
    pub(crate) purges: Purges,
    /// Whether files may be read by threads beside the runtime's.
    pub(crate) threaded: bool,
}

impl Group {
    pub(crate) fn new(core: Arc<Core>) -> Group {
        Group(core)
    }

    pub(crate) fn core(&self) -> &Core {
        &self.0
    }

    /// The group.
    #[must_use]
    pub fn id(&self) -> GroupId {
        self.0.group
    }

    /// This replica.
    #[must_use]
    pub fn replica(&self) -> ReplicaId {
        self.0.replica
    }

    /// Proposes one encoded command and answers its outcome after a majority has it on disk and it is applied here.
    ///
    /// # Errors
    /// See [`ProposeError`]: only after `Unknown` the command may be in the log. A dropped future leaves the same doubt.
    pub async fn propose(&self, command: Bytes) -> Result<Bytes, ProposeError> {
        let mut outcomes = self.0.proposer.propose(vec![command]).await?;
        outcomes.pop().ok_or(ProposeError::Unknown)
    }

    /// Like [`Group::propose`] for commands that share one entry; outcomes come in the same order.
    ///
    /// # Errors
    /// As for [`Group::propose`], for all commands together.
    pub async fn propose_many(&self, commands: Vec<Bytes>) -> Result<Vec<Bytes>, ProposeError> {
        self.0.proposer.propose(commands).await
    }

    /// Returns when everything that was acknowledged before the call is applied here, provided that this replica still
    /// leads: it asks a majority (ReadIndex) and never trusts a lease.
    ///
    /// # Errors
    /// `NotLeader`, `NotReady` or `Stopped`.
    pub async fn read_barrier(&self) -> Result<(), ProposeError> {
        let hints = self.0.proposer.hints();
        hints.check()?;
        match self.0.raft.ensure_linearizable(ReadPolicy::ReadIndex).await {
            Ok(_) => Ok(()),
            Err(RaftError::APIError(LinearizableReadError::ForwardToLeader(forward))) => {
                Err(hints.not_leader(&forward))
            }
            Err(RaftError::APIError(LinearizableReadError::QuorumNotEnough(_))) => Err(ProposeError::NotReady),
            Err(RaftError::Fatal(_)) => Err(ProposeError::Stopped),
        }
    }

    /// Hands leadership to `to`, or to the most advanced living voter, one with room on its disk if there is one, and
    /// answers the node that leads then. Proposals wait meanwhile and are then answered `NotLeader` with that node:
    /// no call is lost.
    ///
    /// # Errors
    /// See [`TransferError`].
    pub async fn transfer_leader(&self, to: Option<NodeId>) -> Result<NodeId, TransferError> {
        let liveness = &self.0.liveness;
        let rank = |node| (liveness.state(node) == PeerState::Alive, !liveness.is_full(node));
        self.0.transfer.run(to, rank).await
    }

    /// Writes the group's first membership. To be called once in a group's life, on one replica with an empty log.
    ///
    /// # Errors
    /// `NotAllowed` when there is a history already, which makes a repeated call harmless.
    pub async fn initialize(&self, voters: &[ReplicaId]) -> Result<(), InitializeError> {
        let members: BTreeMap<u64, ()> = voters.iter().map(|replica| (replica.to_u64(), ())).collect();
        self.0.raft.initialize(members).await.map_err(|error| match error {
            RaftError::APIError(RaftInitializeError::NotAllowed(_)) => InitializeError::NotAllowed,
            RaftError::APIError(RaftInitializeError::NotInMembers(_)) => InitializeError::NotAVoter,
            RaftError::Fatal(_) => InitializeError::Stopped,
        })
    }

    /// Follows who leads, and whether this replica may serve.
    #[must_use]
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.0.leadership.clone()
    }

    /// This replica at this moment.
    #[must_use]
    pub fn status(&self) -> GroupStatus {
        status::of(&self.0.raft)
    }

    /// The replica's log, for reading.
    #[must_use]
    pub fn log(&self) -> &CommitLog {
        &self.0.log
    }

    /// How whole the log is, and how far the scrubber.
    #[must_use]
    pub fn integrity(&self) -> GroupIntegrity {
        let (log, scrub) = (self.0.log.integrity(), *self.0.scrub.lock());
        GroupIntegrity {
            damaged_count: log.damaged_count,
            found_count: log.found_count,
            repaired_count: log.repaired_count,
            scrub_passes_count: scrub.passes_count,
            scrub_ended_at: scrub.ended_at,
            scrub_next: scrub.next,
        }
    }

    /// Reads from the log, and when an entry is damaged waits until it is repaired and reads again. Deadlines are the caller's
    /// business.
    ///
    /// # Errors
    /// What `read` says; its damage ([`raftmq_store::commit_log::is_damage`]) when there is no peer to repair it from, or the
    /// group is closed.
    pub async fn read_repaired<T>(&self, read: impl Fn(&CommitLog) -> std::io::Result<T>) -> std::io::Result<T> {
        self.0.repairs.read(|| read(&self.0.log)).await
    }
}
