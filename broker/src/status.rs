//! From what went wrong to what the client is told: one exhaustive match per kind of error, one table for SDKs that do
//! not know newer codes. `docs/errors.md` says the same in words.

use crate::clients::Sdk;
use crate::deadline::PollTooShort;
use crate::meta_client::MetaError;
use crate::router::RouteError;
use raftmq_model::filter::FilterError;
use raftmq_model::limit::LimitError;
use raftmq_model::name::{NameError, NameKind};
use raftmq_model::receipt::ReceiptError;
use raftmq_model::record::RecordError;
use raftmq_proto::v2::{self, Code};
use std::borrow::Cow;
use std::fmt;

/// A call, or one entry of it, that is not served: the code and one sentence for the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What the client's code looks at.
    pub code: Code,
    /// What a person reads.
    pub sentence: Cow<'static, str>,
}

impl Refusal {
    /// A refusal with a sentence.
    pub fn new(code: Code, sentence: impl Into<Cow<'static, str>>) -> Refusal {
        Refusal { code, sentence: sentence.into() }
    }

    /// A feature of the API that this build does not have.
    #[must_use]
    pub fn not_implemented(what: &'static str) -> Refusal {
        Refusal::new(Code::NotImplemented, what)
    }

    /// For a client of `sdk`.
    #[must_use]
    pub fn status(&self, sdk: Sdk) -> v2::Status {
        v2::Status { code: code_for(sdk, self.code) as i32, message: self.sentence.clone().into_owned() }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code.as_str_name(), self.sentence)
    }
}

impl std::error::Error for Refusal {}

/// Done.
#[must_use]
pub fn ok() -> v2::Status {
    v2::Status { code: Code::Ok as i32, message: "OK".to_owned() }
}

/// The status of a result.
pub fn of<T>(result: &Result<T, Refusal>, sdk: Sdk) -> v2::Status {
    match result {
        Ok(_) => ok(),
        Err(refusal) => refusal.status(sdk),
    }
}

/// The status above entries: theirs when they agree, else `MULTIPLE_RESULTS`. An SDK that looks no further than here
/// must see a failure when any entry failed, which both answers are.
#[must_use]
pub fn common<'a>(mut entries: impl Iterator<Item = &'a v2::Status>) -> v2::Status {
    let Some(first) = entries.next() else { return ok() };
    if entries.all(|status| status.code == first.code) {
        return first.clone();
    }
    v2::Status {
        code: Code::MultipleResults as i32,
        message: "The entries have different results; see the status of each.".to_owned(),
    }
}

/// The code as the SDK knows it: the Rust SDK's of 2023 panics on codes that are newer than it.
#[must_use]
pub fn code_for(sdk: Sdk, code: Code) -> Code {
    if sdk != Sdk::Rust {
        return code;
    }
    match code {
        Code::IllegalOffset | Code::IllegalLiteTopic | Code::InvalidClientProperties => Code::BadRequest,
        Code::MessageBodyEmpty => Code::MessageCorrupted,
        Code::OffsetNotFound => Code::NotFound,
        Code::LiteTopicQuotaExceeded | Code::LiteSubscriptionQuotaExceeded => Code::TooManyRequests,
        known => known,
    }
}

impl From<RouteError> for Refusal {
    fn from(error: RouteError) -> Refusal {
        match error {
            RouteError::NoLeader => Refusal::new(
                Code::HaNotAvailable,
                "The broker group had no leader until the deadline; nothing was stored, try again.",
            ),
            RouteError::Overloaded => Refusal::new(
                Code::TooManyRequests,
                "The broker group has as much work as it takes; nothing was stored, try again later.",
            ),
            RouteError::DiskFull(sentence) => Refusal::new(Code::TooManyRequests, sentence),
            RouteError::Unknown => Refusal::new(
                Code::MasterPersistenceTimeout,
                "The request was not confirmed before the deadline and may have been carried out; try again with the same ids.",
            ),
            RouteError::Invalid(sentence) => Refusal::new(Code::InternalServerError, sentence),
        }
    }
}

impl From<MetaError> for Refusal {
    fn from(error: MetaError) -> Refusal {
        let code = match error {
            MetaError::Unavailable => Code::HaNotAvailable,
            MetaError::Unknown => Code::ProxyTimeout,
            MetaError::NotFound(_) => Code::NotFound,
            MetaError::Refused(_) | MetaError::Conflict(_) => Code::BadRequest,
        };
        Refusal::new(code, error.to_string())
    }
}

impl From<NameError> for Refusal {
    fn from(error: NameError) -> Refusal {
        let kind = match &error {
            NameError::Blank(kind)
            | NameError::TooLong { kind, .. }
            | NameError::Character { kind, .. }
            | NameError::Reserved { kind, .. } => *kind,
        };
        let code = match kind {
            NameKind::Topic => Code::IllegalTopic,
            NameKind::ConsumerGroup => Code::IllegalConsumerGroup,
            NameKind::Tag => Code::IllegalMessageTag,
            NameKind::Key => Code::IllegalMessageKey,
            NameKind::MessageGroup => Code::IllegalMessageGroup,
            NameKind::MessageId => Code::IllegalMessageId,
            NameKind::PropertyKey | NameKind::PropertyValue => Code::IllegalMessagePropertyKey,
            NameKind::LiteTopic => Code::IllegalLiteTopic,
        };
        Refusal::new(code, error.to_string())
    }
}

