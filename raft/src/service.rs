//! The server side of the peer port: hands calls to the group that they are for.

use crate::types::{Raft, Snapshot, SnapshotMeta, TypeConfig};
use crate::wire;
use bytes::{Bytes, BytesMut};
use futures::stream::{self, BoxStream, Stream, StreamExt};
use openraft::raft::{AppendEntriesRequest, StreamAppendResult};
use parking_lot::RwLock;
use raftmq_model::ids::{GroupId, PhysicalOffset, ReplicaId};
use raftmq_proto::raft as pb;
use raftmq_proto::raft::raft_server;
use raftmq_store::commit_log::{CommitLog, is_damage};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use tokio::sync::watch;
use tonic::{Request, Response, Status, Streaming};

/// Bytes of a snapshot that a replica takes.
const SNAPSHOT_BYTES_MAX: usize = 1 << 30;

/// The replicas that answer here.
#[derive(Clone)]
pub(crate) struct Replicas {
    replica: ReplicaId,
    groups: Arc<RwLock<BTreeMap<u32, Raft>>>,
    /// The last later life of this node that a peer meant.
    outlived: Arc<watch::Sender<Option<ReplicaId>>>,
    /// Logs answer as soon as they are open.
    logs: Arc<RwLock<BTreeMap<u32, CommitLog>>>,
}

impl Replicas {
    pub(crate) fn new(replica: ReplicaId) -> Replicas {
        Replicas { replica, groups: Arc::default(), logs: Arc::default(), outlived: Arc::default() }
    }

    pub(crate) fn outlived(&self) -> watch::Receiver<Option<ReplicaId>> {
        self.outlived.subscribe()
    }

    pub(crate) fn insert(&self, group: GroupId, raft: Raft) {
        self.groups.write().insert(group.0, raft);
    }

    pub(crate) fn insert_log(&self, group: GroupId, log: CommitLog) {
        self.logs.write().insert(group.0, log);
    }

    pub(crate) fn remove_log(&self, group: GroupId) {
        self.logs.write().remove(&group.0);
    }

    fn log(&self, group_id: u32) -> Option<CommitLog> {
        self.logs.read().get(&group_id).cloned()
    }

    pub(crate) fn clear(&self) {
        self.logs.write().clear();
        self.groups.write().clear();
    }

    #[allow(clippy::result_large_err)] // what tonic's handlers answer
    fn find(&self, group_id: u32, to_replica: u64) -> Result<Raft, Status> {
        if to_replica != self.replica.to_u64() {
            let meant = ReplicaId::from_u64(to_replica);
            if meant.node == self.replica.node && meant.incarnation > self.replica.incarnation {
                self.outlived.send_replace(Some(meant));
            }
            let sentence = format!("this is replica {}, the call is for replica {meant}", self.replica);
            return Err(Status::failed_precondition(sentence));
        }
        let raft = self.groups.read().get(&group_id).cloned();
        raft.ok_or_else(|| Status::not_found(format!("group {group_id} has no replica here")))
    }
}

/// The service `raftmq.raft.v1.Raft`.
#[derive(Clone)]
pub(crate) struct RaftService {
    replicas: Replicas,
    boot: u64,
    volume_full: watch::Receiver<bool>,
}

impl RaftService {
    /// `boot` tells this process from the one before it; `volume_full` is passed on to those who ping.
    pub(crate) fn new(replicas: Replicas, boot: u64, volume_full: watch::Receiver<bool>) -> RaftService {
        RaftService { replicas, boot, volume_full }
    }
}

#[tonic::async_trait]
impl raft_server::Raft for RaftService {
    type AppendStream = BoxStream<'static, Result<pb::AppendReply, Status>>;
    type PingStream = BoxStream<'static, Result<pb::PingFrame, Status>>;

