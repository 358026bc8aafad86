//! Calls to peers: connections, and the Raft library's network over them.

mod connection;
mod factory;
mod link;
mod links;
mod transport;

pub use link::PeerChannel;
pub use transport::{Connection as PeerConnection, Tcp, Transport};

pub(crate) use factory::Network;
pub(crate) use link::{CONNECTION_WINDOW_BYTES, MESSAGE_BYTES_MAX, PeerLink, STREAM_WINDOW_BYTES};
pub(crate) use links::PeerLinks;
