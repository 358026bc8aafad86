//! Receipt handles: what a client gives back to finish a message or to change when it is visible again.
//!
//! ```text
//! | version u8 1 | cluster u32 | group u32 | consumer group u64 | topic u64 | queue u32 | offset u64 | attempt u32 |
//! | popped_at u64 | crc32 u32 of all before |          53 bytes, big-endian, then base64 (URL alphabet, no padding)
//! ```
//! Opaque to clients and free of node names, so that any node can judge one. The checksum finds damage, not forgery.

use crate::command::HandleKey;
use crate::ids::GroupId;
use crate::reader::Reader;
use bytes::{BufMut, Bytes, BytesMut};
use thiserror::Error;

const VERSION: u8 = 1;
const BYTES: usize = 53;
/// Characters of an encoded handle.
pub const RECEIPT_HANDLE_CHARS: usize = 71;
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Why a text is no receipt handle. Clients are told one sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ReceiptError {
    /// Wrong length, characters or checksum.
    #[error("The receipt handle is malformed.")]
    Malformed,
    /// Of another build.
    #[error("The receipt handle has version {0}, which this build cannot read.")]
    Version(u8),
}

/// A decoded receipt handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReceiptHandle {
    /// [`cluster_code`] of the cluster that gave it out.
    pub cluster: u32,
    /// The broker group that has the message.
    pub group: GroupId,
    /// The message, the attempt and the entry that gave it out.
    pub key: HandleKey,
}

/// A short code of a cluster id, so that a handle of another cluster is told apart.
#[must_use]
pub fn cluster_code(cluster_id: &str) -> u32 {
    crc32fast::hash(cluster_id.as_bytes())
}

impl ReceiptHandle {
    /// The text for clients.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut bytes = BytesMut::with_capacity(BYTES);
        bytes.put_u8(VERSION);
        bytes.put_u32(self.cluster);
        bytes.put_u32(self.group.0);
        bytes.put_u64(self.key.consumer_group);
        bytes.put_u64(self.key.topic);
        bytes.put_u32(self.key.queue);
        bytes.put_u64(self.key.offset);
        bytes.put_u32(self.key.attempt);
        bytes.put_u64(self.key.popped_at);
        bytes.put_u32(crc32fast::hash(&bytes));
        assert_eq!(bytes.len(), BYTES);
        to_base64(&bytes)
    }

    /// Reads a text that a client gave back.
    ///
    /// # Errors
    /// See [`ReceiptError`].
    pub fn decode(text: &str) -> Result<ReceiptHandle, ReceiptError> {
        if text.len() != RECEIPT_HANDLE_CHARS {
            return Err(ReceiptError::Malformed);
        }
        let bytes = Bytes::from(from_base64(text).ok_or(ReceiptError::Malformed)?);
        ReceiptHandle::read(bytes).ok_or(ReceiptError::Malformed)?
    }

    fn read(bytes: Bytes) -> Option<Result<ReceiptHandle, ReceiptError>> {
        let crc = crc32fast::hash(bytes.get(..BYTES - 4)?);
        let mut reader = Reader::new(bytes);
        let version = reader.u8()?;
        let handle = ReceiptHandle {
            cluster: reader.u32()?,
            group: GroupId(reader.u32()?),
            key: HandleKey {
                consumer_group: reader.u64()?,
                topic: reader.u64()?,
                queue: reader.u32()?,
                offset: reader.u64()?,
                attempt: reader.u32()?,
                popped_at: reader.u64()?,
            },
        };
        if reader.u32()? != crc || reader.remaining() != 0 {
            return None;
        }
        Some(if version == VERSION { Ok(handle) } else { Err(ReceiptError::Version(version)) })
    }
}

fn to_base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let mut word = [0u8; 4];
        word[1..=chunk.len()].copy_from_slice(chunk);
        let word = u32::from_be_bytes(word);
        for place in 0..=chunk.len() {
            let digit = (word >> (18 - 6 * place)) & 0x3F;
            text.push(char::from(ALPHABET[digit as usize]));
        }
    }
    text
}

/// Strict: no padding, and the unused bits of the last character are zero, so that each handle has one spelling.
fn from_base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 2);
    for chunk in text.as_bytes().chunks(4) {
        let mut word = 0u32;
        for (place, digit) in chunk.iter().enumerate() {
            word |= digit_value(*digit)? << (18 - 6 * place);
        }
        let decoded = word.to_be_bytes();
        let len = chunk.len().checked_sub(1).filter(|len| *len > 0)?;
        if decoded[1 + len..].iter().any(|byte| *byte != 0) {
            return None;
        }
        bytes.extend_from_slice(&decoded[1..=len]);
    }
    Some(bytes)
}

fn digit_value(digit: u8) -> Option<u32> {
    let value = match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'-' => 62,
        b'_' => 63,
        _ => return None,
    };
    Some(u32::from(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn handle() -> impl Strategy<Value = ReceiptHandle> {
        any::<(u32, u32, (u64, u64, u32, u64, u32, u64))>().prop_map(|(cluster, group, key)| {
            let (consumer_group, topic, queue, offset, attempt, popped_at) = key;
            let key = HandleKey { consumer_group, topic, queue, offset, attempt, popped_at };
            ReceiptHandle { cluster, group: GroupId(group), key }
        })
    }

    #[test]
    fn base64_is_the_url_alphabet() {
        for (plain, text) in [("", ""), ("f", "Zg"), ("fo", "Zm8"), ("foo", "Zm9v"), ("foob", "Zm9vYg")] {
            assert_eq!(to_base64(plain.as_bytes()), text);
            assert_eq!(from_base64(text).unwrap(), plain.as_bytes());
        }
        assert_eq!(to_base64(&[0xFB, 0xFF]), "-_8");
        assert_eq!(from_base64("Zh"), None, "unused bits must be zero");
        assert_eq!(from_base64("Z"), None);
        assert_eq!(from_base64("Zm9v="), None);
    }

    #[test]
    fn a_newer_version_is_told_apart() {
        let key = HandleKey { attempt: 1, ..HandleKey::default() };
        let mut bytes = from_base64(&ReceiptHandle { cluster: 1, group: GroupId(1), key }.encode()).unwrap();
        bytes[0] = 2;
        let crc = crc32fast::hash(&bytes[..BYTES - 4]);
        bytes[BYTES - 4..].copy_from_slice(&crc.to_be_bytes());
        assert_eq!(ReceiptHandle::decode(&to_base64(&bytes)), Err(ReceiptError::Version(2)));
    }

    proptest! {
        #[test]
        fn round_trip(handle in handle()) {
            let text = handle.encode();
            prop_assert_eq!(text.len(), RECEIPT_HANDLE_CHARS);
            prop_assert!(text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_'));
            prop_assert_eq!(ReceiptHandle::decode(&text), Ok(handle));
        }

        #[test]
        fn any_other_character_is_detected(handle in handle(), at in 0..RECEIPT_HANDLE_CHARS, other in 0u8..128) {
            let mut text = handle.encode().into_bytes();
            prop_assume!(text[at] != other);
            text[at] = other;
            prop_assert_eq!(ReceiptHandle::decode(std::str::from_utf8(&text).unwrap()), Err(ReceiptError::Malformed));
        }

        #[test]
        fn arbitrary_text_never_panics(text: String) {
            prop_assert!(ReceiptHandle::decode(&text).is_err());
        }
    }
}
