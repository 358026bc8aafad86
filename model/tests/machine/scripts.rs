//! Golden scripts: `tests/scripts/*.txt` hold commands and, under each, what came of it. `UPDATE_EXPECT=1` writes what
//! came of them anew.
//!
//! ```text
//! limits in_flight=2                          before all commands: other limits
//! now 1000                                    log time of what follows
//! topic 1 v1 groups=1,1,2                     queue 0 and 1 are in this group (1), queue 2 is not
//! group 5 v1 attempts=3
//! append 1/0 A 1/1 B                          topic/queue and message id; `-` for none
//! pop 5 1/0 0..2 fresh=0,1 again=0@1 invisible=1000 attempt=x
//! ack 5 1/0 0@1#3 1@1#3                       offset@attempt#log index
//! change 5 1/0 0@1#3 invisible=0
//! release 5 1/0 0@1#3 told=1000 after=10
//! letter 5 1/0 0@1#3 to=9/0
//! delete-topic 1, delete-group 5
//! snapshot, purge 9                           at this entry; up to the entry of a snapshot
//! due 5 1, exhausted, show 5 1/0, retained 1/0    questions
//! restart                                     loads the pairs and compares
//! ```

use crate::harness::{Log, Replica, append, consumer_group, topic};
use bytes::Bytes;
use raftmq_model::command::{
    Ack, AppendOutcome, ChangeInvisible, Command, DeadLetter, HandleKey, HandleOutcome, Outcome, Pop, PopAgain,
    PopOutcome, Release, ReleaseEntry,
};
use raftmq_model::ids::{ConsumerGroupUid, QueueId, TopicUid};
use raftmq_model::machine::Limits;
use std::fmt::Write;
use std::path::PathBuf;

const ANSWER: &str = "    => ";

struct Script {
    replica: Replica,
    log: Log,
    now: i64,
}

#[test]
#[allow(clippy::disallowed_methods, reason = "the scripts are files")]
fn scripts_end_as_recorded() {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let mut paths: Vec<PathBuf> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty());
    for path in paths {
        let recorded = std::fs::read_to_string(&path).unwrap();
        let actual = run(&recorded);
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            std::fs::write(&path, &actual).unwrap();
        } else {
            assert_eq!(actual, recorded, "{} (UPDATE_EXPECT=1 records it anew)", path.display());
        }
    }
}

fn run(text: &str) -> String {
    let mut script = Script { replica: Replica::new(Limits::default()), log: Log::default(), now: 0 };
    let mut actual = String::new();
    for line in text.lines().filter(|line| !line.starts_with(ANSWER)) {
        writeln!(actual, "{line}").unwrap();
        if !line.is_empty() && !line.starts_with('#') {
            let answer = script.line(line);
            if !answer.is_empty() {
                writeln!(actual, "{ANSWER}{answer}").unwrap();
            }
        }
    }
    script.restart();
    actual
}

