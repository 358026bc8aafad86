//! Volumes that fill up: sends are refused early with a status to retry, leadership leaves, all else goes on, and sends resume
//! alone when there is room again.

use crate::support::{
    AUDIT, BILLING, Cluster, GROUP, LETTERS, TOPIC, acks, append, handle_of, message_id_of, pop_request, soon,
};
use raftmq_broker::RouteError;
use raftmq_broker::volume::Admission;
use raftmq_model::command::{AppendOutcome, HandleOutcome, Outcome};
use raftmq_model::ids::NodeId;
use std::time::Duration;

const WAIT: Duration = Duration::from_secs(20);
/// Leadership moves a few times at most when all disks fill up at once.
const HAND_OVERS_COUNT_MAX: usize = 6;
/// Long enough to be taken in time, short enough to wait for.
const INVISIBLE_MS: u64 = 300;
/// Much longer than that.
const OVERDUE: Duration = Duration::from_millis(1500);

fn is_stored(outcomes: &Result<Vec<Outcome>, RouteError>) -> bool {
    matches!(outcomes.as_deref(), Ok([Outcome::Append(answers)]) if matches!(answers[..], [AppendOutcome::Stored { .. }]))
}

impl Cluster {
    async fn send(&self, through: NodeId, message_id: &str) -> Result<Vec<Outcome>, RouteError> {
        self.router(through).propose(GROUP, vec![append(message_id, "", 0)], soon()).await
    }

    /// Returns when what the node would say to sends, if it led, is `open`.
    async fn admits(&self, id: NodeId, open: bool) {
        let mut admission = self.replica(id).admission();
        admission.wait_for(|now| (*now == Admission::Open) == open).await.unwrap();
    }

