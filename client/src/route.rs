//! Routes: which endpoints serve a topic.

use crate::attempts::Attempts;
use crate::error::{ClientError, check};
use crate::node::Node;
use crate::session::Session;
use raftmq_model::ids::QueueId;
use raftmq_model::placement::rendezvous;
use raftmq_proto::v2::{self, Permission};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Queues of one topic, as the cluster shows them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Route {
    writable: Vec<Lane>,
    readable: Vec<Lane>,
}

/// One queue and the addresses of its broker.
#[derive(Clone, Debug)]
pub(crate) struct Lane {
    pub(crate) queue: v2::MessageQueue,
    addresses: Vec<String>,
}

impl Route {
    fn from_wire(queues: Vec<v2::MessageQueue>) -> Route {
        let mut route = Route::default();
        for queue in queues {
            let permission = Permission::try_from(queue.permission).unwrap_or(Permission::Unspecified);
            let addresses = addresses_of(&queue);
            if addresses.is_empty() {
                continue;
            }
            let lane = Lane { queue, addresses };
            if matches!(permission, Permission::Write | Permission::ReadWrite) {
                route.writable.push(lane.clone());
            }
            if matches!(permission, Permission::Read | Permission::ReadWrite) {
                route.readable.push(lane);
            }
        }
        route
    }

    /// The lane to send on: the message group's own, else the one whose turn it is.
    fn write_at(&self, group: Option<&str>, turn: usize) -> Option<usize> {
        let count = self.writable.len();
        match group {
            Some(group) => rendezvous(group.as_bytes(), (0..count as u32).map(QueueId)).map(|lane| lane.0 as usize),
            None => turn.checked_rem(count),
        }
    }
}

fn addresses_of(queue: &v2::MessageQueue) -> Vec<String> {
    let endpoints = queue.broker.as_ref().and_then(|broker| broker.endpoints.as_ref());
    let addresses = endpoints.map(|endpoints| endpoints.addresses.as_slice()).unwrap_or_default();
    addresses
        .iter()
        .map(|address| match address.host.contains(':') {
            true => format!("[{}]:{}", address.host.trim_matches(['[', ']']), address.port),
            false => format!("{}:{}", address.host, address.port),
        })
        .collect()
}

/// Routes by topic, each with the time it was asked for.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    by_topic: Mutex<BTreeMap<String, (Instant, Arc<Route>)>>,
}

impl Routes {
    fn cached(&self, topic: &str) -> Option<(Instant, Arc<Route>)> {
        self.by_topic.lock().unwrap_or_else(PoisonError::into_inner).get(topic).cloned()
    }

    fn put(&self, topic: &str, route: Arc<Route>) {
        let mut routes = self.by_topic.lock().unwrap_or_else(PoisonError::into_inner);
        routes.insert(topic.to_owned(), (Instant::now(), route));
    }
}

impl Session {
    /// Nodes to send to, best first, and the queue to name.
    pub(crate) async fn nodes_to_send(
        &self,
        topic: &str,
        group: Option<&str>,
        turn: usize,
    ) -> Result<(Vec<Arc<Node>>, v2::MessageQueue), ClientError> {
        if self.options().direct {
            return self.direct(topic, turn);
        }
        let route = self.route(topic).await?;
        let at = route.write_at(group, turn).ok_or_else(|| ClientError::NoQueue(topic.to_owned()))?;
        self.nodes_from(&route.writable, at)
    }

    /// Nodes to receive from, best first, and the queue to name.
    pub(crate) async fn nodes_to_receive(
        &self,
        topic: &str,
        turn: usize,
    ) -> Result<(Vec<Arc<Node>>, v2::MessageQueue), ClientError> {
        if self.options().direct {
            return self.direct(topic, turn);
        }
        let route = self.route(topic).await?;
        let at = turn.checked_rem(route.readable.len()).ok_or_else(|| ClientError::NoQueue(topic.to_owned()))?;
        self.nodes_from(&route.readable, at)
    }

    fn direct(&self, topic: &str, turn: usize) -> Result<(Vec<Arc<Node>>, v2::MessageQueue), ClientError> {
        let queue = v2::MessageQueue { topic: Some(self.resource(topic)), ..v2::MessageQueue::default() };
        Ok((self.access_nodes(turn)?, queue))
    }

    /// The nodes of the lane at `at`, then those of the lanes after it, each once.
    fn nodes_from(&self, lanes: &[Lane], at: usize) -> Result<(Vec<Arc<Node>>, v2::MessageQueue), ClientError> {
        let mut nodes: Vec<Arc<Node>> = Vec::new();
        let in_turn = lanes[at..].iter().chain(&lanes[..at]);
        for address in in_turn.flat_map(|lane| &lane.addresses) {
            if !nodes.iter().any(|node| node.address() == address) {
                nodes.push(self.attend(address)?);
            }
        }
        Ok((nodes, lanes[at].queue.clone()))
    }

    /// The route of a topic. An old one is asked for again, and kept when nobody answers.
    async fn route(&self, topic: &str) -> Result<Arc<Route>, ClientError> {
        let cached = self.shared.routes.cached(topic);
        if let Some((asked_at, route)) = &cached
            && asked_at.elapsed() < self.options().route_age_max
        {
            return Ok(route.clone());
        }
        match (self.query_route(topic).await, cached) {
            (Ok(route), _) => {
                let route = Arc::new(route);
                self.shared.routes.put(topic, route.clone());
                Ok(route)
            }
            (Err(error), Some((_, route))) if error.is_retryable() => {
                self.shared.routes.put(topic, route.clone());
                Ok(route)
            }
            (Err(error), _) => Err(error),
        }
    }

    async fn query_route(&self, topic: &str) -> Result<Route, ClientError> {
        let mut attempts = Attempts::new(self.options(), self.access_nodes(0)?);
        let mut last = ClientError::NoQueue(topic.to_owned());
        while let Some(node) = attempts.next().await {
            match self.query_route_at(&node, topic).await {
                Ok(route) => {
                    node.answered();
                    return Ok(route);
                }
                Err(error) => {
                    let again = attempts.failed(&node, &error);
                    last = error;
                    if !again {
                        break;
                    }
                }
            }
        }
        Err(last)
    }

    async fn query_route_at(&self, node: &Node, topic: &str) -> Result<Route, ClientError> {
        let request = v2::QueryRouteRequest { topic: Some(self.resource(topic)), endpoints: Some(self.access_point()) };
        let answer = node.stub().query_route(self.request(request)).await;
        let answer = answer.map_err(|status| ClientError::from_grpc(node.address(), &status))?.into_inner();
        check(answer.status)?;
        Ok(Route::from_wire(answer.message_queues))
    }

    /// The given endpoints, as the API writes them.
    fn access_point(&self) -> v2::Endpoints {
        let mut scheme = v2::AddressScheme::IPv4;
        let mut addresses = Vec::new();
        for endpoint in &self.shared.endpoints {
            let Some((host, port)) = endpoint.rsplit_once(':') else { continue };
            let host = host.trim_matches(['[', ']']);
            match host.parse() {
                Ok(std::net::IpAddr::V4(_)) => {}
                Ok(std::net::IpAddr::V6(_)) => scheme = v2::AddressScheme::IPv6,
                Err(_) => scheme = v2::AddressScheme::DomainName,
            }
            addresses.push(v2::Address { host: host.to_owned(), port: port.parse().unwrap_or(0) });
        }
        v2::Endpoints { scheme: scheme as i32, addresses }
    }
}
