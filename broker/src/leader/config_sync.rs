//! Keeps the group's copies of topics and consumer groups equal to what the meta group decided, and tells the meta
//! group who leads. Runs on each leader whenever the leadership or the node's copy of the meta group changes.

use super::Replica;
use bytes::Bytes;
use raftmq_model::command::Command;
use raftmq_model::ids::{ConsumerGroupUid, GroupId, TopicUid};
use raftmq_model::machine::GroupState;
use raftmq_model::meta::MetaView;
use std::sync::Arc;
use std::time::Duration;

/// Commands of one proposal.
const COMMANDS_COUNT_MAX: usize = 64;
/// Pause after a proposal that failed while the leadership stood.
const PAUSE: Duration = Duration::from_millis(100);

impl Replica {
    /// See the module; runs until the group closes.
    pub(super) async fn sync_config(self: Arc<Self>) {
        let (mut leadership, mut meta) = (self.leadership(), self.meta.changed());
        loop {
            let leads = leadership.wait_for(|now| now.leader == Some(self.node) && now.ready).await;
            let Ok(term) = leads.map(|now| now.term) else { return };
            leadership.mark_unchanged();
            meta.mark_unchanged();
            self.meta.report_leader(self.id(), term, self.node);
            if self.sync_once().await {
                tokio::select! {
                    changed = leadership.changed() => if changed.is_err() { return },
                    changed = meta.changed() => if changed.is_err() { return },
                }
            } else {
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    /// Proposes what differs; whether all of it was applied.
    async fn sync_once(&self) -> bool {
        let commands = differences(self.id(), &self.meta.view(), &self.view.state());
        for chunk in commands.chunks(COMMANDS_COUNT_MAX) {
            if let Err(failure) = self.propose(chunk.to_vec()).await {
                tracing::debug!(group = %self.id(), reason = failure.message, "configuration is not copied yet");
                return false;
            }
        }
        true
    }
}

/// The commands that make `state` agree with `view`, in order of names and uids.
///
/// A record that `view` does not have was deleted only if `view` is new enough to have had it: uids are at least the
/// log index of the meta group's entry that made them, so a view whose revision reached the uid has seen the creation.
fn differences(group: GroupId, view: &MetaView, state: &GroupState) -> Vec<Bytes> {
    let mut commands = Vec::new();
    for topic in view.topics.values() {
        let known = state.topic(topic.uid()).map(|known| known.version);
        if topic.queues_of(group).next().is_some() && known < Some(topic.version) && !state.topic_removed(topic.uid()) {
            commands.push(Command::PutTopic(topic.as_ref().clone()));
        }
    }
    for consumer_group in view.consumer_groups.values() {
        let uid = consumer_group.uid();
        let known = state.consumer_group(uid).map(|known| known.version);
        if known < Some(consumer_group.version) && !state.consumer_group_removed(uid) {
            commands.push(Command::PutConsumerGroup(consumer_group.as_ref().clone()));
        }
    }
    let gone = |uid: u64, known: bool| !known && uid <= view.revision;
    for TopicUid(uid) in state.topics().map(|topic| topic.uid()) {
        if gone(uid, view.topic_names.contains_key(&uid)) {
            commands.push(Command::DeleteTopic { uid });
        }
    }
    for ConsumerGroupUid(uid) in state.consumer_groups().map(|group| group.uid()) {
        if gone(uid, view.consumer_group_names.contains_key(&uid)) {
            commands.push(Command::DeleteConsumerGroup { uid });
        }
    }
    commands.iter().map(Command::encode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use raftmq_model::config::TopicConfig;
    use raftmq_model::ids::{PhysicalOffset, Position, Timestamp};
    use raftmq_model::machine::Changes;
    use raftmq_model::meta::{MetaChange, MetaRecord, MetaRecordBox};

    const GROUP: GroupId = GroupId(1);

    fn topic(uid: u64, version: u64, queue_groups: &[u32]) -> TopicConfig {
        let queue_groups = queue_groups.to_vec();
        TopicConfig { uid, version, name: format!("topic-{uid}"), topic_type: 1, permission: 6, queue_groups }
    }

    fn view(revision: u64, topics: &[TopicConfig]) -> MetaView {
        let record = |topic: &TopicConfig| MetaRecordBox { record: Some(MetaRecord::Topic(topic.clone())) };
        let records = topics.iter().map(record).collect();
        let mut view = MetaView::default();
        view.take(&MetaChange { revision, reset: true, cluster_id: "c".to_owned(), records });
        view
    }

    fn state(commands: &[Command]) -> GroupState {
        let mut state = GroupState::new(GROUP);
        for (index, command) in (1..).zip(commands) {
            let at = Position { term: 1, index, payload_offset: PhysicalOffset(index * 1000) };
            state.apply(at, 16, Timestamp(1), command, &mut Changes::default());
        }
        state
    }

    #[test]
    fn copies_only_what_the_group_hosts_and_only_what_is_newer() {
        let view = view(9, &[topic(3, 5, &[1, 2]), topic(4, 4, &[2]), topic(6, 6, &[1])]);
        let state = state(&[Command::PutTopic(topic(3, 3, &[1])), Command::PutTopic(topic(6, 6, &[1]))]);
        let commands = differences(GROUP, &view, &state);
        assert_eq!(commands, [Command::PutTopic(topic(3, 5, &[1, 2])).encode()]);
    }

    #[test]
    fn a_view_that_is_too_old_deletes_nothing() {
        let state = state(&[Command::PutTopic(topic(7, 7, &[1]))]);
        assert!(differences(GROUP, &view(6, &[]), &state).is_empty());
        assert_eq!(differences(GROUP, &view(7, &[]), &state), [Command::DeleteTopic { uid: 7 }.encode()]);
    }
}
