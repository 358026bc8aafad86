//! Any node serves any call.

use crate::support::{
    AUDIT, BILLING, Cluster, GROUP, TOPIC, acks, append, handle_of, message_id_of, messages_of, pop_request, soon,
};
use raftmq_broker::RouteError;
use raftmq_model::command::{AppendOutcome, ChangeInvisible, Command, HandleOutcome, Outcome};
use raftmq_model::ids::{ConsumerGroupUid, TopicUid};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::Instant;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_go_in_and_out_through_any_node() {
    let cluster = Cluster::start().await;
    let mut sent = BTreeSet::new();
    for (i, id) in cluster.ids().into_iter().cycle().take(30).enumerate() {
        let message_id = format!("m{i}");
        let command = append(&message_id, "", i as u32 % 4);
        let outcomes = cluster.router(id).propose(GROUP, vec![command.clone()], soon()).await.unwrap();
        assert!(stored(&outcomes, false), "{outcomes:?}");
        let again = cluster.router(cluster.ids()[(i + 1) % 3]).propose(GROUP, vec![command], soon()).await.unwrap();
        assert!(stored(&again, true), "{again:?}");
        sent.insert(message_id);
    }
    let mut received = Vec::new();
    for id in cluster.ids().into_iter().cycle() {
        let mut request = pop_request(TOPIC, BILLING, 60_000);
        request.batch_count = 4;
        let messages = cluster.router(id).pop(GROUP, request, soon()).await.unwrap();
        if messages.is_empty() {
            break;
        }
        assert!(messages.len() <= 4 && messages.iter().all(|message| message.attempt == 1));
        received.extend(messages.iter().map(message_id_of));
        let other = cluster.router(cluster.ids()[received.len() % 3]);
        let outcomes = other.propose(GROUP, vec![acks(TOPIC, BILLING, &messages)], soon()).await.unwrap();
        assert_eq!(outcomes, [Outcome::Handles(vec![HandleOutcome::Done; messages.len()])]);
    }
    assert_eq!(received.len(), sent.len());
    assert_eq!(received.into_iter().collect::<BTreeSet<_>>(), sent);
    let lag = cluster.router(cluster.follower().await).lag(GROUP, BILLING, soon()).await.unwrap();
    assert_eq!(lag.iter().map(|queue| queue.max_offset - queue.cursor + queue.in_flight_count).sum::<u64>(), 0);
    assert_eq!(lag.iter().map(|queue| queue.cursor).sum::<u64>(), 30);
}