    async fn append(
        &self,
        request: Request<Streaming<pb::AppendRequest>>,
    ) -> Result<Response<Self::AppendStream>, Status> {
        let mut messages = request.into_inner();
        let Some(first) = messages.message().await? else {
            return Ok(Response::new(Box::pin(stream::empty())));
        };
        let (group_id, to_replica) = (first.group_id, first.to_replica);
        let raft = self.replicas.find(group_id, to_replica)?;
        let messages = stream::once(std::future::ready(Ok(first))).chain(messages);
        let results = raft.stream_append(append_requests(messages, group_id, to_replica));
        let replies = results.map(|result| match result {
            Ok(result) => Ok(wire::from_append_result(&result)),
            Err(fatal) => Err(Status::unavailable(fatal.to_string())),
        });
        Ok(Response::new(Box::pin(replies)))
    }

    async fn heartbeat(&self, request: Request<pb::AppendRequest>) -> Result<Response<pb::AppendReply>, Status> {
        let message = request.into_inner();
        let raft = self.replicas.find(message.group_id, message.to_replica)?;
        let request = wire::to_append(message).map_err(invalid)?;
        let previous = request.prev_log_id;
        let last = request.entries.last().map(|entry| entry.log_id).or(previous);
        let response = raft.append_entries(request).await.map_err(unavailable)?;
        let result: StreamAppendResult<TypeConfig> = response.into_stream_result(previous, last);
        Ok(Response::new(wire::from_append_result(&result)))
    }

    async fn vote(&self, request: Request<pb::VoteRequest>) -> Result<Response<pb::VoteReply>, Status> {
        let message = request.into_inner();
        let raft = self.replicas.find(message.group_id, message.to_replica)?;
        let response = raft.vote(wire::to_vote_request(message).map_err(invalid)?).await.map_err(unavailable)?;
        Ok(Response::new(wire::from_vote_response(&response)))
    }

    async fn pre_vote(&self, request: Request<pb::VoteRequest>) -> Result<Response<pb::VoteReply>, Status> {
        let message = request.into_inner();
        let raft = self.replicas.find(message.group_id, message.to_replica)?;
        let response = raft.pre_vote(wire::to_vote_request(message).map_err(invalid)?).await.map_err(unavailable)?;
        Ok(Response::new(wire::from_vote_response(&response)))
    }

    async fn snapshot(
        &self,
        request: Request<Streaming<pb::SnapshotChunk>>,
    ) -> Result<Response<pb::SnapshotReply>, Status> {
        let mut chunks = request.into_inner();
        let head = chunks.message().await?.ok_or_else(|| Status::invalid_argument("the snapshot has no head"))?;
        let raft = self.replicas.find(head.group_id, head.to_replica)?;
        let vote = wire::to_vote(head.vote).map_err(invalid)?;
        let meta: SnapshotMeta = serde_json::from_slice(&head.meta).map_err(|error| invalid(error.into()))?;
        let snapshot = Snapshot { meta, snapshot: collect(chunks).await? };
        let response = raft.install_full_snapshot(vote, snapshot).await.map_err(unavailable)?;
        Ok(Response::new(pb::SnapshotReply { vote: Some(wire::from_vote(&response.vote)) }))
    }

    async fn frame(&self, request: Request<pb::FrameRequest>) -> Result<Response<pb::FrameReply>, Status> {
        let pb::FrameRequest { group_id, offset } = request.into_inner();
        let none = || Status::not_found(format!("no committed frame of group {group_id} begins at {offset} here"));
        // It may still be opened here, and wait for frames itself.
        let closed = || Status::unavailable(format!("no log of group {group_id} is open here"));
        let log = self.replicas.log(group_id).ok_or_else(closed)?;
        match log.committed_frame(PhysicalOffset(offset)) {
            Ok(Some(frame)) => Ok(Response::new(pb::FrameReply { frame, committed_index: 0 })),
            Ok(None) => {
                let purged_end = log.purged().and_then(|(_, purged)| log.end_offset(purged));
                let committed = purged_end.filter(|end| offset < end.0).and(log.committed_and_durable());
                let (_, committed_index) = committed.ok_or_else(none)?;
                Ok(Response::new(pb::FrameReply { committed_index, ..pb::FrameReply::default() }))
            }
            Err(error) if is_damage(&error) => Err(Status::data_loss(error.to_string())),
            Err(error) => Err(unavailable(error)),
        }
    }

