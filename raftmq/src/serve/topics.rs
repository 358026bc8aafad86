//! Bringing a decision of the meta group to every broker group that it concerns, so that `topic create` answers when the
//! topic can be used.

use super::born::Born;
use raftmq_broker::RouteError;
use raftmq_model::command::{Command, Outcome};
use raftmq_model::config::{ConsumerGroupConfig, TopicConfig};
use raftmq_model::ids::GroupId;
use std::collections::BTreeSet;
use tokio::time::Instant;
use tonic::Status;

/// Waits until each broker group that hosts a queue of the topic has applied its record.
pub(super) async fn put_topic(born: &Born, topic: &TopicConfig, deadline: Instant) -> Result<(), Status> {
    let groups: BTreeSet<u32> = topic.queue_groups.iter().copied().collect();
    everywhere(born, groups, &Command::PutTopic(topic.clone()), deadline).await
}

/// Waits until each broker group has applied a consumer group's record.
pub(super) async fn put_consumer_group(
    born: &Born,
    group: &ConsumerGroupConfig,
    deadline: Instant,
) -> Result<(), Status> {
    let groups = born.meta.view().broker_groups.keys().copied().collect();
    everywhere(born, groups, &Command::PutConsumerGroup(group.clone()), deadline).await
}

/// Waits until each broker group that hosted a queue of the topic has forgotten it.
pub(super) async fn delete_topic(born: &Born, topic: &TopicConfig, deadline: Instant) -> Result<(), Status> {
    let groups: BTreeSet<u32> = topic.queue_groups.iter().copied().collect();
    everywhere(born, groups, &Command::DeleteTopic { uid: topic.uid }, deadline).await
}

/// Waits until each broker group has forgotten a consumer group.
pub(super) async fn delete_consumer_group(born: &Born, uid: u64, deadline: Instant) -> Result<(), Status> {
    let groups = born.meta.view().broker_groups.keys().copied().collect();
    everywhere(born, groups, &Command::DeleteConsumerGroup { uid }, deadline).await
}

async fn everywhere(born: &Born, groups: BTreeSet<u32>, command: &Command, deadline: Instant) -> Result<(), Status> {
    let encoded = command.encode();
    let router = born.broker.router();
    let applied = groups.into_iter().map(|id| {
        let command = encoded.clone();
        async move { (id, router.propose(GroupId(id), vec![command], deadline).await) }
    });
    for (id, outcome) in futures::future::join_all(applied).await {
        let name = group_name(born, id);
        match outcome.map(|outcomes| outcomes.into_iter().next()) {
            Ok(Some(Outcome::Done)) => {}
            Ok(other) => return Err(Status::internal(format!("{name} answered {other:?}"))),
            Err(error @ RouteError::Invalid(_)) => return Err(Status::internal(format!("{name}: {error}"))),
            Err(error) => {
                return Err(Status::unavailable(format!(
                    "it is decided, but {name} has not taken it over yet ({error}); it will"
                )));
            }
        }
    }
    Ok(())
}

/// The name of a broker group as operators see it.
pub(super) fn group_name(born: &Born, id: u32) -> String {
    let view = born.meta.view();
    view.broker_groups.get(&id).map_or_else(|| format!("broker-{id}"), |record| record.name.clone())
}
