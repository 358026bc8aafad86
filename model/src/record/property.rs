//! Names of system properties in the properties block of a record, as RocketMQ spells them.

/// The tag.
pub const TAGS: &str = "TAGS";
/// The keys, joined by spaces.
pub const KEYS: &str = "KEYS";
/// The client's message id.
pub const UNIQ_KEY: &str = "UNIQ_KEY";
/// The message group (FIFO).
pub const SHARDING_KEY: &str = "__SHARDINGKEY";
/// Absolute delivery time, milliseconds since the Unix epoch.
pub const TIMER_DELIVER_MS: &str = "TIMER_DELIVER_MS";
/// `true`: a half message of a transaction.
pub const TRANSACTION_PREPARED: &str = "TRAN_MSG";
/// The transaction's id.
pub const TRANSACTION_ID: &str = "__transactionId__";
/// Seconds for which an undecided half message is not checked.
pub const CHECK_IMMUNITY_TIME_SECONDS: &str = "CHECK_IMMUNITY_TIME_IN_SECONDS";
/// How often an undecided half message was checked.
pub const TRANSACTION_CHECK_TIMES: &str = "TRANSACTION_CHECK_TIMES";
/// The topic that a stored copy stands for (half messages, timers).
pub const REAL_TOPIC: &str = "REAL_TOPIC";
/// The queue that a stored copy stands for.
pub const REAL_QUEUE_ID: &str = "REAL_QID";
/// The producer group.
pub const PRODUCER_GROUP: &str = "PGROUP";
/// Delay level of 4.x clients.
pub const DELAY_LEVEL: &str = "DELAY";
/// The namespace.
pub const INSTANCE_ID: &str = "INSTANCE_ID";
/// The trace context of OpenTelemetry.
pub const TRACE_CONTEXT: &str = "TRACE_CONTEXT";
/// Born host as the client wrote it.
pub const BORN_HOST: &str = "__BORNHOST";
/// Born time as the client wrote it.
pub const BORN_TIMESTAMP: &str = "BORN_TIMESTAMP";
/// Name of the public API's body encoding, when it is not identity.
pub const BODY_ENCODING: &str = "__RAFTMQ_BODY_ENCODING";
/// The topic of a dead letter before it was one.
pub const DEAD_LETTER_ORIGIN_TOPIC: &str = "DLQ_ORIGIN_TOPIC";
/// The message id of a dead letter before it was one.
pub const DEAD_LETTER_ORIGIN_MESSAGE_ID: &str = "DLQ_ORIGIN_MESSAGE_ID";
/// Priority of a message.
pub const PRIORITY: &str = "_SYS_MSG_PRIORITY_";
/// The lite topic.
pub const LITE_TOPIC: &str = "LITE_TOPIC";

/// Sorted, so that it can be searched.
const SYSTEM: [&str; 61] = [
    "1ST_POP_TIME",
    "BORN_TIMESTAMP",
    "BUYER_ID",
    "CHECK_IMMUNITY_TIME_IN_SECONDS",
    "CLUSTER",
    "CONSUME_START_TIME",
    "CORRECTION_FLAG",
    "CORRELATION_ID",
    "DELAY",
    "DLQ_ORIGIN_MESSAGE_ID",
    "DLQ_ORIGIN_TOPIC",
    "DUP_INFO",
    "EXTEND_UNIQ_INFO",
    "INNER_BASE",
    "INNER_MULTI_DISPATCH",
    "INNER_MULTI_QUEUE_OFFSET",
    "INNER_NUM",
    "INSTANCE_ID",
    "KEYS",
    "LITE_TOPIC",
    "MAX_OFFSET",
    "MAX_RECONSUME_TIMES",
    "MIN_OFFSET",
    "MQ2_FLAG",
    "MSG_REGION",
    "MSG_TYPE",
    "ORIGIN_MESSAGE_ID",
    "PGROUP",
    "POP_CK",
    "POP_CK_OFFSET",
    "PUSH_REPLY_TIME",
    "REAL_QID",
    "REAL_TOPIC",
    "RECONSUME_TIME",
    "REPLY_MESSAGE_ARRIVE_TIME",
    "REPLY_TO_CLIENT",
    "RETRY_TOPIC",
    "TAGS",
    "TIMER_DELAY_LEVEL",
    "TIMER_DELAY_MS",
    "TIMER_DELAY_SEC",
    "TIMER_DELIVER_MS",
    "TIMER_DEL_UNIQKEY",
    "TIMER_DEQUEUE_MS",
    "TIMER_ENQUEUE_MS",
    "TIMER_OUT_MS",
    "TIMER_ROLL_TIMES",
    "TRACE_CONTEXT",
    "TRACE_ON",
    "TRANSACTION_CHECK_TIMES",
    "TRANSFER_FLAG",
    "TRAN_MSG",
    "TRAN_PREPARED_QUEUE_OFFSET",
    "TTL",
    "UNIQ_KEY",
    "WAIT",
    "_SYS_MSG_PRIORITY_",
    "__BORNHOST",
    "__CRC32#",
    "__SHARDINGKEY",
    "__transactionId__",
];

/// Prefixes that belong to the system as a whole.
const SYSTEM_PREFIXES: [&str; 2] = ["__RMQ.TRANSIENT.", "__RAFTMQ_"];

/// Whether `name` belongs to the system, so that it is no user property.
#[must_use]
pub fn is_system(name: &str) -> bool {
    SYSTEM.binary_search(&name).is_ok() || SYSTEM_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_and_found() {
        assert!(SYSTEM.is_sorted());
        assert!(SYSTEM.iter().all(|name| is_system(name)));
        for name in [TAGS, KEYS, UNIQ_KEY, SHARDING_KEY, TIMER_DELIVER_MS, BODY_ENCODING, PRIORITY, LITE_TOPIC] {
            assert!(is_system(name), "{name}");
        }
        assert!(is_system("__RMQ.TRANSIENT.x"));
        assert!(!is_system("color") && !is_system("") && !is_system("tags"));
    }
}
