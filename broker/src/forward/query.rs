//! `Query`: messages by key, id or time.

use crate::leader::Replica;
use raftmq_proto::forward::{Failure, QueryReply, QueryRequest};
use std::sync::Arc;

pub(super) async fn answer(replica: Result<Arc<Replica>, Failure>, request: QueryRequest) -> QueryReply {
    match async { replica?.query(request).await }.await {
        Ok(reply) => reply,
        Err(failure) => QueryReply { failure: Some(failure), ..QueryReply::default() },
    }
}
