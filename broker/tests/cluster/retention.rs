//! What is forgotten is the same everywhere, also for a replica that was away or comes with an empty disk.

use crate::support::{AUDIT, Cluster, GROUP, Shape, TOPIC, append_of, message_id_of, messages_of, pop_request, soon};
use raftmq_broker::leader::Replica;
use raftmq_model::ids::NodeId;
use raftmq_model::machine::Limits;
use raftmq_model::record::{Record, property};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::timeout;

const PAD_BYTES: usize = 4 << 10;

/// Small files, so that little is kept, and a stored-once window that does not hold the log for long.
fn shape() -> Shape {
    Shape {
        segment_bytes_max: 256 << 10,
        retention_bytes_max: 512 << 10,
        checkpoint_interval_ms: 20,
        rules: Limits { stored_once_count_max: 8, ..Limits::default() },
        ..Shape::default()
    }
}

struct Sender {
    sent: usize,
}

impl Sender {
    async fn send(&mut self, cluster: &Cluster, through: NodeId, count: usize) {
        let router = cluster.router(through);
        for _ in 0..count {
            let (id, queue) = (format!("message-{}", self.sent), self.sent as u32 % 4);
            router.propose(GROUP, vec![append_of(&id, "", queue, PAD_BYTES)], soon()).await.unwrap();
            self.sent += 1;
        }
    }

    /// Sends until the logs of `on` begin behind `index`.
    async fn send_until_purged(&mut self, cluster: &Cluster, on: &[NodeId], index: u64) {
        let purged =
            |id: &NodeId| cluster.replica(*id).group().log().purged().is_some_and(|(_, purged)| purged > index);
        let done = timeout(Duration::from_secs(30), async {
            while !on.iter().all(purged) {
                self.send(cluster, on[0], 8).await;
            }
        });
        done.await.expect("the log is purged while messages come in");
    }
}

/// By queue, the offsets and the records.
type Kept = BTreeMap<(u64, u32), Vec<(u64, Vec<u8>)>>;

/// Everything that a replica keeps.
fn kept(replica: &Replica) -> Kept {
    let records = |range: raftmq_store::consume_queue::QueueRange| {
        let read =
            |offset| replica.stored_record(range.topic, range.queue, raftmq_model::ids::QueueOffset(offset)).unwrap();
        let records = (range.min.0..range.max.0).map(|offset| (offset, read(offset).to_vec()));
        ((range.topic.0, range.queue.0), records.collect())
    };
    replica.queue_ranges().into_iter().map(records).collect()
}

/// Returns when all replicas have applied the same entries and no retention step comes any more: the digest.
async fn digest_at_rest(cluster: &Cluster) -> u64 {
    let leader = cluster.replica(cluster.leader().await);
    let at_rest = timeout(Duration::from_secs(30), async {
        loop {
            let last = leader.group().status().last;
            let digest = leader.digest();
            let same = |id: &NodeId| {
                let replica = cluster.replica(*id);
                replica.group().status().applied.map(|(_, index)| index) == last && replica.digest() == digest
            };
            if cluster.ids().iter().all(same) && leader.group().status().last == last {
                return digest;
            }
            tokio::task::yield_now().await;
        }
    });
    at_rest.await.expect("all replicas come to the same state")
}

async fn assert_all_equal(cluster: &Cluster) {
    digest_at_rest(cluster).await;
    let leader = cluster.replica(cluster.leader().await);
    let (expected, purged) = (kept(&leader), leader.purged_upto());
    assert!(purged > 0 && expected.values().any(|records| records.first().is_some_and(|(offset, _)| *offset > 0)));
    for id in cluster.ids() {
        let replica = cluster.replica(id);
        assert_eq!(replica.purged_upto(), purged, "{id}");
        assert!(replica.queue_out_of_step().is_none(), "{id}");
        assert_eq!(kept(&replica), expected, "{id}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_missed_what_was_purged_ends_with_the_same_messages() {
    let mut cluster = Cluster::start_as(shape()).await;
    let mut sender = Sender { sent: 0 };
    let leader = cluster.leader().await;
    sender.send(&cluster, leader, 20).await;
    let absent = cluster.follower().await;
    let before = cluster.replica(absent).group().status().last.unwrap();
    cluster.kill(absent).await;
    let others = cluster.ids();
    sender.send_until_purged(&cluster, &others, before + 20).await;
    // Something is in flight, and something finished, behind the purge point.
    let taken = cluster.router(others[0]).pop(GROUP, pop_request(TOPIC, AUDIT, 60_000), soon()).await.unwrap();
    assert!(!taken.is_empty());
    cluster.restart(absent).await;
    sender.send(&cluster, others[0], 10).await;
    assert_all_equal(&cluster).await;

    // It can lead, after one more restart of everybody; and what was not purged is all there.
    for id in cluster.ids() {
        cluster.kill(id).await;
        cluster.restart(id).await;
        cluster.leader().await;
    }
    sender.send(&cluster, absent, 10).await;
    assert_all_equal(&cluster).await;
    let leader = cluster.leader().await;
    if leader != absent {
        cluster.replica(leader).group().transfer_leader(Some(absent)).await.unwrap();
    }
    let before = kept_ids(&cluster.replica(absent));
    let received = messages_of(&cluster.router(absent), TOPIC, AUDIT, soon()).await;
    // The receives make the log longer: more may have been purged meanwhile.
    let after = kept_ids(&cluster.replica(absent));
    let in_flight: BTreeSet<String> = taken.iter().map(message_id_of).collect();
    let delivered: BTreeSet<String> = received.iter().cloned().collect();
    assert_eq!(delivered.len(), received.len(), "nothing twice");
    assert!(delivered.is_disjoint(&in_flight), "what was in flight stays so");
    assert!(delivered.is_subset(&before), "what was purged is not delivered");
    let missing: Vec<&String> =
        after.iter().filter(|id| !delivered.contains(*id) && !in_flight.contains(*id)).collect();
    assert!(missing.is_empty() && !delivered.is_empty(), "each kept message is delivered: {missing:?}");
}

fn kept_ids(replica: &Replica) -> BTreeSet<String> {
    let id = |(_, record): (u64, Vec<u8>)| {
        let record = Record::decode(record.into()).unwrap();
        record.property(property::UNIQ_KEY).unwrap().to_owned()
    };
    kept(replica).into_values().flatten().map(id).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_is_installed_while_messages_come_in_and_a_late_one_again() {
    let mut cluster = Cluster::start_as(shape()).await;
    let mut sender = Sender { sent: 0 };
    for _ in 0..3 {
        let absent = cluster.follower().await;
        let before = cluster.replica(absent).group().status().last.unwrap();
        cluster.kill(absent).await;
        let others = cluster.ids();
        sender.send_until_purged(&cluster, &others, before + 1).await;
        cluster.restart(absent).await;
        let caught_up = cluster.replica(others[0]).group().status().last.unwrap();
        sender.send_until_purged(&cluster, &cluster.ids(), caught_up).await;
    }
    assert_all_equal(&cluster).await;
}
