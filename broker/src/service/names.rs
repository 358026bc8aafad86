//! Finds topics and consumer groups by name; creates them at first use where that is configured.
//!
//! "No such topic" is only said from a copy of the meta group that exists: a node that has just started holds the call.

use super::{Cluster, Service};
use crate::settings::DELIVERY_ATTEMPTS_MAX_DEFAULT;
use crate::status::Refusal;
use raftmq_model::config::{ConsumerGroupConfig, Permission, TopicConfig, TopicType};
use raftmq_model::meta::{CreateTopic, MetaView};
use raftmq_model::name::{self, DEAD_LETTER_PREFIX, RETRY_PREFIX};
use raftmq_proto::v2::Code;
use std::sync::Arc;
use tokio::time::Instant;

impl<C: Cluster> Service<C> {
    /// The node's copy of the meta group, waited for if there is none yet.
    pub(crate) async fn known_view(&self, deadline: Instant) -> Result<Arc<MetaView>, Refusal> {
        let view = self.cluster.view();
        if view.revision > 0 {
            return Ok(view);
        }
        let starting =
            || Refusal::new(Code::HaNotAvailable, "This node is starting and knows no topics yet; try again.");
        self.cluster.first_view(deadline).await.ok_or_else(starting)
    }

    /// An existing topic.
    pub(crate) async fn topic(&self, name: &str, deadline: Instant) -> Result<Arc<TopicConfig>, Refusal> {
        name::check_topic(name)?;
        self.known_view(deadline).await?.topics.get(name).cloned().ok_or_else(|| no_topic(name))
    }

    /// A topic to send to: an existing one, or a new one where topics are created at first use.
    pub(crate) async fn topic_or_create(&self, name: &str, deadline: Instant) -> Result<Arc<TopicConfig>, Refusal> {
        name::check_topic(name)?;
        if let Some(topic) = self.known_view(deadline).await?.topics.get(name) {
            return Ok(Arc::clone(topic));
        }
        // Dead-letter and retry topics belong to a consumer group and come with it.
        let belongs_to_group = name.starts_with(DEAD_LETTER_PREFIX) || name.starts_with(RETRY_PREFIX);
        if !self.options.auto_create_topics || belongs_to_group {
            return Err(no_topic(name));
        }
        let create = CreateTopic {
            name: name.to_owned(),
            topic_type: TopicType::Normal as i32,
            permission: Permission::ReadWrite as i32,
            queue_count: self.options.topic_queue_count,
        };
        Ok(self.cluster.topic_or_create(create, deadline).await?)
    }

    /// A consumer group to receive for: an existing one, or a new one where they are created at first use.
    pub(crate) async fn consumer_group_or_create(
        &self,
        name: &str,
        deadline: Instant,
    ) -> Result<Arc<ConsumerGroupConfig>, Refusal> {
        name::check_consumer_group(name)?;
        if let Some(group) = self.known_view(deadline).await?.consumer_groups.get(name) {
            return Ok(Arc::clone(group));
        }
        if !self.options.auto_create_consumer_groups {
            return Err(Refusal::new(
                Code::ConsumerGroupNotFound,
                format!("There is no consumer group {name:?}, and they are not created at first use here."),
            ));
        }
        let create = ConsumerGroupConfig {
            uid: 0,
            version: 0,
            name: name.to_owned(),
            fifo: false,
            attempts_max: DELIVERY_ATTEMPTS_MAX_DEFAULT,
            consume_enabled: true,
        };
        Ok(self.cluster.consumer_group_or_create(create, deadline).await?)
    }
}

fn no_topic(name: &str) -> Refusal {
    Refusal::new(Code::TopicNotFound, format!("There is no topic {name:?}."))
}
