//! Which nodes live, as a pure function of what was heard and when.

use raftmq_model::meta::SetAlive;
use raftmq_raft::PeerState;
use std::collections::BTreeMap;

/// Nodes that are remembered; more than a cluster has.
const HEARD_COUNT_MAX: usize = 1024;

/// What one namesrv node has heard. Times are milliseconds of a clock that never runs backwards.
#[derive(Debug)]
pub struct LivenessTable {
    node: u32,
    silent_ms: u64,
    /// Since when this node leads; judging by silence begins a full window later.
    leads_since_ms: Option<u64>,
    /// The last heartbeat, of each node, since this node leads.
    heard_ms: BTreeMap<u32, u64>,
    /// What the death detector said last.
    detected: BTreeMap<u32, PeerState>,
    /// When the process of a node that had answered was found to be gone.
    died_ms: BTreeMap<u32, u64>,
}

impl LivenessTable {
    /// An empty table of `node`, which calls nodes dead that were silent for `silent_ms`.
    #[must_use]
    pub fn new(node: u32, silent_ms: u64) -> LivenessTable {
        LivenessTable {
            node,
            silent_ms,
            leads_since_ms: None,
            heard_ms: BTreeMap::new(),
            detected: BTreeMap::new(),
            died_ms: BTreeMap::new(),
        }
    }

    /// This node began to lead, or goes on.
    pub fn lead(&mut self, now_ms: u64) {
        self.leads_since_ms.get_or_insert(now_ms);
    }

    /// This node does not lead (any more): others hear the heartbeats now.
    pub fn follow(&mut self) {
        self.leads_since_ms = None;
        self.heard_ms.clear();
    }

    /// A heartbeat of `node`.
    pub fn hear(&mut self, node: u32, now_ms: u64) {
        if self.heard_ms.len() < HEARD_COUNT_MAX || self.heard_ms.contains_key(&node) {
            self.heard_ms.insert(node, now_ms);
        }
    }

    /// What the death detector says of `node`. That a process which had answered is gone is evidence; that nobody
    /// listens where nobody has ever answered is not, it may be starting.
    pub fn detect(&mut self, node: u32, state: PeerState, now_ms: u64) {
        let before = self.detected.insert(node, state);
        match (before, state) {
            (Some(PeerState::Alive | PeerState::Silent), PeerState::Dead) => {
                self.died_ms.insert(node, now_ms);
            }
            (_, PeerState::Alive) => {
                self.died_ms.remove(&node);
            }
            _ => {}
        }
    }

    /// What to propose, given each node and whether it is recorded as alive. Nothing while this node does not lead.
    pub fn judge(&self, now_ms: u64, recorded: impl IntoIterator<Item = (u32, bool)>) -> Vec<SetAlive> {
        let Some(leads_since_ms) = self.leads_since_ms else { return Vec::new() };
        let judged = recorded.into_iter().filter_map(|(node, recorded)| {
            let alive = self.verdict(node, now_ms, leads_since_ms)?;
            (alive != recorded).then_some(SetAlive { node, alive })
        });
        judged.collect()
    }

    /// `None`: it is too early to say.
    fn verdict(&self, node: u32, now_ms: u64, leads_since_ms: u64) -> Option<bool> {
        if node == self.node {
            return Some(true);
        }
        let heard_ms = self.heard_ms.get(&node).copied();
        if let Some(died_ms) = self.died_ms.get(&node)
            && heard_ms.is_none_or(|heard_ms| heard_ms <= *died_ms)
        {
            return Some(false);
        }
        match heard_ms {
            Some(heard_ms) => Some(now_ms.saturating_sub(heard_ms) < self.silent_ms),
            None if now_ms.saturating_sub(leads_since_ms) >= self.silent_ms => Some(false),
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALIVE: [(u32, bool); 3] = [(1, true), (2, true), (3, true)];

    fn leading() -> LivenessTable {
        let mut table = LivenessTable::new(1, 3_000);
        table.lead(1_000);
        table
    }

    fn dead(nodes: &[u32]) -> Vec<SetAlive> {
        nodes.iter().map(|node| SetAlive { node: *node, alive: false }).collect()
    }

    #[test]
    fn a_node_is_dead_after_the_window_and_alive_when_heard_again() {
        let mut table = leading();
        table.hear(2, 1_000);
        table.hear(3, 2_500);
        assert_eq!(table.judge(3_999, ALIVE), []);
        assert_eq!(table.judge(4_000, ALIVE), dead(&[2]));
        table.hear(2, 4_100);
        assert_eq!(table.judge(4_100, [(2, false), (3, true)]), [SetAlive { node: 2, alive: true }]);
    }

    #[test]
    fn a_fresh_leader_waits_a_full_window() {
        let mut table = leading();
        assert_eq!(table.judge(3_999, ALIVE), []);
        assert_eq!(table.judge(4_000, ALIVE), dead(&[2, 3]));
        table.follow();
        assert_eq!(table.judge(9_000, ALIVE), []);
        table.lead(10_000);
        table.lead(12_000);
        assert_eq!(table.judge(12_999, ALIVE), []);
        assert_eq!(table.judge(13_000, ALIVE), dead(&[2, 3]));
    }

    #[test]
    fn the_leader_itself_lives() {
        let mut table = leading();
        table.hear(2, 90_000);
        assert_eq!(table.judge(90_000, [(1, false), (2, true)]), [SetAlive { node: 1, alive: true }]);
    }

    #[test]
    fn a_process_that_was_seen_to_end_is_dead_at_once_even_before_this_node_led() {
        let mut table = LivenessTable::new(1, 3_000);
        table.detect(2, PeerState::Alive, 10);
        table.detect(3, PeerState::Unknown, 10);
        table.detect(2, PeerState::Dead, 500);
        table.detect(3, PeerState::Dead, 500);
        table.lead(600);
        assert_eq!(table.judge(600, ALIVE), dead(&[2]), "node 3 may be starting");
        table.detect(2, PeerState::Dead, 700);
        table.hear(2, 800);
        assert_eq!(table.judge(900, [(2, false)]), [SetAlive { node: 2, alive: true }]);
    }

    #[test]
    fn a_process_that_answers_again_is_judged_by_its_heartbeats() {
        let mut table = leading();
        table.hear(2, 1_500);
        table.detect(2, PeerState::Alive, 1_500);
        table.detect(2, PeerState::Dead, 2_000);
        assert_eq!(table.judge(2_000, [(2, true)]), dead(&[2]));
        table.detect(2, PeerState::Alive, 2_100);
        assert_eq!(table.judge(2_200, [(2, true)]), []);
    }
}
