//! Who leads and what is admitted, for each way in which volumes can be full.

use super::*;
use crate::volume::VolumeState;
use raftmq_raft::Role;
use raftmq_store::Volume;

/// The node that asks; it leads.
const OWN: NodeId = NodeId(1);

fn group(voters: &[u32], matched: &[(u32, u64)]) -> GroupStatus {
    GroupStatus {
        role: Role::Leader,
        term: 1,
        leader: Some(OWN),
        last: Some(9),
        committed: None,
        applied: None,
        members: Vec::new(),
        voters: voters.iter().copied().map(NodeId).collect(),
        matched: matched.iter().map(|(node, index)| (NodeId(*node), *index)).collect(),
    }
}

fn outlook(full: &[u32], dead: &[u32], group: &GroupStatus) -> Outlook {
    let all: BTreeSet<NodeId> = full.iter().copied().map(NodeId).collect();
    let state = |voter: &NodeId| if dead.contains(&voter.0) { PeerState::Dead } else { PeerState::Alive };
    let alive = group.voters.iter().map(|voter| (*voter, state(voter))).collect();
    Outlook::of(OWN, all.contains(&OWN), &all, &alive, group)
}

fn own(full: &[u32]) -> VolumeStatus {
    let state = if full.contains(&OWN.0) { VolumeState::Full } else { VolumeState::Writable };
    VolumeStatus { volume: Volume { total_bytes: 100 * MIB, available_bytes: 7 * MIB }, state }
}

/// What three voters' leader says with `full` volumes, when hand-overs work and when they do not.
fn admissions(full: &[u32], dead: &[u32]) -> [Admission; 2] {
    let outlook = outlook(full, dead, &group(&[1, 2, 3], &[]));
    [false, true].map(|failed| outlook.admission(OWN, own(full), failed))
}

fn refused(sentence: &str) -> Admission {
    Admission::Refused(sentence.into())
}

#[test]
fn a_minority_of_full_followers_is_no_reason() {
    for full in [&[][..], &[2], &[3]] {
        assert_eq!(admissions(full, &[]), [Admission::Open, Admission::Open], "{full:?}");
    }
    assert_eq!(outlook(&[2, 3], &[], &group(&[1, 2, 3, 4, 5], &[])).full_majority, None);
}

#[test]
fn a_full_leader_leaves_and_refuses_when_it_cannot() {
    let stays = refused("The disk of node 1 is full (7 MiB of 100 MiB are left); nothing was stored, try again later.");
    assert_eq!(admissions(&[1], &[]), [Admission::Leaving, stays.clone()]);
    assert_eq!(admissions(&[1], &[2, 3]), [stays.clone(), stays], "nobody is there to take over");
}

#[test]
fn a_full_majority_is_refused_for_whoever_leads() {
    let majority =
        "The disks of nodes 2, 3 are full, and without them there is no majority; nothing was stored, try again later.";
    assert_eq!(admissions(&[2, 3], &[]), [refused(majority), refused(majority)]);
    let [first, _] = admissions(&[1, 2], &[]);
    assert!(matches!(first, Admission::Refused(_)), "another leader could not store it either: {first:?}");
    let lone = outlook(&[1], &[], &group(&[1], &[]));
    assert!(matches!(lone.admission(OWN, own(&[1]), false), Admission::Refused(_)));
}

#[test]
fn the_successor_is_alive_has_room_and_the_most_of_the_log() {
    let group = group(&[1, 2, 3, 4, 5], &[(2, 9), (3, 8), (4, 5), (5, 8)]);
    let successor = |full: &[u32], dead: &[u32]| outlook(full, dead, &group).successor.map(|node| node.0);
    assert_eq!(successor(&[1], &[]), Some(2));
    assert_eq!(successor(&[1, 2], &[]), Some(3), "equal logs: the lower id");
    assert_eq!(successor(&[1, 2], &[3]), Some(5));
    assert_eq!(successor(&[1, 2, 3, 4], &[]), Some(5), "it may stop less soon, though no majority can store");
    assert_eq!(successor(&[1, 2, 3, 4, 5], &[]), None);
    assert_eq!(successor(&[2], &[]), None, "a leader with room stays");
}
