//! The telemetry stream and heartbeats of one session at one endpoint, as official SDKs keep them. Best effort: nothing
//! else waits for them.

use crate::error::ClientError;
use crate::message::FilterExpression;
use crate::metadata::{Headers, VERSION};
use crate::node::Node;
use raftmq_proto::v2::{self, settings::PubSub, telemetry_command::Command};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;

const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(10);
const REOPEN_AFTER: Duration = Duration::from_secs(2);
/// Commands of ours on their way to the server.
const OUTBOUND_COUNT_MAX: usize = 8;
const BODY_BYTES_MAX: i32 = 4 << 20;

/// What a session tells about itself.
#[derive(Clone, Debug)]
pub(crate) enum Role {
    Producer,
    SimpleConsumer { group: v2::Resource, topic: v2::Resource, filter: FilterExpression, await_duration: Duration },
}

impl Role {
    fn client_type(&self) -> v2::ClientType {
        match self {
            Role::Producer => v2::ClientType::Producer,
            Role::SimpleConsumer { .. } => v2::ClientType::SimpleConsumer,
        }
    }

    fn group(&self) -> Option<v2::Resource> {
        match self {
            Role::Producer => None,
            Role::SimpleConsumer { group, .. } => Some(group.clone()),
        }
    }

    fn settings(&self, request_timeout: Duration) -> v2::Settings {
        let pub_sub = match self {
            Role::Producer => PubSub::Publishing(v2::Publishing {
                topics: Vec::new(),
                max_body_size: BODY_BYTES_MAX,
                validate_message_type: false,
            }),
            Role::SimpleConsumer { group, topic, filter, await_duration } => PubSub::Subscription(v2::Subscription {
                group: Some(group.clone()),
                subscriptions: vec![v2::SubscriptionEntry {
                    topic: Some(topic.clone()),
                    expression: Some(filter.to_wire()),
                }],
                long_polling_timeout: prost_types::Duration::try_from(*await_duration).ok(),
                ..v2::Subscription::default()
            }),
        };
        v2::Settings {
            client_type: Some(self.client_type() as i32),
            request_timeout: prost_types::Duration::try_from(request_timeout).ok(),
            pub_sub: Some(pub_sub),
            user_agent: Some(v2::Ua {
                language: v2::Language::Rust as i32,
                version: VERSION.to_owned(),
                platform: std::env::consts::OS.to_owned(),
                hostname: String::new(),
            }),
            ..v2::Settings::default()
        }
    }
}

/// Keeps one stream open until its session is dropped.
pub(crate) struct Task {
    pub(crate) node: Arc<Node>,
    pub(crate) headers: Headers,
    pub(crate) role: Role,
    pub(crate) request_timeout: Duration,
}

impl Task {
    pub(crate) async fn run(self, mut alive: watch::Receiver<()>) {
        let keep_open = async {
            loop {
                // An error is no news: the stream is opened again, and calls find out by themselves.
                let _ = self.attend().await;
                tokio::time::sleep(REOPEN_AFTER).await;
            }
        };
        tokio::select! {
            () = keep_open => {}
            // Never changes: an answer means that the session was dropped.
            _ = alive.changed() => self.say_goodbye().await,
        }
    }

    /// Opens the stream, tells the settings and answers commands until the stream ends.
    async fn attend(&self) -> Result<(), ClientError> {
        let broken = |status: tonic::Status| ClientError::from_grpc(self.node.address(), &status);
        let (commands, outbound) = mpsc::channel(OUTBOUND_COUNT_MAX);
        let settings = Command::Settings(self.role.settings(self.request_timeout));
        let _ = commands.try_send(v2::TelemetryCommand { status: None, command: Some(settings) });
        let request = self.headers.request(ReceiverStream::new(outbound), None);
        let mut inbound = self.node.stub().telemetry(request).await.map_err(broken)?.into_inner();
        let mut heartbeats = tokio::time::interval(HEARTBEAT_INTERVAL);
        loop {
            tokio::select! {
                command = inbound.message() => match command.map_err(broken)? {
                    Some(command) => {
                        if let Some(answer) = answer(command) {
                            let _ = commands.try_send(answer);
                        }
                    }
                    None => return Ok(()),
                },
                _ = heartbeats.tick() => self.beat().await,
            }
        }
    }

    async fn beat(&self) {
        let body = v2::HeartbeatRequest { group: self.role.group(), client_type: self.role.client_type() as i32 };
        let _ = self.node.stub().heartbeat(self.headers.request(body, Some(self.request_timeout))).await;
    }

    async fn say_goodbye(&self) {
        let body = v2::NotifyClientTerminationRequest { group: self.role.group() };
        let request = self.headers.request(body, Some(self.request_timeout));
        let _ = self.node.stub().notify_client_termination(request).await;
    }
}

/// Our answer to a command that wants one. Settings of the server are not taken over: all options are the caller's.
fn answer(command: v2::TelemetryCommand) -> Option<v2::TelemetryCommand> {
    let refused = |command| {
        let message = "This client does not do that.".to_owned();
        let status = v2::Status { code: v2::Code::NotImplemented as i32, message };
        Some(v2::TelemetryCommand { status: Some(status), command: Some(command) })
    };
    match command.command? {
        Command::PrintThreadStackTraceCommand(ask) => {
            refused(Command::ThreadStackTrace(v2::ThreadStackTrace { nonce: ask.nonce, thread_stack_trace: None }))
        }
        Command::VerifyMessageCommand(ask) => {
            refused(Command::VerifyMessageResult(v2::VerifyMessageResult { nonce: ask.nonce }))
        }
        _ => None,
    }
}
