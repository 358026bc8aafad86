//! `raftmq.peer.v1.Peer/Digest`: one replica of this node at one index of its log.

use super::born::Born;
use raftmq_broker::leader::{DigestError, ReplicaDigest};
use raftmq_broker::machine::DigestRefusal;
use raftmq_model::ids::GroupId;
use raftmq_proto::peer::{DigestReply, DigestRequest};
use std::time::Duration;
use tokio::time::Instant;
use tonic::Status;

/// The longest wait for an entry, whatever the caller asks for.
const WAIT_MS_MAX: u32 = 30_000;

/// Waits until the entry is applied here.
pub(super) async fn digest(born: &Born, request: DigestRequest) -> Result<DigestReply, Status> {
    let DigestRequest { group_id, index, wait_ms } = request;
    let replica = born.broker.replica(GroupId(group_id));
    let replica =
        replica.ok_or_else(|| Status::not_found(format!("this node has no replica of broker group {group_id}")))?;
    let deadline = Instant::now() + Duration::from_millis(wait_ms.min(WAIT_MS_MAX).into());
    match replica.digest_at(index, deadline).await {
        Ok(digest) => Ok(reply(digest)),
        Err(DigestError::Refused(DigestRefusal::Passed { applied })) => {
            Ok(DigestReply { passed_at: applied, ..DigestReply::default() })
        }
        Err(error @ DigestError::Refused(DigestRefusal::TooMany)) => Err(Status::resource_exhausted(error.to_string())),
        Err(error @ DigestError::Late { .. }) => Err(Status::deadline_exceeded(error.to_string())),
        Err(error @ DigestError::Closed) => Err(Status::unavailable(error.to_string())),
    }
}

fn reply(digest: ReplicaDigest) -> DigestReply {
    DigestReply {
        passed_at: 0,
        term: digest.term,
        state_digest: digest.state.state,
        log_end_offset: digest.end.0,
        queues_count: digest.state.queues_count,
        units_count: digest.state.units_count,
        out_of_step: digest.state.out_of_step.unwrap_or_default(),
    }
}
