//! Leaders come and go; calls do not notice, and what was acknowledged stays.

use crate::support::{AUDIT, Cluster, GROUP, TOPIC, append, messages_of, soon};
use raftmq_broker::{RouteError, Router};
use raftmq_model::command::{AppendOutcome, Outcome};
use raftmq_model::ids::NodeId;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

const SENDERS: usize = 8;

/// Sends one message after the other through `router` until told to stop; the ids that were acknowledged.
async fn send(router: Router, name: usize, count: Arc<watch::Sender<usize>>, stop: Arc<AtomicBool>) -> Vec<String> {
    let mut acknowledged = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let message_id = format!("{name}-{}", acknowledged.len());
        let command = append(&message_id, "", acknowledged.len() as u32 % 4);
        let outcomes = router.propose(GROUP, vec![command], soon()).await.unwrap();
        assert!(matches!(&outcomes[..], [Outcome::Append(answers)]
            if matches!(answers[..], [AppendOutcome::Stored { .. }])));
        acknowledged.push(message_id);
        count.send_modify(|count| *count += 1);
    }
    acknowledged
}

struct Load {
    senders: JoinSet<Vec<String>>,
    count: Arc<watch::Sender<usize>>,
    stop: Arc<AtomicBool>,
}

impl Load {
    fn start(cluster: &Cluster, through: &[NodeId]) -> Load {
        let mut load = Load { senders: JoinSet::new(), count: Arc::default(), stop: Arc::default() };
        for (name, id) in through.iter().cycle().take(SENDERS).enumerate() {
            let (count, stop) = (Arc::clone(&load.count), Arc::clone(&load.stop));
            load.senders.spawn(send(cluster.router(*id), name, count, stop));
        }
        load
    }

    /// Returns when `count` more messages are acknowledged.
    async fn more(&self, count: usize) {
        let mut acknowledged = self.count.subscribe();
        let goal = *acknowledged.borrow_and_update() + count;
        acknowledged.wait_for(|count| *count >= goal).await.unwrap();
    }

    async fn stop(mut self) -> BTreeSet<String> {
        self.stop.store(true, Ordering::Relaxed);
        let mut acknowledged = BTreeSet::new();
        while let Some(ids) = self.senders.join_next().await {
            acknowledged.extend(ids.unwrap());
        }
        acknowledged
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_dies_loses_nothing_and_doubles_nothing() {
    let mut cluster = Cluster::start().await;
    let first = cluster.leader().await;
    let survivors: Vec<NodeId> = cluster.ids().into_iter().filter(|id| *id != first).collect();
    let load = Load::start(&cluster, &survivors);
    load.more(500).await;
    cluster.kill(first).await;
    load.more(1_000).await;
    cluster.restart(first).await;
    load.more(500).await;
    let second = cluster.leader().await;
    assert_ne!(second, first);
    let acknowledged = load.stop().await;
    let received = messages_of(&cluster.router(first), TOPIC, AUDIT, soon()).await;
    assert_eq!(received.len(), acknowledged.len(), "nothing twice");
    assert_eq!(received.into_iter().collect::<BTreeSet<_>>(), acknowledged);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_planned_hand_over_loses_no_call() {
    let cluster = Cluster::start().await;
    let load = Load::start(&cluster, &cluster.ids());
    for _ in 0..3 {
        load.more(200).await;
        let leader = cluster.leader().await;
        let next = cluster.replica(leader).group().transfer_leader(None).await.unwrap();
        assert_ne!(next, leader);
    }
    load.more(200).await;
    let acknowledged = load.stop().await;
    let received = messages_of(&cluster.router(cluster.ids()[0]), TOPIC, AUDIT, soon()).await;
    assert_eq!(received.len(), acknowledged.len());
    assert_eq!(received.into_iter().collect::<BTreeSet<_>>(), acknowledged);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_are_held_while_there_is_no_leader_and_then_say_that_nothing_was_stored() {
    let mut cluster = Cluster::start().await;
    let last = cluster.leader().await;
    let others: Vec<NodeId> = cluster.ids().into_iter().filter(|id| *id != last).collect();
    let router = cluster.router(others[0]);
    cluster.kill(last).await;
    cluster.kill(others[1]).await;
    // With the majority gone, some calls may have met a leader that was on its way: ask until none does.
    let mut i = 0;
    loop {
        let deadline = Instant::now() + Duration::from_millis(700);
        match router.propose(GROUP, vec![append(&format!("m{i}"), "", 0)], deadline).await {
            Err(RouteError::NoLeader) => break,
            Err(RouteError::Unknown) => i += 1,
            other => panic!("{other:?}"),
        }
    }
    let replica = cluster.replica(others[0]);
    assert!(
        router.leaderless_for(GROUP).is_some(),
        "{:?} {:?}",
        *replica.leadership().borrow(),
        replica.group().status()
    );
    drop(replica);
    let held = {
        let router = router.clone();
        tokio::spawn(async move { router.propose(GROUP, vec![append("held", "", 0)], soon()).await })
    };
    cluster.restart(others[1]).await;
    assert!(held.await.unwrap().is_ok());
    assert_eq!(router.leaderless_for(GROUP), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_replicas_come_back_with_what_they_had() {
    let mut cluster = Cluster::start().await;
    let load = Load::start(&cluster, &cluster.ids());
    load.more(300).await;
    let acknowledged = load.stop().await;
    for id in cluster.ids() {
        cluster.kill(id).await;
    }
    for id in [NodeId(1), NodeId(2), NodeId(3)] {
        cluster.restart(id).await;
    }
    let router = cluster.router(NodeId(2));
    let again = router.propose(GROUP, vec![append("0-0", "", 0)], soon()).await.unwrap();
    assert!(
        matches!(&again[..], [Outcome::Append(answers)]
        if matches!(answers[..], [AppendOutcome::Stored { repeated: true, .. }])),
        "{again:?}"
    );
    let received = messages_of(&router, TOPIC, AUDIT, soon()).await;
    assert_eq!(received.len(), acknowledged.len());
    assert_eq!(received.into_iter().collect::<BTreeSet<_>>(), acknowledged);
    let mut digests = BTreeSet::new();
    for id in cluster.ids() {
        digests.insert(cluster.settled_digest(id).await);
    }
    assert_eq!(digests.len(), 1, "equal logs, equal states");
}
