//! The loop that every routed call runs in: find the leader, try, learn from the miss, wait for a change, try again.

use super::RouteError;
use super::leaders::{LeaderTable, Target};
use raftmq_model::ids::{GroupId, NodeId};
use raftmq_proto::forward::{Failure, failure::Kind};
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout_at};

/// First pause where no change can be awaited; doubles up to [`BACKOFF_MAX`].
const BACKOFF_MIN: Duration = Duration::from_millis(5);
/// Longest pause between two tries.
const BACKOFF_MAX: Duration = Duration::from_millis(80);
/// Redirects that are followed without a pause, so that two nodes that point at each other do not spin.
const REDIRECTS_COUNT_MAX: u32 = 3;

/// How one try failed.
#[derive(Clone, Debug)]
pub(super) enum Miss {
    /// The node does not lead; it may know who does. Nothing was proposed.
    NotLeader(Option<NodeId>),
    /// The node leads and is not ready yet. Nothing was proposed.
    NotReady,
    /// A bound was reached. Nothing was proposed.
    Overloaded,
    /// There is no room for messages, as the sentence says. Nothing was proposed.
    DiskFull(String),
    /// The node could not be reached. Nothing was sent.
    Unreachable,
    /// It may have been proposed.
    Unknown,
    /// The leader cannot serve this at all. Nothing was proposed.
    Invalid(String),
}

impl From<Failure> for Miss {
    fn from(failure: Failure) -> Miss {
        match failure.kind() {
            Kind::NotLeader => Miss::NotLeader((failure.leader_node != 0).then_some(NodeId(failure.leader_node))),
            Kind::NotReady => Miss::NotReady,
            Kind::Overloaded => Miss::Overloaded,
            Kind::Invalid => Miss::Invalid(failure.message),
            Kind::DiskFull => Miss::DiskFull(failure.message),
            Kind::Unknown | Kind::Unspecified => Miss::Unknown,
        }
    }
}

/// Runs `call` against the leader of `group` until it is answered or `deadline` is over.
///
/// Invariant: [`RouteError::NoLeader`], [`RouteError::Overloaded`] and [`RouteError::DiskFull`] are only answered when no
/// try was of unknown fate.
pub(super) async fn run<T, F>(
    leaders: &LeaderTable,
    group: GroupId,
    deadline: Instant,
    call: impl Fn(Target) -> F,
) -> Result<T, RouteError>
where
    F: Future<Output = Result<T, Miss>>,
{
    let mut course = Course::default();
    loop {
        // Before the look, so that a change between the look and the wait is not missed.
        let mut change = leaders.subscribe(group);
        if let Some(target) = leaders.target(group, course.redirect.take(), course.avoid.take()) {
            let node = leaders.node_of(&target);
            let mut moved = change.clone();
            let result = tokio::select! {
                biased;
                result = call(target) => result,
                () = moved.moved_away_from(node) => Err(Miss::Unknown),
                () = sleep_until(deadline) => return Err(RouteError::Unknown),
            };
            match result {
                Ok(answer) => {
                    leaders.answered(group, node);
                    return Ok(answer);
                }
                Err(miss) => {
                    if course.take(leaders, group, node, miss)? {
                        continue;
                    }
                }
            }
        }
        if Instant::now() >= deadline {
            return Err(course.given_up());
        }
        let pause = (Instant::now() + course.backoff()).min(deadline);
        let _ = timeout_at(pause, change.changed()).await;
        if Instant::now() >= deadline {
            return Err(course.given_up());
        }
    }
}

/// What the tries so far have taught.
#[derive(Default)]
struct Course {
    /// A try may have been proposed.
    maybe: bool,
    /// Where the last try was sent on to.
    redirect: Option<NodeId>,
    /// A node that just could not be reached.
    avoid: Option<NodeId>,
    redirects_in_row: u32,
    pause: Option<Duration>,
}

impl Course {
    /// Learns from a miss; `true` asks for the next try without a pause.
    fn take(&mut self, leaders: &LeaderTable, group: GroupId, node: NodeId, miss: Miss) -> Result<bool, RouteError> {
        match miss {
            Miss::NotLeader(leader) => {
                leaders.redirected(group, node, leader);
                self.redirect = leader.filter(|leader| *leader != node);
                self.redirects_in_row += 1;
                return Ok(self.redirect.is_some() && self.redirects_in_row <= REDIRECTS_COUNT_MAX);
            }
            Miss::NotReady => leaders.not_ready(group),
            Miss::Unreachable => {
                leaders.lost(group, node);
                self.avoid = Some(node);
            }
            Miss::Unknown => {
                self.maybe = true;
                leaders.lost(group, node);
                self.avoid = Some(node);
            }
            Miss::Overloaded if self.maybe => return Err(RouteError::Unknown),
            Miss::Overloaded => return Err(RouteError::Overloaded),
            Miss::DiskFull(_) if self.maybe => return Err(RouteError::Unknown),
            Miss::DiskFull(sentence) => return Err(RouteError::DiskFull(sentence)),
            Miss::Invalid(_) if self.maybe => return Err(RouteError::Unknown),
            Miss::Invalid(reason) => return Err(RouteError::Invalid(reason)),
        }
        self.redirects_in_row = 0;
        Ok(false)
    }

    fn backoff(&mut self) -> Duration {
        let pause = self.pause.map_or(BACKOFF_MIN, |pause| (pause * 2).min(BACKOFF_MAX));
        self.pause = Some(pause);
        pause
    }

    fn given_up(&self) -> RouteError {
        if self.maybe { RouteError::Unknown } else { RouteError::NoLeader }
    }
}
