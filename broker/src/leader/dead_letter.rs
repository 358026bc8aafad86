//! The driver that moves messages whose last attempt is over to the dead-letter topic.

use super::Replica;
use raftmq_model::command::Outcome;
use raftmq_proto::forward::failure::Kind;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Messages of one look; each is proposed before the next look.
const LETTERS_COUNT_MAX: usize = 64;
/// Longest pause between two looks: what came in flight in between is due later than that, or was renewed.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// Shortest pause between two looks.
const LOOK_AGAIN_MIN: Duration = Duration::from_millis(10);
/// Pause after letters that cannot be moved as things are: no dead-letter topic, or a record that cannot be read.
const STUCK: Duration = Duration::from_secs(5);

/// How a look ended.
enum Look {
    /// Everything that was due is moved; there may be more.
    Moved,
    /// Nothing was due.
    Idle,
    /// Something was due and cannot be moved now.
    Stuck,
    /// Something was due and there is no room for letters.
    Full,
}

impl Replica {
    /// Moves dead letters while this replica leads; runs until the group closes.
    pub(super) async fn move_dead_letters(self: Arc<Self>) {
        let mut leadership = self.leadership();
        loop {
            if leadership.wait_for(|now| now.leader == Some(self.node) && now.ready).await.is_err() {
                return;
            }
            let pause = match self.move_due_letters().await {
                Look::Moved => LOOK_AGAIN_MIN,
                Look::Idle => self.until_exhausted(),
                Look::Stuck => STUCK,
                Look::Full => LOOK_AGAIN,
            };
            let _ = timeout(pause, leadership.changed()).await;
        }
    }

    async fn move_due_letters(&self) -> Look {
        let due = self.view.state().exhausted(self.clock.now(), LETTERS_COUNT_MAX);
        let mut look = Look::Idle;
        for handle in due {
            match self.bury(handle).await {
                // Superseded and gone count as moved: the state has changed since the look.
                Ok(Outcome::Handles(_)) if !matches!(look, Look::Stuck) => look = Look::Moved,
                Ok(Outcome::Handles(_)) => {}
                Ok(other) => {
                    tracing::warn!(group = %self.id(), ?handle, ?other, "a dead letter was not moved");
                    look = Look::Stuck;
                }
                Err(failure) if failure.kind() == Kind::Invalid => {
                    tracing::warn!(group = %self.id(), ?handle, reason = failure.message, "a dead letter was not moved");
                    look = Look::Stuck;
                }
                Err(failure) if failure.kind() == Kind::DiskFull => return Look::Full,
                // The leadership is going, or the log is busy: the next look sees what is left.
                Err(_) => return Look::Idle,
            }
        }
        look
    }

    fn until_exhausted(&self) -> Duration {
        let next = self.view.state().next_exhausted();
        let due = next.map_or(LOOK_AGAIN, |next| Duration::from_millis(next.ms_since(self.clock.now()) + 1));
        due.clamp(LOOK_AGAIN_MIN, LOOK_AGAIN)
    }
}
