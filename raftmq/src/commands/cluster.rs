//! `raftmq cluster`: birth and state of the whole cluster.

use crate::cli::{Global, Output};
use crate::commands::admin;
use crate::exit::Failure;
use crate::output::{self, Table};
use clap::Subcommand;
use raftmq_proto::admin::{
    BrokerGroup, ClusterInitRequest, ClusterStatusReply, ClusterStatusRequest, Integrity, Node, Volume,
};
use serde::Serialize;

/// What to do with the cluster.
#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// Make one cluster of the configured nodes, once; running it again finishes what was interrupted.
    Init {
        /// Broker groups to make over the broker nodes. Without it: one.
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..=64))]
        broker_groups: Option<u32>,
    },
    /// Show nodes, groups, leaders and how far each replica is.
    Status,
}

#[derive(Serialize)]
struct InitView {
    cluster_id: String,
}

#[derive(Serialize)]
struct StatusView {
    cluster_id: String,
    nodes: Vec<NodeView>,
    groups: Vec<GroupView>,
}

#[derive(Serialize)]
struct NodeView {
    id: u32,
    roles: Vec<String>,
    alive: bool,
    client: String,
    peer: String,
    admin: String,
    version: String,
    durability: String,
    /// Null when the node does not answer.
    disk: Option<DiskView>,
}

#[derive(Serialize)]
struct DiskView {
    total_bytes: u64,
    available_bytes: u64,
    /// Sends are refused.
    full: bool,
}

#[derive(Serialize)]
struct GroupView {
    name: String,
    /// Node id, null when no leader is known.
    leader: Option<u32>,
    ready: bool,
    term: u64,
    committed: u64,
    /// A replica learns or leaves.
    changing: bool,
    replicas: Vec<ReplicaView>,
}

#[derive(Serialize)]
struct ReplicaView {
    node: u32,
    /// 0 when not known.
    incarnation: u32,
    role: String,
    first: u64,
    last: u64,
    committed: u64,
    applied: u64,
    lag: u64,
    /// Null when the node does not answer.
    integrity: Option<IntegrityView>,
}

#[derive(Serialize)]
struct IntegrityView {
    /// Entries that are damaged now.
    damaged: u64,
    found: u64,
    repaired: u64,
    scrub_passes: u64,
    /// Null before the first pass has ended.
    scrub_ended_ms: Option<i64>,
    scrub_next: u64,
}

impl From<ClusterStatusReply> for StatusView {
    fn from(reply: ClusterStatusReply) -> StatusView {
        StatusView {
            cluster_id: reply.cluster_id,
            nodes: reply.nodes.into_iter().map(NodeView::from).collect(),
            groups: reply.groups.into_iter().map(GroupView::from).collect(),
        }
    }
}

impl From<Node> for NodeView {
    fn from(node: Node) -> NodeView {
        NodeView {
            id: node.id,
            roles: node.roles,
            alive: node.alive,
            client: node.client,
            peer: node.peer,
            admin: node.admin,
            version: node.version,
            durability: node.durability,
            disk: node.volume.map(DiskView::from),
        }
    }
}

impl From<Volume> for DiskView {
    fn from(volume: Volume) -> DiskView {
        let Volume { total_bytes, available_bytes, full } = volume;
        DiskView { total_bytes, available_bytes, full }
    }
}

impl From<Integrity> for IntegrityView {
    fn from(of: Integrity) -> IntegrityView {
        IntegrityView {
            damaged: of.damaged,
            found: of.found,
            repaired: of.repaired,
            scrub_passes: of.scrub_passes,
            scrub_ended_ms: Some(of.scrub_ended_ms).filter(|at| *at != 0),
            scrub_next: of.scrub_next,
        }
    }
}

impl IntegrityView {
    /// For people: `ok`, `2 repaired`, or `DAMAGED: 1 entry`.
    fn text(&self) -> String {
        match (self.damaged, self.repaired) {
            (0, 0) => "ok".to_string(),
            (0, repaired) => format!("{repaired} repaired"),
            (1, _) => "DAMAGED: 1 entry".to_string(),
            (damaged, _) => format!("DAMAGED: {damaged} entries"),
        }
    }
}

impl DiskView {
    /// For people: `512 MiB free of 100 GiB`, with a word in front when that is too little.
    fn text(&self) -> String {
        let size = |bytes: u64| match bytes >> 20 {
            mib @ 0..10_240 => format!("{mib} MiB"),
            mib => format!("{} GiB", mib >> 10),
        };
        let text = format!("{} free of {}", size(self.available_bytes), size(self.total_bytes));
        if self.full { format!("FULL: {text}") } else { text }
    }
}

impl From<BrokerGroup> for GroupView {
    fn from(group: BrokerGroup) -> GroupView {
        let replicas = group.replicas.into_iter().map(|replica| ReplicaView {
            node: replica.node,
            incarnation: replica.incarnation,
            role: replica.role,
            first: replica.first,
            last: replica.last,
            committed: replica.committed,
            applied: replica.applied,
            lag: replica.lag,
            integrity: replica.integrity.map(IntegrityView::from),
        });
        GroupView {
            name: group.name,
            leader: Some(group.leader).filter(|node| *node != 0),
            ready: group.ready,
            term: group.term,
            committed: group.committed,
            changing: group.changing,
            replicas: replicas.collect(),
        }
    }
}

