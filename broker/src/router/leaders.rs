//! Who leads which group, as far as this node knows.
//!
//! For a group with a replica here: that replica's own view. For another: the last answer or redirect, else the meta
//! group's record, else any replica (it will send us on).

use crate::leader::{Replica, Replicas};
use crate::meta_client::MetaClient;
use parking_lot::Mutex;
use raftmq_model::ids::{GroupId, NodeId, ReplicaId};
use raftmq_model::meta::MetaView;
use raftmq_raft::{Leadership, PeerState};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Where to send one try.
pub(super) enum Target {
    /// This node leads.
    Local(Arc<Replica>),
    /// That node may lead.
    Remote(NodeId),
}

/// What calls taught of a group; the leader only where it has no replica here.
#[derive(Default)]
struct Hint {
    /// Who answered, or who was named, last.
    leader: Option<NodeId>,
    /// The leader of the meta group's record that turned out to be wrong, with its term.
    refuted: Option<(u32, u64)>,
    /// Set by calls that no leader took, cleared by the next one that a leader did.
    trouble: Option<Trouble>,
    /// Rotates over the replicas when nobody is known.
    turn: usize,
}

/// Since when no leader took a call.
#[derive(Clone, Copy)]
struct Trouble {
    since: Instant,
    last: Instant,
}

/// A group in trouble may be passed over, and then no call would ever tell that it is well again: without news for this
/// long it counts as well.
const TROUBLE_MAX: Duration = Duration::from_secs(3);

impl Hint {
    fn note_trouble(&mut self) -> Trouble {
        let last = Instant::now();
        let known = self.trouble.filter(|trouble| last.duration_since(trouble.last) < TROUBLE_MAX);
        let since = known.map_or(last, |trouble| trouble.since);
        *self.trouble.insert(Trouble { since, last })
    }
}

/// See the module.
pub(super) struct LeaderTable {
    node: NodeId,
    replicas: Arc<Replicas>,
    meta: Arc<MetaClient>,
    peers: watch::Receiver<BTreeMap<NodeId, PeerState>>,
    hints: Mutex<BTreeMap<GroupId, Hint>>,
    /// Whether any group is in trouble: spares calls that go well the lock.
    troubled: AtomicBool,
}

impl LeaderTable {
    pub(super) fn new(
        node: NodeId,
        replicas: Arc<Replicas>,
        meta: Arc<MetaClient>,
        peers: watch::Receiver<BTreeMap<NodeId, PeerState>>,
    ) -> LeaderTable {
        LeaderTable { node, replicas, meta, peers, hints: Mutex::default(), troubled: AtomicBool::new(false) }
    }

    /// The next try's target. `redirect` is where the last try was sent on to, `avoid` a node that just was lost.
    pub(super) fn target(&self, group: GroupId, redirect: Option<NodeId>, avoid: Option<NodeId>) -> Option<Target> {
        if let Some(replica) = self.replicas.get(group) {
            let known = redirect.or(replica.leader());
            return match known? {
                node if node == self.node => Some(Target::Local(replica)),
                // The replica will hear of the next leader; meanwhile there is nobody to ask.
                node if Some(node) == avoid || self.state(node) == PeerState::Dead => None,
                node => Some(Target::Remote(node)),
            };
        }
        let view = self.meta.view();
        let mut hints = self.hints.lock();
        let hint = hints.entry(group).or_default();
        let known = redirect.or(hint.leader).or_else(|| recorded(&view, group, hint.refuted));
        let node = known.filter(|node| Some(*node) != avoid).or_else(|| any_replica(&view, group, hint, avoid))?;
        // This node has no replica of the group (any more), so it cannot be the leader.
        (node != self.node).then_some(Target::Remote(node))
    }

    /// The node that `target` stands for.
    pub(super) fn node_of(&self, target: &Target) -> NodeId {
        match target {
            Target::Local(_) => self.node,
            Target::Remote(node) => *node,
        }
    }

    /// The leader, if one is known.
    pub(super) fn leader(&self, group: GroupId) -> Option<NodeId> {
        if let Some(replica) = self.replicas.get(group) {
            return replica.leader().filter(|node| self.answers(*node));
        }
        let view = self.meta.view();
        let hints = self.hints.lock();
        let hint = hints.get(&group);
        hint.and_then(|hint| hint.leader).or_else(|| recorded(&view, group, hint.and_then(|hint| hint.refuted)))
    }

    pub(super) fn leaderless_for(&self, group: GroupId) -> Option<Duration> {
        if let Some(unled) = self.replicas.get(group).and_then(|replica| replica.leaderless_for()) {
            return Some(unled);
        }
        let known = self.leader(group).is_some();
        if known && !self.troubled.load(Ordering::Relaxed) {
            return None;
        }
        let mut hints = self.hints.lock();
        let hint = hints.entry(group).or_default();
        if !known {
            return Some(hint.note_trouble().since.elapsed());
        }
        let trouble = hint.trouble.filter(|trouble| trouble.last.elapsed() < TROUBLE_MAX)?;
        Some(trouble.since.elapsed())
    }