impl Script {
    fn line<'a>(&mut self, line: &'a str) -> String {
        let mut words = line.split_whitespace();
        let verb = words.next().unwrap();
        let words: Vec<&'a str> = words.collect();
        let number = |at: usize| words[at].parse::<u64>().unwrap();
        match verb {
            "limits" => {
                self.replica = Replica::new(limits(&words));
                String::new()
            }
            "now" => {
                self.now = number(0) as i64;
                String::new()
            }
            "topic" => {
                let groups: Vec<u32> =
                    field(&words, "groups").unwrap().split(',').map(|g| g.parse().unwrap()).collect();
                self.apply(topic(number(0), version(words[1]), &groups))
            }
            "group" => {
                let attempts = field(&words, "attempts").unwrap().parse().unwrap();
                self.apply(consumer_group(number(0), version(words[1]), attempts))
            }
            "delete-topic" => self.apply(Command::DeleteTopic { uid: number(0) }),
            "delete-group" => self.apply(Command::DeleteConsumerGroup { uid: number(0) }),
            "snapshot" => self.apply(Command::Snapshot),
            "purge" => self.apply(Command::Purge { upto_index: number(0) }),
            "append" => {
                let entry = |pair: &[&'a str]| {
                    let (topic, queue) = place(pair[0]);
                    (topic, queue, if pair[1] == "-" { "" } else { pair[1] })
                };
                let entries: Vec<(u64, u32, &str)> = words.chunks_exact(2).map(entry).collect();
                self.apply(append(&entries))
            }
            "pop" => self.apply(pop(&words)),
            "ack" => {
                let handles = words[2..].iter().map(|word| handle(words[0], words[1], word)).collect();
                self.apply(Command::Ack(Ack { handles }))
            }
            "change" => {
                let handle = Some(handle(words[0], words[1], words[2]));
                let invisible_ms = field(&words, "invisible").unwrap().parse().unwrap();
                let request = field(&words, "request").map_or(0, |word| word.parse().unwrap());
                self.apply(Command::ChangeInvisible(ChangeInvisible { handle, invisible_ms, request }))
            }
            "release" => {
                let told = field(&words, "told").unwrap().parse().unwrap();
                let after_ms = field(&words, "after").unwrap().parse().unwrap();
                let entry = |word| ReleaseEntry { handle: Some(handle(words[0], words[1], word)), visible_at_ms: told };
                let messages = words[2..].iter().filter(|word| word.contains('@')).map(|word| entry(word)).collect();
                self.apply(Command::Release(Release { messages, after_ms }))
            }
            "letter" => {
                let (letter_topic, letter_queue) = place(field(&words, "to").unwrap());
                let handle = Some(handle(words[0], words[1], words[2]));
                let (letter_tags_code, letter) = (-3, Bytes::from_static(b"record of a dead letter"));
                let letter = DeadLetter { handle, letter_topic, letter_queue, letter_tags_code, letter };
                self.apply(Command::DeadLetter(letter))
            }
            "restart" => {
                self.restart();
                "the same state".to_owned()
            }
            question => self.question(question, &words),
        }
    }

    fn question(&self, question: &str, words: &[&str]) -> String {
        let state = &self.replica.state;
        let now = raftmq_model::ids::Timestamp(self.now);
        match question {
            "due" => {
                let (group, (topic, queue)) = (ConsumerGroupUid(words[0].parse().unwrap()), place(words[1]));
                let due = state.due(group, TopicUid(topic), QueueId(queue), now, 100);
                let due: Vec<String> = due.iter().map(|(offset, attempt)| format!("{offset}@{attempt}")).collect();
                format!("[{}] next {:?}", due.join(" "), state.next_due(group, TopicUid(topic)).map(|at| at.0))
            }
            "exhausted" => {
                let over = state.exhausted(now, 100);
                let over: Vec<String> =
                    over.iter().map(|h| format!("{}/{}:{}@{}", h.topic, h.queue, h.offset, h.attempt)).collect();
                format!("[{}] next {:?}", over.join(" "), state.next_exhausted().map(|at| at.0))
            }
            "show" => {
                let (group, (topic, queue)) = (ConsumerGroupUid(words[0].parse().unwrap()), place(words[1]));
                let (topic, queue) = (TopicUid(topic), QueueId(queue));
                let in_flight: Vec<String> = state
                    .in_flight(group, topic, queue)
                    .map(|(offset, r)| format!("{offset}@{}#{} until {}", r.attempt, r.popped_at, r.visible_at))
                    .collect();
                let max = state.queue_max(topic, queue).map(|max| max.0);
                format!("cursor {} max {max:?} in flight [{}]", state.cursor(group, topic, queue), in_flight.join(", "))
            }
            "retained" => {
                let (topic, queue) = place(words[0]);
                let (topic, queue) = (TopicUid(topic), QueueId(queue));
                let points: Vec<u64> = state.snapshot_points().iter().map(|point| point.index).collect();
                let max = state.queue_max(topic, queue).map(|max| max.0);
                format!("min {} max {max:?}, snapshots {points:?}", state.queue_min(topic, queue))
            }
            unknown => panic!("no such command: {unknown}"),
        }
    }

    fn apply(&mut self, command: Command) -> String {
        let index = self.log.push(self.now, &[command]);
        let outcomes = self.replica.apply(&self.log);
        self.replica.apply_end();
        format!("#{index} {}", outcomes.iter().map(show).collect::<Vec<_>>().join("; "))
    }

    fn restart(&mut self) {
        self.replica.apply_end();
        let restarted = self.replica.restart(&self.log);
        assert_eq!(restarted.state.digest(), self.replica.state.digest(), "a restart finds the same state");
        assert_eq!(self.replica.installed().state.digest(), restarted.state.digest(), "so does a snapshot");
        self.replica = restarted;
    }
}

