//! `Telemetry`: the stream over which a client sends its settings and the server its commands.
//!
//! Headers go out at once (the Rust SDK waits for them); each settings message is answered, with status OK (the Python
//! SDK drops any other). The stream is served by its own response stream: no task is spawned for it.

use super::budget::Reservation;
use super::call::{Call, name_of};
use crate::clients::{LiveStream, Sdk};
use crate::edge::Edge;
use crate::service::{Cluster, Service};
use crate::settings::{self, GroupTraits};
use crate::status::{self, Refusal};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use raftmq_model::meta::MetaView;
use raftmq_proto::v2::telemetry_command::Command;
use raftmq_proto::v2::{Resource, Settings, TelemetryCommand};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tonic::{Request, Status, Streaming};

pub(super) type Commands = BoxStream<'static, Result<TelemetryCommand, Status>>;

/// A node that has just started waits this long for its copy of the meta group before it answers with default traits.
const VIEW_WAIT: Duration = Duration::from_millis(2_000);

/// What one stream is served with.
struct Session<C> {
    inbound: Streaming<TelemetryCommand>,
    /// Bytes that the inbound half holds of the node's budget.
    reserved: Option<Reservation>,
    live: LiveStream,
    service: Arc<Service<C>>,
    sdk: Sdk,
}

pub(super) fn serve<C: Cluster>(
    edge: &Edge<C>,
    request: Request<Streaming<TelemetryCommand>>,
) -> Result<Commands, Status> {
    let reserved = request.extensions().get::<Reservation>().cloned();
    let (call, inbound) = Call::of(request);
    let id = match call.client_id() {
        Ok(id) => id,
        Err(refusal) => return Ok(stream::iter([Ok(refused(&refusal, call.sdk))]).boxed()),
    };
    let live = edge.clients.open(id, call.sdk).map_err(|full| Status::resource_exhausted(full.to_string()))?;
    let session = Session { inbound, reserved, live, service: Arc::clone(&edge.service), sdk: call.sdk };
    Ok(stream::unfold(session, |mut session| async move {
        let command = session.next().await?;
        Some((Ok(command), session))
    })
    .boxed())
}

impl<C: Cluster> Session<C> {
    /// The next thing to say; `None` when the client has closed its half or is gone.
    async fn next(&mut self) -> Option<TelemetryCommand> {
        loop {
            tokio::select! {
                received = self.inbound.message() => {
                    let received = received.ok()??;
                    if let Some(reserved) = &self.reserved {
                        reserved.release();
                    }
                    if let Some(answer) = self.answer(received).await {
                        return Some(answer);
                    }
                }
                command = self.live.command() => return command,
            }
        }
    }

    async fn answer(&self, received: TelemetryCommand) -> Option<TelemetryCommand> {
        match received.command? {
            Command::Settings(settings) => Some(self.answer_settings(settings).await),
            // Answers to commands that this build does not send, and commands that only servers send.
            Command::ThreadStackTrace(_)
            | Command::VerifyMessageResult(_)
            | Command::RecoverOrphanedTransactionCommand(_)
            | Command::PrintThreadStackTraceCommand(_)
            | Command::VerifyMessageCommand(_)
            | Command::ReconnectEndpointsCommand(_)
            | Command::NotifyUnsubscribeLiteCommand(_) => None,
        }
    }

    async fn answer_settings(&self, settings: Settings) -> TelemetryCommand {
        if let Err(error) = settings::check_client_properties(&settings) {
            return refused(&error.into(), self.sdk);
        }
        self.live.declare(settings::declared(&settings, |resource| name_of(Some(resource)).into_owned()));
        let view = match self.service.known_view(Instant::now() + VIEW_WAIT).await {
            Ok(view) => view,
            Err(_) => self.service.cluster.view(),
        };
        let push_poll_ms = self.service.options.push_poll_ms;
        let reply = settings::reply(self.sdk, settings, push_poll_ms, |group| traits_of(&view, group));
        TelemetryCommand { status: Some(status::ok()), command: Some(Command::Settings(reply)) }
    }
}

fn traits_of(view: &MetaView, group: &Resource) -> GroupTraits {
    match view.consumer_groups.get(name_of(Some(group)).as_ref()) {
        Some(known) => GroupTraits { fifo: known.fifo, attempts_max: known.attempts_max },
        None => GroupTraits::default(),
    }
}

fn refused(refusal: &Refusal, sdk: Sdk) -> TelemetryCommand {
    TelemetryCommand { status: Some(refusal.status(sdk)), command: None }
}
