//! Bounds of what clients may ask for, and checks with one sentence each.

use thiserror::Error;

/// Longest message body, in bytes.
pub const BODY_BYTES_MAX: usize = 4 << 20;
/// Most user properties of a message.
pub const USER_PROPERTIES_COUNT_MAX: usize = 128;
/// Most bytes of names and values of user properties, tag and keys together.
pub const PROPERTIES_BYTES_MAX: usize = 16_384;
/// Shortest time for which received messages may stay invisible.
pub const INVISIBLE_MS_MIN: u64 = 10_000;
/// Longest time for which messages may stay invisible.
pub const INVISIBLE_MS_MAX: u64 = 12 * 3_600_000;
/// How long messages stay invisible when the server renews by itself.
pub const INVISIBLE_AUTO_RENEW_MS: u64 = 60_000;
/// Farthest delivery time from now.
pub const DELAY_MS_MAX: u64 = 24 * 3_600_000;
/// Longest time before an undecided transaction is checked.
pub const ORPHAN_RECOVERY_MS_MAX: u64 = 3_600_000;
/// Most messages of one receive; more is taken as this.
pub const RECEIVE_BATCH_COUNT_MAX: u32 = 32;
/// Shortest long poll; less is taken as this.
pub const LONG_POLLING_MS_MIN: u64 = 5_000;
/// Longest long poll; more is taken as this.
pub const LONG_POLLING_MS_MAX: u64 = 20_000;
/// Largest inbound gRPC message, in bytes.
pub const INBOUND_BYTES_MAX: usize = 130 << 20;
/// Most entries of a client's `client_properties`.
pub const CLIENT_PROPERTIES_COUNT_MAX: usize = 32;
/// Longest name of a client property, in bytes.
pub const CLIENT_PROPERTY_KEY_BYTES_MAX: usize = 64;
/// Longest value of a client property, in bytes.
pub const CLIENT_PROPERTY_VALUE_BYTES_MAX: usize = 256;
/// Most bytes of all client properties.
pub const CLIENT_PROPERTIES_BYTES_MAX: usize = 4096;

/// Why a request is refused. Displays as one sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LimitError {
    /// No body.
    #[error("The message body must not be empty.")]
    BodyEmpty,
    /// A body longer than [`BODY_BYTES_MAX`].
    #[error("The message body has {0} bytes, which is more than {BODY_BYTES_MAX}.")]
    BodyTooLarge(usize),
    /// More user properties than [`USER_PROPERTIES_COUNT_MAX`].
    #[error("The message has {0} user properties, which is more than {USER_PROPERTIES_COUNT_MAX}.")]
    TooManyProperties(usize),
    /// More bytes than [`PROPERTIES_BYTES_MAX`].
    #[error("The message's properties, tag and keys have {0} bytes, which is more than {PROPERTIES_BYTES_MAX}.")]
    PropertiesTooLarge(usize),
    /// Outside of what a receive may ask.
    #[error("The invisible duration of {0} ms is not within {INVISIBLE_MS_MIN} and {INVISIBLE_MS_MAX} ms.")]
    InvisibleOnReceive(u64),
    /// Longer than a change may ask.
    #[error("The invisible duration of {0} ms is more than {INVISIBLE_MS_MAX} ms.")]
    InvisibleOnChange(u64),
    /// Farther than [`DELAY_MS_MAX`].
    #[error("The delivery time is {0} ms from now, which is more than {DELAY_MS_MAX} ms.")]
    DelayTooLong(u64),
    /// Longer than [`ORPHAN_RECOVERY_MS_MAX`].
    #[error("The recovery duration of {0} ms is more than {ORPHAN_RECOVERY_MS_MAX} ms.")]
    OrphanRecoveryTooLong(u64),
    /// More or longer than the bounds of client properties.
    #[error("The client properties pass a bound: {0} entries with {1} bytes in all.")]
    ClientProperties(usize, usize),
}

/// A body of 1 byte to [`BODY_BYTES_MAX`].
///
/// # Errors
/// See [`LimitError`].
pub fn check_body(bytes: usize) -> Result<(), LimitError> {
    match bytes {
        0 => Err(LimitError::BodyEmpty),
        1..=BODY_BYTES_MAX => Ok(()),
        _ => Err(LimitError::BodyTooLarge(bytes)),
    }
}

