//! Groups of three nodes in one process, over real connections and real files.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use bytes::Bytes;
use raftmq_model::ids::{GroupId, NodeId};
use raftmq_proto::raft::{VoteRequest, raft_client::RaftClient};
use raftmq_raft::{
    CommitLogOptions, ENTRY_BYTES_HARD_MAX, Group, GroupOptions, InitializeError, PeerAddresses, PeerState,
    ProposeError, RaftNode, TransferError,
};
use raftmq_store::testing::{Fault, FaultyIo};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;
use support::cluster::{Cluster, GROUP, Tally, options, propose, replicas};
use support::machine::{Shared, TestMachine};
use tokio::sync::Mutex;
use tokio::time::Instant;

/// One test at a time: some of them measure.
static ONE: Mutex<()> = Mutex::const_new(());

fn command(text: impl std::fmt::Display) -> Bytes {
    Bytes::from(text.to_string())
}

fn groups_of(cluster: &Cluster) -> BTreeMap<u32, Group> {
    cluster.living().into_iter().map(|node| (node, cluster.group(node, GROUP).clone())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_are_applied_in_one_order_on_all_replicas() {
    let _one = ONE.lock().await;
    let cluster = Cluster::of_three(&[GROUP]).await;
    let leader = cluster.agreed_leader(GROUP).await;
    let group = cluster.group(leader, GROUP).clone();
    assert!(matches!(group.initialize(&replicas(3)).await, Err(InitializeError::NotAllowed)));

    let calls = (0..500).map(|n| {
        let group = group.clone();
        tokio::spawn(async move { (n, group.propose(command(n)).await.unwrap()) })
    });
    for call in calls.collect::<Vec<_>>() {
        let (n, outcome) = call.await.unwrap();
        assert_eq!(outcome, command(format!("did {n}")));
    }
    let several = group.propose_many(vec![command("a"), command("b")]).await.unwrap();
    assert_eq!(several, [command("did a"), command("did b")]);
    group.read_barrier().await.unwrap();

    for node in 1..=3 {
        cluster.wait_for_commands(node, GROUP, 502).await;
    }
    let first = cluster.state(1, GROUP).get();
    assert!(first.offsets.len() < 502, "commands share entries");
    for node in 2..=3 {
        let other = cluster.state(node, GROUP).get();
        assert_eq!(first.commands, other.commands);
        assert_eq!(first.offsets, other.offsets, "equal logs lie at equal offsets (law 6)");
        let follower = cluster.group(1 + leader % 3, GROUP);
        let refused = ProposeError::NotLeader { leader: Some(NodeId(leader)) };
        assert_eq!(follower.propose(command("x")).await, Err(refused));
        assert_eq!(follower.read_barrier().await, Err(refused));
    }
    let status = group.status();
    assert_eq!(status.voters, [NodeId(1), NodeId(2), NodeId(3)]);
    assert_eq!(status.matched.len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_leader_is_replaced_at_once() {
    let _one = ONE.lock().await;
    let mut cluster = Cluster::of_three(&[GROUP]).await;
    let mut times = Vec::new();
    for round in 0..3 {
        let leader = cluster.agreed_leader(GROUP).await;
        cluster.group(leader, GROUP).propose(command(round)).await.unwrap();
        for node in 1..=3 {
            wait_for_peers(cluster.raft(node), PeerState::Alive, 2).await;
            cluster.wait_for_commands(node, GROUP, round + 1).await;
        }
        let killed = Instant::now();
        cluster.kill(leader);
        let new = cluster.leader(GROUP).await;
        times.push(killed.elapsed());
        assert_ne!(new, leader);
        assert_ready_means_applied(&cluster, new);
        cluster.start(leader, &[GROUP]).await;
    }
    println!("from the kill to a ready leader: {times:?}");
    // Silence alone would take at least 700 ms.
    assert!(times.iter().all(|time| *time < Duration::from_millis(350)), "{times:?}");
}

/// Law 7: a ready leader has applied an entry of its own term.
fn assert_ready_means_applied(cluster: &Cluster, leader: u32) {
    let leadership = *cluster.group(leader, GROUP).leadership().borrow();
    let applied = cluster.state(leader, GROUP).get().applied;
    assert!(!leadership.ready || applied.0 >= leadership.term, "{leadership:?}, applied {applied:?}");
}

async fn wait_for_peers(raft: &RaftNode, state: PeerState, count: usize) {
    let mut peers = raft.peers_alive();
    let enough = peers.wait_for(|peers| peers.values().filter(|now| **now == state).count() >= count);
    tokio::time::timeout(Duration::from_secs(10), enough).await.expect("peers").unwrap();
}

/// Callers that propose until they are told to stop, and what they got acknowledged.
async fn under_load(
    groups: BTreeMap<u32, Group>,
    retry_unknown: bool,
    stop: Arc<AtomicBool>,
    next: Arc<AtomicU32>,
) -> (Vec<Bytes>, Tally) {
    let (mut acknowledged, mut tally) = (Vec::new(), Tally::default());
    while !stop.load(Ordering::Relaxed) {
        let command = command(next.fetch_add(1, Ordering::Relaxed));
        propose(&groups, command.clone(), retry_unknown, &mut tally).await;
        acknowledged.push(command);
    }
    (acknowledged, tally)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_dies_under_load_is_replaced_at_once_and_nothing_acknowledged_is_lost() {
    let _one = ONE.lock().await;
    let mut cluster = Cluster::of_three(&[GROUP]).await;
    let leader = cluster.agreed_leader(GROUP).await;
    for node in 1..=3 {
        wait_for_peers(cluster.raft(node), PeerState::Alive, 2).await;
    }
    let (stop, next) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let callers: Vec<_> = (0..16)
        .map(|_| tokio::spawn(under_load(groups_of(&cluster), true, Arc::clone(&stop), Arc::clone(&next))))
        .collect();
    cluster.wait_for_commands(leader, GROUP, 500).await;
    let killed = Instant::now();
    cluster.kill(leader);
    let new = cluster.leader(GROUP).await;
    println!("from the kill under load to a ready leader: {:?}", killed.elapsed());
    let goes_on = cluster.state(new, GROUP).get().commands.len() + 500;
    cluster.wait_for_commands(new, GROUP, goes_on).await;
    stop.store(true, Ordering::Relaxed);
    let mut acknowledged = Vec::new();
    for caller in callers {
        acknowledged.extend(caller.await.unwrap().0);
    }
    cluster.start(leader, &[GROUP]).await;
    let expected = cluster.state(new, GROUP).get().commands;
    let applied: std::collections::BTreeSet<_> = expected.iter().cloned().collect();
    let lost: Vec<_> = acknowledged.iter().filter(|command| !applied.contains(*command)).collect();
    assert!(lost.is_empty(), "{} of {} are lost", lost.len(), acknowledged.len());
    for node in 1..=3 {
        cluster.wait_for_commands(node, GROUP, expected.len()).await;
        assert_eq!(cluster.state(node, GROUP).get().commands[..expected.len()], expected);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_follower_is_not_connected_to_in_a_storm() {
    let _one = ONE.lock().await;
    let other = GroupId(2);
    let mut cluster = Cluster::of_three(&[GROUP, other]).await;
    let leader = cluster.agreed_leader(GROUP).await;
    let follower = 1 + leader % 3;
    cluster.kill(follower);
    let second_leader = cluster.leader(other).await;
    connects_while_proposing(&cluster, leader, second_leader, follower).await;

    // A port that accepts and hangs up is no better than one that refuses.
    let listener = tokio::net::TcpListener::bind(&cluster.nodes[&follower].address).await.unwrap();
    let hang_up = tokio::spawn(async move {
        loop {
            drop(listener.accept().await);
        }
    });
    connects_while_proposing(&cluster, leader, second_leader, follower).await;
    hang_up.abort();
}

async fn connects_while_proposing(cluster: &Cluster, leader: u32, second_leader: u32, follower: u32) {
    let seconds = 2;
    let before = cluster.raft(leader).peer_connects_count(NodeId(follower));
    let until = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < until {
        cluster.group(leader, GROUP).propose(command("x")).await.unwrap();
        cluster.group(second_leader, GroupId(2)).propose(command("y")).await.unwrap();
    }
    let connects = cluster.raft(leader).peer_connects_count(NodeId(follower)) - before;
    println!("{connects} connects in {seconds} s");
    assert!(connects > 0 && connects < 50 * seconds, "{connects} connects in {seconds} s");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leadership_moves_under_load_without_a_failed_call() {
    let _one = ONE.lock().await;
    let cluster = Cluster::of_three(&[GROUP]).await;
    let (stop, next) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let callers: Vec<_> = (0..16)
        .map(|_| tokio::spawn(under_load(groups_of(&cluster), false, Arc::clone(&stop), Arc::clone(&next))))
        .collect();
    let mut times = Vec::new();
    for round in 0..6 {
        let leader = cluster.agreed_leader(GROUP).await;
        let group = cluster.group(leader, GROUP);
        let to = (round % 2 == 0).then_some(NodeId(1 + leader % 3));
        let started = Instant::now();
        let new = group.transfer_leader(to).await.unwrap();
        times.push(started.elapsed());
        assert_ne!(new, NodeId(leader));
        assert!(to.is_none_or(|to| to == new));
        let done = cluster.state(new.0, GROUP).get().commands.len();
        cluster.wait_for_commands(new.0, GROUP, done + 200).await;
    }
    stop.store(true, Ordering::Relaxed);
    let (mut count, mut tallies) = (0, Vec::new());
    for caller in callers {
        let (acknowledged, tally) = caller.await.unwrap();
        count += acknowledged.len();
        tallies.push(tally);
    }
    println!("transfers took {times:?}");
    println!(
        "{count} calls, refused as not leader {}, as not ready {}",
        tallies.iter().map(|tally| tally.not_leader).sum::<u32>(),
        tallies.iter().map(|tally| tally.not_ready).sum::<u32>()
    );
    let leader = cluster.agreed_leader(GROUP).await;
    assert_eq!(cluster.state(leader, GROUP).get().commands.len(), count, "each call is applied once");
    let group = cluster.group(leader, GROUP);
    assert_eq!(group.transfer_leader(Some(NodeId(9))).await, Err(TransferError::NoSuchVoter));
    assert_eq!(group.transfer_leader(Some(NodeId(leader))).await, Ok(NodeId(leader)));
    let follower = cluster.group(1 + leader % 3, GROUP);
    let refused = TransferError::NotLeader { leader: Some(NodeId(leader)) };
    assert_eq!(follower.transfer_leader(None).await, Err(refused));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn peers_know_whose_disk_is_full_and_hand_over_past_it() {
    let _one = ONE.lock().await;
    let cluster = Cluster::of_three(&[GROUP]).await;
    let leader = cluster.agreed_leader(GROUP).await;
    let (full, other) = (NodeId(1 + leader % 3), NodeId(1 + (leader + 1) % 3));
    let mut known = cluster.raft(leader).peers_full();
    // Either of the two is passed over in its turn, so that the choice is not made by logs and ids.
    for (full, other) in [(full, other), (other, full)] {
        let leader = cluster.agreed_leader(GROUP).await;
        cluster.raft(full.0).set_volume_full(true);
        let mut known = cluster.raft(leader).peers_full();
        known.wait_for(|known| known.iter().eq([&full])).await.unwrap();
        assert_eq!(cluster.group(leader, GROUP).transfer_leader(None).await, Ok(other));
        assert_eq!(cluster.agreed_leader(GROUP).await, other.0);
        cluster.raft(full.0).set_volume_full(false);
        cluster.group(other.0, GROUP).transfer_leader(Some(NodeId(leader))).await.unwrap();
    }
    known.wait_for(|known| known.is_empty()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_survives_a_restart_with_and_without_the_state() {
    let _one = ONE.lock().await;
    let mut cluster = Cluster::of_three(&[GROUP]).await;
    let leader = cluster.leader(GROUP).await;
    for n in 0..200 {
        cluster.group(leader, GROUP).propose(command(n)).await.unwrap();
    }
    let before = cluster.state(leader, GROUP).get();
    for node in 1..=3 {
        cluster.kill(node);
    }
    cluster.forget_state(1);
    for node in 1..=3 {
        cluster.start(node, &[GROUP]).await;
    }
    let leader = cluster.leader(GROUP).await;
    cluster.group(leader, GROUP).propose(command("after")).await.unwrap();
    for node in 1..=3 {
        cluster.wait_for_commands(node, GROUP, 201).await;
        let after = cluster.state(node, GROUP).get();
        assert_eq!(after.commands[..200], before.commands);
        assert_eq!(after.offsets[..before.offsets.len()], before.offsets);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blank_replica_gets_the_snapshot_and_then_the_log() {
    let _one = ONE.lock().await;
    let mut cluster = Cluster::prepare(3);
    for node in 1..=2 {
        cluster.start(node, &[GROUP]).await;
    }
    cluster.group(1, GROUP).initialize(&replicas(3)).await.unwrap();
    let leader = cluster.leader(GROUP).await;
    let group = cluster.group(leader, GROUP).clone();
    for n in 0..100 {
        group.propose(command(n)).await.unwrap();
    }
    group.compact().await.unwrap();
    assert!(group.log().first_index() > 100);
    for n in 100..150 {
        group.propose(command(n)).await.unwrap();
    }
    cluster.start(3, &[GROUP]).await;
    cluster.wait_for_commands(3, GROUP, 150).await;
    let state = cluster.state(3, GROUP).get();
    assert_eq!(state.installed_count, 1);
    assert_eq!(state.commands, cluster.state(leader, GROUP).get().commands);
    let last = state.applied.1;
    assert_eq!(cluster.group(3, GROUP).log().end_offset(last), group.log().end_offset(last), "equal offsets (law 6)");

    cluster.kill(3);
    group.propose(command("meanwhile")).await.unwrap();
    cluster.start(3, &[GROUP]).await;
    cluster.wait_for_commands(3, GROUP, 151).await;
    assert_eq!(cluster.state(3, GROUP).get().installed_count, 1, "the log is enough the second time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_from_another_cluster_or_for_another_node_are_refused_with_a_sentence() {
    let _one = ONE.lock().await;
    let cluster = Cluster::of_three(&[GROUP]).await;
    let ask = |channel| async move {
        let mut client = RaftClient::new(channel);
        client.vote(VoteRequest { group_id: 1, ..VoteRequest::default() }).await.unwrap_err()
    };
    let stranger = RaftNode::start(options(9, "elsewhere", &cluster.peers)).unwrap();
    let refused = ask(stranger.channel(NodeId(1))).await;
    assert_eq!(refused.code(), tonic::Code::FailedPrecondition);
    assert_eq!(refused.message(), "node 1 belongs to cluster test, the call comes from cluster \"elsewhere\"");

    let swapped = BTreeMap::from([(NodeId(1), cluster.nodes[&2].address.clone())]);
    let confused = RaftNode::start(options(9, "test", &PeerAddresses::new(swapped))).unwrap();
    let refused = ask(confused.channel(NodeId(1))).await;
    assert_eq!(refused.code(), tonic::Code::FailedPrecondition);
    assert!(refused.message().starts_with("this is node 2, the call is for node \"1\""), "{}", refused.message());

    let twin = RaftNode::start(options(1, "test", &cluster.peers)).unwrap();
    assert_eq!(ask(twin.channel(NodeId(1))).await.message(), "another process says that it is node 1 too");

    let newcomer = RaftNode::start(options(9, "", &cluster.peers)).unwrap();
    assert_eq!(ask(newcomer.channel(NodeId(1))).await.code(), tonic::Code::FailedPrecondition);
    assert!(newcomer.identity().adopt("test"));
    assert!(!newcomer.identity().adopt("elsewhere"));
    // Now the node is believed, but no such replica is here: the old life of a disk, or none.
    let refused = ask(newcomer.channel(NodeId(1))).await;
    assert_eq!(refused.message(), "this is replica 1.1, the call is for replica 0.0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_groups_of_one_process_live_apart() {
    let _one = ONE.lock().await;
    let other = GroupId(2);
    let cluster = Cluster::of_three(&[GROUP, other]).await;
    for (group, text) in [(GROUP, "one"), (other, "two")] {
        let leader = cluster.leader(group).await;
        cluster.group(leader, group).propose(command(text)).await.unwrap();
        for node in 1..=3 {
            cluster.wait_for_commands(node, group, 1).await;
            assert_eq!(cluster.state(node, group).get().commands, [command(text)]);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_queue_is_bounded_and_a_dropped_call_harms_nobody() {
    let _one = ONE.lock().await;
    let mut cluster = Cluster::prepare(1);
    cluster.start(1, &[GROUP]).await;
    let group = cluster.group(1, GROUP).clone();
    assert_eq!(group.propose(command("early")).await, Err(ProposeError::NotLeader { leader: None }));
    group.initialize(&replicas(1)).await.unwrap();
    cluster.leader(GROUP).await;

    let large = Bytes::from(vec![7; ENTRY_BYTES_HARD_MAX]);
    assert_eq!(group.propose(large).await, Err(ProposeError::TooLarge));
    assert_eq!(group.propose_many(Vec::new()).await, Ok(Vec::new()));

    let big = Bytes::from(vec![7; 6 << 20]);
    let flood = (0..12).map(|_| group.propose(big.clone()));
    let results = futures::future::join_all(flood).await;
    assert!(results.contains(&Err(ProposeError::Overloaded)));
    assert!(results.iter().any(Result::is_ok));

    let dropped: Vec<_> = (0..50)
        .map(|_| {
            tokio::spawn({
                let group = group.clone();
                async move { group.propose(command("dropped")).await }
            })
        })
        .collect();
    let kept = (0..50).map(|n| group.propose(command(n)));
    let kept = futures::future::join_all(kept);
    dropped.iter().for_each(tokio::task::JoinHandle::abort);
    for (n, outcome) in kept.await.into_iter().enumerate() {
        assert_eq!(outcome.unwrap(), command(format!("did {n}")));
    }
    cluster.raft(1).shutdown().await;
    let late = group.propose(command("late")).await;
    // Unknown: it was handed to Raft while that ended.
    let stopped = matches!(late, Err(ProposeError::Stopped | ProposeError::NotLeader { .. } | ProposeError::Unknown));
    assert!(stopped, "{late:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_fails_stops_the_group_and_says_so() {
    let _one = ONE.lock().await;
    let disk = FaultyIo::new();
    let raft = RaftNode::start(options(1, "test", &PeerAddresses::new(BTreeMap::new()))).unwrap();
    let log = CommitLogOptions { io: Arc::new(disk.clone()), ..support::log_options("/disk".as_ref()) };
    let machine = Box::new(TestMachine::over(&Shared::new()));
    let group = raft.open_group(GroupOptions::new(GROUP, log), machine).await.unwrap();
    group.initialize(&replicas(1)).await.unwrap();
    group.leadership().wait_for(|now| now.ready).await.unwrap();
    group.propose(command("before")).await.unwrap();
    disk.fail_at(disk.operations() + 1, Fault::Device);
    assert_eq!(group.propose(command("lost")).await, Err(ProposeError::Unknown));
    let mut fatal = raft.fatal();
    let fatal = fatal.wait_for(Option::is_some).await.unwrap().clone().unwrap();
    println!("{fatal}");
    assert!(fatal.to_string().starts_with("group 1 cannot go on: "));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_that_fails_stops_the_group_and_says_so() {
    let _one = ONE.lock().await;
    let dir = tempfile::tempdir().unwrap();
    let raft = RaftNode::start(options(1, "test", &PeerAddresses::new(BTreeMap::new()))).unwrap();
    let machine = TestMachine::over(&Shared::new()).poisoned_by(b"poison");
    let log = support::log_options(dir.path());
    let group = raft.open_group(GroupOptions::new(GROUP, log), Box::new(machine)).await.unwrap();
    group.initialize(&replicas(1)).await.unwrap();
    group.leadership().wait_for(|now| now.ready).await.unwrap();
    assert!(raft.fatal().borrow().is_none());
    assert_eq!(group.propose(command("poison")).await, Err(ProposeError::Unknown));
    let mut fatal = raft.fatal();
    let fatal = fatal.wait_for(Option::is_some).await.unwrap().clone().unwrap();
    assert_eq!(fatal.to_string(), "group 1 cannot go on: apply failed: a poisoned command");
}
