//! Finding messages, for operators: the leaders of all broker groups that host a topic are asked, and their answers put in order.

use super::super::born::Born;
use super::super::topics::group_name;
use prost::Message;
use raftmq_broker::RouteError;
use raftmq_broker::leader::QUERY_COUNT_MAX;
use raftmq_model::ids::GroupId;
use raftmq_model::record::{RecordView, property};
use raftmq_proto::admin::{
    FoundMessage, Property, QueryMessagesReply, QueryMessagesRequest, query_messages_request::By,
};
use raftmq_proto::forward::{self, QueriedMessage, QueryReply};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::Instant;
use tonic::Status;

/// Messages when nobody says how many, as in RocketMQ's tools.
const COUNT_DEFAULT: u32 = 32;
/// How long the leaders of all broker groups may take.
const QUERY_MS: u64 = 10_000;
/// Bytes of a body that are told.
const BODY_BYTES_MAX: usize = 64 << 10;
/// Bytes of an answer; what does not fit is left out, and the answer says so. Clients take 4 MiB.
const REPLY_BYTES_MAX: usize = 3 << 20;

/// Asks, and puts together.
pub(super) async fn query(born: &Born, request: QueryMessagesRequest) -> Result<QueryMessagesReply, Status> {
    check(&request)?;
    let topic = born.meta.view().topics.get(&request.topic).cloned();
    let topic = topic.ok_or_else(|| Status::not_found(format!("there is no topic {}", request.topic)))?;
    let count_max = if request.count_max == 0 { COUNT_DEFAULT } else { request.count_max };
    let asked = forward::QueryRequest {
        group_id: 0,
        topic_uid: topic.uid,
        topic: request.topic.clone(),
        by: request.by.clone().map(|by| match by {
            By::Key(key) => forward::query_request::By::Key(key),
            By::MessageId(id) => forward::query_request::By::MessageId(id),
        }),
        from_ms: request.from_ms,
        to_ms: request.to_ms,
        count_max,
    };
    let deadline = Instant::now() + Duration::from_millis(QUERY_MS);
    let groups: BTreeSet<u32> = topic.queue_groups.iter().copied().collect();
    let router = born.broker.router();
    let answers = groups.into_iter().map(|id| {
        let asked = asked.clone();
        async move { (id, router.query(GroupId(id), asked, deadline).await) }
    });
    let mut told = Vec::new();
    for (id, answer) in futures::future::join_all(answers).await {
        let name = group_name(born, id);
        let answer = answer.map_err(|error| refusal(&name, &error))?;
        told.push((name, answer));
    }
    Ok(merge(told, request.by.is_some(), count_max as usize))
}

fn check(request: &QueryMessagesRequest) -> Result<(), Status> {
    let wrong = |sentence: String| Err(Status::invalid_argument(sentence));
    let is_empty = match &request.by {
        Some(By::Key(key)) => key.is_empty(),
        Some(By::MessageId(id)) => id.is_empty(),
        None => request.from_ms == 0 && request.to_ms == 0,
    };
    if is_empty {
        return wrong("what is looked for must be said: a key, a message id, or a span of time".into());
    }
    if request.to_ms != 0 && request.to_ms < request.from_ms {
        return wrong(format!("the span of time ends ({}) before it begins ({})", request.to_ms, request.from_ms));
    }
    if request.count_max > QUERY_COUNT_MAX {
        return wrong(format!("at most {QUERY_COUNT_MAX} messages can be asked for, not {}", request.count_max));
    }
    Ok(())
}

fn refusal(group: &str, error: &RouteError) -> Status {
    let sentence = format!("{group}: {error}");
    match error {
        RouteError::Invalid(_) => Status::failed_precondition(sentence),
        RouteError::Overloaded => Status::resource_exhausted(sentence),
        RouteError::NoLeader | RouteError::DiskFull(_) | RouteError::Unknown => Status::unavailable(sentence),
    }
}

