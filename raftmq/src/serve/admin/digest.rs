//! The digests of all replicas of a broker group at one index of its log, taken while it serves.
//!
//! Replicas apply at their own pace and tell nothing about an index that they have passed. So the index is tried: first
//! the leader's last entry, which fits a quiet group, then one further ahead with each try, so that all replicas are
//! asked before any of them gets there. The leader sees to it that it is reached (`raftmq_broker::leader::Replica::digest_at`).

use super::super::node::Node;
use super::cluster;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use raftmq_broker::leader::DIGEST_AHEAD_COUNT_MAX;
use raftmq_proto::admin::{BrokerGroup, GroupDigest, RaftDigestReply, RaftDigestRequest, Replica, ReplicaDigest};
use raftmq_proto::peer::{DigestReply, DigestRequest};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};
use tonic::Status;

/// How long it may take, with all groups and every try.
const DIGESTS_MS: u64 = 25_000;
/// How long one group may take of that.
const GROUP_MS: u64 = 10_000;
/// A replica answers for itself that it is late; one that does not even do that within this time is silent.
const SILENT_MS: u64 = 1_000;
/// How many entries beyond the newest known one the index lies, try by try.
const AHEAD_COUNTS: [u64; 5] = [0, 64, 512, 2048, 4096];
const _: () = assert!(AHEAD_COUNTS[4] <= DIGEST_AHEAD_COUNT_MAX, "the leader adds that many entries");

/// What one replica answered.
enum Told {
    Digest(DigestReply),
    /// It has applied this entry, which is beyond the index.
    Passed(u64),
    Nothing(String),
}

/// Asks all replicas of the groups that are meant, one group after the other: a digest holds up a thread that the groups of
/// a node share.
pub(super) async fn digest(node: &Arc<Node>, request: RaftDigestRequest) -> Result<RaftDigestReply, Status> {
    let known = cluster::status(node).await;
    let brokers: Vec<&BrokerGroup> = known.groups.iter().filter(|group| group.id != 0).collect();
    let meant: Vec<&BrokerGroup> = match request.group.as_str() {
        "" => brokers,
        name => brokers.iter().copied().filter(|group| group.name == name).collect(),
    };
    if meant.is_empty() {
        let names = known.groups.iter().filter(|group| group.id != 0).map(|group| group.name.as_str());
        let names = names.collect::<Vec<_>>().join(", ");
        return Err(Status::not_found(format!("there is no broker group {}, there are: {names}", request.group)));
    }
    let end = Instant::now() + Duration::from_millis(DIGESTS_MS);
    let mut groups = Vec::with_capacity(meant.len());
    for group in meant {
        groups.push(of_group(node, group, end.min(Instant::now() + Duration::from_millis(GROUP_MS))).await);
    }
    Ok(RaftDigestReply { groups })
}

/// Tries one index after the other, until one was passed by no replica.
async fn of_group(node: &Node, group: &BrokerGroup, deadline: Instant) -> GroupDigest {
    let applied = group.replicas.iter().map(|replica| replica.applied).max().unwrap_or(0);
    let leader = group.replicas.iter().find(|replica| replica.node == group.leader);
    let mut newest = leader.map_or(applied, |leader| leader.last.max(applied));
    let mut index = newest;
    for ahead in AHEAD_COUNTS {
        index = newest + ahead;
        match at_index(node, group, index, deadline).await {
            Ok(told) => return compare(&group.name, index, told),
            Err(passed) => newest = newest.max(passed),
        }
    }
    let sentence = || Told::Nothing(format!("it passed every entry that was tried, at last {index}"));
    compare(&group.name, index, group.replicas.iter().map(|replica| (replica, sentence())).collect())
}

/// Asks all replicas for one index. Error: one of them has passed it and has applied this entry; then the others are not
/// waited for.
async fn at_index<'a>(
    node: &Node,
    group: &'a BrokerGroup,
    index: u64,
    deadline: Instant,
) -> Result<Vec<(&'a Replica, Told)>, u64> {
    let asked =
        group.replicas.iter().map(|replica| async move { (replica, ask(node, group, replica, index, deadline).await) });
    let mut asked: FuturesUnordered<_> = asked.collect();
    let mut told = Vec::with_capacity(group.replicas.len());
    while let Some((replica, answer)) = asked.next().await {
        if let Told::Passed(applied) = answer {
            return Err(applied);
        }
        told.push((replica, answer));
    }
    told.sort_by_key(|(replica, _)| replica.node);
    Ok(told)
}

