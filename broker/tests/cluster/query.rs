//! Messages are found by key, id and time: through any node, the same by each replica when it leads, also by one that was away
//! and by one that has lost its index.

use crate::support::{BILLING, Cluster, GROUP, LETTERS, Shape, TOPIC, append_with, handle_of, pop_request, soon};
use raftmq_model::ids::{NodeId, TopicUid};
use raftmq_model::machine::Limits;
use raftmq_model::record::{RecordView, key_hash, property};
use raftmq_proto::forward::{QueryReply, QueryRequest, query_request::By};

const COUNT: usize = 60;

fn request(topic: TopicUid, name: &str, by: Option<By>) -> QueryRequest {
    let (topic_uid, topic) = (topic.0, name.to_owned());
    QueryRequest { topic_uid, topic, by, count_max: 100, ..QueryRequest::default() }
}

fn by_key(key: &str) -> QueryRequest {
    request(TOPIC, "orders", Some(By::Key(key.to_owned())))
}

fn by_id(id: &str) -> QueryRequest {
    request(TOPIC, "orders", Some(By::MessageId(id.to_owned())))
}

fn ids(reply: &QueryReply) -> Vec<String> {
    let id = |record: &[u8]| RecordView::parse(record).unwrap().message_id().unwrap().to_owned();
    reply.messages.iter().map(|message| id(&message.record)).collect()
}

async fn query(cluster: &Cluster, through: NodeId, request: QueryRequest) -> QueryReply {
    let reply = cluster.router(through).query(GROUP, request, soon()).await.unwrap();
    assert_eq!(reply.incomplete, "");
    reply
}

/// Message n has the keys `k<n mod 5>`, and "Aa" or "BB", which hash alike; some are sent twice.
async fn send(cluster: &Cluster, through: NodeId, range: std::ops::Range<usize>) {
    let router = cluster.router(through);
    for n in range {
        let keys = format!("k{} {}", n % 5, ["Aa", "BB"][n % 2]);
        let command = append_with(&format!("id-{n}"), "", n as u32 % 4, 1 << 10, &keys);
        for _ in 0..=n % 3 {
            router.propose(GROUP, vec![command.clone()], soon()).await.unwrap();
        }
    }
}

