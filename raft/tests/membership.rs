//! A node that lost its disk: its next life takes the place of the one before, whatever happens meanwhile.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use bytes::Bytes;
use raftmq_model::ids::{NodeId, ReplicaId};
use raftmq_raft::{Group, Role};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use support::cluster::{Cluster, GROUP, Tally, propose, replicas};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

const PATIENCE: Duration = Duration::from_secs(20);

fn groups_of(cluster: &Cluster) -> BTreeMap<u32, Group> {
    cluster.living().into_iter().map(|node| (node, cluster.group(node, GROUP).clone())).collect()
}

async fn send(cluster: &Cluster, count: usize, what: &str) {
    let groups = groups_of(cluster);
    for at in 0..count {
        propose(&groups, Bytes::from(format!("{what} {at}")), true, &mut Tally::default()).await;
    }
}

/// Where each node's replicas are placed, and the drivers on all living nodes.
struct Placement(watch::Sender<BTreeSet<ReplicaId>>);

impl Placement {
    fn new() -> Placement {
        Placement(watch::Sender::new(replicas(3).into_iter().collect()))
    }

    fn drive(&self, cluster: &Cluster, node: u32) {
        tokio::spawn(cluster.group(node, GROUP).clone().keep_members(self.0.subscribe()));
    }

    fn replace(&self, node: u32, incarnation: u32) {
        self.0.send_modify(|placed| {
            placed.retain(|replica| replica.node.0 != node);
            placed.insert(ReplicaId { node: NodeId(node), incarnation });
        });
    }
}

fn voters(cluster: &Cluster, node: u32) -> Vec<(u32, u32)> {
    let members = cluster.group(node, GROUP).status().members;
    let voters = members.iter().filter(|member| member.voter);
    voters.map(|member| (member.replica.node.0, member.replica.incarnation)).collect()
}

/// Waits until all living nodes know these members and no others.
async fn settled(cluster: &Cluster, wanted: &[(u32, u32)]) {
    let started = Instant::now();
    loop {
        let agree = |node: &u32| {
            let status = cluster.group(*node, GROUP).status();
            status.members.len() == wanted.len() && voters(cluster, *node) == wanted
        };
        if cluster.living().iter().all(agree) {
            return;
        }
        let now: Vec<_> = cluster.living().iter().map(|node| cluster.group(*node, GROUP).status()).collect();
        assert!(started.elapsed() < PATIENCE, "the members are {now:?}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// All living nodes have applied the same commands, at least `count` of them.
async fn equal(cluster: &Cluster, count: usize) {
    let leader = cluster.leader(GROUP).await;
    let all = cluster.state(leader, GROUP).get().commands;
    assert!(all.len() >= count, "{} of {count} commands", all.len());
    for node in cluster.living() {
        cluster.wait_for_commands(node, GROUP, all.len()).await;
        assert_eq!(cluster.state(node, GROUP).get().commands, all, "node {node}");
    }
}

async fn replaced(purged: bool) {
    let mut cluster = Cluster::of_three(&[GROUP]).await;
    let placement = Placement::new();
    (1..=3).for_each(|node| placement.drive(&cluster, node));
    send(&cluster, 50, "before").await;
    cluster.kill(3);
    cluster.wipe(3);
    send(&cluster, 50, "without").await;
    if purged {
        for node in [1, 2] {
            cluster.wait_for_commands(node, GROUP, 100).await;
            cluster.group(node, GROUP).compact().await.expect("compact");
        }
    }
    // Nobody has heard of the new life yet: it neither votes nor learns.
    cluster.start(3, &[GROUP]).await;
    placement.drive(&cluster, 3);
    send(&cluster, 10, "unknown").await;
    assert_eq!(cluster.group(3, GROUP).status().role, Role::Learner);
    assert_eq!(cluster.group(3, GROUP).status().last, None);

    placement.replace(3, 2);
    settled(&cluster, &[(1, 1), (2, 1), (3, 2)]).await;
    equal(&cluster, 110).await;

    // It has the vote of the one before: with one of the others it is a majority.
    let leader = cluster.leader(GROUP).await;
    cluster.kill(if leader == 1 { 1 } else { 2 });
    send(&cluster, 10, "with").await;
    equal(&cluster, 120).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wiped_replica_gets_the_log_and_then_the_vote() {
    replaced(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wiped_replica_gets_a_snapshot_when_the_log_is_purged() {
    replaced(true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_leaders_own_disk_is_replaced_and_a_life_that_ends_early_leaves_nothing() {
    let mut cluster = Cluster::of_three(&[GROUP]).await;
    let placement = Placement::new();
    (1..=3).for_each(|node| placement.drive(&cluster, node));
    send(&cluster, 20, "before").await;
    let lost = cluster.leader(GROUP).await;
    cluster.kill(lost);
    // The second life is placed and never comes up; the third does.
    cluster.wipe(lost);
    placement.replace(lost, 2);
    send(&cluster, 20, "without").await;
    let other = cluster.living()[0];
    let started = Instant::now();
    while cluster.group(other, GROUP).status().members.len() < 4 {
        assert!(started.elapsed() < PATIENCE, "the second life is not a learner");
        sleep(Duration::from_millis(5)).await;
    }
    cluster.wipe(lost);
    placement.replace(lost, 3);
    cluster.start(lost, &[GROUP]).await;
    placement.drive(&cluster, lost);
    let mut wanted: Vec<(u32, u32)> = (1..=3).map(|node| (node, if node == lost { 3 } else { 1 })).collect();
    wanted.sort_unstable();
    settled(&cluster, &wanted).await;
    equal(&cluster, 40).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_earlier_life_that_turns_up_is_told_and_changes_nothing() {
    let mut cluster = Cluster::of_three(&[GROUP]).await;
    let placement = Placement::new();
    (1..=2).for_each(|node| placement.drive(&cluster, node));
    send(&cluster, 20, "before").await;
    cluster.kill(3);
    placement.replace(3, 2);
    cluster.start(3, &[GROUP]).await;
    let mut outlived = cluster.raft(3).outlived();
    let told = tokio::time::timeout(PATIENCE, outlived.wait_for(Option::is_some)).await.expect("told").unwrap();
    assert_eq!(told.map(|replica| replica.incarnation), Some(2));
    drop(told);
    send(&cluster, 20, "after").await;
    let members = cluster.group(cluster.leader(GROUP).await, GROUP).status().members;
    assert!(members.iter().any(|member| member.replica.incarnation == 2 && !member.voter), "{members:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_leader_goes_on_with_a_change_that_one_has_begun() {
    let mut cluster = Cluster::of_three(&[GROUP]).await;
    let placement = Placement::new();
    (1..=3).for_each(|node| placement.drive(&cluster, node));
    send(&cluster, 20, "before").await;
    cluster.kill(3);
    cluster.wipe(3);
    placement.replace(3, 2);
    // Leadership goes back and forth while the change is under way.
    for _ in 0..3 {
        let leader = cluster.agreed_leader(GROUP).await;
        let _ = cluster.group(leader, GROUP).transfer_leader(None).await;
        send(&cluster, 5, "moving").await;
    }
    cluster.start(3, &[GROUP]).await;
    placement.drive(&cluster, 3);
    settled(&cluster, &[(1, 1), (2, 1), (3, 2)]).await;
    equal(&cluster, 35).await;
}
