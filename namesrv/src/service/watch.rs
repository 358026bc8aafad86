//! The stream of one watcher: a full copy, then changes, and an empty event while nothing changes, so that a watcher can
//! tell a quiet stream from a dead one.

use crate::runtime::Watcher;
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use raftmq_proto::meta::WatchEvent;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tonic::Status;

/// After this long without a change, an empty event is sent.
const QUIET_MS_MAX: u64 = 1_000;

pub(super) type WatchStream = BoxStream<'static, Result<WatchEvent, Status>>;

/// `permit` is given back when the stream ends.
pub(super) fn stream(watcher: Watcher, permit: OwnedSemaphorePermit) -> WatchStream {
    let events = stream::unfold((watcher, permit), |(mut watcher, permit)| async move {
        let quiet = Duration::from_millis(QUIET_MS_MAX);
        let change = match tokio::time::timeout(quiet, watcher.next()).await {
            Ok(change) => change?,
            Err(_) => Bytes::new(),
        };
        Some((Ok(WatchEvent { change }), (watcher, permit)))
    });
    events.boxed()
}
