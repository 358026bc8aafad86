//! One try over gRPC: each call, and what its failures mean.

use super::channels::PeerChannels;
use super::remaining_ms;
use super::retry::Miss;
use bytes::Bytes;
use raftmq_model::command::{HandleOutcome, Outcome};
use raftmq_model::ids::NodeId;
use raftmq_proto::forward;
use std::error::Error;
use tokio::time::{Instant, timeout_at};
use tonic::{Code, Status};

pub(super) async fn propose(
    channels: &PeerChannels,
    node: NodeId,
    request: forward::ProposeRequest,
    deadline: Instant,
) -> Result<Vec<Bytes>, Miss> {
    let mut client = channels.client(node);
    let reply = bounded(deadline, client.propose(request)).await?;
    settle(reply.failure)?;
    Ok(reply.outcomes)
}

pub(super) async fn pop(
    channels: &PeerChannels,
    node: NodeId,
    mut request: forward::PopRequest,
    deadline: Instant,
) -> Result<Vec<forward::PoppedMessage>, Miss> {
    request.timeout_ms = remaining_ms(deadline);
    let mut client = channels.client(node);
    let reply = bounded(deadline, client.pop(request)).await?;
    settle(reply.failure)?;
    Ok(reply.messages)
}

pub(super) async fn wait(
    channels: &PeerChannels,
    node: NodeId,
    request: forward::WaitRequest,
    deadline: Instant,
) -> Result<bool, Miss> {
    let mut client = channels.client(node);
    let reply = bounded(deadline, client.wait(request)).await?;
    settle(reply.failure)?;
    Ok(reply.ready)
}

pub(super) async fn lag(
    channels: &PeerChannels,
    node: NodeId,
    request: forward::LagRequest,
    deadline: Instant,
) -> Result<Vec<forward::QueueLag>, Miss> {
    let mut client = channels.client(node);
    let reply = bounded(deadline, client.lag(request)).await?;
    settle(reply.failure)?;
    Ok(reply.queues)
}

pub(super) async fn query(
    channels: &PeerChannels,
    node: NodeId,
    request: forward::QueryRequest,
    deadline: Instant,
) -> Result<forward::QueryReply, Miss> {
    let mut client = channels.client(node);
    let mut reply = bounded(deadline, client.query(request)).await?;
    settle(reply.failure.take())?;
    Ok(reply)
}

pub(super) async fn dead_letter(
    channels: &PeerChannels,
    node: NodeId,
    request: forward::DeadLetterRequest,
    deadline: Instant,
) -> Result<HandleOutcome, Miss> {
    let mut client = channels.client(node);
    let reply = bounded(deadline, client.dead_letter(request)).await?;
    settle(reply.failure)?;
    match Outcome::decode(reply.outcome) {
        Ok(Outcome::Handles(handles)) => handles.first().copied().ok_or(Miss::Unknown),
        _ => Err(Miss::Unknown),
    }
}

async fn bounded<T>(
    deadline: Instant,
    call: impl Future<Output = Result<tonic::Response<T>, Status>>,
) -> Result<T, Miss> {
    match timeout_at(deadline, call).await {
        Ok(Ok(response)) => Ok(response.into_inner()),
        Ok(Err(status)) => Err(miss_of(&status)),
        Err(_) => Err(Miss::Unknown),
    }
}

fn settle(failure: Option<forward::Failure>) -> Result<(), Miss> {
    failure.map_or(Ok(()), |failure| Err(Miss::from(failure)))
}

/// A connection that was never made carried nothing; after that, anything may have arrived.
fn miss_of(status: &Status) -> Miss {
    let mut cause: Option<&(dyn Error + 'static)> = status.source();
    while let Some(error) = cause {
        if error.is::<tonic::ConnectError>() {
            return Miss::Unreachable;
        }
        cause = error.source();
    }
    match status.code() {
        // The peer checks identity before it hands a call on, and an old peer has no such call.
        Code::FailedPrecondition | Code::Unimplemented | Code::Unauthenticated => Miss::Unreachable,
        _ => Miss::Unknown,
    }
}
