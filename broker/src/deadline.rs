//! How long a call may be held: the caller's own deadline, less the time that the answer needs to travel.
//!
//! SDKs burn their retries within milliseconds when an answer is an error, so a call is held while a group has no
//! leader; but an answer that comes after the caller has given up is worth nothing.

use raftmq_model::limit::{LONG_POLLING_MS_MAX, LONG_POLLING_MS_MIN};
use std::time::Duration;
use tokio::time::Instant;
use tonic::metadata::MetadataMap;

/// An answer leaves this long before the caller gives up.
pub const ANSWER_MARGIN_MS: u64 = 300;
/// The caller's patience when it names none: the default request timeout of every official SDK.
pub const REQUEST_TIMEOUT_DEFAULT_MS: u64 = 3_000;
/// No call but a long poll is held longer than this, whatever its caller says.
pub const HOLD_MS_MAX: u64 = 60_000;
/// A caller that names no polling time gets its patience less half of the default request timeout.
pub const LONG_POLL_RESERVE_MS: u64 = REQUEST_TIMEOUT_DEFAULT_MS / 2;

const HEADER: &str = "grpc-timeout";
/// The gRPC protocol allows at most eight digits.
const DIGITS_MAX: usize = 8;

/// When a call was received and how long its caller waits.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    received: Instant,
    patience: Option<Duration>,
}

impl Deadline {
    /// Reads the `grpc-timeout` header; a malformed one counts as absent.
    #[must_use]
    pub fn of(metadata: &MetadataMap, received: Instant) -> Deadline {
        let patience = metadata.get(HEADER).and_then(|value| value.to_str().ok()).and_then(parse_timeout);
        Deadline { received, patience }
    }

    /// A deadline without a request, for what the node starts by itself.
    #[must_use]
    pub fn after(received: Instant, patience: Duration) -> Deadline {
        Deadline { received, patience: Some(patience) }
    }

    /// The latest moment to answer: [`ANSWER_MARGIN_MS`] before the caller gives up, or half-way for callers that
    /// are so impatient that the margin would leave nothing.
    #[must_use]
    pub fn answer_by(&self) -> Instant {
        let patience = self.patience.unwrap_or(Duration::from_millis(REQUEST_TIMEOUT_DEFAULT_MS));
        self.received + usable(patience.min(Duration::from_millis(HOLD_MS_MAX)))
    }

    /// How long to hold a receive that finds no message. `asked` is the request's `long_polling_timeout`.
    ///
    /// # Errors
    ///
    /// [`PollTooShort`] when the caller gives up before the poll that it asks for and within [`LONG_POLLING_MS_MIN`].
    pub fn long_poll(&self, asked: Option<Duration>) -> Result<Duration, PollTooShort> {
        let longest = Duration::from_millis(LONG_POLLING_MS_MAX);
        let shortest = Duration::from_millis(LONG_POLLING_MS_MIN);
        let Some(patience) = self.patience else { return Ok(asked.unwrap_or(longest).min(longest)) };
        let reserve = Duration::from_millis(LONG_POLL_RESERVE_MS);
        let wanted = match asked {
            Some(asked) => asked.min(longest),
            None => patience.saturating_sub(reserve).clamp(shortest, longest),
        };
        if wanted <= patience {
            Ok(wanted.min(usable(patience)))
        } else if patience >= shortest {
            Ok(usable(patience))
        } else {
            Err(PollTooShort { patience })
        }
    }

    /// The latest moment to answer a receive that polls for `poll`: one without a deadline has the poll's time and that of
    /// an ordinary call.
    #[must_use]
    pub fn answer_poll_by(&self, poll: Duration) -> Instant {
        match self.patience {
            Some(_) => self.answer_by(),
            None => self.received + poll + Duration::from_millis(REQUEST_TIMEOUT_DEFAULT_MS),
        }
    }

    /// The moment the call came in.
    #[must_use]
    pub fn received(&self) -> Instant {
        self.received
    }
}

/// The caller gives up too soon for a long poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the deadline of the call is {} ms away, a long poll needs at least {LONG_POLLING_MS_MIN} ms or a shorter long_polling_timeout", patience.as_millis())]
pub struct PollTooShort {
    patience: Duration,
}

fn usable(patience: Duration) -> Duration {
    patience.saturating_sub(Duration::from_millis(ANSWER_MARGIN_MS)).max(patience / 2)
}

/// `value unit`, for example `3S` or `2999871u`; `None` when it is not of that form.
fn parse_timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > DIGITS_MAX || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let value: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(value * 3600)),
        "M" => Some(Duration::from_secs(value * 60)),
        "S" => Some(Duration::from_secs(value)),
        "m" => Some(Duration::from_millis(value)),
        "u" => Some(Duration::from_micros(value)),
        "n" => Some(Duration::from_nanos(value)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deadline(timeout: Option<&str>) -> Deadline {
        let mut metadata = MetadataMap::new();
        if let Some(timeout) = timeout {
            metadata.insert(HEADER, timeout.parse().unwrap());
        }
        Deadline::of(&metadata, Instant::now())
    }

    fn held_ms(timeout: Option<&str>) -> u128 {
        let deadline = deadline(timeout);
        (deadline.answer_by() - deadline.received()).as_millis()
    }

    #[test]
    fn answers_before_the_caller_gives_up() {
        assert_eq!(held_ms(Some("3S")), 2_700);
        assert_eq!(held_ms(Some("2000m")), 1_700);
        assert_eq!(held_ms(Some("3000000u")), 2_700);
        assert_eq!(held_ms(Some("99999999n")), 49);
        assert_eq!(held_ms(Some("400m")), 200);
        assert_eq!(held_ms(Some("0m")), 0);
        assert_eq!(held_ms(Some("1H")), 59_700);
        assert_eq!(held_ms(Some("99999999H")), 59_700);
    }

    #[test]
    fn no_or_malformed_header_is_the_default() {
        for text in [None, Some(""), Some("S"), Some("3"), Some("3s"), Some("-3S"), Some("123456789m"), Some("3 S")] {
            assert_eq!(held_ms(text), 2_700, "{text:?}");
        }
    }

    #[test]
    fn long_poll_table() {
        let poll = |timeout: Option<&str>, asked: Option<u64>| {
            deadline(timeout).long_poll(asked.map(Duration::from_millis)).ok().map(|held| held.as_millis())
        };
        // Push SDKs: long poll + request timeout.
        assert_eq!(poll(Some("23S"), Some(20_000)), Some(20_000));
        // The Rust SDK: the deadline equals the long poll.
        assert_eq!(poll(Some("40S"), Some(40_000)), Some(20_000));
        assert_eq!(poll(Some("20S"), Some(20_000)), Some(19_700));
        // The Go simple consumer names no polling time.
        assert_eq!(poll(Some("8S"), None), Some(6_500));
        assert_eq!(poll(Some("60S"), None), Some(20_000));
        // Shorter than asked, but long enough.
        assert_eq!(poll(Some("6S"), Some(20_000)), Some(5_700));
        // A short poll that fits is served as asked.
        assert_eq!(poll(Some("3S"), Some(1_000)), Some(1_000));
        assert_eq!(poll(Some("3S"), Some(0)), Some(0));
        assert_eq!(poll(Some("1S"), Some(5_000)), None);
        assert_eq!(poll(Some("1S"), None), None);
        // No deadline at all.
        assert_eq!(poll(None, None), Some(20_000));
        assert_eq!(poll(None, Some(7_000)), Some(7_000));
    }
}
