//! Proposes to the meta group through whichever namesrv node answers.

use super::caught_up::caught_up;
use super::error::judge;
use super::{CATCH_UP_MS_MAX, MetaError, Shared};
use bytes::Bytes;
use prost::Message;
use raftmq_model::meta::{MetaAnswer, MetaCommand, MetaOp, MetaOutcome, MetaView};
use raftmq_proto::meta::ProposeRequest;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tonic::{Code, Status};

/// A namesrv node gets this long before the next one is asked: one that hangs must not use the whole deadline up.
const ATTEMPT_MS_MAX: u64 = 2_000;
/// A round over all nodes that found none is followed by a wait: this long at first, then longer.
const PAUSE_MS_MIN: u64 = 20;
const PAUSE_MS_MAX: u64 = 500;

/// What one failed attempt means.
#[derive(Debug)]
pub(super) enum Failure {
    /// Surely not proposed: try the next node.
    NotProposed,
    /// It may have been proposed: try the next node all the same, commands are idempotent.
    MaybeProposed,
    /// No node will take it.
    Final(MetaError),
}

impl Shared {
    pub(super) async fn propose(&self, op: MetaOp, deadline: Instant) -> Result<MetaAnswer, MetaError> {
        let turn = tokio::time::timeout_at(deadline, self.proposals.acquire()).await;
        let Ok(Ok(_turn)) = turn else { return Err(MetaError::Unavailable) };
        self.propose_in_turn(op, deadline).await
    }

    /// What `known` finds in the view, or else what the meta group answers to `op`. Callers that wait for their turn
    /// meanwhile profit from the first one's answer.
    pub(super) async fn get_or_propose<T>(
        &self,
        known: impl Fn(&MetaView) -> Option<Arc<T>>,
        op: MetaOp,
        deadline: Instant,
    ) -> Result<Result<Arc<T>, MetaAnswer>, MetaError> {
        if let Some(found) = known(&self.view()) {
            return Ok(Ok(found));
        }
        let turn = tokio::time::timeout_at(deadline, self.proposals.acquire()).await;
        let Ok(Ok(_turn)) = turn else { return Err(MetaError::Unavailable) };
        if let Some(found) = known(&self.view()) {
            return Ok(Ok(found));
        }
        match self.propose_in_turn(op, deadline).await {
            Ok(answer) => Ok(known(&self.view()).ok_or(answer)),
            // Created meanwhile by another node, with other settings: those stand.
            Err(MetaError::Refused(sentence)) => {
                let until = deadline.min(Instant::now() + Duration::from_millis(REFUSED_WAIT_MS));
                self.wait_for(until, |view| known(view).is_some()).await;
                known(&self.view()).map(Ok).ok_or(MetaError::Refused(sentence))
            }
            Err(error) => Err(error),
        }
    }

    async fn propose_in_turn(&self, op: MetaOp, deadline: Instant) -> Result<MetaAnswer, MetaError> {
        let command = Bytes::from(MetaCommand { op: Some(op.clone()) }.encode_to_vec());
        let outcome = self.propose_somewhere(command, deadline).await?;
        let answer = judge(outcome.answer)?;
        let until = deadline.min(Instant::now() + Duration::from_millis(CATCH_UP_MS_MAX));
        self.wait_for(until, |view| caught_up(view, &op, &answer)).await;
        Ok(answer)
    }

    async fn propose_somewhere(&self, command: Bytes, deadline: Instant) -> Result<MetaOutcome, MetaError> {
        let (mut at, mut pause_ms) = (self.peers.preferred(), PAUSE_MS_MIN);
        let mut maybe_proposed = false;
        loop {
            for _ in 0..self.peers.count() {
                match self.propose_at(at, command.clone(), deadline).await {
                    Ok(outcome) => {
                        self.peers.prefer(at);
                        // An attempt before may have been what altered it.
                        if maybe_proposed && matches!(outcome.answer, Some(MetaAnswer::Conflict(_))) {
                            return Err(MetaError::Unknown);
                        }
                        return Ok(outcome);
                    }
                    Err(Failure::Final(error)) => return Err(error),
                    Err(Failure::MaybeProposed) => maybe_proposed = true,
                    Err(Failure::NotProposed) => {}
                }
                at += 1;
            }
            let pause_end = Instant::now() + Duration::from_millis(pause_ms);
            if pause_end >= deadline {
                return Err(if maybe_proposed { MetaError::Unknown } else { MetaError::Unavailable });
            }
            tokio::time::sleep_until(pause_end).await;
            pause_ms = (pause_ms * 2).min(PAUSE_MS_MAX);
        }
    }

    async fn propose_at(&self, at: usize, command: Bytes, deadline: Instant) -> Result<MetaOutcome, Failure> {
        let Some(mut client) = self.peers.at(at) else { return Err(Failure::NotProposed) };
        let left = deadline.saturating_duration_since(Instant::now()).min(Duration::from_millis(ATTEMPT_MS_MAX));
        let timeout_ms = u32::try_from(left.as_millis()).unwrap_or(u32::MAX);
        if timeout_ms == 0 {
            return Err(Failure::NotProposed);
        }
        let call = client.propose(ProposeRequest { command, timeout_ms });
        let reply = match tokio::time::timeout(left, call).await {
            Ok(Ok(reply)) => reply,
            Ok(Err(status)) => return Err(failure(&status)),
            Err(_) => return Err(Failure::MaybeProposed),
        };
        MetaOutcome::decode(reply.outcome)
            .map_err(|error| Failure::Final(MetaError::Refused(format!("the meta group's answer is damaged: {error}"))))
    }
}

/// How long a view may take to show what another node has created just now.
const REFUSED_WAIT_MS: u64 = 500;

/// Statuses that a server sent have no source; those of a broken connection do, and say nothing about what the server
/// has done, unless nobody listened.
pub(super) fn failure(status: &Status) -> Failure {
    let sent_by_server = std::error::Error::source(status).is_none();
    match status.code() {
        Code::InvalidArgument if sent_by_server => Failure::Final(MetaError::Refused(status.message().to_owned())),
        Code::Unavailable | Code::ResourceExhausted | Code::FailedPrecondition if sent_by_server => {
            Failure::NotProposed
        }
        Code::Unavailable if nobody_listened(status) => Failure::NotProposed,
        _ => Failure::MaybeProposed,
    }
}

fn nobody_listened(status: &Status) -> bool {
    let mut source = std::error::Error::source(status);
    while let Some(error) = source {
        if let Some(io) = error.downcast_ref::<std::io::Error>() {
            // The connector's own: refused, a pause between connects, no address.
            return matches!(io.kind(), ErrorKind::ConnectionRefused | ErrorKind::WouldBlock | ErrorKind::NotFound);
        }
        source = error.source();
    }
    false
}