/// Runs the command.
pub(crate) async fn run(global: &Global, command: ClusterCommand) -> Result<(), Failure> {
    match command {
        ClusterCommand::Init { broker_groups } => {
            let request = ClusterInitRequest { broker_groups: broker_groups.unwrap_or(0) };
            let reply = admin(global).await?.cluster_init(request).await?.into_inner();
            match global.output {
                Output::Json => output::print_json(&InitView { cluster_id: reply.cluster_id }),
                Output::Table => output::print(&format!("cluster {}\n", reply.cluster_id)),
            }
        }
        ClusterCommand::Status => {
            let reply = admin(global).await?.cluster_status(ClusterStatusRequest {}).await?.into_inner();
            let view = StatusView::from(reply);
            match global.output {
                Output::Json => output::print_json(&view),
                Output::Table => output::print(&tables(&view)),
            }
        }
    }
}

fn tables(view: &StatusView) -> String {
    let mut nodes = Table::new(&["NODE", "ROLES", "ALIVE", "CLIENT", "ADMIN", "DURABILITY", "DISK"]);
    for node in &view.nodes {
        let alive = if node.alive { "yes" } else { "no" };
        nodes.row([
            node.id.to_string(),
            node.roles.join(","),
            alive.to_string(),
            node.client.clone(),
            node.admin.clone(),
            node.durability.clone(),
            node.disk.as_ref().map(DiskView::text).unwrap_or_default(),
        ]);
    }
    let mut groups =
        Table::new(&["GROUP", "NODE", "ROLE", "TERM", "FIRST", "LAST", "COMMITTED", "APPLIED", "LAG", "LOG"]);
    for group in &view.groups {
        for replica in &group.replicas {
            groups.row([
                group.name.clone(),
                replica.node.to_string(),
                replica.role.clone(),
                group.term.to_string(),
                replica.first.to_string(),
                replica.last.to_string(),
                replica.committed.to_string(),
                replica.applied.to_string(),
                replica.lag.to_string(),
                replica.integrity.as_ref().map(IntegrityView::text).unwrap_or_default(),
            ]);
        }
    }
    let leaderless: Vec<&str> =
        view.groups.iter().filter(|group| group.leader.is_none()).map(|group| group.name.as_str()).collect();
    let mut text = format!("cluster {}\n\n{}\n{}", view.cluster_id, nodes.render(), groups.render());
    if !leaderless.is_empty() {
        text.push_str(&format!("\nno leader: {}\n", leaderless.join(", ")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use raftmq_proto::admin::Replica;

    #[test]
    fn json_has_the_documented_shape() {
        let integrity = Some(Integrity { damaged: 1, found: 3, repaired: 2, scrub_next: 5, ..Default::default() });
        let role = "leader".into();
        let (first, last, committed, applied, incarnation) = (4, 9, 8, 7, 3);
        let known = Replica { first, last, committed, applied, incarnation, integrity, ..Replica::default() };
        let replica = Replica { node: 2, role, ..known };
        let group =
            BrokerGroup { name: "broker-1".into(), leader: 2, term: 3, replicas: vec![replica], ..Default::default() };
        let volume = Some(Volume { total_bytes: 11 << 30, available_bytes: 1 << 29, full: true });
        let node = Node { id: 2, roles: vec!["broker".into()], alive: true, volume, ..Default::default() };
        let reply = ClusterStatusReply { cluster_id: "c".into(), nodes: vec![node], groups: vec![group] };
        let view = StatusView::from(reply);
        assert!(tables(&view).contains("FULL: 512 MiB free of 11 GiB"), "{}", tables(&view));
        assert!(tables(&view).contains("DAMAGED: 1 entry"), "{}", tables(&view));
        let json = serde_json::to_value(view).expect("json");
        assert_eq!(json["nodes"][0]["disk"]["full"], true);
        assert_eq!(json["nodes"][0]["disk"]["available_bytes"], 1 << 29);
        assert_eq!(json["groups"][0]["replicas"][0]["integrity"]["repaired"], 2);
        assert_eq!(json["groups"][0]["replicas"][0]["integrity"]["scrub_ended_ms"], serde_json::Value::Null);
        assert_eq!(json["nodes"][0]["id"], 2);
        assert_eq!(json["nodes"][0]["alive"], true);
        assert_eq!(json["groups"][0]["name"], "broker-1");
        assert_eq!(json["groups"][0]["leader"], 2);
        assert_eq!(json["groups"][0]["changing"], false);
        assert_eq!(json["groups"][0]["replicas"][0]["incarnation"], 3);
        assert_eq!(json["groups"][0]["replicas"][0]["applied"], 7);
    }
}
