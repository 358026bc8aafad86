//! A broker of one queue in memory that breaks a promise when told to.

#![allow(unreachable_pub)]

use raftmq_proto::v2::messaging_service_server::{MessagingService, MessagingServiceServer};
use raftmq_proto::v2::{self, Code, receive_message_response::Content};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio_stream::wrappers::TcpListenerStream;
use tokio_stream::{Stream, iter};
use tonic::{Request, Response, Status};

/// The promise that is broken, for each tenth message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    /// Answers OK and forgets the message.
    Lose,
    /// Stores the message at two places.
    StoreTwice,
    /// Changes the body.
    Corrupt,
    /// Delivers again what was acked.
    ForgetAck,
    /// Answers "surely not stored" and stores it.
    Lie,
    /// Breaks the call after storing; the client's retry is recognised. No promise is broken.
    BreakCalls,
}

#[derive(Default)]
struct Queue {
    stored: Vec<v2::Message>,
    next: usize,
    /// Acked, but to be delivered again.
    again: Vec<v2::Message>,
    sends: usize,
}

#[derive(Clone)]
pub struct Broker {
    fault: Fault,
    queue: Arc<Mutex<Queue>>,
    stored: Arc<Notify>,
}

const LONG_POLL: Duration = Duration::from_millis(20);

impl Broker {
    /// Serves on a free port until the test ends; answers the endpoint.
    pub async fn start(fault: Fault) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let service = MessagingServiceServer::new(Broker { fault, queue: Arc::default(), stored: Arc::default() });
        let server = tonic::transport::Server::builder().add_service(service);
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        address
    }

    fn take(&self) -> Vec<v2::Message> {
        let mut queue = self.queue.lock().unwrap();
        let end = queue.stored.len();
        let next = std::mem::replace(&mut queue.next, end);
        let again = std::mem::take(&mut queue.again);
        queue.stored[next..].iter().cloned().chain(again).collect()
    }

    fn send(&self, mut message: v2::Message) -> Result<(Code, i64), Status> {
        let mut queue = self.queue.lock().unwrap();
        queue.sends += 1;
        let hit = queue.sends.is_multiple_of(10);
        let known = queue.stored.iter().position(|stored| id(stored) == id(&message));
        if let Some(offset) = known {
            return Ok((Code::Ok, offset as i64));
        }
        match self.fault {
            Fault::Lose if hit => return Ok((Code::Ok, 0)),
            Fault::Corrupt if hit => message.body = "something else".into(),
            Fault::StoreTwice if hit => queue.store(message.clone()),
            _ => {}
        }
        queue.store(message);
        self.stored.notify_waiters();
        match self.fault {
            Fault::Lie if hit => Ok((Code::Forbidden, 0)),
            Fault::BreakCalls if hit => Err(Status::unavailable("broken on purpose")),
            _ => Ok((Code::Ok, queue.stored.len() as i64 - 1)),
        }
    }
}

impl Queue {
    fn store(&mut self, mut message: v2::Message) {
        if let Some(system) = &mut message.system_properties {
            system.queue_offset = Some(self.stored.len() as i64);
            system.receipt_handle = Some(self.stored.len().to_string());
            system.delivery_attempt = Some(1);
        }
        self.stored.push(message);
    }
}

fn id(message: &v2::Message) -> &str {
    &message.system_properties.as_ref().unwrap().message_id
}

fn status(code: Code) -> Option<v2::Status> {
    Some(v2::Status { code: code as i32, message: String::new() })
}

type Frames<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;
type Answered<T> = Result<Response<T>, Status>;

