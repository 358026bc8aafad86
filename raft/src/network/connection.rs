//! The Raft library's calls to one replica.

use super::link::PeerLink;
use crate::types::{Snapshot, TypeConfig, Vote};
use crate::wire;
use bytes::Bytes;
use futures::stream::{self, Stream, StreamExt};
use openraft::OptionalSend;
use openraft::base::{BoxFuture, BoxStream};
use openraft::errors::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{Backoff, NetBackoff, NetSnapshot, NetStreamAppend, NetTransferLeader, NetVote, RPCOption};
use openraft::raft::{
    AppendEntriesRequest, SnapshotResponse, StreamAppendResult, TransferLeaderRequest, TransferLeaderResponse,
    VoteRequest, VoteResponse,
};
use raftmq_model::ids::GroupId;
use raftmq_proto::raft as pb;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tonic::{Code, Status};

/// Pause between two tries to replicate to a peer that cannot be reached.
const BACKOFF: Duration = Duration::from_millis(50);
/// Bytes of one message of a snapshot.
const SNAPSHOT_CHUNK_BYTES: usize = 1 << 20;

type AppendResults<'s> = BoxStream<'s, Result<StreamAppendResult<TypeConfig>, RPCError<TypeConfig>>>;

#[derive(Clone, Copy)]
pub(crate) enum Purpose {
    Log,
    Heartbeat,
}

pub(crate) struct Connection {
    group: GroupId,
    replica: u64,
    link: Arc<PeerLink>,
    purpose: Purpose,
}

impl Connection {
    pub(crate) fn new(group: GroupId, replica: u64, link: Arc<PeerLink>, purpose: Purpose) -> Connection {
        Connection { group, replica, link, purpose }
    }

    /// Everything that fails is "unreachable" for the Raft library: that is what makes it pause before the next try.
    fn failed(&self, status: &Status) -> RPCError<TypeConfig> {
        if status.code() == Code::FailedPrecondition {
            self.link.identity().log_refusal(self.link.node().0, status.message());
        }
        unreachable(status.message())
    }

    async fn heartbeat(
        &self,
        request: AppendEntriesRequest<TypeConfig>,
        limit: Duration,
    ) -> Result<StreamAppendResult<TypeConfig>, RPCError<TypeConfig>> {
        let message = wire::from_append(&request, self.group.0, self.replica).map_err(broken)?;
        let mut client = self.link.control();
        let reply = within(limit, client.heartbeat(message)).await.map_err(|status| self.failed(&status))?;
        wire::to_append_result(reply).map_err(broken)
    }

    async fn append_stream<'s, S>(&'s self, mut input: S) -> Result<AppendResults<'s>, RPCError<TypeConfig>>
    where
        S: Stream<Item = AppendEntriesRequest<TypeConfig>> + OptionalSend + Unpin + 'static,
    {
        // The Raft library sleeps its backoff inside the request stream. So the first request is taken before the
        // transport is touched, or a refused connection would be tried again in a busy loop.
        let Some(first) = input.next().await else {
            return Ok(Box::pin(stream::empty()));
        };
        let (group, replica) = (self.group.0, self.replica);
        let requests = stream::once(async move { first }).chain(input).map(move |request| {
            wire::from_append(&request, group, replica)
                .inspect_err(|error| tracing::error!(group, "an append request cannot be encoded: {error}"))
        });
        let requests = requests
            .take_while(|request| std::future::ready(request.is_ok()))
            .filter_map(|request| std::future::ready(request.ok()));
        let replies = self.link.bulk().append(requests).await.map_err(|status| self.failed(&status))?;
        let results = replies.into_inner().map(|reply| {
            let reply = reply.map_err(|status| self.failed(&status))?;
            wire::to_append_result(reply).map_err(broken)
        });
        Ok(Box::pin(results))
    }

    fn heartbeat_stream<'s, S>(&'s self, input: S, limit: Duration) -> AppendResults<'s>
    where
        S: Stream<Item = AppendEntriesRequest<TypeConfig>> + OptionalSend + Unpin + 'static,
    {
        Box::pin(input.then(move |request| self.heartbeat(request, limit)))
    }

    fn snapshot_messages(&self, vote: &Vote, snapshot: Snapshot) -> io::Result<Vec<pb::SnapshotChunk>> {
        let head = pb::SnapshotChunk {
            group_id: self.group.0,
            vote: Some(wire::from_vote(vote)),
            meta: serde_json::to_vec(&snapshot.meta)?.into(),
            data: Bytes::new(),
            to_replica: self.replica,
        };
        let mut data = snapshot.snapshot;
        let mut chunks = vec![head];
        while !data.is_empty() {
            let data = data.split_to(data.len().min(SNAPSHOT_CHUNK_BYTES));
            chunks.push(pb::SnapshotChunk { data, ..pb::SnapshotChunk::default() });
        }
        Ok(chunks)
    }
}

