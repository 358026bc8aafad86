//! `ReceiveMessage`: a stream of the status, the messages and the time of delivery, in this order.
//!
//! The call is held until there is a message or the long poll is over, and always answered before the caller gives up.

use super::call::{Call, name_of};
use super::convert::{duration_ms, message_of, timestamp};
use crate::edge::Edge;
use crate::service::{Cluster, Delivery, Receive, Taken};
use crate::status::{self, Refusal};
use raftmq_model::filter::TagFilter;
use raftmq_model::limit::{self, RECEIVE_BATCH_COUNT_MAX};
use raftmq_proto::v2::receive_message_response::Content;
use raftmq_proto::v2::{
    Code, FilterExpression, FilterType, Message, ReceiveMessageRequest, ReceiveMessageResponse, Resource,
};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tonic::{Request, Status};

/// The frames of one answer. Dropped before they were given to the connection, it releases the messages.
pub struct Frames<C: Cluster> {
    frames: std::vec::IntoIter<ReceiveMessageResponse>,
    paused: bool,
    taken: Option<Taken<C>>,
}

impl<C: Cluster> futures::Stream for Frames<C> {
    type Item = Result<ReceiveMessageResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(frame) = self.frames.next() {
            return Poll::Ready(Some(Ok(frame)));
        }
        // The encoder gathers frames as long as it gets some. A pause makes it pass them on, so that whoever then asks for
        // more has given them to the connection.
        if !std::mem::replace(&mut self.paused, true) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        if let Some(taken) = &mut self.taken {
            taken.handed_over();
        }
        Poll::Ready(None)
    }
}

pub(super) async fn serve<C: Cluster>(edge: &Edge<C>, request: Request<ReceiveMessageRequest>) -> Frames<C> {
    let (call, request) = Call::of(request);
    let result = answer(edge, &call, request).await;
    let status = status::of(&result, call.sdk);
    let (messages, taken) = result.map_or_else(|_| (Vec::new(), None), |(messages, taken)| (messages, Some(taken)));
    let mut frames = Vec::with_capacity(messages.len() + 2);
    let frame = |content| ReceiveMessageResponse { content: Some(content) };
    frames.push(frame(Content::Status(status)));
    frames.extend(messages.into_iter().map(|message| frame(Content::Message(message))));
    frames.push(frame(Content::DeliveryTimestamp(timestamp(edge.service.clock.now().0))));
    Frames { frames: frames.into_iter(), paused: taken.is_none(), taken }
}

async fn answer<C: Cluster>(
    edge: &Edge<C>,
    call: &Call,
    request: ReceiveMessageRequest,
) -> Result<(Vec<Message>, Taken<C>), Refusal> {
    call.client_id()?;
    let topic = request.message_queue.as_ref().and_then(|queue| queue.topic.clone()).unwrap_or_default();
    let receive = receive_of(call, request, &topic, edge.service.options.auto_renew_invisible_ms)?;
    let mut taken = edge.service.receive(&receive).await?;
    if taken.deliveries.is_empty() {
        return Err(Refusal::new(Code::MessageNotFound, "There is no new message."));
    }
    let messages = readable(std::mem::take(&mut taken.deliveries), &topic, receive.invisible_ms);
    if messages.is_err() {
        // Released, they would come back as soon, and be as damaged.
        taken.handed_over();
    }
    Ok((messages?, taken))
}

fn receive_of(
    call: &Call,
    request: ReceiveMessageRequest,
    topic: &Resource,
    auto_renew_invisible_ms: u64,
) -> Result<Receive, Refusal> {
    let invisible_ms =
        if request.auto_renew { auto_renew_invisible_ms } else { invisible_ms(request.invisible_duration.as_ref())? };
    let asked = match &request.long_polling_timeout {
        Some(timeout) => Some(Duration::from_millis(
            duration_ms(timeout)
                .ok_or_else(|| Refusal::new(Code::IllegalPollingTime, "The long polling timeout is negative."))?,
        )),
        None => None,
    };
    let poll = call.deadline.long_poll(asked).map_err(|error| Refusal::poll_too_short(error, call.version()))?;
    Ok(Receive {
        topic: name_of(Some(topic)).into_owned(),
        consumer_group: name_of(request.group.as_ref()).into_owned(),
        filter: filter_of(request.filter_expression.as_ref())?,
        batch_count: u32::try_from(request.batch_size).unwrap_or(0).clamp(1, RECEIVE_BATCH_COUNT_MAX),
        invisible_ms,
        // A retry by this node of an attempt whose answer was lost must get the same batch.
        attempt_id: request
            .attempt_id
            .filter(|id| !id.is_empty())
            .unwrap_or_else(|| uuid::Uuid::new_v4().simple().to_string()),
        poll_until: call.deadline.received() + poll,
        deadline: call.deadline.answer_poll_by(poll),
    })
}

fn invisible_ms(duration: Option<&prost_types::Duration>) -> Result<u64, Refusal> {
    let refuse = |sentence: &'static str| Refusal::new(Code::IllegalInvisibleTime, sentence);
    let duration = duration.ok_or_else(|| refuse("The invisible duration is missing, and auto_renew is not set."))?;
    let ms = duration_ms(duration).ok_or_else(|| refuse("The invisible duration is negative."))?;
    limit::check_invisible_on_receive(ms)?;
    Ok(ms)
}

fn filter_of(expression: Option<&FilterExpression>) -> Result<TagFilter, Refusal> {
    let Some(expression) = expression else { return Ok(TagFilter::all()) };
    match FilterType::try_from(expression.r#type) {
        Ok(FilterType::Tag | FilterType::Unspecified) => Ok(TagFilter::parse(&expression.expression)?),
        Ok(FilterType::Sql) => Err(Refusal::not_implemented("SQL filter expressions are not served yet.")),
        Err(_) => Err(Refusal::new(Code::IllegalFilterExpression, "The type of the filter expression is not known.")),
    }
}

/// Leaves out what cannot be read, so that one damaged record does not keep the others of its batch from delivery.
fn readable(deliveries: Vec<Delivery>, topic: &Resource, invisible_ms: u64) -> Result<Vec<Message>, Refusal> {
    let mut messages = Vec::with_capacity(deliveries.len());
    for delivery in deliveries {
        let (queue, offset) = (delivery.message.queue_id, delivery.message.queue_offset);
        match message_of(delivery, topic.clone(), invisible_ms) {
            Ok(message) => messages.push(message),
            Err(error) => {
                tracing::error!(topic = topic.name, queue, offset, %error, "a stored record cannot be read");
            }
        }
    }
    if messages.is_empty() {
        return Err(Refusal::new(Code::InternalServerError, "The stored messages cannot be read."));
    }
    Ok(messages)
}
