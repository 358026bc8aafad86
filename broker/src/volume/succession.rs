//! What the leader of a group does about full volumes: which commands it admits, and to whom it hands over.
//!
//! A leader whose own volume is full hands over to a living voter whose volume is not; while that is under way sends are
//! held. It refuses them when there is no such voter, when the hand-over failed, or when so many voters are full that the
//! others are no majority: then a send could only be stored by filling a reserve. A full minority is written to all the
//! same: its replicas live on their reserve, and stop when that is gone. Commands that store no message always pass.

use super::{MIB, VolumeStatus};
use raftmq_model::ids::NodeId;
use raftmq_raft::{Group, GroupStatus, Leadership, PeerState};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// After a hand-over that failed, this long until the next one ...
const RETRY: Duration = Duration::from_secs(5);
/// ... and after one that worked: nodes whose disks are full at one time, and do not know it of each other yet, must not
/// pass the leadership round.
const REST: Duration = Duration::from_secs(1);

/// Whether a leader takes commands that store messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Yes.
    Open,
    /// Not this replica: it is handing over to one that does.
    Leaving,
    /// No, for the reason that the sentence says.
    Refused(Arc<str>),
}

/// What is known of this node's volume and of the others'. Clones follow the same.
#[derive(Clone)]
pub(crate) struct Volumes {
    pub(super) node: NodeId,
    pub(crate) own: watch::Receiver<VolumeStatus>,
    pub(crate) peers_full: watch::Receiver<BTreeSet<NodeId>>,
    pub(super) peers_alive: watch::Receiver<BTreeMap<NodeId, PeerState>>,
}

/// How a group stands at one moment. Pure.
#[derive(Debug, PartialEq, Eq)]
struct Outlook {
    /// This node's volume is full.
    own_full: bool,
    /// The voters with full volumes, when the others are no majority.
    full_majority: Option<Vec<NodeId>>,
    /// Who could lead instead, when this node is full.
    successor: Option<NodeId>,
}

impl Outlook {
    fn of(
        node: NodeId,
        own_full: bool,
        peers_full: &BTreeSet<NodeId>,
        peers_alive: &BTreeMap<NodeId, PeerState>,
        group: &GroupStatus,
    ) -> Outlook {
        let is_full = |voter: &NodeId| if *voter == node { own_full } else { peers_full.contains(voter) };
        let full: Vec<NodeId> = group.voters.iter().copied().filter(is_full).collect();
        let writable = group.voters.len() - full.len();
        let could_lead =
            |voter: &&NodeId| **voter != node && !is_full(voter) && peers_alive.get(voter) == Some(&PeerState::Alive);
        let rank = |voter: &&NodeId| (group.matched.get(voter).copied(), std::cmp::Reverse(**voter));
        let successor = group.voters.iter().filter(could_lead).max_by_key(rank).copied();
        Outlook {
            own_full,
            full_majority: (!full.is_empty() && writable * 2 <= group.voters.len()).then_some(full),
            successor: successor.filter(|_| own_full),
        }
    }

    /// What to say to sends. `rests`: there was a hand-over a moment ago, and this node leads all the same.
    fn admission(&self, node: NodeId, own: VolumeStatus, rests: bool) -> Admission {
        match (&self.full_majority, self.own_full) {
            (Some(full), false) => Admission::Refused(majority_sentence(full)),
            (None, false) => Admission::Open,
            (None, true) if self.successor.is_some() && !rests => Admission::Leaving,
            (_, true) => Admission::Refused(own_sentence(node, own)),
        }
    }
}

fn own_sentence(node: NodeId, own: VolumeStatus) -> Arc<str> {
    let (available, total) = (own.volume.available_bytes / MIB, own.volume.total_bytes / MIB);
    format!("The disk of node {node} is full ({available} MiB of {total} MiB are left); nothing was stored, try again later.")
        .into()
}

fn majority_sentence(full: &[NodeId]) -> Arc<str> {
    let nodes: Vec<String> = full.iter().map(ToString::to_string).collect();
    let nodes = nodes.join(", ");
    format!("The disks of nodes {nodes} are full, and without them there is no majority; nothing was stored, try again later.")
        .into()
}

/// One group's. See the module.
pub(crate) struct Succession {
    pub(crate) group: Group,
    pub(crate) volumes: Volumes,
    /// What the leader admits, for those who ask.
    pub(crate) admission: watch::Sender<Admission>,
}

impl Succession {
    /// Runs until the group closes.
    pub(crate) async fn run(mut self) {
        let mut leadership = self.group.leadership();
        let mut rests_until: Option<Instant> = None;
        loop {
            let (now, own) = (*leadership.borrow_and_update(), *self.volumes.own.borrow_and_update());
            let leads = now.leader == Some(self.volumes.node) && now.ready;
            rests_until = rests_until.filter(|until| own.is_full() && Instant::now() < *until);
            let outlook = self.outlook(own);
            self.admit(outlook.admission(self.volumes.node, own, rests_until.is_some()));
            if let Some(successor) = outlook.successor.filter(|_| leads && rests_until.is_none()) {
                let rest = if self.hand_over(successor).await { REST } else { RETRY };
                rests_until = Some(Instant::now() + rest);
                continue;
            }
            if !self.changed(&mut leadership, rests_until).await {
                return;
            }
        }
    }

    fn outlook(&mut self, own: VolumeStatus) -> Outlook {
        let full = self.volumes.peers_full.borrow_and_update();
        let alive = self.volumes.peers_alive.borrow_and_update();
        Outlook::of(self.volumes.node, own.is_full(), &full, &alive, &self.group.status())
    }

    fn admit(&self, admission: Admission) {
        self.admission.send_if_modified(|known| {
            let changed = *known != admission;
            *known = admission;
            changed
        });
    }

    /// Whether another node leads now.
    async fn hand_over(&self, successor: NodeId) -> bool {
        let group = self.group.id();
        match self.group.transfer_leader(Some(successor)).await {
            Ok(leader) => {
                tracing::info!(%group, %leader, "handed the leadership over: the disk of this node is full");
                true
            }
            Err(error) => {
                tracing::warn!(%group, %successor, %error, "the disk of this node is full and its leadership stays");
                false
            }
        }
    }

    /// Waits for news, or for the end of a rest; false when there will be none.
    async fn changed(&mut self, leadership: &mut watch::Receiver<Leadership>, rests_until: Option<Instant>) -> bool {
        let volumes = &mut self.volumes;
        tokio::select! {
            changed = leadership.changed() => changed.is_ok(),
            changed = volumes.own.changed() => changed.is_ok(),
            changed = volumes.peers_full.changed() => changed.is_ok(),
            changed = volumes.peers_alive.changed() => changed.is_ok(),
            () = sleep_until(rests_until.unwrap_or_else(Instant::now)), if rests_until.is_some() => true,
        }
    }
}

#[cfg(test)]
mod tests;
