//! Compiles the `.proto` files with a protobuf compiler written in Rust, so that no `protoc` is needed.

use std::path::Path;

const FILES: [&str; 8] = [
    "apache/rocketmq/v2/definition.proto",
    "apache/rocketmq/v2/service.proto",
    "apache/rocketmq/v2/admin.proto",
    "raftmq/forward/v1/forward.proto",
    "raftmq/meta/v1/meta.proto",
    "raftmq/peer/v1/peer.proto",
    "raftmq/admin/v1/admin.proto",
    "raftmq/raft/v1/raft.proto",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for file in FILES {
        println!("cargo:rerun-if-changed={file}");
    }
    let descriptors = protox::compile(FILES, ["."])?;
    let out = std::env::var("OUT_DIR")?;
    std::fs::write(Path::new(&out).join("descriptors.bin"), prost_build_bytes(&descriptors))?;
    // Bodies and records stay slices of the buffer they came in.
    tonic_prost_build::configure().bytes(".").compile_fds(descriptors)?;
    Ok(())
}

fn prost_build_bytes(descriptors: &impl prost::Message) -> Vec<u8> {
    descriptors.encode_to_vec()
}
