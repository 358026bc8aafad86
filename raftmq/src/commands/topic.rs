//! `raftmq topic`: topics of the cluster.

use crate::cli::{Global, Output};
use crate::commands::admin;
use crate::exit::Failure;
use crate::output::{self, Table};
use clap::{Subcommand, ValueEnum};
use raftmq_proto::admin::{AlterTopicRequest, CreateTopicRequest, Empty, NameRequest, Topic};
use serde::Serialize;
use std::collections::BTreeSet;

/// What to do with topics.
#[derive(Debug, Subcommand)]
pub(crate) enum TopicCommand {
    /// Create a topic; done when each broker group that hosts a queue of it knows it.
    Create {
        /// Its name.
        name: String,
        /// Queues, spread over all broker groups. Without it: the cluster's default.
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
        queues: Option<u32>,
        /// What it takes.
        #[arg(long = "type", value_enum, default_value_t = TypeArg::Normal)]
        topic_type: TypeArg,
        /// Who may use it.
        #[arg(long, value_enum, default_value_t = PermissionArg::ReadWrite)]
        permission: PermissionArg,
    },
    /// List all topics.
    List,
    /// Show one topic.
    Describe {
        /// Its name.
        name: String,
    },
    /// Add queues or change who may use a topic.
    Alter {
        /// Its name.
        name: String,
        /// New number of queues; it never shrinks.
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024), required_unless_present = "permission")]
        queues: Option<u32>,
        /// Who may use it from now on.
        #[arg(long, value_enum)]
        permission: Option<PermissionArg>,
    },
    /// Delete a topic and its messages.
    Delete {
        /// Its name.
        name: String,
    },
}

/// What a topic takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TypeArg {
    /// Ordinary messages.
    Normal,
    /// Messages with a message group, in order.
    Fifo,
    /// Messages with a delivery time.
    Delay,
    /// Half messages with a later decision.
    Transaction,
}

/// Who may use a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PermissionArg {
    /// Send and receive.
    ReadWrite,
    /// Receive only.
    Read,
    /// Send only.
    Write,
    /// Neither.
    None,
}

impl TypeArg {
    fn name(self) -> &'static str {
        match self {
            TypeArg::Normal => "NORMAL",
            TypeArg::Fifo => "FIFO",
            TypeArg::Delay => "DELAY",
            TypeArg::Transaction => "TRANSACTION",
        }
    }
}

impl PermissionArg {
    fn name(self) -> &'static str {
        match self {
            PermissionArg::ReadWrite => "READ_WRITE",
            PermissionArg::Read => "READ",
            PermissionArg::Write => "WRITE",
            PermissionArg::None => "NONE",
        }
    }
}

#[derive(Serialize)]
struct TopicView {
    name: String,
    uid: u64,
    version: u64,
    #[serde(rename = "type")]
    topic_type: String,
    permission: String,
    queues: Vec<QueueView>,
}

#[derive(Serialize)]
struct QueueView {
    id: u32,
    broker_group: String,
}

#[derive(Serialize)]
struct Topics {
    topics: Vec<TopicView>,
}

#[derive(Serialize)]
struct Deleted {
    deleted: String,
}

impl From<Topic> for TopicView {
    fn from(topic: Topic) -> TopicView {
        let queues = topic.queues.into_iter().map(|queue| QueueView { id: queue.id, broker_group: queue.broker_group });
        TopicView {
            name: topic.name,
            uid: topic.uid,
            version: topic.version,
            topic_type: topic.r#type,
            permission: topic.permission,
            queues: queues.collect(),
        }
    }
}

/// Runs the command.
pub(crate) async fn run(global: &Global, command: TopicCommand) -> Result<(), Failure> {
    let mut admin = admin(global).await?;
    let topic = match command {
        TopicCommand::Create { name, queues, topic_type, permission } => {
            let request = CreateTopicRequest {
                name,
                r#type: topic_type.name().into(),
                queues: queues.unwrap_or(0),
                permission: permission.name().into(),
            };
            admin.create_topic(request).await?
        }
        TopicCommand::Alter { name, queues, permission } => {
            let permission = permission.map(|permission| permission.name().to_string());
            admin.alter_topic(AlterTopicRequest { name, queues, permission }).await?
        }
        TopicCommand::Describe { name } => admin.describe_topic(NameRequest { name }).await?,
        TopicCommand::List => {
            let topics = admin.list_topics(Empty {}).await?.into_inner().topics;
            return print_list(global, topics.into_iter().map(TopicView::from).collect());
        }
        TopicCommand::Delete { name } => {
            admin.delete_topic(NameRequest { name: name.clone() }).await?;
            return match global.output {
                Output::Json => output::print_json(&Deleted { deleted: name }),
                Output::Table => output::print(&format!("topic {name} is deleted\n")),
            };
        }
    };
    print_one(global, topic.into_inner().into())
}

fn print_one(global: &Global, topic: TopicView) -> Result<(), Failure> {
    if global.output == Output::Json {
        return output::print_json(&topic);
    }
    let mut queues = Table::new(&["QUEUE", "BROKER GROUP"]);
    for queue in &topic.queues {
        queues.row([queue.id.to_string(), queue.broker_group.clone()]);
    }
    output::print(&format!(
        "topic {}  type {}  permission {}  uid {}  version {}\n\n{}",
        topic.name,
        topic.topic_type,
        topic.permission,
        topic.uid,
        topic.version,
        queues.render()
    ))
}

fn print_list(global: &Global, topics: Vec<TopicView>) -> Result<(), Failure> {
    if global.output == Output::Json {
        return output::print_json(&Topics { topics });
    }
    let mut table = Table::new(&["TOPIC", "TYPE", "PERMISSION", "QUEUES", "BROKER GROUPS"]);
    for topic in topics {
        let groups: BTreeSet<&str> = topic.queues.iter().map(|queue| queue.broker_group.as_str()).collect();
        table.row([
            topic.name.clone(),
            topic.topic_type.clone(),
            topic.permission.clone(),
            topic.queues.len().to_string(),
            groups.into_iter().collect::<Vec<_>>().join(","),
        ]);
    }
    output::print(&table.render())
}