/// All messages in one order. A group that has left something out has told what comes first in its order, so that nothing behind the
/// last one of it may be told: there can be others between.
fn merge(told: Vec<(String, QueryReply)>, newest_first: bool, count_max: usize) -> QueryMessagesReply {
    let mut reply = QueryMessagesReply::default();
    let mut found: Vec<(i64, String, QueriedMessage)> = Vec::new();
    let mut end = None::<i64>;
    for (name, answer) in told {
        // So that what comes first has the smallest number.
        let order = |message: &QueriedMessage| if newest_first { -message.stored_at_ms } else { message.stored_at_ms };
        if answer.truncated {
            let last = answer.messages.last().map(order);
            end = [end, last].into_iter().flatten().min();
            reply.truncated = true;
        }
        if !answer.incomplete.is_empty() {
            reply.incomplete.push(format!("{name}: {}", answer.incomplete));
        }
        found.extend(answer.messages.into_iter().map(|message| (order(&message), name.clone(), message)));
    }
    found.retain(|(order, ..)| end.is_none_or(|end| *order <= end));
    // Within a group the answers are in order already.
    found.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
    let mut bytes = 0;
    for (_, group, message) in found {
        let view = view(group, &message);
        bytes += view.encoded_len();
        if reply.messages.len() == count_max || (bytes > REPLY_BYTES_MAX && !reply.messages.is_empty()) {
            reply.truncated = true;
            break;
        }
        reply.messages.push(view);
    }
    reply
}

fn view(broker_group: String, message: &QueriedMessage) -> FoundMessage {
    let known = FoundMessage {
        broker_group,
        queue: message.queue_id,
        offset: message.queue_offset,
        physical_offset: message.physical_offset,
        stored_at_ms: message.stored_at_ms,
        ..FoundMessage::default()
    };
    // The leader has read it: it is a record.
    let Ok(record) = RecordView::parse(&message.record) else { return known };
    let own = |(name, value): (&str, &str)| Property { name: name.into(), value: value.into() };
    FoundMessage {
        message_id: record.message_id().unwrap_or_default().into(),
        tag: record.property(property::TAGS).unwrap_or_default().into(),
        keys: record.keys().map(str::to_owned).collect(),
        born_at_ms: record.born_timestamp(),
        born_host: record.born_host().to_string(),
        store_host: record.store_host().to_string(),
        reconsume_times: record.reconsume_times(),
        properties: record.properties().map(own).collect(),
        body_bytes: record.body().len() as u64,
        body: record.body()[..record.body().len().min(BODY_BYTES_MAX)].to_vec().into(),
        ..known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(times: &[i64], truncated: bool) -> QueryReply {
        let message =
            |at: &i64| QueriedMessage { stored_at_ms: *at, queue_offset: *at as u64, ..QueriedMessage::default() };
        QueryReply { messages: times.iter().map(message).collect(), truncated, ..QueryReply::default() }
    }

    fn merged(answers: [QueryReply; 2], newest_first: bool, count_max: usize) -> (Vec<i64>, bool) {
        let told = answers.into_iter().zip(["broker-1", "broker-2"]).map(|(answer, name)| (name.to_owned(), answer));
        let reply = merge(told.collect(), newest_first, count_max);
        (reply.messages.iter().map(|message| message.stored_at_ms).collect(), reply.truncated)
    }

    #[test]
    fn answers_of_groups_are_put_in_order_and_cut() {
        let answers = || [answer(&[9, 5, 1], false), answer(&[8, 7, 2], false)];
        assert_eq!(merged(answers(), true, 10), (vec![9, 8, 7, 5, 2, 1], false));
        assert_eq!(merged(answers(), true, 4), (vec![9, 8, 7, 5], true));
        assert_eq!(merged([answer(&[1, 5], false), answer(&[2, 3], false)], false, 10), (vec![1, 2, 3, 5], false));
    }

    #[test]
    fn nothing_is_told_behind_what_a_group_has_left_out() {
        assert_eq!(merged([answer(&[9, 5], true), answer(&[8, 7, 2], false)], true, 10), (vec![9, 8, 7, 5], true));
        assert_eq!(merged([answer(&[1, 5], true), answer(&[2, 6], true)], false, 10), (vec![1, 2, 5], true));
        assert_eq!(merged([answer(&[], true), answer(&[2], false)], true, 10), (vec![2], true));
    }

    #[test]
    fn what_is_looked_for_must_be_said() {
        let by = |by| QueryMessagesRequest { topic: "orders".into(), by, ..QueryMessagesRequest::default() };
        assert!(check(&by(None)).is_err() && check(&by(Some(By::Key(String::new())))).is_err());
        assert!(check(&by(Some(By::Key("k".into())))).is_ok());
        assert!(check(&QueryMessagesRequest { from_ms: 5, ..by(None) }).is_ok());
        assert!(check(&QueryMessagesRequest { from_ms: 5, to_ms: 4, ..by(None) }).is_err());
        assert!(check(&QueryMessagesRequest { from_ms: 5, count_max: QUERY_COUNT_MAX + 1, ..by(None) }).is_err());
    }
}
