//! Topics, for operators.

use super::super::born::Born;
use super::super::topics::{delete_topic, group_name, put_topic};
use super::{change_deadline, meta_status};
use raftmq_model::config::{Permission, TopicConfig, TopicType};
use raftmq_model::meta::{AlterTopic, CreateTopic, MetaAnswer, MetaOp};
use raftmq_model::name::check_topic;
use raftmq_proto::admin::{AlterTopicRequest, CreateTopicRequest, ListTopicsReply, Topic, TopicQueue};
use std::sync::Arc;
use tonic::Status;

/// Queues of one topic.
const QUEUE_COUNT_MAX: u32 = 1024;

/// Creates a topic. One that exists is refused, whatever its settings.
pub(super) async fn create(born: &Born, request: CreateTopicRequest, default_queues: u32) -> Result<Topic, Status> {
    let CreateTopicRequest { name, r#type, queues, permission } = request;
    check_topic(&name).map_err(|error| Status::invalid_argument(error.to_string()))?;
    let queue_count = if queues == 0 { default_queues } else { queues };
    check_queue_count(queue_count)?;
    let wanted = CreateTopic {
        name: name.clone(),
        topic_type: topic_type(&r#type)? as i32,
        permission: permission_of(&permission)? as i32,
        queue_count,
    };
    if born.meta.view().topics.contains_key(&name) {
        return Err(Status::already_exists(format!("topic {name} exists already")));
    }
    decide(born, MetaOp::CreateTopic(wanted)).await
}

/// Adds queues or changes the permission.
pub(super) async fn alter(born: &Born, request: AlterTopicRequest) -> Result<Topic, Status> {
    let topic = find(born, &request.name)?;
    if let Some(queues) = request.queues {
        check_queue_count(queues)?;
    }
    let permission = request.permission.as_deref().map(permission_of).transpose()?;
    let permission = permission.map(|permission| permission as i32);
    decide(born, MetaOp::AlterTopic(AlterTopic { uid: topic.uid, permission, queue_count: request.queues })).await
}

async fn decide(born: &Born, op: MetaOp) -> Result<Topic, Status> {
    let deadline = change_deadline();
    match born.meta.propose(op, deadline).await.map_err(meta_status)? {
        MetaAnswer::Topic(topic) => {
            put_topic(born, &topic, deadline).await?;
            Ok(view(born, &topic))
        }
        other => Err(Status::internal(format!("the meta group answered {other:?}"))),
    }
}

/// Deletes a topic and its messages.
pub(super) async fn delete(born: &Born, name: &str) -> Result<(), Status> {
    let topic = find(born, name)?;
    let deadline = change_deadline();
    born.meta.propose(MetaOp::DeleteTopic(topic.uid), deadline).await.map_err(meta_status)?;
    delete_topic(born, &topic, deadline).await
}

/// One topic.
pub(super) fn describe(born: &Born, name: &str) -> Result<Topic, Status> {
    find(born, name).map(|topic| view(born, &topic))
}

/// All topics, by name.
pub(super) fn list(born: &Born) -> ListTopicsReply {
    ListTopicsReply { topics: born.meta.view().topics.values().map(|topic| view(born, topic)).collect() }
}

fn find(born: &Born, name: &str) -> Result<Arc<TopicConfig>, Status> {
    let topic = born.meta.view().topics.get(name).cloned();
    topic.ok_or_else(|| Status::not_found(format!("there is no topic {name}")))
}

fn view(born: &Born, topic: &TopicConfig) -> Topic {
    let queues = (0u32..).zip(&topic.queue_groups);
    Topic {
        name: topic.name.clone(),
        uid: topic.uid,
        version: topic.version,
        r#type: type_name(topic.topic_type()).into(),
        permission: permission_name(topic.permission()).into(),
        queues: queues.map(|(id, group)| TopicQueue { id, broker_group: group_name(born, *group) }).collect(),
    }
}

fn check_queue_count(queues: u32) -> Result<(), Status> {
    match (1..=QUEUE_COUNT_MAX).contains(&queues) {
        true => Ok(()),
        false => Err(Status::invalid_argument(format!("a topic has 1 to {QUEUE_COUNT_MAX} queues, not {queues}"))),
    }
}

fn topic_type(name: &str) -> Result<TopicType, Status> {
    match name {
        "" | "NORMAL" => Ok(TopicType::Normal),
        "FIFO" => Ok(TopicType::Fifo),
        "DELAY" => Ok(TopicType::Delay),
        "TRANSACTION" => Ok(TopicType::Transaction),
        other => Err(Status::invalid_argument(format!(
            "there is no topic type \"{other}\", there are NORMAL, FIFO, DELAY and TRANSACTION"
        ))),
    }
}

fn type_name(topic_type: TopicType) -> &'static str {
    match topic_type {
        TopicType::Unspecified => "UNSPECIFIED",
        TopicType::Normal => "NORMAL",
        TopicType::Fifo => "FIFO",
        TopicType::Delay => "DELAY",
        TopicType::Transaction => "TRANSACTION",
    }
}

fn permission_of(name: &str) -> Result<Permission, Status> {
    match name {
        "" | "READ_WRITE" => Ok(Permission::ReadWrite),
        "READ" => Ok(Permission::Read),
        "WRITE" => Ok(Permission::Write),
        "NONE" => Ok(Permission::None),
        other => Err(Status::invalid_argument(format!(
            "there is no permission \"{other}\", there are READ_WRITE, READ, WRITE and NONE"
        ))),
    }
}

fn permission_name(permission: Permission) -> &'static str {
    match permission {
        Permission::None => "NONE",
        Permission::Write => "WRITE",
        Permission::Read => "READ",
        Permission::ReadWrite => "READ_WRITE",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_both_ways() {
        for name in ["NORMAL", "FIFO", "DELAY", "TRANSACTION"] {
            assert_eq!(type_name(topic_type(name).expect(name)), name);
        }
        for name in ["NONE", "WRITE", "READ", "READ_WRITE"] {
            assert_eq!(permission_name(permission_of(name).expect(name)), name);
        }
        assert!(topic_type("LITE").expect_err("unknown").message().contains("\"LITE\""));
        assert!(permission_of("ALL").is_err());
    }
}
