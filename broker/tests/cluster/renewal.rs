//! Messages of push consumers are renewed while their client lives, and those of a client that says good-bye come back.

use crate::support::{AUDIT, Cluster, GROUP, TOPIC, acks, append, message_id_of, pop_request, soon};
use raftmq_broker::clients::{Clients, Sdk};
use raftmq_model::command::{HandleOutcome, Outcome};
use raftmq_model::ids::client_code;
use std::time::Duration;

/// Beyond the pause between two looks of the leader and the first report.
const INVISIBLE_MS: u64 = 4_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_living_push_consumer_holds_is_renewed_and_the_rest_comes_back() {
    let cluster = Cluster::start().await;
    let edge = cluster.follower().await;
    let router = cluster.router(edge);
    let clients = Clients::new(10);
    let _alive = clients.open("push", Sdk::Java).unwrap();
    cluster.broker(edge).report_clients(clients);
    router.propose(GROUP, vec![append("kept", "", 0), append("left", "", 1)], soon()).await.unwrap();
    let mut request = pop_request(TOPIC, AUDIT, INVISIBLE_MS);
    (request.batch_count, request.client, request.renewed) = (1, client_code("push"), true);
    let kept = router.pop(GROUP, request.clone(), soon()).await.unwrap();
    // Nobody reports this one.
    request.client = client_code("silent");
    let left = router.pop(GROUP, request.clone(), soon()).await.unwrap();
    assert_eq!((kept.len(), left.len()), (1, 1));
    let wait = Duration::from_millis(2 * INVISIBLE_MS);
    assert_eq!(router.wait(GROUP, TOPIC, AUDIT, "", wait).await, Ok(true));
    (request.batch_count, request.client) = (32, 0);
    let again = router.pop(GROUP, request, soon()).await.unwrap();
    assert_eq!(again.iter().map(message_id_of).collect::<Vec<_>>(), [message_id_of(&left[0])]);
    // The handle is the one that was given out.
    let done = router.propose(GROUP, vec![acks(TOPIC, AUDIT, &kept)], soon()).await.unwrap();
    assert_eq!(done, [Outcome::Handles(vec![HandleOutcome::Done])]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_client_held_comes_back_soon_after_its_good_bye() {
    let cluster = Cluster::start().await;
    let edge = cluster.follower().await;
    let router = cluster.router(edge);
    let clients = Clients::new(10);
    cluster.broker(edge).report_clients(clients.clone());
    router.propose(GROUP, vec![append("m1", "", 0)], soon()).await.unwrap();
    let mut request = pop_request(TOPIC, AUDIT, 3_600_000);
    request.client = client_code("going");
    assert_eq!(router.pop(GROUP, request.clone(), soon()).await.unwrap().len(), 1);
    clients.terminated("going");
    assert_eq!(router.wait(GROUP, TOPIC, AUDIT, "", Duration::from_secs(20)).await, Ok(true));
    request.client = client_code("next");
    let again = router.pop(GROUP, request, soon()).await.unwrap();
    assert_eq!(again.iter().map(|message| message.attempt).collect::<Vec<_>>(), [2]);
}
