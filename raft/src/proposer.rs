//! Packs commands that are proposed at the same time into one log entry.
//!
//! There is no linger: an idle group proposes a command at once. While [`crate::GroupOptions::pipeline_depth`] entries
//! are under way, the next one grows.

use crate::errors::ProposeError;
use crate::leadership::Leadership;
use crate::options::{ENTRY_BYTES_HARD_MAX, GroupOptions, QUEUE_COUNT_MAX};
use crate::types::{Payload, Raft, TypeConfig, node_of};
use bytes::Bytes;
use openraft::errors::{ClientWriteError, ForwardToLeader};
use openraft::impls::ProgressResponder;
use openraft::raft::ClientWriteResult;
use raftmq_model::batch::{BATCH_COMMAND_OVERHEAD_BYTES, BATCH_HEADER_BYTES, BatchWriter};
use raftmq_model::clock::Clock;
use raftmq_model::ids::NodeId;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError, mpsc, oneshot, watch};

type Answer = Result<Vec<Bytes>, ProposeError>;

/// One call's commands; they share an entry.
struct Proposal {
    commands: Vec<Bytes>,
    bytes: usize,
    answer: oneshot::Sender<Answer>,
    /// Its share of the queue, until it is answered.
    _share: OwnedSemaphorePermit,
}

/// The callers' side. Clones share one queue.
#[derive(Clone)]
pub(crate) struct Proposer {
    node: NodeId,
    queue: mpsc::Sender<Proposal>,
    room: Arc<Semaphore>,
    slots: Arc<Semaphore>,
    depth: u32,
    entry_bytes_hard_max: usize,
    leadership: watch::Receiver<Leadership>,
}

/// The task's side.
struct Packer {
    raft: Raft,
    clock: Arc<dyn Clock>,
    queue: mpsc::Receiver<Proposal>,
    slots: Arc<Semaphore>,
    entry_bytes_max: usize,
    hints: Hints,
    /// Taken from the queue, but too large for the entry before.
    next: Option<Proposal>,
}

/// Finds the node to ask instead of this one.
#[derive(Clone)]
pub(crate) struct Hints {
    node: NodeId,
    leadership: watch::Receiver<Leadership>,
}

impl Hints {
    pub(crate) fn new(node: NodeId, leadership: watch::Receiver<Leadership>) -> Hints {
        Hints { node, leadership }
    }

    pub(crate) fn not_leader(&self, forward: &ForwardToLeader<TypeConfig>) -> ProposeError {
        let named = forward.leader_id.map(node_of);
        let known = self.leadership.borrow().leader;
        ProposeError::NotLeader { leader: named.or(known).filter(|leader| *leader != self.node) }
    }

    /// Whether this replica may take proposals and serve reads now.
    pub(crate) fn check(&self) -> Result<(), ProposeError> {
        let leadership = *self.leadership.borrow();
        match leadership.leader {
            _ if leadership.ready => Ok(()),
            Some(leader) if leader == self.node => Err(ProposeError::NotReady),
            leader => Err(ProposeError::NotLeader { leader }),
        }
    }
}

impl Proposer {
    /// Starts the packing task on the current runtime; it ends with the last clone.
    pub(crate) fn start(
        options: &GroupOptions,
        node: NodeId,
        raft: Raft,
        clock: Arc<dyn Clock>,
        leadership: watch::Receiver<Leadership>,
    ) -> Proposer {
        let (queue, proposals) = mpsc::channel(QUEUE_COUNT_MAX);
        let depth = u32::try_from(options.pipeline_depth.max(1)).unwrap_or(u32::MAX);
        let slots = Arc::new(Semaphore::new(depth as usize));
        let entry_bytes_hard_max = ENTRY_BYTES_HARD_MAX.min(options.log.payload_bytes_max());
        let packer = Packer {
            raft,
            clock,
            queue: proposals,
            slots: Arc::clone(&slots),
            entry_bytes_max: options.entry_bytes_max.min(entry_bytes_hard_max),
            hints: Hints::new(node, leadership.clone()),
            next: None,
        };
        tokio::spawn(packer.run());
        let room = Arc::new(Semaphore::new(options.queue_bytes_max.min(Semaphore::MAX_PERMITS)));
        Proposer { node, queue, room, slots, depth, entry_bytes_hard_max, leadership }
    }

    pub(crate) fn hints(&self) -> Hints {
        Hints::new(self.node, self.leadership.clone())
    }

