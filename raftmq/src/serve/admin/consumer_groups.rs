//! Consumer groups, for operators.

use super::super::born::Born;
use super::super::topics::{delete_consumer_group, group_name, put_consumer_group};
use super::{change_deadline, meta_status};
use raftmq_broker::meta_client::MetaError;
use raftmq_model::config::ConsumerGroupConfig;
use raftmq_model::ids::{ConsumerGroupUid, GroupId};
use raftmq_model::meta::{MetaAnswer, MetaOp};
use raftmq_model::name::check_consumer_group;
use raftmq_proto::admin::{AlterGroupRequest, CreateGroupRequest, Group, GroupLagReply, ListGroupsReply, QueueLag};
use raftmq_proto::forward;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tonic::Status;

/// Deliveries of a message when nobody says how many.
const ATTEMPTS_MAX_DEFAULT: u32 = 16;
/// A change is made on top of what others changed meanwhile so often; then the conflict is told.
const ALTER_COUNT_MAX: u32 = 8;
/// How long the leaders of all broker groups may take to tell a lag.
const LAG_MS: u64 = 3000;

/// Creates a consumer group. One that exists is refused, whatever its settings.
pub(super) async fn create(born: &Born, request: CreateGroupRequest) -> Result<Group, Status> {
    let CreateGroupRequest { name, fifo, attempts_max } = request;
    check_consumer_group(&name).map_err(|error| Status::invalid_argument(error.to_string()))?;
    if born.meta.view().consumer_groups.contains_key(&name) {
        return Err(Status::already_exists(format!("consumer group {name} exists already")));
    }
    let attempts_max = if attempts_max == 0 { ATTEMPTS_MAX_DEFAULT } else { attempts_max };
    let wanted = ConsumerGroupConfig { name, fifo, attempts_max, consume_enabled: true, ..Default::default() };
    let deadline = change_deadline();
    let decided = born.meta.propose(MetaOp::CreateConsumerGroup(wanted), deadline).await;
    take(born, decided, deadline).await
}

/// Changes what the request names, if the group has the version that it names; without one, on top of whatever others change
/// at the same time.
pub(super) async fn alter(born: &Born, request: AlterGroupRequest) -> Result<Group, Status> {
    let deadline = change_deadline();
    let mut known = find(born, &request.name)?.as_ref().clone();
    known.version = request.version.unwrap_or(known.version);
    let mut decided = born.meta.propose(altered(&known, &request), deadline).await;
    for _ in 1..ALTER_COUNT_MAX {
        // Without a version: this node's copy was behind.
        let Err(MetaError::Conflict(now)) = &decided else { break };
        if request.version.is_some() {
            break;
        }
        known = now.as_ref().clone();
        decided = born.meta.propose(altered(&known, &request), deadline).await;
    }
    take(born, decided, deadline).await
}

fn altered(known: &ConsumerGroupConfig, request: &AlterGroupRequest) -> MetaOp {
    MetaOp::AlterConsumerGroup(ConsumerGroupConfig {
        fifo: request.fifo.unwrap_or(known.fifo),
        attempts_max: request.attempts_max.unwrap_or(known.attempts_max),
        consume_enabled: request.consume_enabled.unwrap_or(known.consume_enabled),
        ..known.clone()
    })
}

/// Tells the broker groups what was decided.
async fn take(born: &Born, decided: Result<MetaAnswer, MetaError>, deadline: Instant) -> Result<Group, Status> {
    match decided.map_err(meta_status)? {
        MetaAnswer::ConsumerGroup(group) => {
            put_consumer_group(born, &group, deadline).await?;
            Ok(view(&group))
        }
        other => Err(Status::internal(format!("the meta group answered {other:?}"))),
    }
}

/// Deletes a consumer group; its dead-letter topic stays.
pub(super) async fn delete(born: &Born, name: &str) -> Result<(), Status> {
    let group = find(born, name)?;
    let deadline = change_deadline();
    born.meta.propose(MetaOp::DeleteConsumerGroup(group.uid), deadline).await.map_err(meta_status)?;
    delete_consumer_group(born, group.uid, deadline).await
}

/// One consumer group.
pub(super) fn describe(born: &Born, name: &str) -> Result<Group, Status> {
    find(born, name).map(|group| view(&group))
}

/// All consumer groups, by name.
pub(super) fn list(born: &Born) -> ListGroupsReply {
    ListGroupsReply { groups: born.meta.view().consumer_groups.values().map(|group| view(group)).collect() }
}

/// How far a consumer group is behind in each queue that it has read from, as the leaders of all broker groups say.
pub(super) async fn lag(born: &Born, name: &str) -> Result<GroupLagReply, Status> {
    let uid = ConsumerGroupUid(find(born, name)?.uid);
    let deadline = Instant::now() + Duration::from_millis(LAG_MS);
    let groups: Vec<u32> = born.meta.view().broker_groups.keys().copied().collect();
    let router = born.broker.router();
    let asked = groups.into_iter().map(|id| async move { (id, router.lag(GroupId(id), uid, deadline).await) });
    let mut queues = Vec::new();
    for (id, told) in futures::future::join_all(asked).await {
        let broker_group = group_name(born, id);
        let told = told.map_err(|error| Status::unavailable(format!("{broker_group}: {error}")))?;
        queues.extend(told.iter().filter_map(|lag| queue_lag(born, &broker_group, lag)));
    }
    queues.sort_by(|a, b| (&a.topic, a.queue).cmp(&(&b.topic, b.queue)));
    Ok(GroupLagReply { queues })
}

/// `None` for a topic that is deleted meanwhile.
fn queue_lag(born: &Born, broker_group: &str, lag: &forward::QueueLag) -> Option<QueueLag> {
    let topic = born.meta.view().topic_by_uid(lag.topic_uid)?.name.clone();
    Some(QueueLag {
        topic,
        queue: lag.queue_id,
        broker_group: broker_group.into(),
        max_offset: lag.max_offset,
        cursor: lag.cursor,
        in_flight: lag.in_flight_count,
        ready: lag.max_offset.saturating_sub(lag.cursor),
    })
}

fn find(born: &Born, name: &str) -> Result<Arc<ConsumerGroupConfig>, Status> {
    let group = born.meta.view().consumer_groups.get(name).cloned();
    group.ok_or_else(|| Status::not_found(format!("there is no consumer group {name}")))
}

fn view(group: &ConsumerGroupConfig) -> Group {
    Group {
        name: group.name.clone(),
        uid: group.uid,
        version: group.version,
        fifo: group.fifo,
        attempts_max: group.attempts_max,
        consume_enabled: group.consume_enabled,
    }
}
