//! The gRPC service `raftmq.meta.v1.Meta`, for peers and for the own node.
//!
//! `Watch` is served from the own replica, which may lag. `Propose`, `Heartbeat` and `Read` are decided by the leader;
//! any namesrv node takes them and passes them on.

mod route;
mod watch;

pub use route::FORWARDED;
pub(crate) use route::Route;

use crate::runtime::Hub;
use bytes::Bytes;
use prost::Message;
use raftmq_model::meta::MetaCommand;
use raftmq_proto::meta::meta_server::{Meta, MetaServer};
use raftmq_proto::meta::{
    HeartbeatReply, HeartbeatRequest, ProposeReply, ProposeRequest, ReadRequest, WatchEvent, WatchRequest,
};
use route::Call;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tonic::{Request, Response, Status};

/// A full copy of the state is one message, which must fit.
pub const MESSAGE_BYTES_MAX: usize = 64 << 20;
/// One command.
pub const COMMAND_BYTES_MAX: usize = 1 << 20;
/// Calls under way at a time, streams apart.
pub const CALL_COUNT_MAX: usize = 1024;
/// Watch streams at a time.
pub const WATCHER_COUNT_MAX: usize = 1024;
/// A proposal is held for at most this long, whatever the caller asks for.
pub const PROPOSE_TIMEOUT_MS_MAX: u32 = 60_000;
/// How long a proposal without a timeout is held.
pub const PROPOSE_TIMEOUT_MS_DEFAULT: u32 = 5_000;
/// How long a read is held.
pub const READ_TIMEOUT_MS: u32 = 5_000;
/// How long a heartbeat is held: it is soft state, and the next one comes.
pub const HEARTBEAT_TIMEOUT_MS: u32 = 500;

/// The service. Clones share everything.
#[derive(Clone)]
pub struct MetaService {
    route: Arc<Route>,
    hub: Arc<Hub>,
    calls: Arc<Semaphore>,
    watchers: Arc<Semaphore>,
}

impl MetaService {
    pub(crate) fn new(route: Arc<Route>, hub: Arc<Hub>) -> MetaService {
        let calls = Arc::new(Semaphore::new(CALL_COUNT_MAX));
        MetaService { route, hub, calls, watchers: Arc::new(Semaphore::new(WATCHER_COUNT_MAX)) }
    }

    /// The service as something that a gRPC server takes.
    #[must_use]
    pub fn into_server(self) -> MetaServer<MetaService> {
        MetaServer::new(self)
            .max_decoding_message_size(COMMAND_BYTES_MAX + 1024)
            .max_encoding_message_size(MESSAGE_BYTES_MAX)
    }

    async fn at_leader<T>(&self, request: &Request<T>, call: Call, timeout_ms: u32) -> Result<Bytes, Status> {
        let Ok(_permit) = self.calls.try_acquire() else {
            return Err(Status::resource_exhausted(format!("more than {CALL_COUNT_MAX} calls of the meta group")));
        };
        let deadline = Instant::now() + Duration::from_millis(timeout_ms.into());
        let forwarded = request.metadata().contains_key(FORWARDED);
        self.route.at_leader(call, forwarded, deadline).await
    }
}

#[tonic::async_trait]
impl Meta for MetaService {
    type WatchStream = watch::WatchStream;

    async fn watch(&self, _: Request<WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let Ok(permit) = Arc::clone(&self.watchers).try_acquire_owned() else {
            return Err(Status::resource_exhausted(format!("more than {WATCHER_COUNT_MAX} watch streams")));
        };
        Ok(Response::new(watch::stream(self.hub.watch(), permit)))
    }

    async fn propose(&self, request: Request<ProposeRequest>) -> Result<Response<ProposeReply>, Status> {
        let ProposeRequest { command, timeout_ms } = request.get_ref().clone();
        check_command(&command)?;
        let timeout_ms = match timeout_ms {
            0 => PROPOSE_TIMEOUT_MS_DEFAULT,
            asked => asked.min(PROPOSE_TIMEOUT_MS_MAX),
        };
        let outcome = self.at_leader(&request, Call::Propose(command), timeout_ms).await?;
        Ok(Response::new(ProposeReply { outcome }))
    }

    async fn heartbeat(&self, request: Request<HeartbeatRequest>) -> Result<Response<HeartbeatReply>, Status> {
        let call = Call::Heartbeat(request.get_ref().node_id);
        self.at_leader(&request, call, HEARTBEAT_TIMEOUT_MS).await?;
        Ok(Response::new(HeartbeatReply {}))
    }

    async fn read(&self, request: Request<ReadRequest>) -> Result<Response<WatchEvent>, Status> {
        let change = self.at_leader(&request, Call::Read, READ_TIMEOUT_MS).await?;
        Ok(Response::new(WatchEvent { change }))
    }
}

/// A command that this version cannot read never gets into the log from here.
fn check_command(command: &Bytes) -> Result<(), Status> {
    if command.len() > COMMAND_BYTES_MAX {
        return Err(Status::invalid_argument(format!("a meta command has at most {COMMAND_BYTES_MAX} bytes")));
    }
    match MetaCommand::decode(command.clone()) {
        Ok(MetaCommand { op: Some(_) }) => Ok(()),
        Ok(MetaCommand { op: None }) => {
            Err(Status::invalid_argument("the meta command is empty or of a newer version"))
        }
        Err(error) => Err(Status::invalid_argument(format!("this is no meta command: {error}"))),
    }
}