    async fn transfer_leader(
        &self,
        request: Request<pb::TransferLeaderRequest>,
    ) -> Result<Response<pb::TransferLeaderReply>, Status> {
        let message = request.into_inner();
        let raft = self.replicas.find(message.group_id, message.to_replica)?;
        let is_damaged = self.replicas.log(message.group_id).is_some_and(|log| log.integrity().damaged_count > 0);
        if is_damaged && message.new_leader == message.to_replica {
            return Err(Status::aborted("the log of this replica is damaged: it does not campaign"));
        }
        let response = raft.handle_transfer_leader(wire::to_transfer(message).map_err(invalid)?).await;
        response.map_err(unavailable)?.map_err(|refusal| Status::aborted(refusal.to_string()))?;
        Ok(Response::new(pb::TransferLeaderReply {}))
    }

    async fn ping(&self, request: Request<Streaming<pb::PingFrame>>) -> Result<Response<Self::PingStream>, Status> {
        Ok(Response::new(Box::pin(echoes(request.into_inner(), self.boot, self.volume_full.clone()))))
    }
}

/// Echoes each frame; and repeats the last one unasked when the volume is full or has room again, so that peers hear of it
/// at once. Ends with the frames.
fn echoes(
    frames: Streaming<pb::PingFrame>,
    boot: u64,
    full: watch::Receiver<bool>,
) -> impl Stream<Item = Result<pb::PingFrame, Status>> + Send + 'static {
    stream::unfold((frames, full, 0), move |(mut frames, mut full, mut sequence)| async move {
        tokio::select! {
            frame = frames.message() => match frame {
                Ok(Some(frame)) => sequence = frame.sequence,
                Ok(None) => return None,
                Err(status) => return Some((Err(status), (frames, full, sequence))),
            },
            Ok(()) = full.changed() => {}
        }
        let volume_full = *full.borrow_and_update();
        Some((Ok(pb::PingFrame { sequence, boot, volume_full }), (frames, full, sequence)))
    })
}

/// The requests of one append stream; it ends at the first that is broken or for another replica.
fn append_requests(
    messages: impl Stream<Item = Result<pb::AppendRequest, Status>> + Send + 'static,
    group_id: u32,
    to_replica: u64,
) -> impl Stream<Item = AppendEntriesRequest<TypeConfig>> + Send + 'static {
    let requests = messages.map(move |message| {
        let message = message.map_err(io::Error::other)?;
        if (message.group_id, message.to_replica) != (group_id, to_replica) {
            return Err(io::Error::other("an append stream changed its group"));
        }
        wire::to_append(message)
    });
    requests.scan((), move |(), request| {
        let request = request.inspect_err(|error| tracing::debug!(group_id, "an append stream ends: {error}"));
        std::future::ready(request.ok())
    })
}

async fn collect(mut chunks: Streaming<pb::SnapshotChunk>) -> Result<Bytes, Status> {
    let mut data = BytesMut::new();
    while let Some(chunk) = chunks.message().await? {
        if data.len() + chunk.data.len() > SNAPSHOT_BYTES_MAX {
            return Err(Status::resource_exhausted(format!("a snapshot has more than {SNAPSHOT_BYTES_MAX} bytes")));
        }
        data.extend_from_slice(&chunk.data);
    }
    Ok(data.freeze())
}

fn invalid(error: io::Error) -> Status {
    Status::invalid_argument(error.to_string())
}

fn unavailable(error: impl std::fmt::Display) -> Status {
    Status::unavailable(error.to_string())
}
