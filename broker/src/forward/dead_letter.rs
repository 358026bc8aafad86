//! `DeadLetter`: one message to the dead-letter topic.

use crate::leader::{Replica, failure};
use bytes::Bytes;
use prost::Message;
use raftmq_model::command::{HandleKey, Outcome};
use raftmq_proto::forward::{DeadLetterReply, DeadLetterRequest, Failure, failure::Kind};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

pub(super) async fn answer(replica: Result<Arc<Replica>, Failure>, request: DeadLetterRequest) -> DeadLetterReply {
    let result = async {
        let handle = HandleKey::decode(request.handle).map_err(|error| failure(Kind::Invalid, error.to_string()))?;
        let time = Duration::from_millis(request.timeout_ms.into());
        match timeout(time, replica?.dead_letter(handle)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(failure(Kind::Unknown, "the message was not moved in time")),
        }
    };
    match result.await {
        Ok(outcome) => DeadLetterReply { failure: None, outcome: Outcome::Handles(vec![outcome]).encode() },
        Err(failure) => DeadLetterReply { failure: Some(failure), outcome: Bytes::new() },
    }
}