impl From<LimitError> for Refusal {
    fn from(error: LimitError) -> Refusal {
        let code = match error {
            LimitError::BodyEmpty => Code::MessageBodyEmpty,
            LimitError::BodyTooLarge(_) => Code::MessageBodyTooLarge,
            LimitError::TooManyProperties(_) | LimitError::PropertiesTooLarge(_) => Code::MessagePropertiesTooLarge,
            LimitError::InvisibleOnReceive(_) | LimitError::InvisibleOnChange(_) => Code::IllegalInvisibleTime,
            LimitError::DelayTooLong(_) => Code::IllegalDeliveryTime,
            LimitError::OrphanRecoveryTooLong(_) => Code::BadRequest,
            LimitError::ClientProperties(..) => Code::InvalidClientProperties,
        };
        Refusal::new(code, error.to_string())
    }
}

impl From<FilterError> for Refusal {
    fn from(error: FilterError) -> Refusal {
        match error {
            FilterError::TooLong(_) | FilterError::TooManyTags(_) | FilterError::NoTag(_) | FilterError::Tag(_) => {
                Refusal::new(Code::IllegalFilterExpression, error.to_string())
            }
        }
    }
}

impl From<ReceiptError> for Refusal {
    fn from(error: ReceiptError) -> Refusal {
        match error {
            ReceiptError::Malformed | ReceiptError::Version(_) => {
                Refusal::new(Code::InvalidReceiptHandle, error.to_string())
            }
        }
    }
}

impl From<RecordError> for Refusal {
    fn from(error: RecordError) -> Refusal {
        let code = match &error {
            RecordError::BodyTooLarge(_) => Code::MessageBodyTooLarge,
            RecordError::PropertiesTooLarge(_) => Code::MessagePropertiesTooLarge,
            RecordError::TopicLength(_) => Code::IllegalTopic,
            RecordError::Property(_) => Code::IllegalMessagePropertyKey,
            RecordError::Truncated
            | RecordError::Magic(_)
            | RecordError::Size { .. }
            | RecordError::BodyCrc { .. }
            | RecordError::Field(_) => Code::InternalServerError,
        };
        Refusal::new(code, error.to_string())
    }
}

/// Clients before this version know [`Code::BadRequest`] only.
const POLLING_TIME_CODE_SINCE: &str = "5.0.3";

impl Refusal {
    /// For a client of `version`, compared as text, as the protocol has it.
    #[must_use]
    pub fn poll_too_short(error: PollTooShort, version: &str) -> Refusal {
        let known = version >= POLLING_TIME_CODE_SINCE;
        Refusal::new(if known { Code::IllegalPollingTime } else { Code::BadRequest }, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rust_sdk_only_gets_codes_of_2023() {
        let newer = [40019, 40020, 40021, 40404, 41302, 42901, 42902];
        let codes = (0..=60_000).filter_map(|number| Code::try_from(number).ok());
        for code in codes {
            let sent = code_for(Sdk::Rust, code) as i32;
            assert!(!newer.contains(&sent), "{code:?}");
            assert_eq!(sent == code as i32, !newer.contains(&(code as i32)), "{code:?}");
            assert_eq!(code_for(Sdk::Java, code), code);
        }
    }

    #[test]
    fn fates_of_a_call() {
        let code = |error: RouteError| Refusal::from(error).code;
        assert_eq!(code(RouteError::NoLeader), Code::HaNotAvailable);
        assert_eq!(code(RouteError::Unknown), Code::MasterPersistenceTimeout);
        assert_eq!(code(RouteError::Overloaded), Code::TooManyRequests);
        let full = Refusal::from(RouteError::DiskFull("The disk of node 2 is full.".to_owned()));
        assert_eq!(full, Refusal::new(Code::TooManyRequests, "The disk of node 2 is full."));
        assert_eq!(code(RouteError::Invalid(String::new())), Code::InternalServerError);
    }

    #[test]
    fn the_common_status() {
        let refused = Refusal::new(Code::HaNotAvailable, "no").status(Sdk::Go);
        assert_eq!(common([].iter()).code, Code::Ok as i32);
        assert_eq!(common([ok(), ok()].iter()), ok());
        assert_eq!(common([refused.clone(), refused.clone()].iter()), refused);
        assert_eq!(common([ok(), refused].iter()).code, Code::MultipleResults as i32);
    }

    #[test]
    fn old_clients_know_no_polling_time_code() {
        let error = crate::deadline::Deadline::after(tokio::time::Instant::now(), std::time::Duration::from_secs(1))
            .long_poll(None)
            .unwrap_err();
        for (version, code) in [
            ("", Code::BadRequest),
            ("5.0.2", Code::BadRequest),
            ("5.0.3", Code::IllegalPollingTime),
            ("5.1.2", Code::IllegalPollingTime),
        ] {
            assert_eq!(Refusal::poll_too_short(error, version).code, code, "{version}");
        }
    }
}
