//! Elects at once when the process that led a group is dead.
//!
//! Raft grants a leader a lease and waits for it to run out; that is the price of silence. A dead process costs less: its
//! followers drop the lease, ask each other who has the longest log, and the best of them campaigns; the others follow
//! after a stagger in case it does not succeed. The votes decide as always, so a wrong alarm costs a change of leader and
//! nothing else, and it is rate-limited.

use crate::group::Core;
use crate::network::PeerLinks;
use crate::peers::PeerState;
use crate::types::{LogId, Raft, TypeConfig, Vote, log_id, node_of};
use crate::wire;
use futures::future::join_all;
use openraft::async_runtime::WatchReceiver;
use openraft::raft::{TransferLeaderRequest, VoteRequest};
use parking_lot::Mutex;
use raftmq_model::ids::NodeId;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// One early election per group and dead node in this time.
const INTERVAL: Duration = Duration::from_secs(5);
/// A follower that does not tell its last log id in this time stands behind those that do.
const ASK_TIMEOUT: Duration = Duration::from_millis(15);
/// Each candidate waits this much longer than the better one before it.
const STAGGER: Duration = Duration::from_millis(30);

/// When a group held early elections, by the node that was said to be dead.
#[derive(Default)]
pub(crate) struct Alarms(Mutex<BTreeMap<NodeId, Instant>>);

impl Alarms {
    fn allow(&self, dead: NodeId) -> bool {
        let now = Instant::now();
        let mut alarms = self.0.lock();
        alarms.retain(|_, at| now.duration_since(*at) < INTERVAL);
        let fresh = !alarms.contains_key(&dead);
        alarms.entry(dead).or_insert(now);
        fresh
    }
}

/// Runs one early election of `core`'s group, if `dead` led it.
pub(crate) async fn run(
    core: Arc<Core>,
    links: Arc<PeerLinks>,
    dead: NodeId,
    state: impl Fn(NodeId) -> PeerState + Send + Sync,
) {
    let own = core.replica.to_u64();
    let (vote, voters) = {
        let server = core.raft.server_metrics();
        let server = server.borrow_watched();
        let led_by_dead = server.current_leader.is_some_and(|leader| node_of(leader) == dead);
        let voters: Vec<u64> = server.membership_config.membership().voter_ids().collect();
        if !led_by_dead || !server.vote.committed || !voters.contains(&own) {
            return;
        }
        (server.vote, voters)
    };
    if !core.alarms.allow(dead) {
        tracing::warn!(group = core.group.0, peer = dead.0, "no early election: there was one a moment ago");
        return;
    }
    let others = voters.into_iter().filter(|id| *id != own && node_of(*id) != dead);
    let others: Vec<u64> = others.filter(|id| state(node_of(*id)) != PeerState::Dead).collect();
    // Drops the lease that this replica granted, so that it votes for whoever campaigns.
    if !told(&core.raft, &vote, vote.leader_id.voted_for).await {
        return;
    }
    if core.log.integrity().damaged_count > 0 {
        return;
    }
    let rank = rank(&core, &links, &vote, others).await;
    tracing::info!(group = core.group.0, peer = dead.0, rank, "the leader's process is dead: early election");
    tokio::time::sleep(STAGGER.saturating_mul(rank)).await;
    if core.raft.server_metrics().borrow_watched().vote == vote {
        told(&core.raft, &vote, own).await;
    }
}

/// Tells the local replica that leader `vote` hands over to `to`: it drops the lease, and campaigns when it is `to`.
async fn told(raft: &Raft, vote: &Vote, to: u64) -> bool {
    let request = TransferLeaderRequest::<TypeConfig>::new(*vote, to, None);
    matches!(raft.handle_transfer_leader(request).await, Ok(Ok(())))
}

/// How many of the other candidates stand before this replica: longer log first, then lower id.
async fn rank(core: &Core, links: &PeerLinks, vote: &Vote, others: Vec<u64>) -> u32 {
    let own = (core.log.last().map(log_id), Reverse(core.replica.to_u64()));
    let asked = others.into_iter().map(|id| async move {
        let last = ask(core, links, vote, id).await?;
        Some((last, Reverse(id)))
    });
    let better = join_all(asked).await.into_iter().flatten().filter(|other| *other > own);
    u32::try_from(better.count()).unwrap_or(u32::MAX)
}

/// Another replica's last log id; a pre-vote tells it and changes nothing.
async fn ask(core: &Core, links: &PeerLinks, vote: &Vote, replica: u64) -> Option<Option<LogId>> {
    let mut candidate = *vote;
    candidate.leader_id.term += 1;
    candidate.leader_id.voted_for = core.replica.to_u64();
    candidate.committed = false;
    let request = VoteRequest::<TypeConfig>::new(candidate, core.log.last().map(log_id));
    let message = wire::from_vote_request(&request, core.group.0, replica);
    let mut client = links.to(node_of(replica)).control();
    let reply = timeout(ASK_TIMEOUT, client.pre_vote(message)).await.ok()?.ok()?;
    wire::to_vote_response(reply.into_inner()).ok().map(|response| response.last_log_id)
}
