//! Whether a view shows a decision already.

use raftmq_model::meta::{MetaAnswer, MetaOp, MetaView};

/// True when `view` is at or past the state in which `op` was answered with `answer`, as far as the records tell.
pub(super) fn caught_up(view: &MetaView, op: &MetaOp, answer: &MetaAnswer) -> bool {
    match (op, answer) {
        (_, MetaAnswer::Topic(topic)) => {
            // A later deletion or another topic of that name also counts: the view is past the answer.
            view.topic_by_uid(topic.uid).map_or(newest(view) > topic.version, |known| known.version >= topic.version)
        }
        (_, MetaAnswer::ConsumerGroup(group)) => match view.consumer_group_names.get(&group.uid) {
            Some(name) => view.consumer_groups.get(name).is_some_and(|known| known.version >= group.version),
            None => newest(view) > group.version,
        },
        (MetaOp::Birth(birth), _) => view.cluster_id == birth.cluster_id,
        (MetaOp::PutNode(node), _) => view.nodes.get(&node.id).is_some_and(|known| {
            known.incarnation > node.incarnation || {
                let mut asked = node.clone();
                asked.alive = known.alive;
                **known == asked
            }
        }),
        (MetaOp::ReplaceNode(replace), _) => {
            view.nodes.get(&replace.node).is_some_and(|known| known.incarnation >= replace.incarnation)
        }
        (MetaOp::SetAlive(set), _) => view.nodes.get(&set.node).is_some_and(|node| node.alive == set.alive),
        (MetaOp::ReportLeader(report), _) => {
            view.broker_groups.get(&report.group).is_some_and(|group| group.leader_term >= report.term)
        }
        (MetaOp::DeleteTopic(uid), _) => !view.topic_names.contains_key(uid),
        (MetaOp::DeleteConsumerGroup(uid), _) => !view.consumer_group_names.contains_key(uid),
        (
            MetaOp::CreateTopic(_)
            | MetaOp::AlterTopic(_)
            | MetaOp::CreateConsumerGroup(_)
            | MetaOp::AlterConsumerGroup(_),
            _,
        ) => true,
    }
}

/// The revision, which versions never fall behind by more than the commands of one entry.
fn newest(view: &MetaView) -> u64 {
    view.revision
}