fn pop(words: &[&str]) -> Command {
    let (topic, queue) = place(words[1]);
    let (from, next) = words[2].split_once("..").unwrap();
    let list = |name| field(words, name).map_or(Vec::new(), |list: &str| list.split(',').collect());
    let again = |word: &str| {
        let (offset, attempt) = word.split_once('@').unwrap();
        PopAgain { offset: offset.parse().unwrap(), attempt: attempt.parse().unwrap() }
    };
    Command::Pop(Pop {
        consumer_group: words[0].parse().unwrap(),
        topic,
        queue,
        from: from.parse().unwrap(),
        next: next.parse().unwrap(),
        fresh: list("fresh").into_iter().map(|offset| offset.parse().unwrap()).collect(),
        again: list("again").into_iter().map(again).collect(),
        invisible_ms: field(words, "invisible").unwrap().parse().unwrap(),
        attempt_id: field(words, "attempt").unwrap_or_default().to_owned(),
    })
}

fn handle(group: &str, queue: &str, word: &str) -> HandleKey {
    let (topic, queue) = place(queue);
    let (offset, rest) = word.split_once('@').unwrap();
    let (attempt, popped_at) = rest.split_once('#').unwrap();
    HandleKey {
        consumer_group: group.parse().unwrap(),
        topic,
        queue,
        offset: offset.parse().unwrap(),
        attempt: attempt.parse().unwrap(),
        popped_at: popped_at.parse().unwrap(),
    }
}

fn limits(words: &[&str]) -> Limits {
    let mut limits = Limits::default();
    let set = |name, limit: &mut usize| {
        if let Some(value) = field(words, name) {
            *limit = value.parse().unwrap();
        }
    };
    set("in_flight", &mut limits.in_flight_count_max);
    set("stored_once", &mut limits.stored_once_count_max);
    set("stored_once_id_bytes", &mut limits.stored_once_id_bytes_max);
    set("attempt_ids", &mut limits.attempt_ids_count_max);
    limits
}

fn field<'a>(words: &[&'a str], name: &str) -> Option<&'a str> {
    words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

fn place(word: &str) -> (u64, u32) {
    let (topic, queue) = word.split_once('/').unwrap();
    (topic.parse().unwrap(), queue.parse().unwrap())
}

fn version(word: &str) -> u64 {
    word.strip_prefix('v').unwrap().parse().unwrap()
}

fn show(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Append(outcomes) => outcomes.iter().map(show_append).collect::<Vec<_>>().join(", "),
        Outcome::Done => "done".into(),
        Outcome::Pop(PopOutcome::Stale { cursor }) => format!("stale, cursor {cursor}"),
        Outcome::Pop(PopOutcome::Taken { popped_at, visible_at, queue, messages }) => {
            let messages: Vec<String> = messages.iter().map(|m| format!("{}@{}", m.offset, m.attempt)).collect();
            format!("taken [{}]#{popped_at} of queue {queue} until {visible_at}", messages.join(" "))
        }
        Outcome::Handles(outcomes) => outcomes.iter().map(show_handle).collect::<Vec<_>>().join(", "),
        Outcome::UnknownTopic => "unknown topic".into(),
        Outcome::UnknownConsumerGroup => "unknown consumer group".into(),
        Outcome::Refused(reason) => format!("refused: {reason}"),
    }
}

fn show_append(outcome: &AppendOutcome) -> String {
    match outcome {
        AppendOutcome::Stored { queue, offset, physical, repeated } => {
            format!("{} {queue}:{offset} at {physical}", if *repeated { "repeated" } else { "stored" })
        }
        AppendOutcome::UnknownTopic => "unknown topic".into(),
        AppendOutcome::UnknownQueue => "unknown queue".into(),
    }
}

fn show_handle(outcome: &HandleOutcome) -> String {
    match outcome {
        HandleOutcome::Done => "done".into(),
        HandleOutcome::Renewed { popped_at } => format!("renewed #{popped_at}"),
        HandleOutcome::Superseded => "superseded".into(),
        HandleOutcome::Gone => "gone".into(),
    }
}
