//! Brings topics to a leader that has not copied them from the meta group yet.
//!
//! A command that names a topic its group does not know is answered "unknown"; where this node's copy of the meta group
//! knows better, the record is proposed and, behind it, only what was refused: an entry without a message id must not
//! be stored twice.

use bytes::Bytes;
use raftmq_model::command::{Append, AppendOutcome, Command, Outcome};
use raftmq_model::ids::TopicUid;
use raftmq_model::meta::MetaView;
use std::collections::BTreeSet;

/// What to propose, and where its outcomes belong.
pub(super) struct Repair {
    puts: Vec<Bytes>,
    retries: Vec<Retry>,
}

struct Retry {
    /// Which of the caller's commands.
    command: usize,
    /// Which of its entries, in order; empty: the whole command.
    entries: Vec<usize>,
    again: Bytes,
}

impl Repair {
    /// `None` when every outcome stands as it is.
    pub(super) fn of(view: &MetaView, commands: &[Bytes], outcomes: &[Outcome]) -> Option<Repair> {
        let mut topics = BTreeSet::new();
        let mut retries = Vec::new();
        for (at, (command, outcome)) in commands.iter().zip(outcomes).enumerate() {
            if let Some(retry) = retry_of(view, at, command, outcome, &mut topics) {
                retries.push(retry);
            }
        }
        let puts = topics
            .iter()
            .filter_map(|uid: &TopicUid| view.topic_by_uid(uid.0))
            .map(|topic| Command::PutTopic(topic.as_ref().clone()).encode())
            .collect();
        (!retries.is_empty()).then_some(Repair { puts, retries })
    }

    /// The commands to propose, in order.
    pub(super) fn commands(&self) -> Vec<Bytes> {
        self.puts.iter().cloned().chain(self.retries.iter().map(|retry| retry.again.clone())).collect()
    }

    /// Puts the answers to [`Repair::commands`] in the places of the refusals.
    pub(super) fn merge(self, answers: &[Outcome], outcomes: &mut [Outcome]) {
        for (retry, answer) in self.retries.iter().zip(answers.iter().skip(self.puts.len())) {
            let Some(outcome) = outcomes.get_mut(retry.command) else { continue };
            match (outcome, answer) {
                (Outcome::Append(old), Outcome::Append(new)) if !retry.entries.is_empty() => {
                    for (entry, new) in retry.entries.iter().zip(new) {
                        if let Some(old) = old.get_mut(*entry) {
                            *old = *new;
                        }
                    }
                }
                (outcome, answer) => *outcome = answer.clone(),
            }
        }
    }
}

fn retry_of(
    view: &MetaView,
    at: usize,
    command: &Bytes,
    outcome: &Outcome,
    topics: &mut BTreeSet<TopicUid>,
) -> Option<Retry> {
    let refused = |answer: &AppendOutcome| matches!(answer, AppendOutcome::UnknownTopic | AppendOutcome::UnknownQueue);
    match outcome {
        Outcome::Append(answers) if answers.iter().any(refused) => {
            let Ok(Command::Append(append)) = Command::decode(command.clone()) else { return None };
            let mut entries = Vec::new();
            let mut again = Append::default();
            for (i, (entry, answer)) in append.entries.into_iter().zip(answers).enumerate() {
                if refused(answer) && view.topic_by_uid(entry.topic.0).is_some() {
                    topics.insert(entry.topic);
                    entries.push(i);
                    again.entries.push(entry);
                }
            }
            let found = !entries.is_empty();
            found.then(|| Retry { command: at, entries, again: Command::Append(again).encode() })
        }
        Outcome::UnknownTopic => {
            let Ok(Command::DeadLetter(letter)) = Command::decode(command.clone()) else { return None };
            view.topic_by_uid(letter.letter_topic)?;
            topics.insert(TopicUid(letter.letter_topic));
            Some(Retry { command: at, entries: Vec::new(), again: command.clone() })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use raftmq_model::command::AppendEntry;
    use raftmq_model::config::TopicConfig;
    use raftmq_model::ids::{PhysicalOffset, QueueId, QueueOffset};
    use raftmq_model::meta::{MetaChange, MetaRecord, MetaRecordBox};

    const KNOWN: TopicUid = TopicUid(5);
    const STRANGE: TopicUid = TopicUid(6);

    fn view() -> MetaView {
        let topic = TopicConfig { uid: KNOWN.0, version: 5, name: "orders".to_owned(), ..TopicConfig::default() };
        let records = vec![MetaRecordBox { record: Some(MetaRecord::Topic(topic)) }];
        let mut view = MetaView::default();
        view.take(&MetaChange { revision: 9, reset: true, cluster_id: "c".to_owned(), records });
        view
    }

    fn entry(topic: TopicUid, message_id: &'static str) -> AppendEntry {
        let record = Bytes::from_static(b"record");
        let message_id = Bytes::from_static(message_id.as_bytes());
        AppendEntry { topic, queue: QueueId(0), tags_code: 0, message_id, record, record_at: 0 }
    }

    fn stored(offset: u64) -> AppendOutcome {
        let (queue, offset) = (QueueId(0), QueueOffset(offset));
        AppendOutcome::Stored { queue, offset, physical: PhysicalOffset(7), repeated: false }
    }

    #[test]
    fn only_refused_entries_of_topics_that_the_view_knows_are_asked_again() {
        let entries = vec![entry(KNOWN, "a"), entry(STRANGE, "b"), entry(KNOWN, "c")];
        let commands = [Command::Append(Append { entries }).encode()];
        let unknown = AppendOutcome::UnknownTopic;
        let mut outcomes = vec![Outcome::Append(vec![stored(1), unknown, unknown])];
        let repair = Repair::of(&view(), &commands, &outcomes).unwrap();
        let [put, again] = &repair.commands()[..] else { panic!("two commands") };
        assert!(matches!(Command::decode(put.clone()), Ok(Command::PutTopic(topic)) if topic.uid == KNOWN.0));
        let Ok(Command::Append(again)) = Command::decode(again.clone()) else { panic!("an append") };
        assert_eq!(again.entries.iter().map(|entry| entry.message_id.clone()).collect::<Vec<_>>(), ["c"]);
        repair.merge(&[Outcome::Done, Outcome::Append(vec![stored(2)])], &mut outcomes);
        assert_eq!(outcomes, [Outcome::Append(vec![stored(1), unknown, stored(2)])]);
    }

    #[test]
    fn what_nobody_knows_stays_refused() {
        let commands = [Command::Append(Append { entries: vec![entry(STRANGE, "b")] }).encode()];
        let outcomes = [Outcome::Append(vec![AppendOutcome::UnknownTopic])];
        assert!(Repair::of(&view(), &commands, &outcomes).is_none());
        let outcomes = [Outcome::Append(vec![stored(1)])];
        assert!(Repair::of(&view(), &commands, &outcomes).is_none());
    }
}
