//! Bounds of the meta state (law 10). Past one, the answer is a refusal that names it.

/// Queues of one topic.
pub const QUEUE_COUNT_MAX: u32 = 1024;
/// Topics of a cluster, dead-letter topics included.
pub const TOPIC_COUNT_MAX: usize = 20_000;
/// Queues of all topics together; keeps a full copy of the state below [`crate::service::MESSAGE_BYTES_MAX`].
pub const QUEUE_TOTAL_COUNT_MAX: usize = 4_000_000;
/// Consumer groups of a cluster.
pub const CONSUMER_GROUP_COUNT_MAX: usize = 10_000;
/// Nodes of a cluster.
pub const NODE_COUNT_MAX: usize = 256;
/// Broker groups of a cluster.
pub const BROKER_GROUP_COUNT_MAX: usize = 256;
/// Deliveries of one message before it goes to the dead-letter topic.
pub const ATTEMPT_COUNT_MAX: u32 = 10_000;
/// Bytes of a cluster id, an address or a broker group's name.
pub const LABEL_BYTES_MAX: usize = 255;
