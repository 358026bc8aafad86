//! `raftmq group`: consumer groups of the cluster.

use crate::cli::{Global, Output};
use crate::commands::admin;
use crate::exit::Failure;
use crate::output::{self, Table};
use clap::Subcommand;
use raftmq_proto::admin::{AlterGroupRequest, CreateGroupRequest, Empty, Group, NameRequest, QueueLag};
use serde::Serialize;

/// What to do with consumer groups.
#[derive(Debug, Subcommand)]
pub(crate) enum GroupCommand {
    /// Create a consumer group and its dead-letter topic.
    Create {
        /// Its name.
        name: String,
        /// Deliver in order per message group.
        #[arg(long)]
        fifo: bool,
        /// Deliveries of one message before it goes to the dead-letter topic. Without it: the cluster's default.
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
        attempts_max: Option<u32>,
    },
    /// List all consumer groups.
    List,
    /// Show one consumer group.
    Describe {
        /// Its name.
        name: String,
    },
    /// Change a consumer group.
    Alter {
        /// Its name.
        name: String,
        /// Whether to deliver in order per message group.
        #[arg(long)]
        fifo: Option<bool>,
        /// Deliveries of one message before it goes to the dead-letter topic.
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
        attempts_max: Option<u32>,
        /// Whether its members may receive at all.
        #[arg(long, required_unless_present_any = ["fifo", "attempts_max"])]
        consume_enabled: Option<bool>,
        /// Only if it has this version, as `describe` shows it: nobody has changed it since.
        #[arg(long)]
        if_version: Option<u64>,
    },
    /// Delete a consumer group; its dead-letter topic stays.
    Delete {
        /// Its name.
        name: String,
    },
    /// Show how far a consumer group is behind, queue by queue.
    Lag {
        /// Its name.
        name: String,
    },
}

#[derive(Serialize)]
struct GroupView {
    name: String,
    uid: u64,
    version: u64,
    fifo: bool,
    attempts_max: u32,
    consume_enabled: bool,
}

#[derive(Serialize)]
struct Groups {
    groups: Vec<GroupView>,
}

#[derive(Serialize)]
struct LagView {
    group: String,
    ready: u64,
    in_flight: u64,
    queues: Vec<QueueLagView>,
}

#[derive(Serialize)]
struct QueueLagView {
    topic: String,
    queue: u32,
    broker_group: String,
    max_offset: u64,
    cursor: u64,
    in_flight: u64,
    ready: u64,
}

#[derive(Serialize)]
struct Deleted {
    deleted: String,
}

impl From<Group> for GroupView {
    fn from(group: Group) -> GroupView {
        GroupView {
            name: group.name,
            uid: group.uid,
            version: group.version,
            fifo: group.fifo,
            attempts_max: group.attempts_max,
            consume_enabled: group.consume_enabled,
        }
    }
}

impl From<QueueLag> for QueueLagView {
    fn from(lag: QueueLag) -> QueueLagView {
        QueueLagView {
            topic: lag.topic,
            queue: lag.queue,
            broker_group: lag.broker_group,
            max_offset: lag.max_offset,
            cursor: lag.cursor,
            in_flight: lag.in_flight,
            ready: lag.ready,
        }
    }
}

/// Runs the command.
pub(crate) async fn run(global: &Global, command: GroupCommand) -> Result<(), Failure> {
    let mut admin = admin(global).await?;
    let group = match command {
        GroupCommand::Create { name, fifo, attempts_max } => {
            admin.create_group(CreateGroupRequest { name, fifo, attempts_max: attempts_max.unwrap_or(0) }).await?
        }
        GroupCommand::Alter { name, fifo, attempts_max, consume_enabled, if_version: version } => {
            admin.alter_group(AlterGroupRequest { name, fifo, attempts_max, consume_enabled, version }).await?
        }
        GroupCommand::Describe { name } => admin.describe_group(NameRequest { name }).await?,
        GroupCommand::List => {
            let groups = admin.list_groups(Empty {}).await?.into_inner().groups;
            return print_groups(global, groups.into_iter().map(GroupView::from).collect(), true);
        }
        GroupCommand::Lag { name } => {
            let queues = admin.group_lag(NameRequest { name: name.clone() }).await?.into_inner().queues;
            return print_lag(global, name, queues.into_iter().map(QueueLagView::from).collect());
        }
        GroupCommand::Delete { name } => {
            admin.delete_group(NameRequest { name: name.clone() }).await?;
            return match global.output {
                Output::Json => output::print_json(&Deleted { deleted: name }),
                Output::Table => output::print(&format!("consumer group {name} is deleted\n")),
            };
        }
    };
    print_groups(global, vec![group.into_inner().into()], false)
}

fn print_groups(global: &Global, mut groups: Vec<GroupView>, list: bool) -> Result<(), Failure> {
    if global.output == Output::Json {
        return match (list, groups.pop()) {
            (false, Some(group)) => output::print_json(&group),
            (_, last) => {
                groups.extend(last);
                output::print_json(&Groups { groups })
            }
        };
    }
    let mut table = Table::new(&["GROUP", "FIFO", "ATTEMPTS MAX", "CONSUME ENABLED", "UID", "VERSION"]);
    for group in groups {
        table.row([
            group.name,
            group.fifo.to_string(),
            group.attempts_max.to_string(),
            group.consume_enabled.to_string(),
            group.uid.to_string(),
            group.version.to_string(),
        ]);
    }
    output::print(&table.render())
}

fn print_lag(global: &Global, group: String, queues: Vec<QueueLagView>) -> Result<(), Failure> {
    let ready = queues.iter().map(|queue| queue.ready).sum();
    let in_flight = queues.iter().map(|queue| queue.in_flight).sum();
    if global.output == Output::Json {
        return output::print_json(&LagView { group, ready, in_flight, queues });
    }
    let mut table = Table::new(&["TOPIC", "QUEUE", "BROKER GROUP", "MAX OFFSET", "CURSOR", "IN FLIGHT", "READY"]);
    for queue in queues {
        table.row([
            queue.topic,
            queue.queue.to_string(),
            queue.broker_group,
            queue.max_offset.to_string(),
            queue.cursor.to_string(),
            queue.in_flight.to_string(),
            queue.ready.to_string(),
        ]);
    }
    output::print(&format!("group {group}  ready {ready}  in flight {in_flight}\n\n{}", table.render()))
}
