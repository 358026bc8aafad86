//! Headers of each call.

use crate::error::ClientError;
use raftmq_proto::metadata as key;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tonic::Request;
use tonic::metadata::{Ascii, MetadataMap, MetadataValue};

/// What `x-mq-language` says.
pub(crate) const LANGUAGE: &str = "RUST";
/// What `x-mq-client-version` says.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");
const PROTOCOL: &str = "x-mq-protocol";
const DATE_TIME: &str = "x-mq-date-time";

/// The headers that do not change.
#[derive(Clone, Debug)]
pub(crate) struct Headers {
    fixed: MetadataMap,
}

impl Headers {
    pub(crate) fn new(client_id: &str, namespace: &str) -> Result<Headers, ClientError> {
        let value = |text: &str| -> Result<MetadataValue<Ascii>, ClientError> {
            text.parse().map_err(|_| ClientError::Malformed("a client name or namespace that is not ASCII"))
        };
        let mut fixed = MetadataMap::new();
        fixed.insert(key::CLIENT_ID, value(client_id)?);
        fixed.insert(key::LANGUAGE, MetadataValue::from_static(LANGUAGE));
        fixed.insert(key::CLIENT_VERSION, MetadataValue::from_static(VERSION));
        fixed.insert(key::NAMESPACE, value(namespace)?);
        fixed.insert(PROTOCOL, MetadataValue::from_static("v2"));
        Ok(Headers { fixed })
    }

    /// No fixed headers at all.
    pub(crate) fn empty() -> Headers {
        Headers { fixed: MetadataMap::new() }
    }

    /// A request with all headers and a deadline.
    pub(crate) fn request<T>(&self, body: T, timeout: Option<Duration>) -> Request<T> {
        let mut request = Request::new(body);
        *request.metadata_mut() = self.fixed.clone();
        let id = uuid::Builder::from_random_bytes(rand::random()).into_uuid();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        for (name, text) in [(key::REQUEST_ID, id.to_string()), (DATE_TIME, date_time(now))] {
            if let Ok(value) = text.parse::<MetadataValue<Ascii>>() {
                request.metadata_mut().insert(name, value);
            }
        }
        if let Some(timeout) = timeout {
            request.set_timeout(timeout);
        }
        request
    }
}

/// `yyyyMMdd'T'HHmmss'Z'` in UTC.
fn date_time(unix_seconds: u64) -> String {
    let (days, second) = (unix_seconds / 86_400, unix_seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

/// Year, month and day of a day since 1970-01-01, in eras of 400 years that begin with March.
fn civil(days: u64) -> (u64, u64, u64) {
    const DAYS_TO_EPOCH: u64 = 719_468;
    const ERA_DAYS: u64 = 146_097;
    let shifted = days + DAYS_TO_EPOCH;
    let (era, day_of_era) = (shifted / ERA_DAYS, shifted % ERA_DAYS);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        assert_eq!(date_time(0), "19700101T000000Z");
        assert_eq!(date_time(951_827_696), "20000229T123456Z");
        assert_eq!(date_time(1_767_225_599), "20251231T235959Z");
        assert_eq!(date_time(1_767_225_600), "20260101T000000Z");
    }

    #[test]
    fn a_header_that_is_no_ascii_is_refused() {
        assert!(Headers::new("ä\n", "").is_err());
    }
}
