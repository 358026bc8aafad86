//! Digests of the state at log indexes that were asked for before they were reached, so that replicas which apply at
//! their own pace can be compared at one and the same index (law 6).
//!
//! ```text
//! MachineView::digest_at(I)   applied > I: refused   applied = I: made at once   applied < I: asked, kept here
//! BrokerMachine::apply(I)  ─▶ Digests::reached(I): made before entry I + 1 is applied, and answered
//! ```
//! **Threads.** Asking holds the state's read lock, apply its write lock: an index is either still to come or passed, never
//! in between. A digest is a walk over the state under that lock, and apply waits for it (`docs/cli.md` says how long that
//! takes). Askers who went away cost nothing. At most [`DIGESTS_COUNT_MAX`] wait.

use super::MachineView;
use parking_lot::Mutex;
use raftmq_model::machine::GroupState;
use raftmq_store::consume_queue::ConsumeQueues;
use tokio::sync::oneshot;

/// Digests of one replica that are asked for and not made yet.
pub const DIGESTS_COUNT_MAX: usize = 16;

/// What a replica has made of its log up to and with one entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StateDigest {
    /// Index of the entry.
    pub index: u64,
    /// [`GroupState::digest`]: topics, consumer groups, queue ends, cursors, what is in flight, message ids stored once.
    pub state: u64,
    /// ConsumeQueues of the replica.
    pub queues_count: u64,
    /// Units in them: messages that have a place in a queue.
    pub units_count: u64,
    /// The first ConsumeQueue that does not end where the state says, as a sentence. They never differ.
    pub out_of_step: Option<String>,
}

/// Why a digest is not made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DigestRefusal {
    /// The state has gone past the index.
    #[error("the replica has applied entry {applied} already")]
    Passed {
        /// What it has applied.
        applied: u64,
    },
    /// [`DIGESTS_COUNT_MAX`] wait already.
    #[error("the replica already waits for the entries of {DIGESTS_COUNT_MAX} digests")]
    TooMany,
}

/// Who waits for which index.
#[derive(Default)]
pub(super) struct Digests(Mutex<Vec<Asked>>);

struct Asked {
    index: u64,
    answer: oneshot::Sender<StateDigest>,
}

impl Digests {
    /// Notes an index that is still to come. The caller holds the state's read lock.
    fn ask(&self, index: u64) -> Result<oneshot::Receiver<StateDigest>, DigestRefusal> {
        let (answer, answered) = oneshot::channel();
        let mut asked = self.0.lock();
        asked.retain(|asked| !asked.answer.is_closed());
        if asked.len() >= DIGESTS_COUNT_MAX {
            return Err(DigestRefusal::TooMany);
        }
        asked.push(Asked { index, answer });
        Ok(answered)
    }

    /// Answers those who wait for `index`, which was just applied. The caller holds the state's write lock.
    pub(super) fn reached(&self, index: u64, state: &GroupState, queues: &ConsumeQueues) {
        let mut asked = self.0.lock();
        if asked.is_empty() {
            return;
        }
        let due = asked.extract_if(.., |asked| asked.index <= index);
        // Indexes come one after the other, so none is left behind; one that were is answered nothing rather than a lie.
        let due: Vec<Asked> = due.filter(|asked| asked.index == index && !asked.answer.is_closed()).collect();
        drop(asked);
        if due.is_empty() {
            return;
        }
        let digest = digest(index, state, queues);
        for asked in due {
            // Who went away meanwhile does not matter.
            let _ = asked.answer.send(digest.clone());
        }
    }
}

impl MachineView {
    /// The digest of this replica's state right behind the entry `index`: at once when that is the last one applied, else
    /// as soon as it is. Blocks for a walk over the state. To stop waiting, drop the receiver; it fails when the replica is
    /// closed.
    ///
    /// # Errors
    /// [`DigestRefusal`].
    pub fn digest_at(&self, index: u64) -> Result<oneshot::Receiver<StateDigest>, DigestRefusal> {
        let state = self.state();
        let applied = self.applied();
        if applied > index {
            return Err(DigestRefusal::Passed { applied });
        }
        if applied < index {
            return self.digests().ask(index);
        }
        let (answer, answered) = oneshot::channel();
        let _ = answer.send(digest(index, &state, self.queues()));
        Ok(answered)
    }

    /// The first ConsumeQueue that does not end where the state says, as a sentence; they never differ.
    #[must_use]
    pub fn queue_out_of_step(&self) -> Option<String> {
        out_of_step(&self.state(), self.queues())
    }
}

fn digest(index: u64, state: &GroupState, queues: &ConsumeQueues) -> StateDigest {
    StateDigest {
        index,
        state: state.digest(),
        queues_count: state.queues().count() as u64,
        units_count: state.queues().map(|(topic, queue, _)| queues.max(topic, queue).0).sum(),
        out_of_step: out_of_step(state, queues),
    }
}

fn out_of_step(state: &GroupState, queues: &ConsumeQueues) -> Option<String> {
    let (topic, queue, next) = state.queues().find(|(topic, queue, next)| queues.max(*topic, *queue) != *next)?;
    let max = queues.max(topic, queue);
    Some(format!("queue {queue} of topic {topic} ends at {max}, and by the state at {next}"))
}
