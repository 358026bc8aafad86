//! All connections to one peer, and the bound on how often they are made.

use super::transport::{Connection, Transport};
use crate::identity::{PeerClientInterceptor, PeerIdentity};
use crate::peers::PeerAddresses;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use raftmq_model::ids::NodeId;
use raftmq_proto::raft::raft_client::RaftClient;
use raftmq_proto::raft::stamps_client::StampsClient;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;
use tonic::codegen::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

/// A message between peers is not larger.
pub(crate) const MESSAGE_BYTES_MAX: usize = 64 << 20;
/// HTTP/2 window of one stream.
pub(crate) const STREAM_WINDOW_BYTES: u32 = 8 << 20;
/// HTTP/2 window of one connection.
pub(crate) const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;

const CONNECT_TIMEOUT: Duration = Duration::from_millis(300);
/// After a failed connect nobody tries again for this long.
const CONNECT_PAUSE: Duration = Duration::from_millis(50);
/// Connects to one peer in a second, over all its connections and whatever becomes of them.
const CONNECTS_PER_SECOND_MAX: u32 = 30;
/// A connection that does not answer pings is closed: an append stream has no other end when the peer is cut off.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(1);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(3);

/// A connection to a peer whose calls carry this node's identity.
pub type PeerChannel = InterceptedService<Channel, PeerClientInterceptor>;

/// One peer. Its connections are made when they are first used and again after they broke.
pub(crate) struct PeerLink {
    node: NodeId,
    addresses: PeerAddresses,
    identity: PeerIdentity,
    transport: Arc<dyn Transport>,
    gate: Mutex<Gate>,
    refused: AtomicBool,
    attempts_count: AtomicU64,
    channels: Mutex<Channels>,
}

#[derive(Default)]
struct Channels {
    control: Option<Channel>,
    bulk: Option<Channel>,
    snapshot: Option<Channel>,
}

struct Gate {
    closed_until: Instant,
    second: Instant,
    in_second_count: u32,
}

impl PeerLink {
    pub(crate) fn new(
        node: NodeId,
        addresses: PeerAddresses,
        identity: PeerIdentity,
        transport: Arc<dyn Transport>,
    ) -> Arc<PeerLink> {
        let now = Instant::now();
        Arc::new(PeerLink {
            node,
            addresses,
            identity,
            transport,
            gate: Mutex::new(Gate { closed_until: now, second: now, in_second_count: 0 }),
            refused: AtomicBool::new(false),
            attempts_count: AtomicU64::new(0),
            channels: Mutex::default(),
        })
    }

    pub(crate) fn node(&self) -> NodeId {
        self.node
    }

    pub(crate) fn identity(&self) -> &PeerIdentity {
        &self.identity
    }

    /// Votes, heartbeats, hand-overs: never behind bulk.
    pub(crate) fn control(self: &Arc<Self>) -> RaftClient<PeerChannel> {
        self.client(self.control_channel())
    }

    /// Stamps, on the same connection.
    pub(crate) fn stamps(self: &Arc<Self>) -> StampsClient<PeerChannel> {
        StampsClient::with_interceptor(self.control_channel(), self.identity.client(self.node))
    }

    fn control_channel(self: &Arc<Self>) -> Channel {
        self.channels.lock().control.get_or_insert_with(|| self.lazy()).clone()
    }

    /// Log replication.
    pub(crate) fn bulk(self: &Arc<Self>) -> RaftClient<PeerChannel> {
        let channel = self.channels.lock().bulk.get_or_insert_with(|| self.lazy()).clone();
        self.client(channel)
    }

    /// Snapshots, so that they do not delay the logs of other groups.
    pub(crate) fn snapshot(self: &Arc<Self>) -> RaftClient<PeerChannel> {
        let channel = self.channels.lock().snapshot.get_or_insert_with(|| self.lazy()).clone();
        self.client(channel)
    }

    /// A connection for other services.
    pub(crate) fn channel(self: &Arc<Self>) -> PeerChannel {
        InterceptedService::new(self.lazy(), self.identity.client(self.node))
    }

    /// Connects now, whatever the pause says, and answers when that is decided.
    pub(crate) async fn connect_now(self: &Arc<Self>) -> Result<RaftClient<PeerChannel>, tonic::transport::Error> {
        let link = Arc::clone(self);
        let connect = service_fn(move |_| {
            let link = Arc::clone(&link);
            async move { link.open(Gate::count_only).await.map(TokioIo::new) }
        });
        Ok(self.client(endpoint().connect_with_connector(connect).await?))
    }

    /// The last connect was refused by the peer's host: no process listens there.
    pub(crate) fn refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }

    /// Connects tried since the start.
    pub(crate) fn attempts_count(&self) -> u64 {
        self.attempts_count.load(Ordering::Relaxed)
    }

    fn client(&self, channel: Channel) -> RaftClient<PeerChannel> {
        RaftClient::with_interceptor(channel, self.identity.client(self.node))
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX)
    }

    fn lazy(self: &Arc<Self>) -> Channel {
        // Weak: the channel lives in the link.
        let link = Arc::downgrade(self);
        let connect = service_fn(move |_| {
            let link = link.upgrade();
            async move {
                let link = link.ok_or_else(|| io::Error::other("the node is shut down"))?;
                link.open(Gate::pass).await.map(TokioIo::new)
            }
        });
        endpoint().connect_with_connector_lazy(connect)
    }

    async fn open(&self, pass: fn(&mut Gate, Instant) -> bool) -> io::Result<Connection> {
        if !pass(&mut self.gate.lock(), Instant::now()) {
            return Err(io::Error::new(io::ErrorKind::WouldBlock, "the last connect failed a moment ago"));
        }
        self.attempts_count.fetch_add(1, Ordering::Relaxed);
        let result = self.dial().await;
        let refused = matches!(&result, Err(error) if error.kind() == io::ErrorKind::ConnectionRefused);
        self.refused.store(refused, Ordering::Relaxed);
        let now = Instant::now();
        self.gate.lock().closed_until = if result.is_ok() { now } else { now + CONNECT_PAUSE };
        result
    }

    async fn dial(&self) -> io::Result<Connection> {
        let address = self.addresses.get(self.node);
        let address = address.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the peer has no address"))?;
        let connect = tokio::time::timeout(CONNECT_TIMEOUT, self.transport.connect(address));
        connect.await.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "connect timed out"))?
    }
}

impl Gate {
    fn pass(&mut self, now: Instant) -> bool {
        now >= self.closed_until && self.count_only(now) && self.in_second_count <= CONNECTS_PER_SECOND_MAX
    }

    fn count_only(&mut self, now: Instant) -> bool {
        if now.duration_since(self.second) >= Duration::from_secs(1) {
            self.second = now;
            self.in_second_count = 0;
        }
        self.in_second_count = self.in_second_count.saturating_add(1);
        true
    }
}

fn endpoint() -> Endpoint {
    // The connector decides where to connect; the name only fills the `:authority` of calls.
    Endpoint::from_static("http://peer")
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        .keep_alive_while_idle(true)
}
