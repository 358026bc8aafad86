//! The peer port from its first moment on: stamps are answered at once, all other calls wait until the node has opened its
//! groups.
//!
//! They wait, as they would for a socket that nobody accepts on yet: to a caller a node that starts is one that is slow, and
//! its own deadline decides.

use crate::identity::PeerServerInterceptor;
use crate::network::MESSAGE_BYTES_MAX;
use crate::service::RaftService;
use crate::stamps::StampService;
use futures::future::BoxFuture;
use http::{Request, Response};
use raftmq_proto::raft::raft_server::RaftServer;
use raftmq_proto::raft::stamps_server::StampsServer;
use std::convert::Infallible;
use std::task::{Context, Poll};
use tokio::sync::watch;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{InterceptedService, Service};
use tonic::server::NamedService;
use tonic::service::Routes;

/// A peer port on which only stamps are answered yet.
#[must_use = "calls wait until it is opened"]
pub struct PeerPort {
    services: watch::Sender<Option<Routes>>,
    raft: Raft,
}

type Raft = InterceptedService<RaftServer<RaftService>, PeerServerInterceptor>;

impl PeerPort {
    pub(crate) fn new(stamps: StampService, raft: RaftService) -> (PeerPort, Gate) {
        let (services, opened) = watch::channel(None);
        let check = stamps.identity.server();
        let raft = RaftServer::new(raft)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        let raft = InterceptedService::new(raft, check.clone());
        let stamps = Routes::new(InterceptedService::new(StampsServer::new(stamps), check));
        (PeerPort { services, raft }, Gate { stamps, opened })
    }

    /// Serves Raft and `extra`, whose handlers run on the Raft runtime too and so must not block it. The extra services check
    /// who calls by themselves: [`crate::RaftNode::identity`].
    pub fn open(self, extra: Routes) {
        self.services.send_replace(Some(extra.add_service(self.raft)));
    }
}

/// What serves the port.
#[derive(Clone)]
pub(crate) struct Gate {
    stamps: Routes,
    opened: watch::Receiver<Option<Routes>>,
}

impl Service<Request<Body>> for Gate {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let service = request.uri().path().split('/').nth(1);
        if service == Some(StampsServer::<StampService>::NAME) {
            return Box::pin(self.stamps.call(request));
        }
        let mut opened = self.opened.clone();
        Box::pin(async move {
            let services = opened.wait_for(Option::is_some).await.ok().and_then(|services| services.clone());
            match services {
                Some(mut services) => services.call(request).await,
                None => Ok(Status::unavailable("the node ends").into_http()),
            }
        })
    }
}
