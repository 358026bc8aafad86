//! Whether this node reaches a majority of all nodes, itself among them, by pings of its own.
//!
//! The pings run on the Raft runtime, over connections of their own: load of clients does not make a node look isolated.

use super::born::Born;
use super::node::Node;
use super::peer_links::PeerLinks;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// How often each peer is pinged, and how often it is judged who answers.
const PING_INTERVAL_MS: u64 = 200;
/// How long a ping may take.
const PING_MS_MAX: u64 = 500;
/// A judge that comes this late did not run meanwhile, and nor did the pings: the process was paused.
const PAUSE_MS: u64 = 1000;

/// When each peer answered last.
type Answers = Arc<Mutex<BTreeMap<u32, Instant>>>;

/// Starts to ping; the value says whether a majority answered within the last `isolation_ms`.
pub(super) fn follow(node: &Node, born: &Born) -> watch::Receiver<bool> {
    let isolation_ms = node.config.limits.isolation_ms;
    // With isolation off, the node always counts as connected.
    let (majority, follower) = watch::channel(isolation_ms == 0);
    if isolation_ms == 0 {
        born.raft.runtime().spawn(async move { majority.closed().await });
        return follower;
    }
    let runtime = born.raft.runtime().clone();
    let _on_it = runtime.enter();
    let links = Arc::new(PeerLinks::new(&node.config));
    let answers = Answers::default();
    let peers: Vec<u32> = links.peers().map(|peer| peer.id).filter(|id| *id != node.config.node_id).collect();
    for peer in &peers {
        runtime.spawn(ping(Arc::clone(&links), *peer, Arc::clone(&answers)));
    }
    runtime.spawn(judge(answers, peers.len(), Duration::from_millis(isolation_ms), majority));
    follower
}

/// Pings one peer until the Raft runtime ends.
async fn ping(links: Arc<PeerLinks>, peer: u32, answers: Answers) {
    loop {
        if links.ping(peer, Duration::from_millis(PING_MS_MAX)).await {
            answers.lock().insert(peer, Instant::now());
        }
        tokio::time::sleep(Duration::from_millis(PING_INTERVAL_MS)).await;
    }
}

/// Judges until the Raft runtime ends.
async fn judge(answers: Answers, peers_count: usize, isolation: Duration, majority: watch::Sender<bool>) {
    let mut last = Instant::now();
    loop {
        let now = Instant::now();
        if now.duration_since(last) >= Duration::from_millis(PAUSE_MS) {
            // Nobody can have answered while this process was paused: the time starts anew.
            answers.lock().values_mut().for_each(|answered| *answered = now);
        }
        last = now;
        let reached = has_majority(&answers.lock(), peers_count, now, isolation);
        majority.send_if_modified(|known| std::mem::replace(known, reached) != reached);
        tokio::time::sleep(Duration::from_millis(PING_INTERVAL_MS / 2)).await;
    }
}

fn has_majority(answers: &BTreeMap<u32, Instant>, peers_count: usize, now: Instant, isolation: Duration) -> bool {
    let fresh = answers.values().filter(|answered| now.duration_since(**answered) < isolation).count();
    let nodes = peers_count + 1;
    (fresh + 1) * 2 > nodes
}

#[cfg(test)]
mod tests {
    use super::*;

    const ISOLATION: Duration = Duration::from_millis(1500);

    fn majority(peers_count: usize, ages_ms: &[u64]) -> bool {
        let start = Instant::now();
        let now = start + Duration::from_secs(60);
        let answers = (2..).zip(ages_ms).map(|(peer, age)| (peer, now - Duration::from_millis(*age))).collect();
        has_majority(&answers, peers_count, now, ISOLATION)
    }

    #[test]
    fn one_node_alone_is_its_own_majority() {
        assert!(majority(0, &[]));
    }

    #[test]
    fn a_majority_counts_this_node_and_what_answered_lately() {
        assert!(!majority(2, &[]), "at the start nobody has answered");
        assert!(majority(2, &[1499]));
        assert!(!majority(2, &[1500, 9000]));
        assert!(majority(2, &[9000, 10]), "any peer will do");
        assert!(!majority(1, &[1500]), "of two nodes both are needed");
        assert!(!majority(4, &[10]));
        assert!(majority(4, &[10, 20, 9000, 9000]));
    }

    #[tokio::test]
    async fn the_judge_tells_when_a_majority_comes_and_goes() {
        let answers = Answers::default();
        let (sender, mut follower) = watch::channel(false);
        let judge = tokio::spawn(judge(Arc::clone(&answers), 2, Duration::from_millis(50), sender));
        answers.lock().insert(2, Instant::now() + Duration::from_millis(200));
        follower.wait_for(|majority| *majority).await.expect("judge");
        follower.wait_for(|majority| !*majority).await.expect("judge");
        judge.abort();
    }
}