    /// Proposes commands in one entry and answers their outcomes after they are applied here.
    pub(crate) async fn propose(&self, commands: Vec<Bytes>) -> Answer {
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        let bytes = commands.iter().map(|command| command.len() + BATCH_COMMAND_OVERHEAD_BYTES).sum::<usize>();
        if bytes + BATCH_HEADER_BYTES > self.entry_bytes_hard_max {
            return Err(ProposeError::TooLarge);
        }
        self.hints().check()?;
        let share = u32::try_from(bytes).map_err(|_| ProposeError::TooLarge)?;
        let share = Arc::clone(&self.room).try_acquire_many_owned(share).map_err(|error| match error {
            TryAcquireError::NoPermits => ProposeError::Overloaded,
            TryAcquireError::Closed => ProposeError::Stopped,
        })?;
        let (answer, answered) = oneshot::channel();
        let proposal = Proposal { commands, bytes, answer, _share: share };
        self.queue.try_send(proposal).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => ProposeError::Overloaded,
            mpsc::error::TrySendError::Closed(_) => ProposeError::Stopped,
        })?;
        answered.await.unwrap_or(Err(ProposeError::Unknown))
    }

    /// Holds back new entries, and returns when all earlier ones are answered. Proposals wait in the queue until the
    /// permit is dropped.
    pub(crate) async fn pause(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.slots).acquire_many_owned(self.depth).await.ok()
    }
}

impl Packer {
    async fn run(mut self) {
        loop {
            let first = match self.next.take() {
                Some(proposal) => proposal,
                None => match self.queue.recv().await {
                    Some(proposal) => proposal,
                    None => return,
                },
            };
            let Ok(slot) = Arc::clone(&self.slots).acquire_owned().await else {
                return;
            };
            let proposals = self.pack(first);
            if !proposals.is_empty() {
                self.send(proposals, slot).await;
            }
        }
    }

    /// `first` and what fits behind it. Proposals whose callers are gone are left out: nobody knows of them.
    fn pack(&mut self, first: Proposal) -> Vec<Proposal> {
        let mut bytes = BATCH_HEADER_BYTES;
        let mut packed = Vec::new();
        let mut candidate = Some(first);
        while let Some(proposal) = candidate.take() {
            if !proposal.answer.is_closed() {
                if !packed.is_empty() && bytes + proposal.bytes > self.entry_bytes_max {
                    self.next = Some(proposal);
                    break;
                }
                bytes += proposal.bytes;
                packed.push(proposal);
            }
            candidate = self.queue.try_recv().ok();
        }
        packed
    }

    async fn send(&self, proposals: Vec<Proposal>, slot: OwnedSemaphorePermit) {
        let bytes = proposals.iter().map(|proposal| proposal.bytes).sum();
        let mut writer = BatchWriter::with_capacity(self.clock.now(), bytes);
        for command in proposals.iter().flat_map(|proposal| &proposal.commands) {
            writer.push(command);
        }
        let payload = Payload::unplaced(writer.finish());
        let (responder, response) = ProgressResponder::complete_only();
        if self.raft.client_write_ff(payload, Some(responder)).await.is_err() {
            return answer_all(proposals, ProposeError::Stopped);
        }
        let hints = self.hints.clone();
        tokio::spawn(async move {
            answer(proposals, response.await.ok(), &hints);
            drop(slot);
        });
    }
}

fn answer(proposals: Vec<Proposal>, result: Option<ClientWriteResult<TypeConfig>>, hints: &Hints) {
    let outcomes = match result {
        Some(Ok(response)) => response.data,
        Some(Err(ClientWriteError::ForwardToLeader(forward))) => {
            return answer_all(proposals, hints.not_leader(&forward));
        }
        // Discarded on a change of leader, or the group was closed in between.
        Some(Err(_)) | None => return answer_all(proposals, ProposeError::Unknown),
    };
    let expected = proposals.iter().map(|proposal| proposal.commands.len()).sum::<usize>();
    if outcomes.len() != expected {
        tracing::error!("the machine answered {} outcomes for {expected} commands", outcomes.len());
        return answer_all(proposals, ProposeError::Unknown);
    }
    let mut outcomes = outcomes.into_iter();
    for proposal in proposals {
        let own = outcomes.by_ref().take(proposal.commands.len()).collect();
        // A caller that is gone does not matter.
        let _ = proposal.answer.send(Ok(own));
    }
}

fn answer_all(proposals: Vec<Proposal>, error: ProposeError) {
    for proposal in proposals {
        let _ = proposal.answer.send(Err(error));
    }
}
