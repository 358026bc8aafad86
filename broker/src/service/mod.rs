//! The use cases of the public API, free of gRPC: what is checked, where it goes, what comes back.
//!
//! `produce` stores messages, `consume` takes them, `finish` acknowledges, delays and dead-letters them, `names` finds
//! topics and consumer groups. All of them see the cluster through [`Cluster`] and answer with values or a
//! [`crate::status::Refusal`]. No lock is held across an await.

mod cluster;
mod consume;
mod finish;
mod names;
mod produce;
mod taken;

pub use cluster::Cluster;
pub use consume::{Delivery, Receive};
pub use finish::HandleAnswer;
pub use produce::{Draft, MessageKind, Produced, Stored};
pub use taken::{RELEASED_VISIBLE_MS, Taken};

use crate::edge::EdgeOptions;
use raftmq_model::clock::Clock;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The use cases over one view of the cluster.
pub struct Service<C> {
    pub(crate) cluster: C,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) options: EdgeOptions,
    /// Which broker group a receive asks first; any value is right.
    rotation: AtomicUsize,
}

impl<C> Service<C> {
    pub(crate) fn new(cluster: C, clock: Arc<dyn Clock>, options: EdgeOptions) -> Service<C> {
        Service { cluster, clock, options, rotation: AtomicUsize::new(0) }
    }

    fn next_rotation(&self) -> usize {
        self.rotation.fetch_add(1, Ordering::Relaxed)
    }
}
