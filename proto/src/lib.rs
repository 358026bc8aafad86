//! Protobuf messages, clients and servers: the public API `apache.rocketmq.v2` and raftmq's internal services.
//!
//! Generated at build time from the `.proto` files of this folder. `bytes` fields are [`bytes::Bytes`]: slices of the
//! buffer they came in.

#![allow(missing_docs, clippy::all, unreachable_pub)]

/// The public API that every official RocketMQ 5 SDK speaks.
pub mod v2 {
    tonic::include_proto!("apache.rocketmq.v2");
}

/// Between nodes: what an edge asks of a group's leader.
pub mod forward {
    tonic::include_proto!("raftmq.forward.v1");
}

/// Between nodes: the meta group.
pub mod meta {
    tonic::include_proto!("raftmq.meta.v1");
}

/// Between nodes: birth of a cluster, status of replicas.
pub mod peer {
    tonic::include_proto!("raftmq.peer.v1");
}

/// For operators.
pub mod admin {
    tonic::include_proto!("raftmq.admin.v1");
}

/// Between nodes: the Raft protocol.
pub mod raft {
    tonic::include_proto!("raftmq.raft.v1");
}

pub mod metadata;

/// The compiled descriptors of all files, an encoded `google.protobuf.FileDescriptorSet`.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
