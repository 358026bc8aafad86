//! Calls to peers: connections, and the Raft library's network over them.

mod connection;
mod factory;
mod link;
mod links;

pub use link::PeerChannel;

pub(crate) use factory::Network;
pub(crate) use link::{CONNECTION_WINDOW_BYTES, MESSAGE_BYTES_MAX, PeerLink, STREAM_WINDOW_BYTES};
pub(crate) use links::PeerLinks;
