//! What must hold inside a cluster at every moment, whatever clients see. Looked at every few steps.
//!
//! * A term of a group has one leader.
//! * Of a log index, one term is ever committed.
//! * A node's term never falls behind one that it led: its vote survives whatever its process does not.
//! * A leader that says it is ready has applied what earlier leaders committed.

use super::net::Host;
use raftmq_model::ids::GroupId;
use raftmq_raft::{GroupStatus, Leadership};
use std::collections::BTreeMap;

/// Log ids that are remembered for each group, the newest ones.
const COMMITTED_COUNT_MAX: usize = 4_096;

/// One replica at one moment.
#[derive(Clone, Debug)]
pub(super) struct Look {
    pub(super) node: Host,
    pub(super) group: GroupId,
    pub(super) status: GroupStatus,
    pub(super) leadership: Leadership,
    /// Damaged units of its log that it repaired.
    pub(super) repaired_count: u64,
}

/// What was seen so far.
#[derive(Default)]
pub(super) struct Invariants {
    leaders: BTreeMap<(GroupId, u64), Host>,
    led: BTreeMap<(GroupId, Host), u64>,
    /// Index -> term.
    committed: BTreeMap<GroupId, BTreeMap<u64, u64>>,
    /// What a leader of that term must have applied when it is ready.
    floors: BTreeMap<(GroupId, u64), u64>,
}

impl Invariants {
    /// Takes in one round of looks; what they break.
    pub(super) fn see(&mut self, looks: &[Look]) -> Vec<String> {
        let mut broken = Vec::new();
        for look in looks {
            self.see_leader(look, &mut broken);
        }
        for look in looks {
            self.see_committed(look, &mut broken);
        }
        broken
    }

    /// The node's disk is lost: its next life starts from the first term.
    pub(super) fn forget(&mut self, node: Host) {
        self.led.retain(|(_, led_by), _| *led_by != node);
    }

    fn see_leader(&mut self, look: &Look, broken: &mut Vec<String>) {
        let Look { node, group, status, leadership, .. } = look;
        if let Some(led) = self.led.get(&(*group, *node))
            && status.term < *led
        {
            broken.push(format!("node {node} led group {group} in term {led} and is in term {}", status.term));
        }
        if leadership.leader.is_none_or(|leader| leader.0 != *node) {
            return;
        }
        let term = leadership.term;
        let first = *self.leaders.entry((*group, term)).or_insert(*node);
        if first != *node {
            broken.push(format!("nodes {first} and {node} both lead group {group} in term {term}"));
        }
        let led = self.led.entry((*group, *node)).or_default();
        *led = term.max(*led);
        let committed = self.committed.get(group);
        let before = || {
            let earlier = committed?.iter().rev().find(|(_, committed_in)| **committed_in < term);
            earlier.map(|(index, _)| *index)
        };
        let floor = *self.floors.entry((*group, term)).or_insert_with(|| before().unwrap_or(0));
        let applied = status.applied.map_or(0, |(_, index)| index);
        if leadership.ready && applied < floor {
            broken.push(format!(
                "node {node} is ready to lead group {group} in term {term} with {applied} applied, but {floor} was committed"
            ));
        }
    }

    fn see_committed(&mut self, look: &Look, broken: &mut Vec<String>) {
        let Some((term, index)) = look.status.committed else { return };
        let committed = self.committed.entry(look.group).or_default();
        let known = *committed.entry(index).or_insert(term);
        if known != term {
            broken.push(format!("index {index} of group {} is committed in terms {known} and {term}", look.group));
        }
        if committed.len() > COMMITTED_COUNT_MAX {
            committed.pop_first();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use raftmq_model::ids::NodeId;
    use raftmq_raft::Role;

    fn look(node: Host, term: u64, leader: Host, committed: u64, applied: u64) -> Look {
        let leads = leader == node;
        Look {
            node,
            group: GroupId(1),
            status: GroupStatus {
                role: if leads { Role::Leader } else { Role::Follower },
                term,
                leader: Some(NodeId(leader)),
                last: Some(100),
                committed: Some((term, committed)),
                applied: Some((term, applied)),
                voters: Vec::new(),
                members: Vec::new(),
                matched: BTreeMap::new(),
            },
            leadership: Leadership { term, leader: Some(NodeId(leader)), ready: leads },
            repaired_count: 0,
        }
    }

    #[test]
    fn a_change_of_leader_is_fine() {
        let mut invariants = Invariants::default();
        assert_eq!(invariants.see(&[look(1, 1, 1, 10, 10), look(2, 1, 1, 9, 9)]), [""; 0]);
        assert_eq!(invariants.see(&[look(2, 2, 2, 11, 11), look(1, 2, 2, 11, 5)]), [""; 0]);
    }

    #[test]
    fn each_invariant_can_break() {
        let broken = |first: &[Look], then: Look| {
            let mut invariants = Invariants::default();
            assert_eq!(invariants.see(first), [""; 0]);
            invariants.see(&[then]).join("; ")
        };
        let first = [look(1, 3, 1, 10, 10)];
        assert!(broken(&first, look(2, 3, 2, 10, 10)).contains("both lead group 1 in term 3"));
        assert!(broken(&first, look(1, 2, 9, 9, 9)).contains("led group 1 in term 3 and is in term 2"));
        assert!(broken(&first, look(2, 4, 2, 11, 9)).contains("with 9 applied, but 10 was committed"));
        assert!(broken(&first, look(2, 4, 9, 10, 9)).contains("committed in terms 3 and 4"));
    }
}