impl NetStreamAppend<TypeConfig> for Connection {
    fn stream_append<'s, S>(
        &'s mut self,
        input: S,
        option: RPCOption,
    ) -> BoxFuture<'s, Result<AppendResults<'s>, RPCError<TypeConfig>>>
    where
        S: Stream<Item = AppendEntriesRequest<TypeConfig>> + OptionalSend + Unpin + 'static,
    {
        match self.purpose {
            Purpose::Log => Box::pin(self.append_stream(input)),
            Purpose::Heartbeat => Box::pin(async move { Ok(self.heartbeat_stream(input, option.hard_ttl())) }),
        }
    }
}

impl NetVote<TypeConfig> for Connection {
    async fn vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        let message = wire::from_vote_request(&request, self.group.0, self.replica);
        let mut client = self.link.control();
        let reply = within(option.hard_ttl(), client.vote(message)).await.map_err(|status| self.failed(&status))?;
        wire::to_vote_response(reply).map_err(broken)
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        let message = wire::from_vote_request(&request, self.group.0, self.replica);
        let mut client = self.link.control();
        let reply = within(option.hard_ttl(), client.pre_vote(message)).await.map_err(|status| self.failed(&status))?;
        wire::to_vote_response(reply).map_err(broken)
    }
}

impl NetSnapshot<TypeConfig> for Connection {
    type SnapshotData = Bytes;

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        let messages = self.snapshot_messages(&vote, snapshot).map_err(broken)?;
        let mut client = self.link.snapshot();
        let send = within(option.hard_ttl(), client.snapshot(stream::iter(messages)));
        let reply = tokio::select! {
            reply = send => reply.map_err(|status| self.failed(&status))?,
            closed = cancel => return Err(StreamingError::Closed(closed)),
        };
        Ok(SnapshotResponse::new(wire::to_vote(reply.vote).map_err(broken)?))
    }
}

impl NetTransferLeader<TypeConfig> for Connection {
    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<TypeConfig>, RPCError<TypeConfig>> {
        let message = wire::from_transfer(&request, self.group.0, self.replica);
        let mut client = self.link.control();
        within(option.hard_ttl(), client.transfer_leader(message)).await.map_err(|status| self.failed(&status))?;
        Ok(Ok(()))
    }
}

impl NetBackoff<TypeConfig> for Connection {
    fn backoff(&self) -> Option<Backoff> {
        Some(Backoff::new(std::iter::repeat(BACKOFF)))
    }
}

async fn within<T>(
    limit: Duration,
    call: impl Future<Output = Result<tonic::Response<T>, Status>>,
) -> Result<T, Status> {
    match tokio::time::timeout(limit, call).await {
        Ok(reply) => reply.map(tonic::Response::into_inner),
        Err(_) => Err(Status::deadline_exceeded("the peer did not answer in time")),
    }
}

fn unreachable(reason: &str) -> RPCError<TypeConfig> {
    RPCError::Unreachable(Unreachable::from_string(reason))
}

fn broken(error: io::Error) -> RPCError<TypeConfig> {
    unreachable(&error.to_string())
}
