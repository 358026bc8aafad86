//! `raftmq replica replace`: a lost disk is replaced by an empty one.

use crate::admin_client::Admin;
use crate::cli::{Global, Output};
use crate::commands::admin;
use crate::exit::Failure;
use crate::output;
use raftmq_proto::admin::{BrokerGroup, ClusterStatusRequest, ReplaceReplicaRequest, Replica};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// How often the replicas are looked at.
const POLL_MS: u64 = 250;

#[derive(Serialize)]
struct Replaced {
    node: u32,
    incarnation: u32,
    /// All replicas of the node vote; else they catch up.
    complete: bool,
}

/// Runs the command.
pub(super) async fn run(global: &Global, node: u32, no_wait: bool, wait_s: u64) -> Result<(), Failure> {
    let mut admin = admin(global).await?;
    let incarnation = admin.replace_replica(ReplaceReplicaRequest { node }).await?.into_inner().incarnation;
    if !no_wait {
        wait(&mut admin, node, incarnation, Duration::from_secs(wait_s)).await?;
    }
    let replaced = Replaced { node, incarnation, complete: !no_wait };
    match global.output {
        Output::Json => output::print_json(&replaced),
        Output::Table if no_wait => output::print(&format!(
            "node {node} catches up as incarnation {incarnation}; see `raftmq cluster status`\n"
        )),
        Output::Table => output::print(&format!("node {node} is back as incarnation {incarnation}\n")),
    }
}

/// Waits until all replicas of the node vote, and tells what changes meanwhile.
async fn wait(admin: &mut Admin, node: u32, incarnation: u32, bound: Duration) -> Result<(), Failure> {
    let (deadline, mut told) = (Instant::now() + bound, BTreeMap::new());
    loop {
        // A node that does not answer for a moment may be the one that is asked.
        let groups = admin.cluster_status(ClusterStatusRequest {}).await.map(|reply| reply.into_inner().groups);
        let groups = groups.unwrap_or_default();
        let mut states = Vec::new();
        for group in &groups {
            let Some(replica) = group.replicas.iter().find(|replica| replica.node == node) else { continue };
            let state = state(group, replica, incarnation);
            if told.insert(group.name.clone(), state.clone()) != Some(state.clone()) {
                output::tell(&format!("{}: {}", group.name, state.text()));
            }
            states.push(state);
        }
        if !states.is_empty() && states.iter().all(|state| *state == State::Votes) {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(Failure::unreachable(format!(
                "node {node} has not caught up in {} s; it goes on on its own, see `raftmq cluster status`",
                bound.as_secs()
            )));
        }
        tokio::time::sleep(Duration::from_millis(POLL_MS)).await;
    }
}

/// How far a replica is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// The group's leader does not know it yet, or nobody leads.
    Waits,
    /// It gets what the others have. The lag is rounded, so that not every entry is told.
    Learns { lag: u64 },
    /// It is done.
    Votes,
}

impl State {
    fn text(&self) -> String {
        match self {
            State::Waits => "waits for the leader".to_owned(),
            State::Learns { lag: 0 } => "learner, has caught up".to_owned(),
            State::Learns { lag } => format!("learner, about {lag} entries behind"),
            State::Votes => "votes".to_owned(),
        }
    }
}

fn state(group: &BrokerGroup, replica: &Replica, incarnation: u32) -> State {
    if replica.incarnation < incarnation {
        State::Waits
    } else if replica.voter && !group.changing {
        State::Votes
    } else {
        State::Learns { lag: rounded(replica.lag) }
    }
}

/// To one digit, downwards: a new line for each step that matters.
fn rounded(lag: u64) -> u64 {
    let unit = 10u64.pow(lag.checked_ilog10().unwrap_or(0));
    lag / unit * unit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_waits_learns_and_votes() {
        let group = |changing| BrokerGroup { changing, ..Default::default() };
        let replica = |incarnation, voter, lag| Replica { node: 3, incarnation, voter, lag, ..Default::default() };
        assert_eq!(state(&group(false), &replica(1, true, 0), 2), State::Waits);
        assert_eq!(state(&group(true), &replica(2, false, 4711), 2), State::Learns { lag: 4000 });
        assert_eq!(state(&group(true), &replica(2, true, 0), 2), State::Learns { lag: 0 });
        assert_eq!(state(&group(false), &replica(2, true, 3), 2), State::Votes);
        assert_eq!((rounded(0), rounded(9), rounded(10), rounded(1999)), (0, 9, 10, 1000));
    }
}
