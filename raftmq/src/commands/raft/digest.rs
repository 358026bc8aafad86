//! `raftmq raft digest`: are the replicas of each broker group equal at one entry of the log (law 6)?

use crate::cli::{Global, Output};
use crate::commands::admin;
use crate::exit::Failure;
use crate::output::{self, Table};
use raftmq_proto::admin::{GroupDigest, RaftDigestRequest, ReplicaDigest};
use serde::Serialize;

#[derive(Serialize)]
struct Report {
    /// Nothing differs among those who told.
    equal: bool,
    /// All replicas told.
    complete: bool,
    groups: Vec<Group>,
}

#[derive(Serialize)]
struct Group {
    name: String,
    /// The entry behind which the digests were taken.
    index: u64,
    equal: bool,
    replicas: Vec<Replica>,
}

#[derive(Serialize)]
struct Replica {
    node: u32,
    role: String,
    #[serde(flatten)]
    told: Option<Told>,
    /// Why it tells nothing, or what contradicts itself.
    problem: Option<String>,
}

#[derive(Serialize)]
struct Told {
    term: u64,
    /// Of the applied state, 16 hexadecimal digits.
    digest: String,
    log_end_offset: u64,
    queues: u64,
    messages: u64,
}

impl From<GroupDigest> for Group {
    fn from(group: GroupDigest) -> Group {
        let replicas = group.replicas.into_iter().map(Replica::from).collect();
        Group { name: group.name, index: group.index, equal: group.equal, replicas }
    }
}

impl From<ReplicaDigest> for Replica {
    fn from(replica: ReplicaDigest) -> Replica {
        let told = replica.told.then(|| Told {
            term: replica.term,
            digest: format!("{:016x}", replica.digest),
            log_end_offset: replica.log_end_offset,
            queues: replica.queues,
            messages: replica.messages,
        });
        let problem = Some(replica.problem).filter(|problem| !problem.is_empty());
        Replica { node: replica.node, role: replica.role, told, problem }
    }
}

/// Runs the command. A difference is a failure, and so is a replica that tells nothing.
pub(super) async fn run(global: &Global, group: Option<String>) -> Result<(), Failure> {
    let request = RaftDigestRequest { group: group.unwrap_or_default() };
    let reply = admin(global).await?.raft_digest(request).await?.into_inner();
    let groups: Vec<Group> = reply.groups.into_iter().map(Group::from).collect();
    let complete = groups.iter().flat_map(|group| &group.replicas).all(|replica| replica.told.is_some());
    let report = Report { equal: groups.iter().all(|group| group.equal), complete, groups };
    match global.output {
        Output::Json => output::print_json(&report)?,
        Output::Table => output::print(&text(&report))?,
    }
    judge(&report)
}

fn judge(report: &Report) -> Result<(), Failure> {
    let differ: Vec<&str> =
        report.groups.iter().filter(|group| !group.equal).map(|group| group.name.as_str()).collect();
    if !differ.is_empty() {
        return Err(Failure::failed(format!("the replicas differ: {}", differ.join(", "))));
    }
    let silent = report.groups.iter().flat_map(|group| group.replicas.iter().map(move |replica| (group, replica)));
    let silent = silent.filter(|(_, replica)| replica.told.is_none()).map(|(group, replica)| {
        format!("{} on node {}: {}", group.name, replica.node, replica.problem.as_deref().unwrap_or("no answer"))
    });
    let silent: Vec<String> = silent.collect();
    if silent.is_empty() {
        return Ok(());
    }
    Err(Failure::unreachable(format!("not all replicas could be compared: {}", silent.join("; "))))
}

fn text(report: &Report) -> String {
    let header = ["GROUP", "INDEX", "NODE", "ROLE", "TERM", "DIGEST", "LOG-END", "QUEUES", "MESSAGES"];
    let mut table = Table::new(&header);
    for (group, replica) in report.groups.iter().flat_map(|group| group.replicas.iter().map(move |one| (group, one))) {
        let told = |cell: fn(&Told) -> String| replica.told.as_ref().map_or_else(|| "-".into(), cell);
        table.row([
            group.name.clone(),
            group.index.to_string(),
            replica.node.to_string(),
            replica.role.clone(),
            told(|told| told.term.to_string()),
            told(|told| told.digest.clone()),
            told(|told| told.log_end_offset.to_string()),
            told(|told| told.queues.to_string()),
            told(|told| told.messages.to_string()),
        ]);
    }
    let mut text = table.render();
    for group in &report.groups {
        for replica in &group.replicas {
            let problem =
                replica.problem.iter().map(|what| format!("{} on node {}: {what}\n", group.name, replica.node));
            text.extend(problem);
        }
        let told = group.replicas.iter().filter(|replica| replica.told.is_some()).count();
        let verdict = if group.equal { "equal" } else { "DIFFERENT" };
        text.push_str(&format!("{}: {told} of {} replicas, {verdict}\n", group.name, group.replicas.len()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::ExitKind;

    fn report(equal: bool, problem: &str) -> Report {
        let one = ReplicaDigest {
            node: 1,
            role: "leader".into(),
            told: true,
            term: 2,
            digest: 0xab,
            ..ReplicaDigest::default()
        };
        let two = ReplicaDigest { node: 2, problem: problem.into(), told: problem.is_empty(), ..one.clone() };
        let group = GroupDigest { name: "broker-1".into(), index: 9, equal, replicas: vec![one, two] };
        Report { equal, complete: problem.is_empty(), groups: vec![group.into()] }
    }

    #[test]
    fn a_difference_counts_more_than_a_silent_node() {
        assert_eq!(judge(&report(true, "")), Ok(()));
        let failed = |equal, problem| judge(&report(equal, problem)).unwrap_err();
        assert_eq!(failed(true, "its node does not answer").kind, ExitKind::Unreachable);
        assert!(
            failed(true, "its node does not answer").sentence.contains("broker-1 on node 2: its node does not answer")
        );
        assert_eq!(failed(false, "its node does not answer").kind, ExitKind::Failed);
    }

    #[test]
    fn json_has_the_documented_shape_and_the_table_a_line_for_each_replica() {
        let report = report(true, "its node does not answer");
        let json = serde_json::to_value(&report).expect("json");
        let group = &json["groups"][0];
        assert_eq!((group["index"].as_u64(), group["equal"].as_bool()), (Some(9), Some(true)));
        assert_eq!(group["replicas"][0]["digest"], "00000000000000ab");
        assert_eq!(group["replicas"][0]["problem"], serde_json::Value::Null);
        assert_eq!(group["replicas"][1].get("digest"), None);
        let text = text(&report);
        assert_eq!(text.lines().filter(|line| line.starts_with("broker-1  ")).count(), 2, "{text}");
        assert!(text.ends_with("broker-1: 1 of 2 replicas, equal\n"), "{text}");
    }
}
