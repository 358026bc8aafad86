//! What planning a command gives.

use raftmq_model::config::ConsumerGroupConfig;
use raftmq_model::meta::{MetaAnswer, MetaRecord};

/// A command that is fine: its answer, and the records that change (none when everything already is as asked).
#[derive(Debug, PartialEq)]
pub(super) struct Plan {
    pub(super) answer: MetaAnswer,
    pub(super) records: Vec<MetaRecord>,
    /// Set by the birth of a cluster: its id.
    pub(super) birth_of: Option<String>,
}

impl Plan {
    pub(super) fn change(answer: MetaAnswer, records: Vec<MetaRecord>) -> Plan {
        Plan { answer, records, birth_of: None }
    }

    pub(super) fn done(records: Vec<MetaRecord>) -> Plan {
        Plan::change(MetaAnswer::Done(true), records)
    }
}

/// A command that changes nothing, and why.
#[derive(Debug, PartialEq)]
pub(super) enum Rejection {
    NotFound(String),
    Refused(String),
    /// It has another version than the command names: as it stands.
    Conflict(ConsumerGroupConfig),
}

impl Rejection {
    pub(super) fn refused(sentence: impl ToString) -> Rejection {
        Rejection::Refused(sentence.to_string())
    }
}

impl From<Rejection> for MetaAnswer {
    fn from(rejection: Rejection) -> MetaAnswer {
        match rejection {
            Rejection::NotFound(sentence) => MetaAnswer::NotFound(sentence),
            Rejection::Refused(sentence) => MetaAnswer::Refused(sentence),
            Rejection::Conflict(group) => MetaAnswer::Conflict(group),
        }
    }
}

/// Refuses with the sentence unless the condition holds.
pub(super) fn ensure(holds: bool, sentence: impl FnOnce() -> String) -> Result<(), Rejection> {
    if holds { Ok(()) } else { Err(Rejection::Refused(sentence())) }
}
