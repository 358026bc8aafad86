//! What one producer or consumer is to the cluster: a client id, its headers and its telemetry.

use crate::error::ClientError;
use crate::metadata::Headers;
use crate::node::{Node, Nodes};
use crate::options::ClientOptions;
use crate::route::Routes;
use crate::telemetry::{self, Role};
use raftmq_proto::v2;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tonic::Request;

/// Counts sessions of this process, so that client ids differ.
static SESSIONS: AtomicU64 = AtomicU64::new(0);

/// Shared by all sessions of a client.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: ClientOptions,
    pub(crate) endpoints: Vec<String>,
    pub(crate) nodes: Nodes,
    pub(crate) routes: Routes,
    pub(crate) ids: crate::message_id::MessageIds,
}

/// A client id and what belongs to it.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) shared: Arc<Shared>,
    client_id: String,
    headers: Headers,
    role: Role,
    /// Endpoints that have a telemetry task.
    attended: Mutex<BTreeSet<String>>,
    /// Dropped with the session, which ends its tasks.
    alive: tokio::sync::watch::Sender<()>,
}

impl Session {
    pub(crate) fn new(shared: Arc<Shared>, role: Role) -> Session {
        let number = SESSIONS.fetch_add(1, Ordering::Relaxed);
        let nonce: u32 = rand::random();
        let client_id = format!("{}@{}@{number}@{nonce:08x}", shared.options.client_name, std::process::id());
        let headers = shared.headers_of(&client_id);
        Session {
            shared,
            client_id,
            headers,
            role,
            attended: Mutex::new(BTreeSet::new()),
            alive: tokio::sync::watch::Sender::new(()),
        }
    }

    pub(crate) fn client_id(&self) -> &str {
        &self.client_id
    }

    pub(crate) fn options(&self) -> &ClientOptions {
        &self.shared.options
    }

    pub(crate) fn resource(&self, name: &str) -> v2::Resource {
        self.shared.resource(name)
    }

    /// A request with the default deadline.
    pub(crate) fn request<T>(&self, body: T) -> Request<T> {
        self.request_within(body, self.options().request_timeout)
    }

    pub(crate) fn request_within<T>(&self, body: T, timeout: Duration) -> Request<T> {
        self.headers.request(body, Some(timeout))
    }

    /// The endpoints given to the client, from the `turn`-th on.
    pub(crate) fn access_nodes(&self, turn: usize) -> Result<Vec<Arc<Node>>, ClientError> {
        let endpoints = &self.shared.endpoints;
        (0..endpoints.len()).map(|step| self.attend(&endpoints[(turn + step) % endpoints.len()])).collect()
    }

    /// The node of an address; its telemetry is opened with its first use.
    pub(crate) fn attend(&self, address: &str) -> Result<Arc<Node>, ClientError> {
        let node = self.shared.nodes.node(address)?;
        if self.options().telemetry {
            let mut attended = self.attended.lock().unwrap_or_else(PoisonError::into_inner);
            if !attended.contains(address) {
                attended.insert(address.to_owned());
                let task = telemetry::Task {
                    node: node.clone(),
                    headers: self.headers.clone(),
                    role: self.role.clone(),
                    request_timeout: self.options().request_timeout,
                };
                tokio::spawn(task.run(self.alive.subscribe()));
            }
        }
        Ok(node)
    }
}

impl Shared {
    pub(crate) fn resource(&self, name: &str) -> v2::Resource {
        v2::Resource { resource_namespace: self.options.namespace.clone(), name: name.to_owned() }
    }

    fn headers_of(&self, client_id: &str) -> Headers {
        // `Client::connect` has checked that the name and the namespace can be headers.
        Headers::new(client_id, &self.options.namespace).unwrap_or_else(|_| Headers::empty())
    }
}
