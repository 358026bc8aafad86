//! Keeps a group's voters where they are placed: a replica whose node came back on an empty disk is succeeded by the replica
//! of that node's next life.
//!
//! The leader drives it, one step at a time, each by an entry of the log; another leader goes on where it ended:
//! ```text
//! voters 1.1 2.1 3.1   placed 1.1 2.1 3.2
//!   learner   + 3.2 as a learner: it gets a snapshot and the log, and has no vote
//!   catch up  rounds: a round's goal is the leader's last entry at its beginning; one that is reached in ROUND_MS ends it
//!   succeed   voters 1.1 2.1 3.2 by joint consensus; 3.1 is out
//! ```
//! Source: Ongaro's thesis, §4.2.1 (rounds) and §4.3 (joint consensus). A successor only ever replaces an earlier life of its
//! own node, so a leader whose copy of the placement is old takes no step back.

use crate::group::Group;
use crate::types::{Membership, Raft, TypeConfig};
use openraft::ChangeMembers;
use openraft::async_runtime::WatchReceiver;
use openraft::errors::{ClientWriteError, RaftError};
use raftmq_model::ids::ReplicaId;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

/// A learner that reaches what was the leader's last entry within this time keeps up with it.
const ROUND_MS: u64 = 500;
/// A step that failed, or whose outcome is not known, is looked at again after this time.
const RETRY_MS: u64 = 500;
/// A step whose entry is not committed in this time is looked at again.
const STEP_MS: u64 = 10_000;

/// What is to be done next.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// Take this replica in, without a vote.
    Learn(u64),
    /// These learners are earlier lives of a node: let them go.
    Forget(BTreeSet<u64>),
    /// When `successor` has caught up: it votes in place of `outlived`.
    Succeed { successor: u64, outlived: BTreeSet<u64> },
    /// A leader before ended between the two entries of a change: finish it.
    Settle,
}

/// The members as far as the next step depends on them.
struct Members {
    voters: BTreeSet<u64>,
    learners: BTreeSet<u64>,
    joint: bool,
}

impl Members {
    fn of(membership: &Membership) -> Members {
        Members {
            voters: membership.voter_ids().collect(),
            learners: membership.learner_ids().collect(),
            joint: membership.get_joint_config().len() > 1,
        }
    }

    /// The next step towards `placed`; `None`: there is none. All successors learn before one votes, and the one goes first that
    /// has the most, so that none waits for one that is down.
    fn step(&self, placed: &BTreeSet<ReplicaId>, matched: impl Fn(u64) -> Option<u64>) -> Option<Step> {
        if self.joint {
            return Some(Step::Settle);
        }
        let mut ready = Vec::new();
        for successor in placed {
            let id = successor.to_u64();
            let earlier = |member: &u64| is_earlier_life(*member, *successor);
            let outlived: BTreeSet<u64> = self.voters.iter().copied().filter(earlier).collect();
            let forgotten: BTreeSet<u64> = self.learners.iter().copied().filter(earlier).collect();
            if !forgotten.is_empty() {
                return Some(Step::Forget(forgotten));
            }
            if self.voters.contains(&id) || outlived.is_empty() {
                continue;
            }
            if !self.learners.contains(&id) {
                return Some(Step::Learn(id));
            }
            ready.push((matched(id), id, outlived));
        }
        let (_, successor, outlived) = ready.into_iter().max_by_key(|(matched, id, _)| (*matched, Reverse(*id)))?;
        Some(Step::Succeed { successor, outlived })
    }
}

fn is_earlier_life(member: u64, of: ReplicaId) -> bool {
    let member = ReplicaId::from_u64(member);
    member.node == of.node && member.incarnation < of.incarnation
}

/// Whether a later life of the same node is a member: then this replica's disk is gone.
pub(crate) fn is_outlived(membership: &Membership, replica: u64) -> bool {
    membership.nodes().any(|(id, ())| is_earlier_life(replica, ReplicaId::from_u64(*id)))
}

impl Group {
    /// While this replica leads: has the group's voters be those that are `placed`, as far as they are later lives of nodes
    /// that vote already. Runs until the group or the placement is gone.
    pub async fn keep_members(self, mut placed: watch::Receiver<BTreeSet<ReplicaId>>) {
        let mut leadership = self.leadership();
        loop {
            let Ok(term) = leadership.wait_for(|now| now.ready).await.map(|now| now.term) else { return };
            let wanted = placed.borrow_and_update().clone();
            let steps = async {
                self.towards(&wanted).await;
                std::future::pending::<()>().await;
            };
            let lost = async { leadership.wait_for(|now| !now.ready || now.term != term).await.is_err() };
            let closed = tokio::select! {
                () = steps => true,
                changed = placed.changed() => changed.is_err(),
                closed = lost => closed,
            };
            if closed {
                return;
            }
        }
    }

    /// Takes steps until there is none left.
    async fn towards(&self, placed: &BTreeSet<ReplicaId>) {
        let raft = &self.core().raft;
        let mut metrics = raft.metrics();
        loop {
            let step = {
                let now = metrics.borrow_and_update();
                let matched = |id: u64| now.replication.as_ref()?.get(&id)?.as_ref().map(|at| at.index);
                Members::of(now.membership_config.membership()).step(placed, matched)
            };
            let Some(step) = step else { return };
            tracing::info!(group = self.id().0, step = %Said(&step), "the group's members change");
            match timeout(Duration::from_millis(STEP_MS), take(raft, step.clone())).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::warn!(group = self.id().0, step = %Said(&step), "not taken: {error}");
                    sleep(Duration::from_millis(RETRY_MS)).await;
                }
                // A learner may need long: only its last round counts.
                Err(_) => tracing::info!(group = self.id().0, step = %Said(&step), "not taken yet"),
            }
        }
    }
}