macro_rules! unimplemented_calls {
    ($($name:ident($request:ty) -> $response:ty;)*) => {
        $(fn $name<'a, 'b>(&'a self, _: Request<$request>)
            -> Pin<Box<dyn Future<Output = Answered<$response>> + Send + 'b>>
        where
            'a: 'b,
            Self: 'b,
        {
            Box::pin(async { Err(Status::unimplemented(stringify!($name))) })
        })*
    };
}

#[tonic::async_trait]
impl MessagingService for Broker {
    type ReceiveMessageStream = Frames<v2::ReceiveMessageResponse>;
    type PullMessageStream = Frames<v2::PullMessageResponse>;
    type TelemetryStream = Frames<v2::TelemetryCommand>;

    async fn send_message(&self, request: Request<v2::SendMessageRequest>) -> Answered<v2::SendMessageResponse> {
        let message = request.into_inner().messages.remove(0);
        let message_id = id(&message).to_owned();
        let (code, offset) = self.send(message)?;
        let entry = v2::SendResultEntry { status: status(code), message_id, offset, ..v2::SendResultEntry::default() };
        Ok(Response::new(v2::SendMessageResponse { status: status(code), entries: vec![entry] }))
    }

    async fn receive_message(&self, _: Request<v2::ReceiveMessageRequest>) -> Answered<Self::ReceiveMessageStream> {
        let stored = self.stored.notified();
        let mut messages = self.take();
        if messages.is_empty() && tokio::time::timeout(LONG_POLL, stored).await.is_ok() {
            messages = self.take();
        }
        let code = if messages.is_empty() { Code::MessageNotFound } else { Code::Ok };
        let first = status(code).map(Content::Status);
        let contents = first.into_iter().chain(messages.into_iter().map(Content::Message));
        let frames: Vec<_> =
            contents.map(|content| Ok(v2::ReceiveMessageResponse { content: Some(content) })).collect();
        Ok(Response::new(Box::pin(iter(frames))))
    }

    async fn ack_message(&self, request: Request<v2::AckMessageRequest>) -> Answered<v2::AckMessageResponse> {
        let mut queue = self.queue.lock().unwrap();
        let mut entries = Vec::new();
        for entry in request.into_inner().entries {
            let offset: usize = entry.receipt_handle.parse().unwrap();
            if self.fault == Fault::ForgetAck && offset.is_multiple_of(10) {
                let mut message = queue.stored[offset].clone();
                if let Some(system) = &mut message.system_properties
                    && system.delivery_attempt == Some(1)
                {
                    system.delivery_attempt = Some(2);
                    queue.stored[offset] = message.clone();
                    queue.again.push(message);
                }
            }
            let (message_id, receipt_handle) = (entry.message_id, entry.receipt_handle);
            entries.push(v2::AckMessageResultEntry { message_id, receipt_handle, status: status(Code::Ok) });
        }
        Ok(Response::new(v2::AckMessageResponse { status: status(Code::Ok), entries }))
    }

    unimplemented_calls! {
        query_route(v2::QueryRouteRequest) -> v2::QueryRouteResponse;
        heartbeat(v2::HeartbeatRequest) -> v2::HeartbeatResponse;
        telemetry(tonic::Streaming<v2::TelemetryCommand>) -> Self::TelemetryStream;
        notify_client_termination(v2::NotifyClientTerminationRequest) -> v2::NotifyClientTerminationResponse;
        change_invisible_duration(v2::ChangeInvisibleDurationRequest) -> v2::ChangeInvisibleDurationResponse;
        query_assignment(v2::QueryAssignmentRequest) -> v2::QueryAssignmentResponse;
        forward_message_to_dead_letter_queue(v2::ForwardMessageToDeadLetterQueueRequest)
            -> v2::ForwardMessageToDeadLetterQueueResponse;
        pull_message(v2::PullMessageRequest) -> Self::PullMessageStream;
        update_offset(v2::UpdateOffsetRequest) -> v2::UpdateOffsetResponse;
        get_offset(v2::GetOffsetRequest) -> v2::GetOffsetResponse;
        query_offset(v2::QueryOffsetRequest) -> v2::QueryOffsetResponse;
        end_transaction(v2::EndTransactionRequest) -> v2::EndTransactionResponse;
        recall_message(v2::RecallMessageRequest) -> v2::RecallMessageResponse;
        sync_lite_subscription(v2::SyncLiteSubscriptionRequest) -> v2::SyncLiteSubscriptionResponse;
    }
}