async fn ask(node: &Node, group: &BrokerGroup, replica: &Replica, index: u64, deadline: Instant) -> Told {
    match replica.role.as_str() {
        "unreachable" => return Told::Nothing("its node does not answer".into()),
        "missing" => return Told::Nothing("its node answers, but does not have it (yet)".into()),
        _ => {}
    }
    let mut client = match node.links.client(replica.node) {
        Ok(client) => client,
        Err(status) => return Told::Nothing(status.message().into()),
    };
    let wait = deadline.saturating_duration_since(Instant::now());
    let wait_ms = u32::try_from(wait.as_millis()).unwrap_or(u32::MAX);
    let silent = deadline + Duration::from_millis(SILENT_MS);
    let body = DigestRequest { group_id: group.id, index, wait_ms };
    let request = node.links.request(replica.node, body, silent.saturating_duration_since(Instant::now()));
    match timeout_at(silent, client.digest(request)).await {
        Ok(Ok(reply)) => match reply.into_inner() {
            DigestReply { passed_at, .. } if passed_at != 0 => Told::Passed(passed_at),
            reply => Told::Digest(reply),
        },
        // With a source, the connection failed and not the call.
        Ok(Err(status)) if std::error::Error::source(&status).is_none() => Told::Nothing(status.message().into()),
        Ok(Err(_)) | Err(_) => Told::Nothing("its node does not answer".into()),
    }
}

fn compare(name: &str, index: u64, told: Vec<(&Replica, Told)>) -> GroupDigest {
    let replicas: Vec<ReplicaDigest> = told.into_iter().map(|(replica, told)| view(replica, told)).collect();
    let mut those_who_told = replicas.iter().filter(|replica| replica.told);
    let of = |replica: &ReplicaDigest| {
        (replica.term, replica.digest, replica.log_end_offset, replica.queues, replica.messages)
    };
    let first = replicas.iter().find(|replica| replica.told);
    let equal =
        those_who_told.all(|replica| replica.problem.is_empty() && first.is_none_or(|one| of(one) == of(replica)));
    GroupDigest { name: name.into(), index, equal, replicas }
}

fn view(replica: &Replica, told: Told) -> ReplicaDigest {
    let known = ReplicaDigest { node: replica.node, role: replica.role.clone(), ..ReplicaDigest::default() };
    match told {
        Told::Digest(reply) => ReplicaDigest {
            told: true,
            problem: reply.out_of_step,
            term: reply.term,
            digest: reply.state_digest,
            log_end_offset: reply.log_end_offset,
            queues: reply.queues_count,
            messages: reply.units_count,
            ..known
        },
        Told::Nothing(problem) => ReplicaDigest { problem, ..known },
        Told::Passed(applied) => ReplicaDigest { problem: format!("it has applied entry {applied} already"), ..known },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(change: impl FnOnce(&mut DigestReply)) -> Told {
        let mut reply = DigestReply {
            term: 2,
            state_digest: 7,
            log_end_offset: 4096,
            queues_count: 3,
            units_count: 9,
            ..DigestReply::default()
        };
        change(&mut reply);
        Told::Digest(reply)
    }

    fn compared(answers: [Told; 3]) -> GroupDigest {
        let replicas = [1, 2, 3].map(|node| Replica { node, role: "follower".into(), ..Replica::default() });
        compare("broker-1", 5, replicas.iter().zip(answers).collect())
    }

    #[test]
    fn one_replica_that_is_not_like_the_others_is_enough() {
        assert!(compared([told(|_| {}), told(|_| {}), told(|_| {})]).equal);
        let differences: [fn(&mut DigestReply); 6] = [
            |reply| reply.term = 3,
            |reply| reply.state_digest = 8,
            |reply| reply.log_end_offset = 4104,
            |reply| reply.queues_count = 4,
            |reply| reply.units_count = 8,
            |reply| reply.out_of_step = "queue 1 ends at 8, and by the state at 9".into(),
        ];
        for change in differences {
            let group = compared([told(|_| {}), told(|_| {}), told(change)]);
            assert!(!group.equal, "{group:?}");
        }
    }

    #[test]
    fn who_tells_nothing_is_not_compared() {
        let group = compared([told(|_| {}), Told::Nothing("its node does not answer".into()), told(|_| {})]);
        assert!(group.equal);
        let problems: Vec<_> = group.replicas.iter().map(|replica| (replica.told, replica.problem.as_str())).collect();
        assert_eq!(problems, [(true, ""), (false, "its node does not answer"), (true, "")]);
    }
}
