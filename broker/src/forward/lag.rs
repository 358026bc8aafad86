//! `Lag`: how far consumer groups are behind.

use crate::leader::Replica;
use raftmq_proto::forward::{Failure, LagReply, LagRequest};
use std::sync::Arc;

pub(super) async fn answer(replica: Result<Arc<Replica>, Failure>, request: LagRequest) -> LagReply {
    match async { replica?.lag(&request).await }.await {
        Ok(queues) => LagReply { failure: None, queues },
        Err(failure) => LagReply { failure: Some(failure), queues: Vec::new() },
    }
}
