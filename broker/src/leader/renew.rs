//! The driver that renews the time of messages whose client lives and asked for it (`auto_renew`), and cuts the time of
//! those whose client said good-bye, so that others get them at once.
//!
//! What to do is planned from the applied state and from [`super::holders::Holders`]; apply judges each handle again, so a
//! message that was acked, given back or taken again in between stays as it is.

use super::Replica;
use raftmq_model::command::{Command, Extend, HandleKey};
use raftmq_model::ids::Timestamp;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Between two looks.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// A time that is over within this is renewed: room for a fail-over, in which nobody looks.
const RENEW_AHEAD_MS: u64 = 30_000;
/// The longest that one delivery is kept by renewals: RocketMQ's proxy gives up after three hours as well.
const RENEW_MS_MAX: u64 = 3 * 60 * 60 * 1000;
/// Messages of a client that said good-bye come back after this.
const RELEASED_MS: u64 = 1_000;
/// Handles of one command.
const HANDLES_COUNT_MAX: usize = 512;
/// Handles of one look; what is left waits for the next one.
const LOOK_COUNT_MAX: usize = 16 * HANDLES_COUNT_MAX;

impl Replica {
    /// See the module; runs until the group closes.
    pub(super) async fn renew_and_release(self: Arc<Self>) {
        let (mut leadership, mut gone) = (self.leadership(), self.holders.watch_gone());
        loop {
            if leadership.wait_for(|now| now.leader == Some(self.node) && now.ready).await.is_err() {
                return;
            }
            gone.mark_unchanged();
            self.propose_times(self.released(), RELEASED_MS).await;
            self.propose_times(self.renewed(), self.limits.auto_renew_invisible_ms).await;
            tokio::select! {
                () = sleep(LOOK_AGAIN) => {}
                changed = gone.changed() => if changed.is_err() { return },
                changed = leadership.changed() => if changed.is_err() { return },
            }
        }
    }

    fn released(&self) -> Vec<HandleKey> {
        let gone = self.holders.gone(Instant::now());
        if gone.is_empty() {
            return Vec::new();
        }
        let after = Timestamp(self.clock.now().0 + RELEASED_MS as i64);
        self.view.state().held_by(|client| gone.contains(&client), after, LOOK_COUNT_MAX)
    }

    fn renewed(&self) -> Vec<HandleKey> {
        let (now, instant) = (self.clock.now(), Instant::now());
        let soon = self.view.state().renewals(now.plus_ms(RENEW_AHEAD_MS), LOOK_COUNT_MAX);
        let wanted = soon.into_iter().filter(|(_, client, taken_at)| {
            now.ms_since(*taken_at) < RENEW_MS_MAX && self.holders.lives(*client, instant)
        });
        wanted.map(|(handle, ..)| handle).collect()
    }

    async fn propose_times(&self, handles: Vec<HandleKey>, invisible_ms: u64) {
        for chunk in handles.chunks(HANDLES_COUNT_MAX) {
            let extend = Extend { handles: chunk.to_vec(), invisible_ms };
            if let Err(failure) = self.propose(vec![Command::Extend(extend).encode()]).await {
                // The next look, here or at the next leader, sees what is left.
                tracing::debug!(group = %self.id(), reason = failure.message, "times are not changed yet");
                return;
            }
        }
    }
}
