//! Reads all durable entries of all groups of the node, over and over, within a budget of bytes per second.

use crate::group::Core;
use crate::node::Shared;
use raftmq_model::ids::{GroupId, Timestamp};
use raftmq_store::commit_log::Scrubbed;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Steps in a second, when a step takes no more than its share.
const STEPS_PER_SECOND: u32 = 4;

/// How far the scrubber is in one group.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    pub(crate) next: u64,
    pub(crate) passes_count: u64,
    pub(crate) ended_at: Option<Timestamp>,
    /// When the pass began that is under way, or the last one.
    began: Option<Instant>,
    rests: bool,
    failed: bool,
}

/// Runs until the node ends; at once when the budget is 0.
pub(crate) async fn run(shared: Arc<Shared>) {
    let rate = shared.options.scrub_bytes_per_second_max;
    let interval = Duration::from_millis(shared.options.scrub_interval_ms);
    if rate == 0 {
        return;
    }
    let step = Duration::from_secs(1) / STEPS_PER_SECOND;
    let budget = (rate / u64::from(STEPS_PER_SECOND)).max(1);
    let mut last = None;
    loop {
        sleep(step).await;
        let Some(core) = next(&shared, last, interval) else { continue };
        last = Some(core.group);
        let bytes = pass_on(&shared, &core, budget).await;
        drop(core);
        // One entry can be larger than a step's share.
        let owed = Duration::from_millis(bytes.saturating_mul(1000) / rate);
        sleep(owed.saturating_sub(step)).await;
    }
}

/// The group after `last` whose turn it is, in the order of ids.
fn next(shared: &Shared, last: Option<GroupId>, interval: Duration) -> Option<Arc<Core>> {
    let groups = shared.groups.lock();
    let behind = groups.iter().filter(|(id, _)| Some(**id) > last);
    let before = groups.iter().filter(|(id, _)| Some(**id) <= last);
    let due = |core: &Core| {
        let progress = core.scrub.lock();
        !progress.rests || progress.began.is_none_or(|began| began.elapsed() >= interval)
    };
    behind.chain(before).map(|(_, core)| core).find(|core| due(core)).cloned()
}

/// One step in one group; gives the bytes that were read.
async fn pass_on(shared: &Shared, core: &Core, budget: u64) -> u64 {
    let from = {
        let mut progress = core.scrub.lock();
        if progress.rests || progress.began.is_none() {
            (progress.rests, progress.next, progress.began) = (false, 0, Some(Instant::now()));
        }
        progress.next
    };
    let log = core.log.clone();
    let read = move || log.scrub(from, budget);
    let read = if core.threaded {
        tokio::task::spawn_blocking(read).await.unwrap_or_else(|error| Err(io::Error::other(error)))
    } else {
        read()
    };
    let now = shared.options.clock.now();
    let mut progress = core.scrub.lock();
    match read {
        Ok(Scrubbed { next, bytes, is_end }) => {
            progress.next = next;
            if is_end {
                progress.rests = true;
                progress.passes_count += 1;
                progress.ended_at = Some(now);
            }
            progress.failed = false;
            bytes
        }
        Err(error) => {
            if !std::mem::replace(&mut progress.failed, true) {
                tracing::warn!(group = core.group.0, %error, "the log cannot be scrubbed");
            }
            progress.rests = true;
            0
        }
    }
}