/// What must be found of the messages `first..last`, newest first.
fn expected(first: usize, last: usize, has: impl Fn(usize) -> bool) -> Vec<String> {
    (first..last).rev().filter(|n| has(*n)).map(|n| format!("id-{n}")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_are_found_through_any_node_and_only_those_that_were_meant() {
    let cluster = Cluster::start().await;
    send(&cluster, cluster.follower().await, 0..COUNT).await;
    assert_eq!(key_hash("orders", "Aa"), key_hash("orders", "BB"));
    for through in cluster.ids() {
        let found = query(&cluster, through, by_key("Aa")).await;
        assert_eq!(ids(&found), expected(0, COUNT, |n| n % 2 == 0), "through {through}");
        assert!(!found.truncated);
        let found = query(&cluster, through, by_key("k3")).await;
        assert_eq!(ids(&found), expected(0, COUNT, |n| n % 5 == 3));
        let found = query(&cluster, through, by_id("id-17")).await;
        assert_eq!(ids(&found), ["id-17"], "a repeat lies in the log and is no message");
        let place = (found.messages[0].queue_id, found.messages[0].queue_offset);
        assert_eq!(place, (1, 4));
        for nothing in [by_id("k3"), by_key("id-17"), by_key("k9"), request(LETTERS, "orders", by_key("k3").by)] {
            assert_eq!(ids(&query(&cluster, through, nothing).await), Vec::<String>::new());
        }
    }
    let few = query(&cluster, cluster.leader().await, QueryRequest { count_max: 3, ..by_key("Aa") }).await;
    assert_eq!((ids(&few), few.truncated), (expected(COUNT - 6, COUNT, |n| n % 2 == 0), true));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_are_found_by_the_time_at_which_they_were_stored() {
    let cluster = Cluster::start().await;
    let through = cluster.leader().await;
    send(&cluster, through, 0..COUNT).await;
    let all = query(&cluster, through, request(TOPIC, "orders", None)).await;
    let mut sent = expected(0, COUNT, |_| true);
    sent.reverse();
    assert_eq!(ids(&all), sent);
    let times: Vec<i64> = all.messages.iter().map(|message| message.stored_at_ms).collect();
    assert!(times.is_sorted());
    let (from_ms, to_ms) = (times[20], times[40]);
    let within = |time: &i64| (from_ms..=to_ms).contains(time);
    let some = query(&cluster, through, QueryRequest { from_ms, to_ms, ..request(TOPIC, "orders", None) }).await;
    assert_eq!(some.messages.len(), times.iter().filter(|time| within(time)).count());
    assert!(some.messages.iter().all(|message| within(&message.stored_at_ms)));
    let keyed = query(&cluster, through, QueryRequest { from_ms, to_ms, ..by_key("Aa") }).await;
    let is_keyed = |n: usize| within(&times[n]) && n.is_multiple_of(2);
    assert_eq!(ids(&keyed), expected(0, COUNT, is_keyed));
    let first = QueryRequest { from_ms, count_max: 4, ..request(TOPIC, "orders", None) };
    let first = query(&cluster, through, first).await;
    assert_eq!((first.messages.len(), first.truncated), (4, true));
    assert_eq!(first.messages[..], some.messages[..4], "the oldest ones");
    let none = QueryRequest { from_ms: times[COUNT - 1] + 3_600_000, ..request(TOPIC, "orders", None) };
    assert_eq!(query(&cluster, through, none).await.messages, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_letter_is_found_in_its_topic_and_the_message_in_its_own() {
    let cluster = Cluster::start().await;
    let through = cluster.leader().await;
    send(&cluster, through, 0..1).await;
    let router = cluster.router(through);
    let taken = router.pop(GROUP, pop_request(TOPIC, BILLING, 60_000), soon()).await.unwrap();
    router.dead_letter(GROUP, handle_of(TOPIC, BILLING, &taken[0]), soon()).await.unwrap();
    for by in [by_key("k0").by, by_id("id-0").by] {
        let letters = query(&cluster, through, request(LETTERS, "%DLQ%billing", by.clone())).await;
        assert_eq!(ids(&letters), ["id-0"]);
        let view = RecordView::parse(&letters.messages[0].record).unwrap();
        assert_eq!(view.property(property::DEAD_LETTER_ORIGIN_TOPIC), Some("orders"));
        assert_eq!(ids(&query(&cluster, through, request(TOPIC, "orders", by)).await), ["id-0"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_replica_answers_alike_after_purges_a_snapshot_and_the_loss_of_an_index() {
    let mut cluster = Cluster::start_as(Shape {
        segment_bytes_max: 256 << 10,
        retention_bytes_max: 512 << 10,
        checkpoint_interval_ms: 20,
        rules: Limits { stored_once_count_max: 8, ..Limits::default() },
        ..Shape::default()
    })
    .await;
    let absent = cluster.follower().await;
    send(&cluster, absent, 0..20).await;
    let before = cluster.replica(absent).group().status().last.unwrap();
    cluster.kill(absent).await;
    let others = cluster.ids();
    let mut sent = 20;
    let purged =
        |cluster: &Cluster, id: NodeId| cluster.replica(id).group().log().purged().map_or(0, |(_, index)| index);
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while others.iter().any(|id| purged(&cluster, *id) <= before + 20) {
        assert!(std::time::Instant::now() < until, "the log is purged while messages come in");
        send(&cluster, others[0], sent..sent + 20).await;
        sent += 20;
    }
    cluster.restart(absent).await;
    // One more loses its index with its process.
    let lost = others[0];
    cluster.kill(lost).await;
    std::fs::remove_dir_all(cluster.folder(lost).join("groups/1/keyindex")).unwrap();
    cluster.restart(lost).await;
    cluster.leader().await;
    send(&cluster, absent, sent..sent + 10).await;
    sent += 10;
    for id in cluster.ids() {
        cluster.settled_digest(id).await;
        if cluster.leader().await != id {
            cluster.replica(cluster.leader().await).group().transfer_leader(Some(id)).await.unwrap();
        }
        // Retention goes on: the two answers are compared when nothing was purged between them.
        let (mut all, found) = loop {
            let purged = cluster.replica(id).purged_upto();
            let all = query(&cluster, id, QueryRequest { count_max: 1000, ..request(TOPIC, "orders", None) }).await;
            let found = query(&cluster, id, QueryRequest { count_max: 1000, ..by_key("Aa") }).await;
            if cluster.replica(id).purged_upto() == purged {
                break (all, found);
            }
            assert!(std::time::Instant::now() < until, "retention comes to rest");
        };
        let kept = all.messages.len();
        assert!(kept < sent && kept > 50 && !all.truncated, "{kept} of {sent}");
        all.messages.reverse();
        assert_eq!(ids(&all), expected(sent - kept, sent, |_| true), "what is kept are the newest");
        assert_eq!(ids(&found), expected(sent - kept, sent, |n| n % 2 == 0), "node {id} leads");
        assert_eq!(ids(&query(&cluster, id, by_id("id-3")).await), Vec::<String>::new(), "it is purged");
        let stats = cluster.replica(id).key_index().unwrap();
        assert!(stats.files > 1 && stats.entries > kept as u64, "{stats:?}");
    }
}
