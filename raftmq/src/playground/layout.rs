//! Where a playground's nodes listen and what their configuration files say.

use crate::config::{NodeConfig, Peer, Role};
use crate::exit::Failure;
use crate::playground::record::{Playground, PlaygroundNode};
use std::net::TcpListener;
use std::path::Path;

/// Small files, so that a playground takes little room.
const SEGMENT_BYTES_MAX: u64 = 64 << 20;
/// Admin ports are this far above client ports, peer ports twice as far.
const PORT_STEP: u16 = 100;
/// Nodes that a playground may have.
pub(crate) const NODES_MAX: u32 = 9;

/// Lays a new playground out. With `port`: client ports count from it, admin ports from 100 above, peer ports from 200
/// above. Without: free ports.
pub(crate) fn plan(dir: &Path, nodes: u32, groups: u32, port: Option<u16>) -> Result<Playground, Failure> {
    assert!((1..=NODES_MAX).contains(&nodes), "the command line bounds the number of nodes");
    let ports = match port {
        Some(base) => counted(base, nodes)?,
        None => free(nodes as usize * 3)?,
    };
    let nodes = (1..=nodes).zip(ports.chunks(3)).map(|(id, ports)| {
        let folder = dir.join(format!("node-{id}"));
        let address = |port: u16| format!("127.0.0.1:{port}");
        PlaygroundNode {
            id,
            pid: 0,
            started_ticks: 0,
            client: address(ports[0]),
            admin: address(ports[1]),
            peer: address(ports[2]),
            data: folder.join("data"),
            config: folder.join("node.toml"),
            log: folder.join("log"),
        }
    });
    Ok(Playground { groups, nodes: nodes.collect() })
}

/// Client, admin and peer port of each node, counted from `base`.
fn counted(base: u16, nodes: u32) -> Result<Vec<u16>, Failure> {
    let mut ports = Vec::new();
    for node in 0..nodes as u16 {
        for kind in 0..3 {
            let port = base.checked_add(node).and_then(|port| port.checked_add(kind * PORT_STEP));
            ports.push(port.ok_or_else(|| Failure::usage(format!("there are not enough ports above {base}")))?);
        }
    }
    Ok(ports)
}

/// Where the search for free ports goes on: below the ports that systems give to outgoing connections (from 32 768 on).
/// One of those could take the port of a node that is down, and the node would not start again.
const FREE_PORTS: std::ops::Range<u32> = 10_000..32_000;
/// Searches that begin at the same time begin this far apart, going by the process.
const FREE_PORTS_APART: u32 = 97;

/// Ports that are free now.
fn free(count: usize) -> Result<Vec<u16>, Failure> {
    let len = FREE_PORTS.end - FREE_PORTS.start;
    let first = std::process::id().wrapping_mul(FREE_PORTS_APART) % len;
    let ports = (0..len).map(|at| (FREE_PORTS.start + (first + at) % len) as u16);
    // All are held until all are known, so that none is given twice.
    let held: Vec<_> =
        ports.filter_map(|port| Some((port, TcpListener::bind(("127.0.0.1", port)).ok()?))).take(count).collect();
    if held.len() < count {
        return Err(Failure::failed(format!("there are no {count} free ports in {FREE_PORTS:?}")));
    }
    Ok(held.into_iter().map(|(port, _)| port).collect())
}

/// Writes the nodes' folders and configuration files.
pub(crate) fn write(playground: &Playground) -> Result<(), Failure> {
    let namesrvs = [5, 3, 1].into_iter().find(|count| *count <= playground.nodes.len()).unwrap_or(1);
    let peers: Vec<Peer> = playground
        .nodes
        .iter()
        .enumerate()
        .map(|(index, node)| {
            let roles = if index < namesrvs { vec![Role::Namesrv, Role::Broker] } else { vec![Role::Broker] };
            Peer { id: node.id, peer: node.peer.clone(), roles }
        })
        .collect();
    for node in &playground.nodes {
        let failed =
            |error: std::io::Error| Failure::failed(format!("{} cannot be written: {error}", node.config.display()));
        if let Some(folder) = node.config.parent() {
            std::fs::create_dir_all(folder).map_err(failed)?;
        }
        let config = NodeConfig {
            node_id: node.id,
            data_dir: node.data.clone(),
            client_listen: node.client.clone(),
            peer_listen: node.peer.clone(),
            admin_listen: node.admin.clone(),
            peers: peers.clone(),
            segment_bytes_max: SEGMENT_BYTES_MAX,
            auto_create_topics: true,
            ..NodeConfig::default()
        };
        let text = toml::to_string(&config)
            .map_err(|error| Failure::failed(format!("{} cannot be written: {error}", node.config.display())))?;
        std::fs::write(&node.config, text).map_err(failed)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_configurations_are_valid() {
        let dir = tempfile::tempdir().expect("dir");
        for nodes in [1, 2, 3, 4, 5, 9] {
            let playground = plan(dir.path(), nodes, 1, None).expect("plan");
            write(&playground).expect("write");
            for node in &playground.nodes {
                let config = NodeConfig::load(&node.config).expect("valid");
                assert_eq!(config.node_id, node.id);
                assert_eq!(config.peers.len(), nodes as usize);
                assert!(config.auto_create_topics);
            }
        }
    }

    #[test]
    fn counted_ports_do_not_collide() {
        let dir = tempfile::tempdir().expect("dir");
        let playground = plan(dir.path(), 3, 1, Some(8081)).expect("plan");
        assert_eq!(playground.clients(), ["127.0.0.1:8081", "127.0.0.1:8082", "127.0.0.1:8083"]);
        assert_eq!(playground.nodes[1].admin, "127.0.0.1:8182");
        assert_eq!(playground.nodes[2].peer, "127.0.0.1:8283");
        assert!(plan(dir.path(), 3, 1, Some(65_500)).is_err());
    }
}
