//! The answer to a client's settings: what it sent, with the parts that its SDK cannot start or work without.
//!
//! Producers need an exponential backoff (Node dies without it) and `max_body_size` (Java rejects every send without
//! it); push consumers need a batch size, a polling time and a backoff of the kind that their SDK reads: Node only an
//! exponential one, Python only a customized one.

use crate::clients::{Declared, Sdk};
use prost_types::Duration;
use raftmq_model::limit::{self, BODY_BYTES_MAX, LimitError, RECEIVE_BATCH_COUNT_MAX};
use raftmq_proto::v2;

/// Attempts of one send, in SDKs that take the server's word for it.
pub const SEND_ATTEMPTS_MAX: i32 = 3;
/// Deliveries of one message where its consumer group says nothing else: the first one and 16 retries.
pub const DELIVERY_ATTEMPTS_MAX_DEFAULT: u32 = 17;
/// The longest wait between two deliveries.
const BACKOFF_SECONDS_MAX: i64 = 7_200;
/// Waits between deliveries, as RocketMQ's delay levels have them.
const BACKOFF_SECONDS: [i64; 18] =
    [1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1_200, 1_800, 3_600, BACKOFF_SECONDS_MAX];

/// What the server knows about a consumer group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupTraits {
    /// Delivered in order per message group.
    pub fifo: bool,
    /// Deliveries of one message.
    pub attempts_max: u32,
}

impl Default for GroupTraits {
    fn default() -> Self {
        GroupTraits { fifo: false, attempts_max: DELIVERY_ATTEMPTS_MAX_DEFAULT }
    }
}

/// The reply to `settings` of a client of `sdk`. `group` is asked with the name of the consumer group.
#[must_use]
pub fn reply(
    sdk: Sdk,
    mut settings: v2::Settings,
    push_poll_ms: u64,
    group: impl FnOnce(&v2::Resource) -> GroupTraits,
) -> v2::Settings {
    use v2::settings::PubSub;
    let pub_sub = settings.pub_sub.take().or_else(|| pub_sub_of(settings.client_type()));
    settings.pub_sub = match pub_sub {
        Some(PubSub::Publishing(publishing)) => {
            settings.backoff_policy = Some(send_backoff());
            Some(PubSub::Publishing(v2::Publishing {
                max_body_size: BODY_BYTES_MAX as i32,
                validate_message_type: true,
                ..publishing
            }))
        }
        Some(PubSub::Subscription(subscription)) => {
            let traits = subscription.group.as_ref().map(group).unwrap_or_default();
            settings.backoff_policy = Some(delivery_backoff(sdk, traits.attempts_max));
            let simple = settings.client_type() == v2::ClientType::SimpleConsumer;
            let asked = subscription.long_polling_timeout.filter(|_| simple);
            Some(PubSub::Subscription(v2::Subscription {
                fifo: Some(traits.fifo),
                receive_batch_size: Some(RECEIVE_BATCH_COUNT_MAX as i32),
                long_polling_timeout: asked.or_else(|| Some(millis(push_poll_ms))),
                ..subscription
            }))
        }
        None => None,
    };
    settings.metric = Some(v2::Metric { on: false, endpoints: None });
    settings
}

/// What a client type implies where a client sends neither `publishing` nor `subscription`.
fn pub_sub_of(client_type: v2::ClientType) -> Option<v2::settings::PubSub> {
    use v2::ClientType;
    match client_type {
        ClientType::Unspecified => None,
        ClientType::Producer => Some(v2::settings::PubSub::Publishing(v2::Publishing::default())),
        ClientType::PushConsumer
        | ClientType::SimpleConsumer
        | ClientType::PullConsumer
        | ClientType::LitePushConsumer
        | ClientType::LiteSimpleConsumer => Some(v2::settings::PubSub::Subscription(v2::Subscription::default())),
    }
}

fn send_backoff() -> v2::RetryPolicy {
    exponential(SEND_ATTEMPTS_MAX, millis(10), millis(1_000))
}

/// Backoff between deliveries, in the form that the SDK's push consumer reads.
fn delivery_backoff(sdk: Sdk, attempts_max: u32) -> v2::RetryPolicy {
    let attempts = i32::try_from(attempts_max.max(1)).unwrap_or(i32::MAX);
    match sdk {
        Sdk::Node => exponential(attempts, seconds(5), seconds(BACKOFF_SECONDS_MAX)),
        Sdk::Java | Sdk::Cpp | Sdk::Go | Sdk::Python | Sdk::Rust | Sdk::Other => v2::RetryPolicy {
            max_attempts: attempts,
            strategy: Some(v2::retry_policy::Strategy::CustomizedBackoff(v2::CustomizedBackoff {
                next: BACKOFF_SECONDS.iter().map(|wait| seconds(*wait)).collect(),
            })),
        },
    }
}

fn exponential(max_attempts: i32, initial: Duration, max: Duration) -> v2::RetryPolicy {
    let backoff = v2::ExponentialBackoff { initial: Some(initial), max: Some(max), multiplier: 2.0 };
    v2::RetryPolicy { max_attempts, strategy: Some(v2::retry_policy::Strategy::ExponentialBackoff(backoff)) }
}

fn seconds(seconds: i64) -> Duration {
    Duration { seconds, nanos: 0 }
}

fn millis(ms: u64) -> Duration {
    Duration { seconds: (ms / 1_000) as i64, nanos: (ms % 1_000) as i32 * 1_000_000 }
}

/// What the settings say about the client, for the registry. `name` turns a resource into the name used here.
#[must_use]
pub fn declared(settings: &v2::Settings, name: impl Fn(&v2::Resource) -> String) -> Declared {
    use v2::settings::PubSub;
    let (group, topics) = match &settings.pub_sub {
        Some(PubSub::Publishing(publishing)) => (None, publishing.topics.iter().map(&name).collect()),
        Some(PubSub::Subscription(subscription)) => {
            let topics = subscription.subscriptions.iter().filter_map(|entry| entry.topic.as_ref());
            (subscription.group.as_ref().map(&name), topics.map(&name).collect())
        }
        None => (None, Vec::new()),
    };
    Declared { client_type: settings.client_type.unwrap_or_default(), group, topics }
}

/// Checks the bounds of `client_properties`.
///
/// # Errors
///
/// [`LimitError::ClientProperties`].
pub fn check_client_properties(settings: &v2::Settings) -> Result<(), LimitError> {
    limit::check_client_properties(settings.client_properties.iter().map(|(key, value)| (key.as_str(), value.as_str())))
}

#[cfg(test)]
mod tests;
