//! A client of the public API `apache.rocketmq.v2`: a producer and a simple consumer over gRPC, without TLS.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use raftmq_client::{Client, ClientOptions, FilterExpression, Message};
//! use std::time::Duration;
//!
//! let endpoints = vec!["127.0.0.1:8081".to_owned()];
//! let client = Client::connect(endpoints, ClientOptions::default()).await?;
//! let receipt = client.producer().send(Message::new("orders", "a body").tag("created")).await?;
//! println!("{} is stored", receipt.message_id);
//!
//! let consumer = client.simple_consumer("billing", "orders", FilterExpression::all());
//! for message in consumer.receive(16, Duration::from_secs(30)).await? {
//!     consumer.ack(&message).await?;
//! }
//! # Ok(()) }
//! ```
//!
//! * Sends are retried with the **same message id** ([`ClientOptions::attempts_max`]), so that a server which remembers ids
//!   stores a message once. [`SendError::maybe_stored`] says what a failed send may have left behind.
//! * Receives are retried with the same attempt id, acks as they are: both are idempotent.
//! * All handles are cheap to clone and may be used from many tasks at once.
//!
//! Files: `client` hands out handles, `session` is one client id with its headers and telemetry, `node` holds
//! connections, `attempts` is the retry loop, `route` asks where a topic is.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod attempts;
mod client;
mod connector;
mod error;
mod message;
mod message_id;
mod metadata;
mod node;
mod options;
mod producer;
mod route;
mod session;
mod simple_consumer;
mod telemetry;

pub use client::Client;
pub use connector::{Connection, Connector};
pub use error::{ClientError, ErrorKind, SendError};
pub use message::{FilterExpression, Message, ReceivedMessage};
pub use message_id::MessageIds;
pub use options::ClientOptions;
pub use producer::{Producer, Receipt};
pub use raftmq_proto::v2::{Code, Encoding, MessageType};
pub use simple_consumer::SimpleConsumer;
