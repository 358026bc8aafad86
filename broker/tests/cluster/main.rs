//! Three brokers in one process over real gRPC on loopback: any node serves any call, and a lost leader loses nothing.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod digest;
mod edge;
mod failover;
mod full_disk;
mod query;
mod redelivery;
mod retention;
mod rot;
mod routing;
mod support;
