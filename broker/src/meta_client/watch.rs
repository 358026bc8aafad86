//! Follows the meta group by one watch stream.

use super::Shared;
use prost::Message;
use raftmq_model::meta::MetaChange;
use std::sync::Arc;
use std::time::Duration;
use tonic::Status;

/// The first wait before the next node is tried.
const BACKOFF_MS_MIN: u64 = 20;
/// The longest wait before the next node is tried.
const BACKOFF_MS_MAX: u64 = 1_000;
/// A stream without an event for this long is dead: the server says something once a second, if only that nothing changed.
const SILENCE_MS_MAX: u64 = 4_000;
/// After this long on another node's stream, the own (first) node is tried again.
const RETURN_MS: u64 = 60_000;

/// Runs for ever: one stream after another, the next one at the next namesrv node.
pub(super) async fn follow(shared: Arc<Shared>) {
    let (mut at, mut backoff_ms) = (0, BACKOFF_MS_MIN);
    loop {
        match follow_once(&shared, at).await {
            Ended::Failed { events: true, error } => {
                tracing::debug!(%error, "the watch stream of the meta group ended");
                backoff_ms = BACKOFF_MS_MIN;
                at += 1;
            }
            Ended::Failed { events: false, error } => {
                tracing::debug!(%error, "a namesrv node cannot be watched");
                at += 1;
            }
            Ended::TimeToReturn => {
                at = 0;
                continue;
            }
        }
        tokio::time::sleep(Duration::from_millis(backoff_ms)).await;
        backoff_ms = (backoff_ms * 2).min(BACKOFF_MS_MAX);
    }
}

enum Ended {
    Failed { events: bool, error: Status },
    TimeToReturn,
}

async fn follow_once(shared: &Shared, at: usize) -> Ended {
    let mut events = false;
    let error = |error| Ended::Failed { events: false, error };
    let Some(mut client) = shared.peers.at(at) else {
        return error(Status::unavailable("no namesrv node is configured"));
    };
    let silence = Duration::from_millis(SILENCE_MS_MAX);
    let late = |_| Status::deadline_exceeded("the stream is silent");
    let opened = tokio::time::timeout(silence, client.watch()).await.map_err(late);
    let mut stream = match opened.and_then(|opened| opened) {
        Ok(stream) => stream,
        Err(status) => return error(status),
    };
    let away = at.checked_rem(shared.peers.count()) != Some(0);
    let return_at = tokio::time::Instant::now() + Duration::from_millis(RETURN_MS);
    loop {
        let next = tokio::time::timeout(silence, stream.message()).await.map_err(late);
        let event = match next.and_then(|next| next) {
            Ok(Some(event)) => event,
            Ok(None) => return Ended::Failed { events, error: Status::unavailable("the stream was closed") },
            Err(error) => return Ended::Failed { events, error },
        };
        events = true;
        if event.change.is_empty() {
            // Only a sign of life.
        } else {
            match MetaChange::decode(event.change) {
                Ok(change) => shared.take(&change),
                Err(error) => return Ended::Failed { events, error: Status::data_loss(error.to_string()) },
            }
        }
        if away && tokio::time::Instant::now() >= return_at {
            return Ended::TimeToReturn;
        }
    }
}
