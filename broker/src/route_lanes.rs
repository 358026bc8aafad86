//! The lanes of a route: virtual broker names, each with the addresses with which an SDK fails over best.
//!
//! Every node serves every call, so which node a client talks to is only a matter of fail-over. SDKs differ in what they
//! do with several addresses of one broker name and with several broker names, so each gets its own [`Layout`]:
//!
//! ```text
//! nodes n1 n2 n3     lane 1          lane 2          lane 3
//! Rotated   (R)      n1 n2 n3        n2 n3 n1        n3 n1 n2        Java, C++
//! Pairs     (P)      n1 n2           n2 n3           n3 n1           Go
//! Suffixes  (S3)     n1 n2 n3        n2 n3           n3              Python (sorted as strings of host:port)
//! Single    (B)      n1              n2              n3              Node
//! One       (A)      n1 n2 n3                                        Rust, unknown
//! ```
//!
//! A lane is named after the node of its first address, so a lane that goes away does not rename the others. Lanes of
//! several addresses never change while the nodes of the cluster do not: a changed list is a new connection and a new
//! telemetry stream in most SDKs. Lanes of one address go away while their node is dead.

use crate::clients::Sdk;
use raftmq_proto::v2;
use std::net::IpAddr;

/// Lanes are laid over at most this many nodes.
pub const LANE_NODES_COUNT_MAX: usize = 5;

/// A node as clients reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneNode {
    /// Node id.
    pub id: u32,
    /// `host:port`, IPv6 hosts in brackets.
    pub address: String,
    /// Whether the cluster thinks that it lives.
    pub alive: bool,
}

/// One virtual broker name.
#[derive(Clone, Debug, PartialEq)]
pub struct Lane {
    /// The broker name.
    pub name: String,
    /// Where it is reached.
    pub endpoints: v2::Endpoints,
    /// Whether at least one of its nodes lives.
    pub alive: bool,
}

/// How lanes are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// All nodes in each lane, the order rotated.
    Rotated,
    /// Neighbours on a ring.
    Pairs,
    /// Suffixes of the sorted list.
    Suffixes,
    /// One node in each lane.
    Single,
    /// One lane with all nodes.
    One,
}

impl Layout {
    /// The layout for an SDK. It holds for every version published so far: the Node SDK cannot resolve several
    /// addresses up to 1.0.8 and single ones work with any, Go's pairs work with any.
    #[must_use]
    pub fn of(sdk: Sdk) -> Layout {
        match sdk {
            Sdk::Java | Sdk::Cpp => Layout::Rotated,
            Sdk::Go => Layout::Pairs,
            Sdk::Python => Layout::Suffixes,
            Sdk::Node => Layout::Single,
            Sdk::Rust | Sdk::Other => Layout::One,
        }
    }
}

/// The lanes for an SDK, the first of them alive if any is. Nodes whose address cannot be read are left out; empty only
/// when no node is left.
#[must_use]
pub fn lanes(sdk: Sdk, nodes: &[LaneNode]) -> Vec<Lane> {
    let mut nodes: Vec<Place> = nodes.iter().filter_map(Place::of).collect();
    nodes.truncate(LANE_NODES_COUNT_MAX);
    let layout = if one_scheme_of_addresses(&nodes) { Layout::of(sdk) } else { Layout::Single };
    if layout == Layout::Suffixes {
        nodes.sort_by(|a, b| a.text.cmp(&b.text));
    }
    let mut lanes: Vec<Vec<&Place>> = subsets(layout, nodes.len())
        .into_iter()
        .map(|subset| subset.into_iter().filter_map(|index| nodes.get(index)).collect())
        .collect();
    if nodes.iter().any(|node| node.alive) {
        lanes.retain(|lane: &Vec<&Place>| lane.len() > 1 || lane.iter().any(|node| node.alive));
    }
    let mut lanes: Vec<Lane> = lanes.iter().filter_map(|lane| Lane::over(lane)).collect();
    lanes.sort_by_key(|lane| !lane.alive);
    lanes
}

/// Several addresses in one lane must be of one scheme, and SDKs take several host names for a mistake.
fn one_scheme_of_addresses(nodes: &[Place]) -> bool {
    nodes.first().is_none_or(|first| {
        first.scheme != v2::AddressScheme::DomainName && nodes.iter().all(|node| node.scheme == first.scheme)
    })
}

/// Indexes of nodes, one list for each lane.
fn subsets(layout: Layout, count: usize) -> Vec<Vec<usize>> {
    match layout {
        _ if count == 0 => Vec::new(),
        Layout::One => vec![(0..count).collect()],
        Layout::Single => (0..count).map(|node| vec![node]).collect(),
        Layout::Suffixes => (0..count).map(|first| (first..count).collect()).collect(),
        Layout::Rotated => (0..count).map(|first| (0..count).map(|i| (first + i) % count).collect()).collect(),
        // A ring of two is one pair, seen from both sides.
        Layout::Pairs if count <= 2 => vec![(0..count).collect()],
        Layout::Pairs => (0..count).map(|first| vec![first, (first + 1) % count]).collect(),
    }
}

/// A node's address, taken apart.
struct Place {
    id: u32,
    alive: bool,
    text: String,
    host: String,
    port: u16,
    scheme: v2::AddressScheme,
}

impl Place {
    fn of(node: &LaneNode) -> Option<Place> {
        let (host, port) = split_address(&node.address)?;
        let scheme = match host.parse::<IpAddr>() {
            Ok(IpAddr::V4(_)) => v2::AddressScheme::IPv4,
            Ok(IpAddr::V6(_)) => v2::AddressScheme::IPv6,
            Err(_) => v2::AddressScheme::DomainName,
        };
        Some(Place {
            id: node.id,
            alive: node.alive,
            text: format!("{host}:{port}"),
            host: host.to_owned(),
            port,
            scheme,
        })
    }
}

impl Lane {
    fn over(nodes: &[&Place]) -> Option<Lane> {
        let first = nodes.first()?;
        let addresses =
            nodes.iter().map(|node| v2::Address { host: node.host.clone(), port: i32::from(node.port) }).collect();
        Some(Lane {
            name: format!("lane-{}", first.id),
            endpoints: v2::Endpoints { scheme: first.scheme as i32, addresses },
            alive: nodes.iter().any(|node| node.alive),
        })
    }
}

/// `host:port` or `[ipv6]:port`; the host without brackets.
fn split_address(address: &str) -> Option<(&str, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let port = port.parse().ok().filter(|port| *port != 0)?;
    (!host.is_empty()).then_some((host, port))
}

#[cfg(test)]
mod tests;