    /// All nodes have full volumes, or none has, and all know.
    async fn set_all_full(&self, full: bool) {
        let ids = self.ids();
        ids.iter().for_each(|id| self.set_full(*id, full));
        for id in &ids {
            let others: Vec<NodeId> = ids.iter().copied().filter(|other| other != id).collect();
            self.knows_full(*id, if full { &others } else { &[] }).await;
            self.admits(*id, !full).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leadership_leaves_a_full_disk_and_no_send_is_refused() {
    let cluster = Cluster::start().await;
    let (first, edge) = (cluster.leader().await, cluster.follower().await);
    assert!(is_stored(&cluster.send(edge, "before").await));
    cluster.set_full(first, true);
    let mut leadership = cluster.replica(first).leadership();
    let mut i = 0;
    while leadership.borrow().leader.is_none_or(|leader| leader == first) {
        assert!(is_stored(&cluster.send(edge, &format!("during-{i}")).await), "send {i}");
        i += 1;
    }
    leadership.wait_for(|now| now.leader.is_some_and(|leader| leader != first)).await.unwrap();
    assert!(is_stored(&cluster.send(first, "after").await), "the full node forwards");
    let second = cluster.leader().await;
    assert_ne!(second, first);
    // Full now, too: the third one is left.
    cluster.knows_full(second, &[first]).await;
    let mut leadership = cluster.replica(second).leadership();
    cluster.set_full(second, true);
    leadership.wait_for(|now| now.leader.is_some_and(|leader| leader != second)).await.unwrap();
    assert!(![first, second].contains(&cluster.leader().await));
}

/// The answer to a send, once it is known: a send that the last hand-over hits half-way is rightly answered "not known", and says
/// nothing about refusals.
async fn known<F>(send: impl Fn() -> F) -> Result<Vec<Outcome>, RouteError>
where
    F: Future<Output = Result<Vec<Outcome>, RouteError>>,
{
    for _ in 0..HAND_OVERS_COUNT_MAX {
        match send().await {
            Err(RouteError::Unknown) => {}
            answer => return answer,
        }
    }
    Err(RouteError::Unknown)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_everywhere_sends_are_refused_and_all_else_goes_on() {
    let cluster = Cluster::start().await;
    let edge = cluster.follower().await;
    for message_id in ["m1", "m2", "m3"] {
        assert!(is_stored(&cluster.send(edge, message_id).await));
    }
    let term = cluster.replica(edge).leadership().borrow().term;
    cluster.set_all_full(true).await;
    let hand_overs = cluster.replica(edge).leadership().borrow().term - term;
    assert!(hand_overs <= 2 * cluster.ids().len() as u64, "the leadership was passed round {hand_overs} times");
    let edges = cluster.ids();
    for edge in edges {
        match known(|| cluster.send(edge, "refused")).await {
            Err(RouteError::DiskFull(sentence)) => {
                // A last hand-over may be under way, so that the leader is any of them.
                let full = |id: &NodeId| format!("The disk of node {id} is full (100 MiB of 102400 MiB are left)");
                assert!(cluster.ids().iter().any(|id| sentence.starts_with(&full(id))), "{sentence}");
            }
            other => panic!("through node {edge}: {other:?}"),
        }
    }

    let router = cluster.router(edge);
    let taken = router.pop(GROUP, pop_request(TOPIC, AUDIT, 60_000), soon()).await.unwrap();
    assert_eq!(taken.iter().map(message_id_of).collect::<Vec<_>>(), ["m1", "m2", "m3"]);
    let done = router.propose(GROUP, vec![acks(TOPIC, AUDIT, &taken)], soon()).await.unwrap();
    assert_eq!(done, [Outcome::Handles(vec![HandleOutcome::Done; 3])]);

    cluster.set_all_full(false).await;
    let again = cluster.send(edge, "refused").await.unwrap();
    let Outcome::Append(answers) = &again[0] else { panic!("{again:?}") };
    assert!(matches!(answers[..], [AppendOutcome::Stored { repeated: false, .. }]), "nothing was stored before");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acks_are_not_refused_with_the_sends_that_they_travel_with() {
    let cluster = Cluster::start().await;
    let edge = cluster.follower().await;
    assert!(is_stored(&cluster.send(edge, "m1").await));
    let router = cluster.router(edge);
    let taken = router.pop(GROUP, pop_request(TOPIC, AUDIT, 60_000), soon()).await.unwrap();
    cluster.set_all_full(true).await;
    // One that forwards: leadership may have moved.
    let edge = cluster.follower().await;
    let router = cluster.router(edge);
    // Many calls at one time share requests to the leader.
    let both = (0..200).map(|i| {
        let (cluster, router, ack) = (&cluster, &router, acks(TOPIC, AUDIT, &taken));
        async move {
            let message_id = format!("refused-{i}");
            tokio::join!(known(|| cluster.send(edge, &message_id)), router.propose(GROUP, vec![ack], soon()))
        }
    });
    for (send, ack) in futures::future::join_all(both).await {
        assert!(matches!(send, Err(RouteError::DiskFull(_))), "{send:?}");
        assert!(matches!(&ack.unwrap()[..], [Outcome::Handles(_)]));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_wait_for_room() {
    let cluster = Cluster::start().await;
    let edge = cluster.follower().await;
    let router = cluster.router(edge);
    assert!(is_stored(&cluster.send(edge, "given-up").await) && is_stored(&cluster.send(edge, "exhausted").await));
    let first = router.pop(GROUP, pop_request(TOPIC, BILLING, INVISIBLE_MS), soon()).await.unwrap();
    assert_eq!(first.len(), 2);
    assert_eq!(router.wait(GROUP, TOPIC, BILLING, "", WAIT).await, Ok(true));
    cluster.set_all_full(true).await;
    // The last of their two attempts: what is not finished in time is a dead letter.
    let last = router.pop(GROUP, pop_request(TOPIC, BILLING, INVISIBLE_MS), soon()).await.unwrap();
    assert_eq!(last.iter().map(message_id_of).collect::<Vec<_>>(), ["given-up", "exhausted"]);
    let given_up = handle_of(TOPIC, BILLING, &last[0]);
    let refused = router.dead_letter(GROUP, given_up, soon()).await;
    assert!(matches!(refused, Err(RouteError::DiskFull(_))), "{refused:?}");
    assert_eq!(router.wait(GROUP, LETTERS, AUDIT, "", OVERDUE).await, Ok(false), "there is no room for letters");
    cluster.set_all_full(false).await;
    let mut letters = Vec::new();
    while letters.len() < 2 {
        assert_eq!(router.wait(GROUP, LETTERS, AUDIT, "", WAIT).await, Ok(true));
        let more = router.pop(GROUP, pop_request(LETTERS, AUDIT, 60_000), soon()).await.unwrap();
        letters.extend(more.iter().map(message_id_of));
    }
    letters.sort_unstable();
    assert_eq!(letters, ["exhausted", "given-up"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_majority_of_followers_is_not_written_to() {
    let cluster = Cluster::start().await;
    let leader = cluster.leader().await;
    let followers: Vec<NodeId> = cluster.ids().into_iter().filter(|id| *id != leader).collect();
    cluster.set_full(followers[0], true);
    cluster.knows_full(leader, &followers[..1]).await;
    assert!(is_stored(&cluster.send(leader, "m1").await), "a minority is no reason");
    cluster.set_full(followers[1], true);
    cluster.knows_full(leader, &followers).await;
    cluster.admits(leader, false).await;
    let refused = cluster.send(followers[0], "m2").await;
    let Err(RouteError::DiskFull(sentence)) = refused else { panic!("{refused:?}") };
    assert!(sentence.contains("The disks of nodes"), "{sentence}");
    cluster.set_full(followers[0], false);
    cluster.admits(leader, true).await;
    assert!(is_stored(&cluster.send(followers[0], "m2").await));
    assert_eq!(cluster.leader().await, leader, "a leader with room stays");
}