fn stored(outcomes: &[Outcome], again: bool) -> bool {
    matches!(outcomes, [Outcome::Append(answers)]
        if matches!(answers[..], [AppendOutcome::Stored { repeated, .. }] if repeated == again))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_poll_through_a_follower_ends_with_a_message() {
    let cluster = Cluster::start().await;
    let follower = cluster.follower().await;
    let idle = cluster.router(follower).wait(GROUP, TOPIC, AUDIT, "", Duration::from_millis(30)).await;
    assert_eq!(idle, Ok(false));
    let waiting = {
        let router = cluster.router(follower);
        tokio::spawn(async move { router.wait(GROUP, TOPIC, AUDIT, "", Duration::from_secs(20)).await })
    };
    cluster.router(follower).propose(GROUP, vec![append("m1", "", 2)], soon()).await.unwrap();
    let started = Instant::now();
    assert_eq!(waiting.await.unwrap(), Ok(true));
    assert!(started.elapsed() < Duration::from_secs(5), "woken, not timed out");
    assert_eq!(messages_of(&cluster.router(follower), TOPIC, AUDIT, soon()).await, ["m1"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consumer_groups_filter_by_tag_and_do_not_see_each_other() {
    let cluster = Cluster::start().await;
    let router = cluster.router(cluster.follower().await);
    for i in 0..12 {
        let tag = ["a", "b", "c"][i % 3];
        router.propose(GROUP, vec![append(&format!("{tag}{i}"), tag, 0)], soon()).await.unwrap();
    }
    let mut request = pop_request(TOPIC, AUDIT, 60_000);
    request.tags = vec!["a".to_owned(), "c".to_owned()];
    let messages = router.pop(GROUP, request, soon()).await.unwrap();
    let ids: Vec<String> = messages.iter().map(message_id_of).collect();
    assert_eq!(ids, ["a0", "c2", "a3", "c5", "a6", "c8", "a9", "c11"]);
    assert_eq!(messages_of(&router, TOPIC, BILLING, soon()).await.len(), 12);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_that_is_asked_again_gets_the_same_batch_through_any_node() {
    let cluster = Cluster::start().await;
    let commands = (0..8).map(|i| append(&format!("m{i}"), "", i % 4)).collect();
    cluster.router(cluster.ids()[0]).propose(GROUP, commands, soon()).await.unwrap();
    let mut request = pop_request(TOPIC, AUDIT, 60_000);
    (request.batch_count, request.attempt_id) = (5, "attempt-1".to_owned());
    let mut batches = Vec::new();
    for id in cluster.ids() {
        let mut batch = cluster.router(id).pop(GROUP, request.clone(), soon()).await.unwrap();
        batch.sort_by_key(|message| (message.queue_id, message.queue_offset));
        batches.push(batch.iter().map(|message| handle_of(TOPIC, AUDIT, message)).collect::<Vec<_>>());
    }
    assert_eq!(batches[0].len(), 5);
    assert!(batches.iter().all(|batch| *batch == batches[0]), "{batches:?}");
}

/// With several broker groups a receive waits before it pops: the batch of an answer that was lost must end the wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_whose_answer_was_lost_ends_the_wait_of_its_attempt_and_of_no_other() {
    let cluster = Cluster::start().await;
    let router = cluster.router(cluster.follower().await);
    router.propose(GROUP, vec![append("m1", "", 0)], soon()).await.unwrap();
    let mut request = pop_request(TOPIC, AUDIT, 60_000);
    request.attempt_id = "attempt-1".to_owned();
    assert_eq!(router.pop(GROUP, request, soon()).await.unwrap().len(), 1);
    let long = Duration::from_secs(20);
    assert_eq!(router.wait(GROUP, TOPIC, AUDIT, "attempt-1", long).await, Ok(true));
    let short = Duration::from_millis(30);
    assert_eq!(router.wait(GROUP, TOPIC, AUDIT, "attempt-2", short).await, Ok(false));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_made_visible_wakes_who_waits_for_it() {
    let cluster = Cluster::start().await;
    let router = cluster.router(cluster.follower().await);
    router.propose(GROUP, vec![append("m1", "", 0)], soon()).await.unwrap();
    let taken = router.pop(GROUP, pop_request(TOPIC, AUDIT, 3_600_000), soon()).await.unwrap();
    let waiting = {
        let router = router.clone();
        tokio::spawn(async move { router.wait(GROUP, TOPIC, AUDIT, "", Duration::from_secs(20)).await })
    };
    let handle = Some(handle_of(TOPIC, AUDIT, &taken[0]));
    let change = Command::ChangeInvisible(ChangeInvisible { handle, invisible_ms: 0, request: 0 }).encode();
    let outcomes = router.propose(GROUP, vec![change], soon()).await.unwrap();
    assert!(matches!(&outcomes[..], [Outcome::Handles(answers)]
        if matches!(answers[..], [HandleOutcome::Renewed { .. }])));
    assert_eq!(waiting.await.unwrap(), Ok(true));
    let again = router.pop(GROUP, pop_request(TOPIC, AUDIT, 60_000), soon()).await.unwrap();
    assert_eq!(again.iter().map(|message| message.attempt).collect::<Vec<_>>(), [2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_leader_does_not_know_is_refused_and_what_was_deleted_is_gone() {
    let cluster = Cluster::start().await;
    let router = cluster.router(cluster.follower().await);
    let unknown = router.pop(GROUP, pop_request(TopicUid(999), AUDIT, 60_000), soon()).await;
    assert!(matches!(unknown, Err(RouteError::Invalid(_))), "{unknown:?}");
    let unknown = router.pop(GROUP, pop_request(TOPIC, ConsumerGroupUid(999), 60_000), soon()).await;
    assert!(matches!(unknown, Err(RouteError::Invalid(_))), "{unknown:?}");
    router.propose(GROUP, vec![append("m1", "", 0)], soon()).await.unwrap();
    cluster.meta.delete_topic(TOPIC.0);
    // The leader hears of it by itself; every send in between is stored.
    let mut i = 0;
    loop {
        let outcomes = router.propose(GROUP, vec![append(&format!("n{i}"), "", 0)], soon()).await.unwrap();
        i += 1;
        match &outcomes[..] {
            [Outcome::Append(answers)] if answers[..] == [AppendOutcome::UnknownTopic] => break,
            [Outcome::Append(_)] => {}
            other => panic!("{other:?}"),
        }
    }
}
