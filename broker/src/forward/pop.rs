//! `Pop`: messages for one consumer group.

use crate::leader::Replica;
use raftmq_proto::forward::{Failure, PopReply, PopRequest};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

pub(super) async fn answer(replica: Result<Arc<Replica>, Failure>, request: PopRequest) -> PopReply {
    let deadline = Instant::now() + Duration::from_millis(request.timeout_ms.into());
    match async { replica?.pop(&request, deadline).await }.await {
        Ok(messages) => PopReply { failure: None, messages },
        Err(failure) => PopReply { failure: Some(failure), messages: Vec::new() },
    }
}
