//! The digest of each replica at one index of the log, while the group goes on.

use crate::support::{Cluster, GROUP, append, soon};
use raftmq_broker::leader::{DigestError, Replica, ReplicaDigest};
use raftmq_broker::machine::DigestRefusal;
use std::time::Duration;
use tokio::time::Instant;

/// So far beyond the end of the log that a group at rest does not get there by itself.
const AHEAD_COUNT: u64 = 20;
/// An index that nobody comes to.
const FAR: u64 = 1_000_000;

/// What all replicas say about one index; they must say the same. Error: one of them has passed it.
async fn of_all(cluster: &Cluster, index: u64) -> Result<ReplicaDigest, DigestError> {
    let asked = cluster.ids().into_iter().map(|id| {
        let replica = cluster.replica(id);
        async move { replica.digest_at(index, soon()).await }
    });
    let told = futures::future::join_all(asked).await.into_iter().collect::<Result<Vec<_>, _>>()?;
    assert!(told.windows(2).all(|pair| pair[0] == pair[1]), "{told:?}");
    assert_eq!((told[0].state.index, told[0].state.out_of_step.as_ref()), (index, None));
    Ok(told[0].clone())
}

fn last(replica: &Replica) -> u64 {
    replica.group().status().last.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_adds_entries_that_change_nothing_when_a_group_at_rest_is_asked_for_a_later_index() {
    let cluster = Cluster::start().await;
    let router = cluster.router(cluster.follower().await);
    for message in 0..5 {
        router.propose(GROUP, vec![append(&format!("id-{message}"), "", message % 4)], soon()).await.unwrap();
    }
    let leader = cluster.replica(cluster.leader().await);
    let at_rest = loop {
        // Copies of the configuration may still be on their way into the log.
        match of_all(&cluster, last(&leader)).await {
            Ok(digest) => break digest,
            Err(error) => assert!(matches!(error, DigestError::Refused(DigestRefusal::Passed { .. })), "{error}"),
        }
    };
    assert_eq!(at_rest.state.units_count, 5);
    let end = at_rest.state.index;
    let later = of_all(&cluster, end + AHEAD_COUNT).await.unwrap();
    assert!(later.end > at_rest.end, "{later:?}");
    let queues = |digest: &ReplicaDigest| (digest.term, digest.state.queues_count, digest.state.units_count);
    assert_eq!(queues(&later), queues(&at_rest), "the entries change nothing");
    assert_eq!(leader.queue_out_of_step(), None);

    let passed = leader.digest_at(end, soon()).await.unwrap_err();
    assert!(matches!(passed, DigestError::Refused(DigestRefusal::Passed { applied }) if applied > end), "{passed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_does_not_get_there_says_so_in_time() {
    let cluster = Cluster::start().await;
    let replica = cluster.replica(cluster.follower().await);
    let late = replica.digest_at(FAR, Instant::now() + Duration::from_millis(200)).await.unwrap_err();
    assert!(matches!(late, DigestError::Late { index: FAR, .. }), "{late}");
}
