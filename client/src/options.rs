//! Options of a client.

use crate::connector::Connector;
use std::time::Duration;

/// How a client behaves. All durations are bounds of one step, not of a whole call.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Talk to the given endpoints only and never ask for routes.
    pub direct: bool,
    /// Connections to each endpoint, used in turn; at least 1.
    pub connections_per_endpoint: usize,
    /// Bound of one connection attempt.
    pub connect_timeout: Duration,
    /// Deadline of one attempt of a call, told to the server; receives add their long poll to it.
    pub request_timeout: Duration,
    /// Most attempts of a call, the first included; at least 1.
    pub attempts_max: u32,
    /// Wait before an endpoint is asked again; doubles up to `backoff_max`.
    pub backoff_initial: Duration,
    /// Longest wait between attempts.
    pub backoff_max: Duration,
    /// For how long other endpoints are preferred to one that could not be reached.
    pub isolation: Duration,
    /// How old a route may grow before it is asked for again.
    pub route_age_max: Duration,
    /// How long a receive waits at the server for a first message; the server may clamp it.
    pub await_duration: Duration,
    /// HTTP/2 pings on connections with calls; none by default since some servers punish frequent pings.
    pub keep_alive_interval: Option<Duration>,
    /// How to connect; none: TCP.
    pub connector: Option<Connector>,
    /// Namespace of topics and groups; empty is the default one.
    pub namespace: String,
    /// Begins each client id, before what makes it unique.
    pub client_name: String,
    /// Open the telemetry stream and send heartbeats, as official SDKs do. raftmq serves every call without.
    pub telemetry: bool,
}

impl Default for ClientOptions {
    fn default() -> ClientOptions {
        ClientOptions {
            direct: false,
            connections_per_endpoint: 1,
            connect_timeout: Duration::from_secs(1),
            request_timeout: Duration::from_secs(3),
            attempts_max: 5,
            backoff_initial: Duration::from_millis(20),
            backoff_max: Duration::from_secs(1),
            isolation: Duration::from_secs(1),
            route_age_max: Duration::from_secs(30),
            await_duration: Duration::from_secs(15),
            keep_alive_interval: None,
            connector: None,
            namespace: String::new(),
            client_name: "raftmq".to_owned(),
            telemetry: true,
        }
    }
}