    /// A replica goes on naming a leader that died until it hears of the next one.
    fn answers(&self, node: NodeId) -> bool {
        node == self.node || !matches!(self.state(node), PeerState::Dead | PeerState::Silent)
    }

    fn state(&self, node: NodeId) -> PeerState {
        self.peers.borrow().get(&node).copied().unwrap_or(PeerState::Unknown)
    }

    /// `node` answered as the leader.
    pub(super) fn answered(&self, group: GroupId, node: NodeId) {
        let hosted = self.replicas.get(group).is_some();
        if hosted && !self.troubled.load(Ordering::Relaxed) {
            return;
        }
        let mut hints = self.hints.lock();
        let hint = hints.entry(group).or_default();
        hint.trouble = None;
        hint.refuted = None;
        hint.leader = Some(node).filter(|node| !hosted && *node != self.node);
        self.troubled.store(hints.values().any(|hint| hint.trouble.is_some()), Ordering::Relaxed);
    }

    /// `node` said that `leader` leads.
    pub(super) fn redirected(&self, group: GroupId, node: NodeId, leader: Option<NodeId>) {
        if leader == Some(node) {
            return;
        }
        self.lost(group, node);
        if leader.is_some() {
            self.hints.lock().entry(group).or_default().leader = leader;
        }
    }

    /// `node` could not be reached, went away in mid-call, or does not lead.
    pub(super) fn lost(&self, group: GroupId, node: NodeId) {
        let view = self.meta.view();
        let mut hints = self.hints.lock();
        let hint = hints.entry(group).or_default();
        if hint.leader == Some(node) {
            hint.leader = None;
        }
        if let Some(record) = view.broker_groups.get(&group.0)
            && record.leader_node == node.0
        {
            hint.refuted = Some((record.leader_node, record.leader_term));
        }
        hint.note_trouble();
        self.troubled.store(true, Ordering::Relaxed);
    }

    /// The leader took no call, and still is the one to ask.
    pub(super) fn not_ready(&self, group: GroupId) {
        self.hints.lock().entry(group).or_default().note_trouble();
        self.troubled.store(true, Ordering::Relaxed);
    }

    /// Resolves when the leader of `group` may have changed.
    pub(super) fn subscribe(&self, group: GroupId) -> Change {
        let leadership = self.replicas.get(group).map(|replica| {
            let mut watch = replica.leadership();
            watch.mark_unchanged();
            watch
        });
        let mut revision = self.meta.changed();
        revision.mark_unchanged();
        Change { group, leadership, revision, meta: Arc::clone(&self.meta) }
    }
}

/// See [`LeaderTable::subscribe`].
#[derive(Clone)]
pub(super) struct Change {
    group: GroupId,
    leadership: Option<watch::Receiver<Leadership>>,
    revision: watch::Receiver<u64>,
    meta: Arc<MetaClient>,
}

impl Change {
    /// Waits for the change; pends for ever once the senders are gone.
    pub(super) async fn changed(&mut self) {
        let closed = match &mut self.leadership {
            Some(leadership) => leadership.changed().await.is_err(),
            None => self.revision.changed().await.is_err(),
        };
        if closed {
            std::future::pending::<()>().await;
        }
    }

    /// Waits until a node other than `node` leads: a call that `node` has not answered by then may never be, when its
    /// process is stopped or cut off.
    pub(super) async fn moved_away_from(&mut self, node: NodeId) {
        loop {
            self.changed().await;
            let leader = match &self.leadership {
                Some(leadership) => leadership.borrow().leader,
                None => recorded(&self.meta.view(), self.group, None),
            };
            if leader.is_some_and(|leader| leader != node) {
                return;
            }
        }
    }
}

fn recorded(view: &MetaView, group: GroupId, refuted: Option<(u32, u64)>) -> Option<NodeId> {
    let record = view.broker_groups.get(&group.0)?;
    let stands = record.leader_node != 0 && refuted != Some((record.leader_node, record.leader_term));
    stands.then_some(NodeId(record.leader_node))
}

fn any_replica(view: &MetaView, group: GroupId, hint: &mut Hint, avoid: Option<NodeId>) -> Option<NodeId> {
    let record = view.broker_groups.get(&group.0)?;
    let nodes: Vec<NodeId> =
        record.replicas.iter().map(|id| ReplicaId::from_u64(*id).node).filter(|node| Some(*node) != avoid).collect();
    hint.turn = hint.turn.wrapping_add(1);
    nodes.get(hint.turn % nodes.len().max(1)).copied()
}
