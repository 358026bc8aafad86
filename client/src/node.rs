//! Endpoints and the connections to them.

use crate::connector::endpoint;
use crate::error::ClientError;
use crate::options::ClientOptions;
use raftmq_proto::v2::messaging_service_client::MessagingServiceClient;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tonic::transport::Channel;

const STREAM_WINDOW_BYTES: u32 = 8 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;
/// Largest message that a server may send.
const INBOUND_BYTES_MAX: usize = 130 << 20;

pub(crate) type Stub = MessagingServiceClient<Channel>;

/// One endpoint.
#[derive(Debug)]
pub(crate) struct Node {
    address: String,
    stubs: Vec<Stub>,
    next: AtomicUsize,
    born: Instant,
    /// Milliseconds after `born` until which other nodes are better.
    isolated_until_ms: AtomicU64,
}

impl Node {
    fn open(address: &str, options: &ClientOptions) -> Result<Node, ClientError> {
        let mut endpoint = endpoint(address)?
            .tcp_nodelay(true)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .connect_timeout(options.connect_timeout);
        if let Some(interval) = options.keep_alive_interval {
            endpoint = endpoint.http2_keep_alive_interval(interval).keep_alive_timeout(interval);
        }
        let stubs = (0..options.connections_per_endpoint.max(1))
            .map(|_| {
                let channel = match &options.connector {
                    Some(connector) => connector.lazy(&endpoint, address),
                    None => endpoint.connect_lazy(),
                };
                Stub::new(channel).max_decoding_message_size(INBOUND_BYTES_MAX)
            })
            .collect();
        Ok(Node {
            address: address.to_owned(),
            stubs,
            next: AtomicUsize::new(0),
            born: Instant::now(),
            isolated_until_ms: AtomicU64::new(0),
        })
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// A stub on the connection whose turn it is.
    pub(crate) fn stub(&self) -> Stub {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        self.stubs[turn % self.stubs.len()].clone()
    }

    pub(crate) fn isolate(&self, isolation: Duration) {
        let until = self.born.elapsed() + isolation;
        self.isolated_until_ms.store(until.as_millis() as u64, Ordering::Relaxed);
    }

    pub(crate) fn answered(&self) {
        if self.isolated_until_ms.load(Ordering::Relaxed) != 0 {
            self.isolated_until_ms.store(0, Ordering::Relaxed);
        }
    }

    pub(crate) fn is_isolated(&self) -> bool {
        let until = self.isolated_until_ms.load(Ordering::Relaxed);
        until != 0 && (self.born.elapsed().as_millis() as u64) < until
    }
}

/// Checks `host:port`; a scheme in front is taken off.
pub(crate) fn address_of(text: &str) -> Result<String, ClientError> {
    let address = text.trim().trim_start_matches("http://").trim_end_matches('/');
    let port = address.rsplit_once(':').and_then(|(host, port)| (!host.is_empty()).then_some(port));
    match port.map(str::parse::<u16>) {
        Some(Ok(_)) => endpoint(address).map(|_| address.to_owned()),
        _ => Err(ClientError::Endpoint(text.to_owned())),
    }
}

/// All endpoints that a client knows. It only grows, by the brokers of routes.
#[derive(Debug)]
pub(crate) struct Nodes {
    options: ClientOptions,
    by_address: Mutex<BTreeMap<String, Arc<Node>>>,
}

impl Nodes {
    pub(crate) fn new(options: ClientOptions) -> Nodes {
        Nodes { options, by_address: Mutex::new(BTreeMap::new()) }
    }

    /// The node of an address, opened on first use. Connecting happens with the first call.
    pub(crate) fn node(&self, address: &str) -> Result<Arc<Node>, ClientError> {
        let mut nodes = self.by_address.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(node) = nodes.get(address) {
            return Ok(node.clone());
        }
        let node = Arc::new(Node::open(address, &self.options)?);
        nodes.insert(address.to_owned(), node.clone());
        Ok(node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints() {
        assert_eq!(address_of("http://localhost:8081/").unwrap(), "localhost:8081");
        assert_eq!(address_of("[::1]:8081").unwrap(), "[::1]:8081");
        for bad in ["", "localhost", ":1", "localhost:x", "a b:1", "localhost:70000"] {
            assert!(matches!(address_of(bad), Err(ClientError::Endpoint(_))), "{bad}");
        }
    }

    #[tokio::test]
    async fn isolation_ends() {
        let nodes = Nodes::new(ClientOptions::default());
        let node = nodes.node("localhost:1").unwrap();
        assert!(!node.is_isolated());
        node.isolate(Duration::from_secs(60));
        assert!(node.is_isolated());
        node.answered();
        assert!(!node.is_isolated());
        assert!(Arc::ptr_eq(&node, &nodes.node("localhost:1").unwrap()));
    }
}
