//! `Propose`: commands for the log.

use crate::leader::{Replica, failure};
use raftmq_proto::forward::{Failure, ProposeReply, ProposeRequest, failure::Kind};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

pub(super) async fn answer(replica: Result<Arc<Replica>, Failure>, request: ProposeRequest) -> ProposeReply {
    let result = async {
        let time = Duration::from_millis(request.timeout_ms.into());
        match timeout(time, replica?.propose(request.commands)).await {
            Ok(outcomes) => outcomes,
            Err(_) => Err(failure(Kind::Unknown, "the commands were not applied in time")),
        }
    };
    match result.await {
        Ok(outcomes) => ProposeReply { failure: None, outcomes },
        Err(failure) => ProposeReply { failure: Some(failure), outcomes: Vec::new() },
    }
}
