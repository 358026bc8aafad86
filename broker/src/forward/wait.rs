//! `Wait`: a long poll.

use crate::leader::Replica;
use raftmq_proto::forward::{Failure, WaitReply, WaitRequest};
use std::sync::Arc;

pub(super) async fn answer(replica: Result<Arc<Replica>, Failure>, request: WaitRequest) -> WaitReply {
    match async { replica?.wait(&request).await }.await {
        Ok(ready) => WaitReply { failure: None, ready },
        Err(failure) => WaitReply { failure: Some(failure), ready: false },
    }
}
