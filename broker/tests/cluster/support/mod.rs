//! A cluster of brokers around a scripted meta group.

mod messages;
mod meta;
mod node;

pub(crate) use messages::{acks, append, append_of, append_with, handle_of, message_id_of, messages_of, pop_request};
pub(crate) use node::{Cluster, Shape};

use raftmq_model::ids::{ConsumerGroupUid, GroupId, TopicUid};
use std::time::Duration;
use tokio::time::Instant;

/// The one broker group.
pub(crate) const GROUP: GroupId = GroupId(1);
/// A topic with four queues.
pub(crate) const TOPIC: TopicUid = TopicUid(10);
/// The dead-letter topic of [`BILLING`].
pub(crate) const LETTERS: TopicUid = TopicUid(11);
/// A consumer group with two attempts.
pub(crate) const BILLING: ConsumerGroupUid = ConsumerGroupUid(12);
/// Another one, with many attempts.
pub(crate) const AUDIT: ConsumerGroupUid = ConsumerGroupUid(13);

/// A deadline that only a hanging test reaches.
pub(crate) fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}
