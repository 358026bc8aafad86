//! Golden scripts: `testdata/*.txt` hold commands, one a line, each followed by the recorded answer and change.
//!
//! `RAFTMQ_GOLDEN=write` records anew; the difference is then reviewed as text. Lines of a script:
//!
//! ```text
//! # comment
//! @17                                     the log index of what follows (else one more than before)
//! birth c1 nodes=3 groups=2
//! put-node 4 incarnation=1 | replace-node 3 incarnation=2 | set-alive 2 false | report-leader 1 term=5 node=2
//! create-topic orders type=1 permission=6 queues=4 | alter-topic 5 queues=8 permission=4 | delete-topic 5
//! create-group billing fifo=false attempts=16 | alter-group 7 version=9 attempts=3 | delete-group 7
//! > answer …                              recorded
//! ```

use super::tests::{birth, node};
use super::*;
use raftmq_model::ids::ReplicaId;
use raftmq_model::meta::{AlterTopic, CreateTopic, ReplaceNode, ReportLeader, SetAlive};
use std::fmt::Write;
use std::path::Path;

struct Line<'a>(Vec<&'a str>);

impl<'a> Line<'a> {
    fn word(&self, at: usize) -> &'a str {
        self.0.get(at).unwrap_or_else(|| panic!("no word {at} in {:?}", self.0))
    }

    fn number(&self, at: usize) -> u64 {
        self.word(at).parse().expect("a number")
    }

    fn option(&self, key: &str) -> Option<u64> {
        let value = self.0.iter().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))?;
        Some(value.parse().expect("a number"))
    }

    fn required(&self, key: &str) -> u64 {
        self.option(key).unwrap_or_else(|| panic!("no {key}= in {:?}", self.0))
    }

    fn consumer_group(&self, uid: u64, name: &str) -> ConsumerGroupConfig {
        ConsumerGroupConfig {
            uid,
            version: self.option("version").unwrap_or_default(),
            name: name.to_owned(),
            fifo: self.0.contains(&"fifo=true"),
            attempts_max: self.required("attempts") as u32,
            consume_enabled: true,
        }
    }

    fn op(&self) -> MetaOp {
        match self.word(0) {
            "birth" => match birth(self.required("groups") as u32) {
                MetaOp::Birth(mut record) => {
                    record.cluster_id = self.word(1).to_owned();
                    MetaOp::Birth(record)
                }
                _ => unreachable!(),
            },
            "put-node" => MetaOp::PutNode(NodeRecord {
                incarnation: self.option("incarnation").unwrap_or(1) as u32,
                ..node(self.number(1) as u32)
            }),
            "replace-node" => MetaOp::ReplaceNode(ReplaceNode {
                node: self.number(1) as u32,
                incarnation: self.required("incarnation") as u32,
            }),
            "set-alive" => MetaOp::SetAlive(SetAlive { node: self.number(1) as u32, alive: self.word(2) == "true" }),
            "report-leader" => MetaOp::ReportLeader(ReportLeader {
                group: self.number(1) as u32,
                term: self.required("term"),
                node: self.required("node") as u32,
            }),
            "create-topic" => MetaOp::CreateTopic(CreateTopic {
                name: self.word(1).to_owned(),
                topic_type: self.required("type") as i32,
                permission: self.required("permission") as i32,
                queue_count: self.required("queues") as u32,
            }),
            "alter-topic" => MetaOp::AlterTopic(AlterTopic {
                uid: self.number(1),
                permission: self.option("permission").map(|value| value as i32),
                queue_count: self.option("queues").map(|value| value as u32),
            }),
            "delete-topic" => MetaOp::DeleteTopic(self.number(1)),
            "create-group" => MetaOp::CreateConsumerGroup(self.consumer_group(0, self.word(1))),
            "alter-group" => MetaOp::AlterConsumerGroup(self.consumer_group(self.number(1), "")),
            "delete-group" => MetaOp::DeleteConsumerGroup(self.number(1)),
            other => panic!("no such command: {other}"),
        }
    }
}

fn show_record(record: &MetaRecord) -> String {
    match record {
        MetaRecord::Node(node) => format!("node {} incarnation={} alive={}", node.id, node.incarnation, node.alive),
        MetaRecord::BrokerGroup(group) => {
            let replicas = group.replicas.iter().map(|id| ReplicaId::from_u64(*id).to_string());
            let replicas = replicas.collect::<Vec<_>>().join(",");
            let (id, name, leader, term) = (group.id, &group.name, group.leader_node, group.leader_term);
            format!("broker-group {id} {name} on {replicas} leader={leader} term={term}")
        }
        MetaRecord::Topic(topic) => show_topic(topic),
        MetaRecord::ConsumerGroup(group) => show_consumer_group(group),
        MetaRecord::TopicRemoved(uid) => format!("topic {uid} removed"),
        MetaRecord::ConsumerGroupRemoved(uid) => format!("group {uid} removed"),
    }
}

fn show_topic(topic: &TopicConfig) -> String {
    format!(
        "topic {} {} version={} type={} permission={} queues={:?}",
        topic.uid, topic.name, topic.version, topic.topic_type, topic.permission, topic.queue_groups
    )
}

fn show_consumer_group(group: &ConsumerGroupConfig) -> String {
    let ConsumerGroupConfig { uid, version, name, fifo, attempts_max, .. } = group;
    format!("group {uid} {name} version={version} fifo={fifo} attempts={attempts_max}")
}

fn show_answer(answer: &MetaAnswer) -> String {
    match answer {
        MetaAnswer::Done(_) => "done".to_owned(),
        MetaAnswer::Topic(topic) => show_topic(topic),
        MetaAnswer::ConsumerGroup(group) => show_consumer_group(group),
        MetaAnswer::NotFound(sentence) => format!("not found: {sentence}"),
        MetaAnswer::Refused(sentence) => format!("refused: {sentence}"),
        MetaAnswer::Conflict(group) => format!("conflict: version {}", group.version),
    }
}

fn run(script: &str) -> String {
    let (mut state, mut index, mut out) = (MetaState::default(), 0, String::new());
    for line in script.lines().filter(|line| !line.starts_with('>')) {
        writeln!(out, "{line}").unwrap();
        if let Some(at) = line.strip_prefix('@') {
            index = at.parse::<u64>().expect("an index") - 1;
        } else if !line.is_empty() && !line.starts_with('#') {
            index += 1;
            let command = MetaCommand { op: Some(Line(line.split_whitespace().collect()).op()) };
            let (outcome, change) = state.apply(index, &command);
            writeln!(out, "> {}", show_answer(&outcome.answer.unwrap())).unwrap();
            let reset = if change.reset { " reset" } else { "" };
            for record in &change.records {
                writeln!(out, ">   {index}{reset}: {}", show_record(record.record.as_ref().unwrap())).unwrap();
            }
        }
    }
    out
}

#[test]
fn golden_scripts() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    let mut paths: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty());
    for path in paths {
        let recorded = std::fs::read_to_string(&path).unwrap();
        let now = run(&recorded);
        if std::env::var("RAFTMQ_GOLDEN").is_ok_and(|value| value == "write") {
            std::fs::write(&path, &now).unwrap();
        } else {
            let lines = (1..).zip(now.lines().zip(recorded.lines()));
            for (number, (now, recorded)) in lines {
                assert_eq!(now, recorded, "{}:{number} (RAFTMQ_GOLDEN=write records anew)", path.display());
            }
            assert_eq!(now.lines().count(), recorded.lines().count(), "{}", path.display());
        }
    }
}
