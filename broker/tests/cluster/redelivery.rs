//! What is not acknowledged comes again, and at last goes to the dead letters.

use crate::support::{
    AUDIT, BILLING, Cluster, GROUP, LETTERS, TOPIC, acks, append, handle_of, message_id_of, pop_request, soon,
};
use raftmq_model::command::{HandleOutcome, Outcome};
use raftmq_model::record::{Record, property};
use std::time::Duration;

const WAIT: Duration = Duration::from_secs(20);
/// Long enough for an ack to come in time, short enough to wait for.
const INVISIBLE_MS: u64 = 300;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_is_tried_as_often_as_its_group_says_and_then_is_a_dead_letter() {
    let cluster = Cluster::start().await;
    let router = cluster.router(cluster.follower().await);
    router.propose(GROUP, vec![append("m1", "a", 1), append("m2", "a", 1)], soon()).await.unwrap();
    let first = router.pop(GROUP, pop_request(TOPIC, BILLING, INVISIBLE_MS), soon()).await.unwrap();
    assert_eq!(first.iter().map(message_id_of).collect::<Vec<_>>(), ["m1", "m2"]);
    let done = router.propose(GROUP, vec![acks(TOPIC, BILLING, &first[1..])], soon()).await.unwrap();
    assert_eq!(done, [Outcome::Handles(vec![HandleOutcome::Done])]);

    assert_eq!(router.wait(GROUP, TOPIC, BILLING, "", WAIT).await, Ok(true));
    let second = router.pop(GROUP, pop_request(TOPIC, BILLING, INVISIBLE_MS), soon()).await.unwrap();
    assert_eq!(
        second.iter().map(|message| (message_id_of(message), message.attempt)).collect::<Vec<_>>(),
        [("m1".to_owned(), 2)]
    );
    let late = router.propose(GROUP, vec![acks(TOPIC, BILLING, &first[..1])], soon()).await.unwrap();
    assert_eq!(late, [Outcome::Handles(vec![HandleOutcome::Superseded])], "the older handle is no good any more");

    // The group allows two attempts: the next thing that happens is a letter.
    assert_eq!(router.wait(GROUP, LETTERS, AUDIT, "", WAIT).await, Ok(true));
    let letters = router.pop(GROUP, pop_request(LETTERS, AUDIT, 60_000), soon()).await.unwrap();
    assert_eq!(letters.len(), 1);
    let letter = Record::decode(letters[0].record.clone()).unwrap();
    assert_eq!(letter.topic, "%DLQ%billing");
    assert_eq!(letter.property(property::UNIQ_KEY), Some("m1"));
    assert_eq!(letter.property(property::DEAD_LETTER_ORIGIN_TOPIC), Some("orders"));
    assert_eq!(letter.property(property::DEAD_LETTER_ORIGIN_MESSAGE_ID), Some("m1"));
    assert_eq!(letter.body, "body of m1");
    assert_eq!(router.pop(GROUP, pop_request(TOPIC, BILLING, 60_000), soon()).await.unwrap(), []);
    let lag = router.lag(GROUP, BILLING, soon()).await.unwrap();
    assert!(lag.iter().all(|queue| queue.in_flight_count == 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_can_make_a_dead_letter_of_what_it_holds() {
    let cluster = Cluster::start().await;
    let router = cluster.router(cluster.follower().await);
    router.propose(GROUP, vec![append("m1", "", 0)], soon()).await.unwrap();
    let taken = router.pop(GROUP, pop_request(TOPIC, BILLING, 60_000), soon()).await.unwrap();
    let handle = handle_of(TOPIC, BILLING, &taken[0]);
    assert_eq!(router.dead_letter(GROUP, handle, soon()).await, Ok(HandleOutcome::Done));
    assert_eq!(router.dead_letter(GROUP, handle, soon()).await, Ok(HandleOutcome::Gone), "once");
    let letters = router.pop(GROUP, pop_request(LETTERS, AUDIT, 60_000), soon()).await.unwrap();
    assert_eq!(letters.iter().map(message_id_of).collect::<Vec<_>>(), ["m1"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_in_flight_survives_its_leader() {
    let mut cluster = Cluster::start().await;
    let leader = cluster.leader().await;
    let router = cluster.router(cluster.follower().await);
    router.propose(GROUP, vec![append("m1", "", 0), append("m2", "", 0)], soon()).await.unwrap();
    let taken = router.pop(GROUP, pop_request(TOPIC, AUDIT, 2_000), soon()).await.unwrap();
    assert_eq!(taken.len(), 2);
    cluster.kill(leader).await;
    let done = router.propose(GROUP, vec![acks(TOPIC, AUDIT, &taken[..1])], soon()).await.unwrap();
    assert_eq!(done, [Outcome::Handles(vec![HandleOutcome::Done])], "the handle is good at any leader");
    assert_eq!(router.wait(GROUP, TOPIC, AUDIT, "", WAIT).await, Ok(true));
    let again = router.pop(GROUP, pop_request(TOPIC, AUDIT, 60_000), soon()).await.unwrap();
    assert_eq!(
        again.iter().map(|message| (message_id_of(message), message.attempt)).collect::<Vec<_>>(),
        [("m2".to_owned(), 2)]
    );
}
