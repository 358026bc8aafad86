//! The driver that moves messages whose last attempt is over to the dead-letter topic.

use super::Replica;
use raftmq_model::command::{HandleOutcome, Outcome};
use raftmq_proto::forward::failure::Kind;
use std::sync::Arc;
use std::time::Duration;

/// Messages of one look; each is proposed before the next look.
const LETTERS_COUNT_MAX: usize = 64;
/// Longest pause between two looks: what came in flight in between is due later than that, or was renewed.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// Shortest pause, also after letters that could not be moved.
const LOOK_AGAIN_MIN: Duration = Duration::from_millis(10);

impl Replica {
    /// Moves dead letters while this replica leads; runs until the group closes.
    pub(super) async fn move_dead_letters(self: Arc<Self>) {
        let mut leadership = self.leadership();
        loop {
            if leadership.wait_for(|now| now.leader == Some(self.node) && now.ready).await.is_err() {
                return;
            }
            let moved = self.move_due_letters().await;
            let pause = if moved { LOOK_AGAIN_MIN } else { self.until_exhausted() };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.letters_due.notified() => {}
            }
        }
    }

    /// Whether everything that was due could be moved and there may be more.
    async fn move_due_letters(&self) -> bool {
        let due = self.view.state().exhausted(self.clock.now(), LETTERS_COUNT_MAX);
        let mut moved = false;
        for handle in due {
            match self.bury(handle).await {
                Ok(Outcome::Handles(answers)) => moved |= answers.first() == Some(&HandleOutcome::Done),
                Ok(other) => tracing::warn!(group = %self.id(), ?handle, ?other, "a dead letter was not moved"),
                Err(failure) if failure.kind() == Kind::Invalid => {
                    tracing::warn!(group = %self.id(), ?handle, reason = failure.message, "a dead letter was not moved");
                }
                // The leadership is going, or the log is busy: the next look sees what is left.
                Err(_) => return false,
            }
        }
        moved
    }

    fn until_exhausted(&self) -> Duration {
        let next = self.view.state().next_exhausted();
        let due = next.map_or(LOOK_AGAIN, |next| Duration::from_millis(next.ms_since(self.clock.now()) + 1));
        // What is due already and could not be moved is not tried again at once.
        if due <= Duration::from_millis(1) { LOOK_AGAIN } else { due.clamp(LOOK_AGAIN_MIN, LOOK_AGAIN) }
    }
}
