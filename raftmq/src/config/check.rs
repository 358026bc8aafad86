//! What the values of a configuration must satisfy, each mistake as one sentence that names the key.

use super::{Limits, NodeConfig, Role};
use std::collections::BTreeSet;
use std::net::SocketAddr;

const SEGMENT_BYTES_MIN: u64 = 16 << 20;
const SEGMENT_BYTES_MAX: u64 = 2 << 30;
const TOPIC_QUEUE_COUNT_MAX: u32 = 1024;
const REQUEST_BYTES_MIN: u64 = 1 << 20;
const REQUEST_BYTES_MAX: u64 = 130 << 20;
const IN_FLIGHT_BYTES_MAX: u64 = 64 << 30;
const TIME_MS_MAX: u64 = 600_000;
const DISK_RESERVE_BYTES_MAX: u64 = 1 << 40;
/// A scrubber that reads more takes what readers and writers need.
const SCRUB_BYTES_MAX: u64 = 1 << 30;
/// Thirty days.
const SCRUB_INTERVAL_MS_MAX: u64 = 30 * 24 * 3_600_000;
/// Each time, every node writes a small file.
const STAMP_MS_MIN: u64 = 10;
const STAMP_MS_MAX: u64 = 600_000;
const DISK_CHECK_MS_MIN: u64 = 10;
const DISK_CHECK_MS_MAX: u64 = 60_000;
const NODES_MAX: usize = 64;

/// Checks a configuration whose derived keys are filled in.
pub(super) fn check(config: &NodeConfig) -> Result<(), String> {
    listens(config)?;
    peers(config)?;
    range("segment_bytes_max", config.segment_bytes_max, SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX)?;
    range("topic_queue_count", u64::from(config.topic_queue_count), 1, u64::from(TOPIC_QUEUE_COUNT_MAX))?;
    if config.data_dir.as_os_str().is_empty() {
        return Err("data_dir must not be empty".into());
    }
    if config.tls.certificate_path.as_os_str().is_empty() != config.tls.key_path.as_os_str().is_empty() {
        return Err("tls.certificate_path and tls.key_path must be set both or neither".into());
    }
    config
        .log_level
        .parse::<tracing_subscriber::EnvFilter>()
        .map_err(|error| format!("log_level \"{}\" is not a filter: {error}", config.log_level))?;
    limits(&config.limits)
}

fn limits(limits: &Limits) -> Result<(), String> {
    range("limits.client_connections_count", u64::from(limits.client_connections_count), 1, 1_000_000)?;
    range("limits.client_handshakes_count", u64::from(limits.client_handshakes_count), 1, 100_000)?;
    range("limits.client_handshake_ms", limits.client_handshake_ms, 1, TIME_MS_MAX)?;
    range(
        "limits.client_calls_per_connection_count",
        u64::from(limits.client_calls_per_connection_count),
        1,
        1_000_000,
    )?;
    range("limits.client_request_bytes_max", limits.client_request_bytes_max, REQUEST_BYTES_MIN, REQUEST_BYTES_MAX)?;
    let in_flight = limits.client_in_flight_bytes_max;
    range("limits.client_in_flight_bytes_max", in_flight, limits.client_request_bytes_max, IN_FLIGHT_BYTES_MAX)?;
    range("limits.retention_check_ms", limits.retention_check_ms, 100, TIME_MS_MAX)?;
    range("limits.isolation_ms", limits.isolation_ms, 0, TIME_MS_MAX)?;
    range("limits.drain_ms", limits.drain_ms, 0, TIME_MS_MAX)?;
    range("limits.disk_reserve_bytes", limits.disk_reserve_bytes, 0, DISK_RESERVE_BYTES_MAX)?;
    range("limits.disk_used_percent_max", u64::from(limits.disk_used_percent_max), 1, 100)?;
    range("limits.disk_check_ms", limits.disk_check_ms, DISK_CHECK_MS_MIN, DISK_CHECK_MS_MAX)?;
    range("limits.scrub_bytes_per_second_max", limits.scrub_bytes_per_second_max, 0, SCRUB_BYTES_MAX)?;
    range("limits.scrub_interval_ms", limits.scrub_interval_ms, 0, SCRUB_INTERVAL_MS_MAX)?;
    range("limits.stamp_ms", limits.stamp_ms, STAMP_MS_MIN, STAMP_MS_MAX)
}

fn range(key: &str, value: u64, min: u64, max: u64) -> Result<(), String> {
    if (min..=max).contains(&value) { Ok(()) } else { Err(format!("{key} is {value}, it must be {min} to {max}")) }
}

fn listens(config: &NodeConfig) -> Result<(), String> {
    let keys = [
        ("client_listen", &config.client_listen),
        ("peer_listen", &config.peer_listen),
        ("admin_listen", &config.admin_listen),
    ];
    let mut seen = BTreeSet::new();
    for (key, value) in keys {
        let address: SocketAddr = value
            .parse()
            .map_err(|_| format!("{key} is \"{value}\", it must be an address and port such as 0.0.0.0:8081"))?;
        if address.port() == 0 {
            return Err(format!("{key} is \"{value}\", its port must not be 0"));
        }
        if !seen.insert(address) {
            return Err(format!("{key} is \"{value}\", which another port of this node uses too"));
        }
    }
    host_and_port("advertised_client_address", &config.advertised_client_address)?;
    if config.advertised_client_address.parse::<SocketAddr>().is_ok_and(|address| address.ip().is_unspecified()) {
        return Err(format!(
            "advertised_client_address must be set to what clients can connect to, since client_listen is the wildcard {}",
            config.client_listen
        ));
    }
    Ok(())
}

fn host_and_port(key: &str, value: &str) -> Result<(), String> {
    let valid = value
        .rsplit_once(':')
        .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port != 0));
    if valid { Ok(()) } else { Err(format!("{key} is \"{value}\", it must be host:port")) }
}

fn peers(config: &NodeConfig) -> Result<(), String> {
    let mut ids = BTreeSet::new();
    let mut addresses = BTreeSet::new();
    for peer in &config.peers {
        if peer.id == 0 {
            return Err("peers has a node with id 0, ids count from 1".into());
        }
        if !ids.insert(peer.id) {
            return Err(format!("peers has two nodes with id {}", peer.id));
        }
        host_and_port(&format!("peers: the address of node {}", peer.id), &peer.peer)?;
        if !addresses.insert(peer.peer.as_str()) {
            return Err(format!("peers has two nodes at {}", peer.peer));
        }
        if peer.roles.is_empty() {
            return Err(format!("peers: node {} has no role, give it \"namesrv\", \"broker\" or both", peer.id));
        }
    }
    if config.own().is_none() {
        return Err(format!("node_id is {}, but peers has no node with that id", config.node_id));
    }
    if config.peers.len() > NODES_MAX {
        return Err(format!("peers has {} nodes, at most {NODES_MAX} are possible", config.peers.len()));
    }
    let namesrvs = config.peers.iter().filter(|peer| peer.roles.contains(&Role::Namesrv)).count();
    if ![1, 3, 5].contains(&namesrvs) {
        return Err(format!("peers has {namesrvs} nodes with the role \"namesrv\", there must be 1, 3 or 5"));
    }
    if !config.peers.iter().any(|peer| peer.roles.contains(&Role::Broker)) {
        return Err("peers has no node with the role \"broker\"".into());
    }
    Ok(())
}