async fn take(raft: &Raft, step: Step) -> Result<(), RaftError<TypeConfig, ClientWriteError<TypeConfig>>> {
    let changes = match step {
        Step::Learn(id) => ChangeMembers::AddNodes(BTreeMap::from([(id, ())])),
        Step::Forget(ids) => ChangeMembers::RemoveNodes(ids),
        Step::Settle => ChangeMembers::AddVoterIds(BTreeSet::new()),
        Step::Succeed { successor, outlived } => {
            catch_up(raft, successor).await;
            let voters =
                [ChangeMembers::AddVoterIds(BTreeSet::from([successor])), ChangeMembers::RemoveVoters(outlived)];
            ChangeMembers::Batch(voters.into())
        }
    };
    raft.change_membership(changes, false).await.map(|_| ())
}

/// Returns when a round ended in time. Takes as long as it takes, and does not return when the Raft task is gone.
async fn catch_up(raft: &Raft, learner: u64) {
    let mut metrics = raft.metrics();
    loop {
        let (started, goal) = (Instant::now(), metrics.borrow_and_update().last_log_index);
        loop {
            let matched = metrics.borrow_and_update().replication.as_ref().and_then(|all| all.get(&learner).copied());
            if matched.flatten().map(|id| id.index) >= goal {
                break;
            }
            if metrics.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
        if started.elapsed() <= Duration::from_millis(ROUND_MS) {
            return;
        }
    }
}

/// A step for the log.
struct Said<'a>(&'a Step);

impl std::fmt::Display for Said<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = |ids: &BTreeSet<u64>| {
            ids.iter().map(|id| ReplicaId::from_u64(*id).to_string()).collect::<Vec<_>>().join(", ")
        };
        match self.0 {
            Step::Learn(id) => write!(f, "replica {} learns", ReplicaId::from_u64(*id)),
            Step::Forget(ids) => write!(f, "learner {} goes", names(ids)),
            Step::Settle => f.write_str("a change that was begun is finished"),
            Step::Succeed { successor, outlived } => {
                let successor = ReplicaId::from_u64(*successor);
                write!(f, "replica {successor} takes the vote of {} when it has caught up", names(outlived))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use raftmq_model::ids::NodeId;

    fn replica((node, incarnation): (u32, u32)) -> ReplicaId {
        ReplicaId { node: NodeId(node), incarnation }
    }

    fn ids(replicas: &[(u32, u32)]) -> BTreeSet<u64> {
        replicas.iter().map(|id| replica(*id).to_u64()).collect()
    }

    fn step(voters: &[(u32, u32)], learners: &[(u32, u32)], placed: &[(u32, u32)]) -> Option<Step> {
        let members = Members { voters: ids(voters), learners: ids(learners), joint: false };
        members.step(&placed.iter().copied().map(replica).collect(), |id| Some(id & 0xff))
    }

    const VOTERS: &[(u32, u32)] = &[(1, 1), (2, 1), (3, 1)];

    #[test]
    fn a_later_life_learns_then_succeeds_then_all_is_done() {
        let placed = &[(1, 1), (2, 1), (3, 2)];
        let id = replica((3, 2)).to_u64();
        assert_eq!(step(VOTERS, &[], placed), Some(Step::Learn(id)));
        let succeed = Step::Succeed { successor: id, outlived: ids(&[(3, 1)]) };
        assert_eq!(step(VOTERS, &[(3, 2)], placed), Some(succeed));
        assert_eq!(step(placed, &[], placed), None);
    }

    #[test]
    fn of_two_that_learn_the_one_with_more_votes_first() {
        let placed = &[(1, 1), (2, 2), (3, 3)];
        assert_eq!(step(VOTERS, &[(3, 3)], placed), Some(Step::Learn(replica((2, 2)).to_u64())), "all learn first");
        let first = Step::Succeed { successor: replica((3, 3)).to_u64(), outlived: ids(&[(3, 1)]) };
        assert_eq!(step(VOTERS, &[(2, 2), (3, 3)], placed), Some(first));
    }

    #[test]
    fn a_life_that_ended_before_it_voted_is_forgotten_first() {
        let placed = &[(1, 1), (2, 1), (3, 3)];
        assert_eq!(step(VOTERS, &[(3, 2)], placed), Some(Step::Forget(ids(&[(3, 2)]))));
        assert_eq!(step(VOTERS, &[], placed), Some(Step::Learn(replica((3, 3)).to_u64())));
    }

    #[test]
    fn an_old_placement_takes_no_step_back_and_none_takes_none() {
        assert_eq!(step(&[(1, 1), (2, 1), (3, 2)], &[], VOTERS), None);
        assert_eq!(step(VOTERS, &[(3, 2)], VOTERS), None);
        assert_eq!(step(VOTERS, &[], &[]), None);
    }

    #[test]
    fn a_node_that_never_voted_is_not_taken_in() {
        assert_eq!(step(VOTERS, &[], &[(1, 1), (2, 1), (4, 1)]), None);
    }

    #[test]
    fn a_change_that_was_begun_is_finished_first() {
        let members = Members { voters: ids(VOTERS), learners: BTreeSet::new(), joint: true };
        assert_eq!(members.step(&BTreeSet::new(), |_| None), Some(Step::Settle));
    }
}
