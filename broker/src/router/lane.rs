//! Packs concurrent proposals for one group at one remote leader into few requests.
//!
//! One task for each (node, group, whether messages are stored): it takes what waits, up to the size of one request, whenever one of a few slots is
//! free. No timer: a lone command goes out at once, and batches grow by themselves while all slots are taken.
//!
//! A request is refused as a whole, so commands that a full disk refuses ([`stores_records`]) have a lane of their own: acks
//! of other callers must not be refused with them.

use super::channels::PeerChannels;
use super::retry::Miss;
use super::{remaining_ms, remote};
use crate::options::BrokerLimits;
use bytes::Bytes;
use parking_lot::Mutex;
use raftmq_model::command::stores_records;
use raftmq_model::ids::{GroupId, NodeId};
use raftmq_proto::forward;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

/// Calls that wait for a slot, per lane; the bytes bound is the one that counts.
const LANE_CALLS_COUNT_MAX: usize = 16_384;

/// See the module.
pub(super) struct Lanes {
    channels: Arc<PeerChannels>,
    limits: BrokerLimits,
    lanes: Mutex<BTreeMap<(NodeId, GroupId, bool), Lane>>,
}

#[derive(Clone)]
struct Lane {
    calls: mpsc::Sender<Call>,
    bytes: Arc<Semaphore>,
}

struct Call {
    commands: Vec<Bytes>,
    bytes: usize,
    deadline: Instant,
    answer: oneshot::Sender<Result<Vec<Bytes>, Miss>>,
    /// Given back when the call is answered.
    _bytes: OwnedSemaphorePermit,
}

impl Lanes {
    pub(super) fn new(channels: Arc<PeerChannels>, limits: &BrokerLimits) -> Lanes {
        Lanes { channels, limits: limits.clone(), lanes: Mutex::default() }
    }

    /// Proposes `commands` at `node`; one encoded outcome for each.
    pub(super) async fn propose(
        &self,
        node: NodeId,
        group: GroupId,
        commands: &[Bytes],
        deadline: Instant,
    ) -> Result<Vec<Bytes>, Miss> {
        let lane = self.lane(node, group, commands.iter().any(|command| stores_records(command)));
        let bytes = commands.iter().map(Bytes::len).sum::<usize>();
        let share = u32::try_from(bytes.clamp(1, self.limits.forward_bytes_max)).unwrap_or(u32::MAX);
        let permit = Arc::clone(&lane.bytes).try_acquire_many_owned(share).map_err(|_| Miss::Overloaded)?;
        let (answer, answered) = oneshot::channel();
        let call = Call { commands: commands.to_vec(), bytes, deadline, answer, _bytes: permit };
        lane.calls.try_send(call).map_err(|_| Miss::Overloaded)?;
        match timeout_at(deadline, answered).await {
            Ok(Ok(result)) => result,
            // The time is over, or the lane's task is gone with the runtime.
            Ok(Err(_)) | Err(_) => Err(Miss::Unknown),
        }
    }

    fn lane(&self, node: NodeId, group: GroupId, stores: bool) -> Lane {
        let mut lanes = self.lanes.lock();
        let lane = lanes.entry((node, group, stores)).or_insert_with(|| {
            let (calls, waiting) = mpsc::channel(LANE_CALLS_COUNT_MAX);
            tokio::spawn(run(Arc::clone(&self.channels), self.limits.clone(), node, group, waiting));
            Lane { calls, bytes: Arc::new(Semaphore::new(self.limits.forward_bytes_max)) }
        });
        lane.clone()
    }
}

async fn run(
    channels: Arc<PeerChannels>,
    limits: BrokerLimits,
    node: NodeId,
    group: GroupId,
    mut waiting: mpsc::Receiver<Call>,
) {
    let slots = Arc::new(Semaphore::new(limits.forward_requests_count_max.max(1)));
    let mut next = None;
    loop {
        let first = match next.take() {
            Some(call) => call,
            None => match waiting.recv().await {
                Some(call) => call,
                None => return,
            },
        };
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
        let mut bytes = first.bytes;
        let mut calls = vec![first];
        while let Ok(call) = waiting.try_recv() {
            if bytes + call.bytes > limits.forward_request_bytes_max {
                next = Some(call);
                break;
            }
            bytes += call.bytes;
            calls.push(call);
        }
        let channels = Arc::clone(&channels);
        tokio::spawn(async move {
            send(&channels, node, group, calls).await;
            drop(slot);
        });
    }
}

/// Sends one request for `calls` and shares its answer out.
async fn send(channels: &PeerChannels, node: NodeId, group: GroupId, mut calls: Vec<Call>) {
    // Whoever stopped waiting has answered "unknown" or tried again: what was not sent must not be sent late.
    calls.retain(|call| !call.answer.is_closed());
    let Some(deadline) = calls.iter().map(|call| call.deadline).max() else { return };
    let request = forward::ProposeRequest {
        group_id: group.0,
        commands: calls.iter().flat_map(|call| call.commands.iter().cloned()).collect(),
        timeout_ms: remaining_ms(deadline),
    };
    let count = request.commands.len();
    let result = match remote::propose(channels, node, request, deadline).await {
        Ok(outcomes) if outcomes.len() != count => Err(Miss::Unknown),
        other => other,
    };
    match result {
        Ok(outcomes) => {
            let mut outcomes = outcomes.into_iter();
            for call in calls {
                let share = outcomes.by_ref().take(call.commands.len()).collect();
                let _ = call.answer.send(Ok(share));
            }
        }
        Err(miss) => {
            for call in calls {
                let _ = call.answer.send(Err(miss.clone()));
            }
        }
    }
}
