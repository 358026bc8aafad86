//! Connections to the client ports of a cluster.

use crate::admin_client::endpoint;
use crate::exit::Failure;
use raftmq_proto::metadata;
use raftmq_proto::v2::messaging_service_client::MessagingServiceClient;
use raftmq_proto::v2::{Code, MessageQueue, QueryRouteRequest, Resource, Status};
use std::time::Duration;
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;

/// How long a connection attempt may take.
const CONNECT_MS: u64 = 1000;
/// Largest answer that is taken.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// HTTP/2: bytes that one answer, and all answers together, may carry before they are read.
const WINDOW_BYTES: u32 = 8 << 20;

/// A client of the public API.
pub(crate) type Client = MessagingServiceClient<Channel>;

/// One connection to each endpoint, made when it is first used and again whenever it is lost.
#[derive(Clone)]
pub(crate) struct Endpoints {
    clients: Vec<Client>,
}

impl Endpoints {
    /// Lazy connections to `addresses` (`host:port`, at least one).
    pub(crate) fn new(addresses: &[String]) -> Result<Endpoints, Failure> {
        let connect = |address: &String| {
            let endpoint = endpoint(address).map_err(Failure::usage)?;
            let channel = endpoint
                .connect_timeout(Duration::from_millis(CONNECT_MS))
                .initial_stream_window_size(WINDOW_BYTES)
                .initial_connection_window_size(WINDOW_BYTES)
                .connect_lazy();
            Ok(Client::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX))
        };
        let clients = addresses.iter().map(connect).collect::<Result<Vec<_>, Failure>>()?;
        if clients.is_empty() { Err(Failure::usage("there is no endpoint")) } else { Ok(Endpoints { clients }) }
    }

    /// The endpoint of the n-th attempt; they take turns.
    pub(crate) fn nth(&self, attempt: usize) -> Client {
        self.clients[attempt % self.clients.len()].clone()
    }

    /// The queues of a topic as a route tells them. Error: a sentence.
    pub(crate) async fn route(&self, topic: &str) -> Result<Vec<MessageQueue>, Failure> {
        let mut last = Failure::unreachable("no node answers");
        for attempt in 0..self.clients.len() {
            let body = QueryRouteRequest { topic: Some(resource(topic)), endpoints: None };
            match self.nth(attempt).query_route(request(body, Duration::from_secs(5))).await {
                Ok(reply) => {
                    let reply = reply.into_inner();
                    ok(reply.status.as_ref()).map_err(|sentence| refused(topic, reply.status.as_ref(), &sentence))?;
                    return Ok(reply.message_queues);
                }
                Err(status) => last = status.into(),
            }
        }
        Err(last)
    }
}

fn refused(topic: &str, status: Option<&Status>, sentence: &str) -> Failure {
    let sentence = format!("the route of topic {topic} is refused: {sentence}");
    match status.map(|status| status.code) {
        Some(code) if code == Code::TopicNotFound as i32 => Failure::not_found(sentence),
        _ => Failure::refused(sentence),
    }
}

/// A request with the metadata that the public API asks for, and a deadline.
pub(crate) fn request<T>(body: T, timeout: Duration) -> tonic::Request<T> {
    let mut request = tonic::Request::new(body);
    request.set_timeout(timeout);
    let headers = request.metadata_mut();
    headers.insert(metadata::CLIENT_ID, MetadataValue::from_static("raftmq-load"));
    headers.insert(metadata::LANGUAGE, MetadataValue::from_static("RUST"));
    headers.insert(metadata::CLIENT_VERSION, MetadataValue::from_static(env!("CARGO_PKG_VERSION")));
    request
}

/// A topic or group in the default namespace.
pub(crate) fn resource(name: &str) -> Resource {
    Resource { resource_namespace: String::new(), name: name.to_string() }
}

/// Whether a status says OK. Error: what it says.
pub(crate) fn ok(status: Option<&Status>) -> Result<(), String> {
    match status {
        Some(status) if status.code == Code::Ok as i32 => Ok(()),
        Some(status) => {
            let name = Code::try_from(status.code).map_or("unknown code", |code| code.as_str_name());
            Err(format!("{name} ({}): {}", status.code, status.message))
        }
        None => Err("an answer without a status".into()),
    }
}
