//! `Pop`: messages for one consumer group.

use crate::leader::Replica;
use raftmq_proto::forward::{Failure, PopReply, PopRequest};
use std::sync::Arc;

pub(super) async fn answer(replica: Result<Arc<Replica>, Failure>, request: PopRequest) -> PopReply {
    match async { replica?.pop(&request).await }.await {
        Ok(messages) => PopReply { failure: None, messages },
        Err(failure) => PopReply { failure: Some(failure), messages: Vec::new() },
    }
}
