//! A server of the public API that answers what a test tells it to, and remembers what it was asked.

#![allow(unreachable_pub)]

use futures::stream::{self, Stream};
use raftmq_proto::v2::messaging_service_server::{MessagingService, MessagingServiceServer};
use raftmq_proto::v2::{self, Code, receive_message_response::Content};
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status, Streaming};

/// One answer of the script.
pub enum Answer {
    /// A status in the answer's body, for the request and each entry.
    Code(Code),
    /// One status for each entry.
    Codes(Vec<Code>),
    /// A broken call.
    Broken(Status),
}

/// What was asked, and what will be answered. Without a script all is OK.
#[derive(Default)]
pub struct State {
    pub script: VecDeque<Answer>,
    pub headers: Vec<MetadataMap>,
    pub sends: Vec<v2::SendMessageRequest>,
    pub receives: Vec<v2::ReceiveMessageRequest>,
    pub acks: Vec<v2::AckMessageRequest>,
    pub changes: Vec<v2::ChangeInvisibleDurationRequest>,
    pub route_queries: usize,
    pub routes: Vec<v2::MessageQueue>,
    pub messages: Vec<v2::Message>,
    pub settings: Vec<v2::Settings>,
    pub heartbeats: usize,
    pub goodbyes: usize,
}

#[derive(Clone, Default)]
pub struct Fake {
    state: Arc<Mutex<State>>,
    changed: Arc<Notify>,
    pub address: String,
}

impl Fake {
    /// Serves on a free port until the test ends.
    pub async fn start() -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let fake = Fake { address: listener.local_addr().unwrap().to_string(), ..Fake::default() };
        let service = MessagingServiceServer::new(fake.clone());
        let serve = tonic::transport::Server::builder().add_service(service);
        tokio::spawn(serve.serve_with_incoming(TcpListenerStream::new(listener)));
        fake
    }

    /// Looks at the state or changes it.
    pub fn with<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        let answer = look(&mut self.state.lock().unwrap());
        self.changed.notify_waiters();
        answer
    }

    pub fn script(&self, answers: impl IntoIterator<Item = Answer>) {
        self.with(|state| state.script.extend(answers));
    }

    /// Waits until the state is as asked.
    pub async fn until(&self, ready: impl Fn(&State) -> bool) {
        loop {
            let changed = self.changed.notified();
            if ready(&self.state.lock().unwrap()) {
                return;
            }
            changed.await;
        }
    }

    /// Ids of all messages sent here, request by request.
    pub fn sent_ids(&self) -> Vec<Vec<String>> {
        let ids = |request: &v2::SendMessageRequest| request.messages.iter().map(message_id).collect();
        self.with(|state| state.sends.iter().map(ids).collect())
    }

    /// The statuses of the next answer: of the request and of `count` entries.
    fn next(&self, count: usize) -> Result<(v2::Status, Vec<v2::Status>), Status> {
        match self.with(|state| state.script.pop_front()) {
            None => Ok((status(Code::Ok), vec![status(Code::Ok); count])),
            Some(Answer::Code(code)) => Ok((status(code), vec![status(code); count])),
            Some(Answer::Codes(codes)) => Ok((status(Code::MultipleResults), codes.into_iter().map(status).collect())),
            Some(Answer::Broken(broken)) => Err(broken),
        }
    }
}

pub fn message_id(message: &v2::Message) -> String {
    message.system_properties.as_ref().unwrap().message_id.clone()
}

pub fn status(code: Code) -> v2::Status {
    v2::Status { code: code as i32, message: format!("says {}", code.as_str_name()) }
}

