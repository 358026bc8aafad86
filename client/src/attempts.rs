//! The retry loop: which node is asked next, and when.

use crate::error::{ClientError, ErrorKind};
use crate::node::Node;
use crate::options::ClientOptions;
use rand::Rng;
use std::sync::Arc;
use std::time::Duration;

/// The attempts of one call, in order of preference of its nodes.
pub(crate) struct Attempts<'a> {
    options: &'a ClientOptions,
    nodes: Vec<Arc<Node>>,
    made: u32,
    wait: bool,
    waits: u32,
    maybe_done: bool,
}

impl<'a> Attempts<'a> {
    /// Nodes that lately could not be reached go last; each is in the list once.
    pub(crate) fn new(options: &'a ClientOptions, mut nodes: Vec<Arc<Node>>) -> Attempts<'a> {
        nodes.sort_by_key(|node| node.is_isolated());
        Attempts { options, nodes, made: 0, wait: false, waits: 0, maybe_done: false }
    }

    /// The node to ask now, after the wait that is due; `None` when there are no attempts left.
    pub(crate) async fn next(&mut self) -> Option<Arc<Node>> {
        if self.made >= self.options.attempts_max.max(1) || self.nodes.is_empty() {
            return None;
        }
        if std::mem::take(&mut self.wait) {
            tokio::time::sleep(self.backoff()).await;
        }
        let node = self.nodes[self.made as usize % self.nodes.len()].clone();
        self.made += 1;
        Some(node)
    }

    /// Notes how the last attempt failed; whether another one makes sense.
    pub(crate) fn failed(&mut self, node: &Node, error: &ClientError) -> bool {
        self.maybe_done |= error.maybe_done();
        if error.blames_endpoint() {
            node.isolate(self.options.isolation);
        }
        // A node that was not asked yet is asked at once; a node is not asked again at once.
        let round_is_over = (self.made as usize).is_multiple_of(self.nodes.len());
        self.wait = round_is_over || error.kind() == ErrorKind::Overloaded;
        error.is_retryable() && self.made < self.options.attempts_max.max(1)
    }

    /// Attempts made.
    pub(crate) fn made(&self) -> u32 {
        self.made
    }

    /// Whether an attempt may have had its effect without a certain answer.
    pub(crate) fn maybe_done(&self) -> bool {
        self.maybe_done
    }

    /// Doubles from wait to wait, of which a random half is taken off so that clients do not march in step.
    fn backoff(&mut self) -> Duration {
        let doubled = self.options.backoff_initial.saturating_mul(1 << self.waits.min(16));
        self.waits += 1;
        doubled.min(self.options.backoff_max).mul_f64(rand::rng().random_range(0.5..=1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::Nodes;
    use raftmq_proto::v2::Code;

    fn nodes(count: usize) -> Vec<Arc<Node>> {
        let all = Nodes::new(ClientOptions::default());
        (1..=count).map(|port| all.node(&format!("localhost:{port}")).unwrap()).collect()
    }

    fn refused(code: Code) -> ClientError {
        ClientError::Refused { code: code as i32, message: String::new() }
    }

    #[tokio::test(start_paused = true)]
    async fn each_node_is_asked_before_any_wait() {
        let options = ClientOptions { attempts_max: 5, ..ClientOptions::default() };
        let mut attempts = Attempts::new(&options, nodes(3));
        let start = tokio::time::Instant::now();
        let mut asked = Vec::new();
        while let Some(node) = attempts.next().await {
            asked.push(node.address().to_owned());
            if asked.len() <= 3 {
                assert_eq!(start.elapsed(), Duration::ZERO);
            }
            assert_eq!(attempts.failed(&node, &refused(Code::HaNotAvailable)), asked.len() < 5);
        }
        assert_eq!(asked, ["localhost:1", "localhost:2", "localhost:3", "localhost:1", "localhost:2"]);
        assert!(start.elapsed() >= Duration::from_millis(10));
        assert!(!attempts.maybe_done() && attempts.made() == 5);
    }

    #[tokio::test(start_paused = true)]
    async fn an_overloaded_cluster_is_waited_for() {
        let options = ClientOptions { attempts_max: 3, ..ClientOptions::default() };
        let mut attempts = Attempts::new(&options, nodes(3));
        let start = tokio::time::Instant::now();
        while let Some(node) = attempts.next().await {
            attempts.failed(&node, &refused(Code::TooManyRequests));
        }
        assert!(start.elapsed() >= Duration::from_millis(10 + 20));
    }

    #[tokio::test]
    async fn a_final_answer_ends_the_attempts() {
        let options = ClientOptions::default();
        let mut attempts = Attempts::new(&options, nodes(3));
        let node = attempts.next().await.unwrap();
        assert!(!attempts.failed(&node, &refused(Code::TopicNotFound)));
    }

    #[tokio::test]
    async fn isolated_nodes_go_last() {
        let nodes = nodes(2);
        nodes[0].isolate(Duration::from_secs(60));
        let options = ClientOptions::default();
        let mut attempts = Attempts::new(&options, nodes);
        assert_eq!(attempts.next().await.unwrap().address(), "localhost:2");
    }
}