/// `count` user properties; `bytes` is the sum of their names and values, of the tag and of the keys.
///
/// # Errors
/// See [`LimitError`].
pub fn check_properties(count: usize, bytes: usize) -> Result<(), LimitError> {
    if count > USER_PROPERTIES_COUNT_MAX {
        return Err(LimitError::TooManyProperties(count));
    }
    if bytes > PROPERTIES_BYTES_MAX {
        return Err(LimitError::PropertiesTooLarge(bytes));
    }
    Ok(())
}

/// The invisible duration of a receive.
///
/// # Errors
/// See [`LimitError`].
pub fn check_invisible_on_receive(ms: u64) -> Result<(), LimitError> {
    match ms {
        INVISIBLE_MS_MIN..=INVISIBLE_MS_MAX => Ok(()),
        _ => Err(LimitError::InvisibleOnReceive(ms)),
    }
}

/// The invisible duration of a change; 0 is "at once".
///
/// # Errors
/// See [`LimitError`].
pub fn check_invisible_on_change(ms: u64) -> Result<(), LimitError> {
    if ms > INVISIBLE_MS_MAX { Err(LimitError::InvisibleOnChange(ms)) } else { Ok(()) }
}

/// How far in the future a delivery time is.
///
/// # Errors
/// See [`LimitError`].
pub fn check_delay(ms: u64) -> Result<(), LimitError> {
    if ms > DELAY_MS_MAX { Err(LimitError::DelayTooLong(ms)) } else { Ok(()) }
}

/// The time before an undecided transaction is checked.
///
/// # Errors
/// See [`LimitError`].
pub fn check_orphan_recovery(ms: u64) -> Result<(), LimitError> {
    if ms > ORPHAN_RECOVERY_MS_MAX { Err(LimitError::OrphanRecoveryTooLong(ms)) } else { Ok(()) }
}

/// The properties that a client tells about itself.
///
/// # Errors
/// See [`LimitError`].
pub fn check_client_properties<'a>(properties: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<(), LimitError> {
    let (mut count, mut bytes, mut one_too_long) = (0, 0, false);
    for (key, value) in properties {
        count += 1;
        bytes += key.len() + value.len();
        one_too_long |= key.len() > CLIENT_PROPERTY_KEY_BYTES_MAX || value.len() > CLIENT_PROPERTY_VALUE_BYTES_MAX;
    }
    if one_too_long || count > CLIENT_PROPERTIES_COUNT_MAX || bytes > CLIENT_PROPERTIES_BYTES_MAX {
        return Err(LimitError::ClientProperties(count, bytes));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_inclusive() {
        assert_eq!(check_body(0), Err(LimitError::BodyEmpty));
        assert!(check_body(1).is_ok() && check_body(BODY_BYTES_MAX).is_ok() && check_body(BODY_BYTES_MAX + 1).is_err());
        assert!(check_properties(128, 16_384).is_ok());
        assert!(check_properties(129, 0).is_err() && check_properties(0, 16_385).is_err());
        assert!(check_invisible_on_receive(10_000).is_ok() && check_invisible_on_receive(9_999).is_err());
        assert!(check_invisible_on_receive(INVISIBLE_MS_MAX).is_ok());
        assert!(check_invisible_on_receive(INVISIBLE_MS_MAX + 1).is_err());
        assert!(check_invisible_on_change(0).is_ok() && check_invisible_on_change(INVISIBLE_MS_MAX + 1).is_err());
        assert!(check_delay(DELAY_MS_MAX).is_ok() && check_delay(DELAY_MS_MAX + 1).is_err());
        assert!(check_orphan_recovery(3_600_000).is_ok() && check_orphan_recovery(3_600_001).is_err());
        assert!(check_client_properties([("a", "b")]).is_ok());
        assert!(check_client_properties([("a", "b".repeat(257).as_str())]).is_err());
        assert!(check_client_properties((0..33).map(|_| ("a", "b"))).is_err());
    }
}
