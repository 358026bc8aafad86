//! The client port: one listener that speaks gRPC in clear and under TLS, told apart by a connection's first byte.
//!
//! ```text
//! accept -> at most `connections_count_max`, of these `handshakes_count_max` that have not said what they speak
//!   first byte 0x16: TLS handshake (ALPN h2)      else: clear
//!   then the HTTP/2 preface, all of it within `handshake_ms_max`, or the connection is closed
//! -> tonic
//! ```
//! A failure of one connection never stops the listener. Closing cuts every connection at once, with those that are in
//! the middle of a call: that is what makes SDKs move to another node.

mod accept;
mod authority;
mod calls;
mod connection;
#[cfg(test)]
mod tests;
pub(crate) mod tls;

pub(crate) use connection::ClientConnection;

use calls::Calls;

use openssl::ssl::SslAcceptor;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;

/// Connections that finished their handshake and wait for tonic to take them.
const READY_COUNT_MAX: usize = 64;
/// HTTP/2: bytes that one call may send before the server has read them.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
/// HTTP/2: the same for all calls of a connection.
const CONNECTION_WINDOW_BYTES: u32 = 8 << 20;
/// HTTP/2: largest frame that is taken.
const FRAME_BYTES_MAX: u32 = 1 << 20;
/// HTTP/2: headers of one call.
const HEADER_BYTES_MAX: u32 = 64 << 10;
/// A client that sends nothing for this long is asked whether it is there.
const KEEPALIVE_MS: u64 = 60_000;
/// And is cut when it does not answer in time.
const KEEPALIVE_TIMEOUT_MS: u64 = 20_000;
/// How often a draining port looks whether calls still run.
const DRAIN_POLL_MS: u64 = 5;
/// What a draining port leaves, after the last call, for answers to be written.
const DRAIN_GRACE_MS: u64 = 200;
/// How long connections that were cut may take to be gone.
const CUT_MS_MAX: u64 = 2000;

/// Bounds of the client port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientPortLimits {
    /// Connections at one time.
    pub(crate) connections_count_max: usize,
    /// Connections at one time that have not said what they speak.
    pub(crate) handshakes_count_max: usize,
    /// How long a connection may take to say what it speaks, in milliseconds.
    pub(crate) handshake_ms_max: u64,
    /// Calls at one time on one connection.
    pub(crate) calls_count_max: u32,
}

/// How to open the client port; can be opened again after it was closed.
#[derive(Clone)]
pub(crate) struct ClientPort {
    /// Where to listen.
    pub(crate) address: SocketAddr,
    /// Bounds.
    pub(crate) limits: ClientPortLimits,
    /// TLS, with ALPN `h2`.
    pub(crate) tls: SslAcceptor,
}

/// An open client port.
pub(crate) struct OpenClientPort {
    calls: Calls,
    cut: CancellationToken,
    drain: CancellationToken,
    server: tokio::task::JoinHandle<()>,
}

impl ClientPort {
    /// Listens. Errors: those of `bind`.
    pub(crate) async fn listen(&self) -> io::Result<TcpListener> {
        TcpListener::bind(self.address).await
    }

    /// Serves `routes` on the listener until [`OpenClientPort::drain`] or [`OpenClientPort::cut`].
    pub(crate) fn open(&self, listener: TcpListener, routes: tonic::service::Routes) -> OpenClientPort {
        let cut = CancellationToken::new();
        let drain = cut.child_token();
        let (ready, incoming) = mpsc::channel(READY_COUNT_MAX);
        let acceptor = accept::Acceptor::new(self.limits, self.tls.clone(), cut.clone(), ready);
        tokio::spawn(acceptor.run(listener, drain.clone()));
        let stop = drain.clone();
        let limits = self.limits;
        let calls = Calls::default();
        let counted = calls.clone();
        let server = tokio::spawn(async move {
            let served = Server::builder()
                .initial_stream_window_size(STREAM_WINDOW_BYTES)
                .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
                .max_frame_size(FRAME_BYTES_MAX)
                .http2_max_header_list_size(HEADER_BYTES_MAX)
                .max_concurrent_streams(limits.calls_count_max)
                // Deadlines of many calls that pass at one time, as after a pause of this process, are no attack.
                .http2_max_pending_accept_reset_streams(Some(limits.calls_count_max as usize))
                .http2_keepalive_interval(Some(Duration::from_millis(KEEPALIVE_MS)))
                .http2_keepalive_timeout(Some(Duration::from_millis(KEEPALIVE_TIMEOUT_MS)))
                .layer(counted)
                .add_routes(routes)
                .serve_with_incoming_shutdown(ReceiverStream::new(incoming).map_connection(), stop.cancelled_owned())
                .await;
            if let Err(error) = served {
                tracing::error!(%error, "the client port stopped");
            }
        });
        OpenClientPort { calls, cut, drain, server }
    }
}

impl OpenClientPort {
    /// Takes no new connection, tells clients to go away and lets running calls finish, for at most `bound`; then cuts
    /// what is left: telemetry streams and long polls.
    pub(crate) async fn drain(self, bound: Duration) {
        self.drain.cancel();
        let deadline = Instant::now() + bound;
        while !self.server.is_finished() && self.calls.count() > 0 {
            if Instant::now() >= deadline {
                tracing::warn!(calls = self.calls.count(), "client calls still run at the end of the drain time");
                break;
            }
            tokio::time::sleep(Duration::from_millis(DRAIN_POLL_MS)).await;
        }
        // Answers are on their way to the sockets, and a receive that took messages is about to answer.
        let grace = Duration::from_millis(DRAIN_GRACE_MS).min(deadline.saturating_duration_since(Instant::now()));
        tokio::time::sleep(grace).await;
        self.cut().await;
    }

    /// Closes the listener and every connection at once.
    pub(crate) async fn cut(self) {
        self.cut.cancel();
        // The server ends by itself when the listener is closed and its connections are gone; a handler that does not
        // end is of no interest any more.
        let _ = tokio::time::timeout(Duration::from_millis(CUT_MS_MAX), self.server).await;
    }
}

/// `tonic` wants a stream of results.
trait MapConnection {
    fn map_connection(self) -> impl tokio_stream::Stream<Item = io::Result<ClientConnection>> + Send;
}

impl MapConnection for ReceiverStream<ClientConnection> {
    fn map_connection(self) -> impl tokio_stream::Stream<Item = io::Result<ClientConnection>> + Send {
        tokio_stream::StreamExt::map(self, Ok)
    }
}
