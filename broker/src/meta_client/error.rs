//! What a call to the meta group can end with.

use raftmq_model::config::ConsumerGroupConfig;
use raftmq_model::meta::MetaAnswer;
use thiserror::Error;

/// Why a decision of the meta group is not there.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MetaError {
    /// No namesrv node took the proposal in time: surely nothing has happened.
    #[error("the meta group has no leader or cannot be reached")]
    Unavailable,
    /// It was proposed, and what became of it is not known. Every meta command is idempotent: ask again.
    #[error("the meta group did not answer in time")]
    Unknown,
    /// No such topic, group or node; a sentence.
    #[error("{0}")]
    NotFound(String),
    /// The meta group refuses; a sentence that names the reason.
    #[error("{0}")]
    Refused(String),
    /// Another version than the command named: it was altered meanwhile. As it stands now; nothing has happened.
    #[error("consumer group {} was altered meanwhile, its version is {} now: look at it and try again", .0.name, .0.version)]
    Conflict(Box<ConsumerGroupConfig>),
}

/// Tells answers that are errors from the others.
pub(super) fn judge(answer: Option<MetaAnswer>) -> Result<MetaAnswer, MetaError> {
    match answer {
        Some(MetaAnswer::NotFound(sentence)) => Err(MetaError::NotFound(sentence)),
        Some(MetaAnswer::Refused(sentence)) => Err(MetaError::Refused(sentence)),
        Some(MetaAnswer::Conflict(group)) => Err(MetaError::Conflict(Box::new(group))),
        Some(answer) => Ok(answer),
        None => Err(MetaError::Refused("the meta group's answer is empty or of a newer version".to_owned())),
    }
}
