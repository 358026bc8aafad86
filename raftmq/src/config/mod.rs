//! A node's configuration file: what it may say, what is left out, what is wrong with it.
//!
//! `default.toml` documents every key and is the list of known keys; a test holds it equal to [`NodeConfig::default`].
//! Every mistake is one sentence that names the file and the key.

mod check;
mod unknown;

use crate::exit::Failure;
use raftmq_store::Durability as StoreDurability;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The commented default file, as `raftmq config default` prints it.
pub(crate) const DEFAULT_FILE: &str = include_str!("default.toml");

/// Everything a node is told. The keys are documented in `default.toml`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct NodeConfig {
    pub(crate) node_id: u32,
    pub(crate) data_dir: PathBuf,
    pub(crate) client_listen: String,
    pub(crate) peer_listen: String,
    pub(crate) admin_listen: String,
    pub(crate) advertised_client_address: String,
    pub(crate) peers: Vec<Peer>,
    pub(crate) segment_bytes_max: u64,
    pub(crate) retention_ms: u64,
    pub(crate) retention_bytes_max: u64,
    pub(crate) purge_when_disk_short: bool,
    pub(crate) key_index: bool,
    pub(crate) durability: Durability,
    pub(crate) auto_create_topics: bool,
    pub(crate) auto_create_consumer_groups: bool,
    pub(crate) topic_queue_count: u32,
    pub(crate) log_level: String,
    pub(crate) tls: Tls,
    pub(crate) limits: Limits,
}

/// One node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Peer {
    /// Its id, from 1.
    pub(crate) id: u32,
    /// `host:port` of its peer port.
    pub(crate) peer: String,
    /// What it does.
    pub(crate) roles: Vec<Role>,
}

/// What a node does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    /// Votes in the meta group.
    Namesrv,
    /// Hosts broker groups.
    Broker,
}

/// When a message counts as stored on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Durability {
    /// It is on disk.
    Fsync,
    /// It is in memory.
    Memory,
}

/// TLS of the client port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Tls {
    pub(crate) certificate_path: PathBuf,
    pub(crate) key_path: PathBuf,
}

/// Bounds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Limits {
    pub(crate) client_connections_count: u32,
    pub(crate) client_handshakes_count: u32,
    pub(crate) client_handshake_ms: u64,
    pub(crate) client_calls_per_connection_count: u32,
    pub(crate) client_request_bytes_max: u64,
    pub(crate) client_in_flight_bytes_max: u64,
    pub(crate) retention_check_ms: u64,
    pub(crate) isolation_ms: u64,
    pub(crate) drain_ms: u64,
    pub(crate) disk_reserve_bytes: u64,
    pub(crate) disk_used_percent_max: u8,
    pub(crate) disk_check_ms: u64,
    pub(crate) scrub_bytes_per_second_max: u64,
    pub(crate) scrub_interval_ms: u64,
    pub(crate) stamp_ms: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            client_connections_count: 10_000,
            client_handshakes_count: 256,
            client_handshake_ms: 5000,
            client_calls_per_connection_count: 4096,
            client_request_bytes_max: 32 << 20,
            client_in_flight_bytes_max: 256 << 20,
            retention_check_ms: 10_000,
            isolation_ms: 1500,
            drain_ms: 5000,
            disk_reserve_bytes: 512 << 20,
            disk_used_percent_max: 100,
            disk_check_ms: 200,
            scrub_bytes_per_second_max: 4 << 20,
            scrub_interval_ms: 3_600_000,
            stamp_ms: 60_000,
        }
    }
}

impl Default for NodeConfig {
    fn default() -> NodeConfig {
        NodeConfig {
            node_id: 1,
            data_dir: PathBuf::from("raftmq-data"),
            client_listen: "127.0.0.1:8081".into(),
            peer_listen: "127.0.0.1:8281".into(),
            admin_listen: "127.0.0.1:8181".into(),
            advertised_client_address: String::new(),
            peers: Vec::new(),
            segment_bytes_max: 1 << 30,
            retention_ms: 72 * 60 * 60 * 1000,
            retention_bytes_max: 0,
            purge_when_disk_short: true,
            key_index: true,
            durability: Durability::Fsync,
            auto_create_topics: false,
            auto_create_consumer_groups: true,
            topic_queue_count: 8,
            log_level: "info".into(),
            tls: Tls::default(),
            limits: Limits::default(),
        }
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Durability::Fsync => "fsync",
            Durability::Memory => "memory",
        })
    }
}

impl From<Durability> for StoreDurability {
    fn from(durability: Durability) -> StoreDurability {
        match durability {
            Durability::Fsync => StoreDurability::Fsync,
            Durability::Memory => StoreDurability::Memory,
        }
    }
}

impl NodeConfig {
    /// Reads and checks a file. Errors: one sentence that begins with the file's name.
    pub(crate) fn load(path: &Path) -> Result<NodeConfig, Failure> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| Failure::usage(format!("{} cannot be read: {error}", path.display())))?;
        NodeConfig::parse(&text).map_err(|sentence| Failure::usage(format!("{}: {sentence}", path.display())))
    }

    /// Reads and checks a file's text. Errors: one sentence.
    pub(crate) fn parse(text: &str) -> Result<NodeConfig, String> {
        let table: toml::Table = text.parse().map_err(|error| toml_sentence(text, &error))?;
        unknown::check(&table)?;
        let mut config: NodeConfig = toml::from_str(text).map_err(|error| toml_sentence(text, &error))?;
        config.fill();
        check::check(&config)?;
        Ok(config)
    }

    /// Puts in what follows from other keys: the one-node cluster and the advertised address.
    fn fill(&mut self) {
        if self.peers.is_empty() {
            let peer = self.peer_listen.clone();
            self.peers.push(Peer { id: self.node_id, peer, roles: vec![Role::Namesrv, Role::Broker] });
        }
        if self.advertised_client_address.is_empty() {
            self.advertised_client_address = self.client_listen.clone();
        }
    }

    /// This node's own line in `peers`; [`check`] made sure that there is one.
    pub(crate) fn own(&self) -> Option<&Peer> {
        self.peers.iter().find(|peer| peer.id == self.node_id)
    }

    /// Whether this node has the role.
    pub(crate) fn has_role(&self, role: Role) -> bool {
        self.own().is_some_and(|peer| peer.roles.contains(&role))
    }

    /// `host:port` of this node's admin port as other machines reach it: the peer address's host when the admin port
    /// listens on a wildcard.
    pub(crate) fn reachable_admin_address(&self) -> String {
        let wildcard = self.admin_listen.parse::<SocketAddr>().is_ok_and(|address| address.ip().is_unspecified());
        match (wildcard, self.own().and_then(|own| own.peer.rsplit_once(':')), self.admin_listen.rsplit_once(':')) {
            (true, Some((host, _)), Some((_, port))) => format!("{host}:{port}"),
            _ => self.admin_listen.clone(),
        }
    }
}

/// A TOML error as one sentence with its line number.
fn toml_sentence(text: &str, error: &toml::de::Error) -> String {
    let line = error.span().map(|span| text.get(..span.start).unwrap_or(text).matches('\n').count() + 1);
    let message = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
    match line {
        Some(line) => format!("line {line}: {message}"),
        None => message,
    }
}

#[cfg(test)]
mod tests;