/// A queue that these brokers serve.
pub fn lane(id: i32, broker: &str, address: &str) -> v2::MessageQueue {
    let (host, port) = address.rsplit_once(':').unwrap();
    let address = v2::Address { host: host.to_owned(), port: port.parse().unwrap() };
    let endpoints = v2::Endpoints { scheme: v2::AddressScheme::IPv4 as i32, addresses: vec![address] };
    v2::MessageQueue {
        topic: None,
        id,
        permission: v2::Permission::ReadWrite as i32,
        broker: Some(v2::Broker { name: broker.to_owned(), id: 0, endpoints: Some(endpoints) }),
        accept_message_types: vec![v2::MessageType::Normal as i32],
    }
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
impl MessagingService for Fake {
    type ReceiveMessageStream = Frames<v2::ReceiveMessageResponse>;
    type PullMessageStream = Frames<v2::PullMessageResponse>;
    type TelemetryStream = Frames<v2::TelemetryCommand>;

    async fn query_route(&self, _: Request<v2::QueryRouteRequest>) -> Answered<v2::QueryRouteResponse> {
        let message_queues = self.with(|state| {
            state.route_queries += 1;
            state.routes.clone()
        });
        Ok(Response::new(v2::QueryRouteResponse { status: Some(status(Code::Ok)), message_queues }))
    }

    async fn send_message(&self, request: Request<v2::SendMessageRequest>) -> Answered<v2::SendMessageResponse> {
        let (headers, _, request) = request.into_parts();
        let ids: Vec<String> = request.messages.iter().map(message_id).collect();
        self.with(|state| {
            state.headers.push(headers);
            state.sends.push(request);
        });
        let (status, entries) = self.next(ids.len())?;
        let entry = |(message_id, status)| v2::SendResultEntry {
            status: Some(status),
            message_id,
            offset: 7,
            ..v2::SendResultEntry::default()
        };
        let entries = ids.into_iter().zip(entries).map(entry).collect();
        Ok(Response::new(v2::SendMessageResponse { status: Some(status), entries }))
    }

    async fn receive_message(
        &self,
        request: Request<v2::ReceiveMessageRequest>,
    ) -> Answered<Self::ReceiveMessageStream> {
        self.with(|state| state.receives.push(request.into_inner()));
        let (status, _) = self.next(0)?;
        let ok = status.code == Code::Ok as i32;
        let messages = self.with(|state| if ok { std::mem::take(&mut state.messages) } else { Vec::new() });
        let contents = std::iter::once(Content::Status(status)).chain(messages.into_iter().map(Content::Message));
        let frames: Vec<_> =
            contents.map(|content| Ok(v2::ReceiveMessageResponse { content: Some(content) })).collect();
        Ok(Response::new(Box::pin(stream::iter(frames))))
    }

    async fn ack_message(&self, request: Request<v2::AckMessageRequest>) -> Answered<v2::AckMessageResponse> {
        let request = request.into_inner();
        self.with(|state| state.acks.push(request.clone()));
        let (status, statuses) = self.next(request.entries.len())?;
        let entries = request.entries.into_iter().zip(statuses).map(|(entry, status)| v2::AckMessageResultEntry {
            message_id: entry.message_id,
            receipt_handle: entry.receipt_handle,
            status: Some(status),
        });
        Ok(Response::new(v2::AckMessageResponse { status: Some(status), entries: entries.collect() }))
    }

    async fn change_invisible_duration(
        &self,
        request: Request<v2::ChangeInvisibleDurationRequest>,
    ) -> Answered<v2::ChangeInvisibleDurationResponse> {
        let request = request.into_inner();
        let receipt_handle = format!("{}+", request.receipt_handle);
        self.with(|state| state.changes.push(request));
        let (status, _) = self.next(0)?;
        Ok(Response::new(v2::ChangeInvisibleDurationResponse { status: Some(status), receipt_handle }))
    }

    async fn heartbeat(&self, _: Request<v2::HeartbeatRequest>) -> Answered<v2::HeartbeatResponse> {
        self.with(|state| state.heartbeats += 1);
        Ok(Response::new(v2::HeartbeatResponse { status: Some(status(Code::Ok)) }))
    }

    async fn notify_client_termination(
        &self,
        _: Request<v2::NotifyClientTerminationRequest>,
    ) -> Answered<v2::NotifyClientTerminationResponse> {
        self.with(|state| state.goodbyes += 1);
        Ok(Response::new(v2::NotifyClientTerminationResponse { status: Some(status(Code::Ok)) }))
    }

    async fn telemetry(&self, request: Request<Streaming<v2::TelemetryCommand>>) -> Answered<Self::TelemetryStream> {
        let mut inbound = request.into_inner();
        let (answers, outbound) = mpsc::channel(8);
        let fake = self.clone();
        tokio::spawn(async move {
            while let Ok(Some(command)) = inbound.message().await {
                if let Some(v2::telemetry_command::Command::Settings(settings)) = command.command.clone() {
                    fake.with(|state| state.settings.push(settings));
                }
                let answer = v2::TelemetryCommand { status: Some(status(Code::Ok)), ..command };
                if answers.send(Ok(answer)).await.is_err() {
                    return;
                }
            }
        });
        Ok(Response::new(Box::pin(tokio_stream::wrappers::ReceiverStream::new(outbound))))
    }

    unimplemented_calls! {
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
