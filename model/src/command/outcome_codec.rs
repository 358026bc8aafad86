//! Encoding of [`Outcome`]: a kind, a version and fixed fields, big-endian.
//!
//! ```text
//! Append:  | count u32 | count × ( 0 stored | queue u32 | offset u64 | physical u64 | repeated u8 ) or ( 1 ) or ( 2 ) |
//! Pop:     | 0 taken | popped_at u64 | visible_at i64 | queue u32 | count u32 | count × ( offset u64 | attempt u32 ) |
//!          | 1 stale | cursor u64 |
//! Handles: | count u32 | count × ( 0 done ) or ( 1 renewed | popped_at u64 ) or ( 2 superseded ) or ( 3 gone ) |
//! Refused: | the sentence, UTF-8 |            Done, UnknownTopic, UnknownConsumerGroup: no body
//! ```

use super::codec::{COMMAND_HEADER_BYTES, DecodeError};
use super::outcome::{AppendOutcome, HandleOutcome, Outcome, PopOutcome, PoppedMessage};
use crate::ids::{PhysicalOffset, QueueId, QueueOffset, Timestamp};
use crate::reader::Reader;
use bytes::{BufMut, Bytes, BytesMut};

const APPEND_KIND: u8 = 1;
const DONE_KIND: u8 = 2;
const POP_KIND: u8 = 3;
const HANDLES_KIND: u8 = 4;
const UNKNOWN_TOPIC_KIND: u8 = 5;
const UNKNOWN_CONSUMER_GROUP_KIND: u8 = 6;
const REFUSED_KIND: u8 = 7;
const VERSION: u8 = 1;

impl Outcome {
    /// The encoded outcome.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        match self {
            Outcome::Append(entries) => encode_append(entries),
            Outcome::Done => start(DONE_KIND, 0).freeze(),
            Outcome::Pop(pop) => encode_pop(pop),
            Outcome::Handles(handles) => encode_handles(handles),
            Outcome::UnknownTopic => start(UNKNOWN_TOPIC_KIND, 0).freeze(),
            Outcome::UnknownConsumerGroup => start(UNKNOWN_CONSUMER_GROUP_KIND, 0).freeze(),
            Outcome::Refused(sentence) => {
                let mut buffer = start(REFUSED_KIND, sentence.len());
                buffer.put_slice(sentence.as_bytes());
                buffer.freeze()
            }
        }
    }

    /// Decodes one outcome.
    ///
    /// # Errors
    /// When `bytes` is not exactly one outcome that this build knows.
    pub fn decode(bytes: Bytes) -> Result<Outcome, DecodeError> {
        let mut reader = Reader::new(bytes);
        let kind = reader.u8().ok_or(DecodeError::Truncated)?;
        let version = reader.u8().ok_or(DecodeError::Truncated)?;
        if version != VERSION {
            return Err(DecodeError::Unknown { kind, version });
        }
        let outcome = match kind {
            APPEND_KIND => Outcome::Append(decode_list(&mut reader, decode_append)?),
            DONE_KIND => Outcome::Done,
            POP_KIND => Outcome::Pop(decode_pop(&mut reader)?),
            HANDLES_KIND => Outcome::Handles(decode_list(&mut reader, decode_handle)?),
            UNKNOWN_TOPIC_KIND => Outcome::UnknownTopic,
            UNKNOWN_CONSUMER_GROUP_KIND => Outcome::UnknownConsumerGroup,
            REFUSED_KIND => {
                let sentence = reader.bytes(reader.remaining()).ok_or(DecodeError::Truncated)?;
                let sentence = std::str::from_utf8(&sentence).map_err(|_| DecodeError::Value("the sentence"))?;
                Outcome::Refused(sentence.to_owned())
            }
            _ => return Err(DecodeError::Unknown { kind, version }),
        };
        match reader.remaining() {
            0 => Ok(outcome),
            trailing => Err(DecodeError::Trailing(trailing)),
        }
    }
}

fn start(kind: u8, body_bytes: usize) -> BytesMut {
    let mut buffer = BytesMut::with_capacity(COMMAND_HEADER_BYTES + body_bytes);
    buffer.put_u8(kind);
    buffer.put_u8(VERSION);
    buffer
}

fn put_count(buffer: &mut BytesMut, count: usize) {
    assert!(u32::try_from(count).is_ok(), "an outcome of {count} items");
    buffer.put_u32(count as u32);
}

fn encode_append(entries: &[AppendOutcome]) -> Bytes {
    let mut buffer = start(APPEND_KIND, 4 + entries.len() * 22);
    put_count(&mut buffer, entries.len());
    for entry in entries {
        match entry {
            AppendOutcome::Stored { queue, offset, physical, repeated } => {
                buffer.put_u8(0);
                buffer.put_u32(queue.0);
                buffer.put_u64(offset.0);
                buffer.put_u64(physical.0);
                buffer.put_u8(u8::from(*repeated));
            }
            AppendOutcome::UnknownTopic => buffer.put_u8(1),
            AppendOutcome::UnknownQueue => buffer.put_u8(2),
        }
    }
    buffer.freeze()
}

fn decode_append(reader: &mut Reader) -> Result<AppendOutcome, DecodeError> {
    match reader.u8().ok_or(DecodeError::Truncated)? {
        0 => decode_stored(reader),
        1 => Ok(AppendOutcome::UnknownTopic),
        2 => Ok(AppendOutcome::UnknownQueue),
        _ => Err(DecodeError::Value("an append outcome")),
    }
}

fn decode_stored(reader: &mut Reader) -> Result<AppendOutcome, DecodeError> {
    let queue = QueueId(reader.u32().ok_or(DecodeError::Truncated)?);
    let offset = QueueOffset(reader.u64().ok_or(DecodeError::Truncated)?);
    let physical = PhysicalOffset(reader.u64().ok_or(DecodeError::Truncated)?);
    let repeated = match reader.u8().ok_or(DecodeError::Truncated)? {
        0 => false,
        1 => true,
        _ => return Err(DecodeError::Value("the flag of a repeated append")),
    };
    Ok(AppendOutcome::Stored { queue, offset, physical, repeated })
}

fn encode_pop(pop: &PopOutcome) -> Bytes {
    match pop {
        PopOutcome::Taken { popped_at, visible_at, queue, messages } => {
            let mut buffer = start(POP_KIND, 25 + messages.len() * 12);
            buffer.put_u8(0);
            buffer.put_u64(*popped_at);
            buffer.put_i64(visible_at.0);
            buffer.put_u32(queue.0);
            put_count(&mut buffer, messages.len());
            for message in messages {
                buffer.put_u64(message.offset.0);
                buffer.put_u32(message.attempt);
            }
            buffer.freeze()
        }
        PopOutcome::Stale { cursor } => {
            let mut buffer = start(POP_KIND, 9);
            buffer.put_u8(1);
            buffer.put_u64(cursor.0);
            buffer.freeze()
        }
    }
}

fn decode_pop(reader: &mut Reader) -> Result<PopOutcome, DecodeError> {
    match reader.u8().ok_or(DecodeError::Truncated)? {
        0 => {
            let popped_at = reader.u64().ok_or(DecodeError::Truncated)?;
            let visible_at = Timestamp(reader.i64().ok_or(DecodeError::Truncated)?);
            let queue = QueueId(reader.u32().ok_or(DecodeError::Truncated)?);
            let messages = decode_list(reader, decode_popped)?;
            Ok(PopOutcome::Taken { popped_at, visible_at, queue, messages })
        }
        1 => Ok(PopOutcome::Stale { cursor: QueueOffset(reader.u64().ok_or(DecodeError::Truncated)?) }),
        _ => Err(DecodeError::Value("a pop outcome")),
    }
}

fn decode_popped(reader: &mut Reader) -> Result<PoppedMessage, DecodeError> {
    let offset = QueueOffset(reader.u64().ok_or(DecodeError::Truncated)?);
    let attempt = reader.u32().ok_or(DecodeError::Truncated)?;
    Ok(PoppedMessage { offset, attempt })
}

fn encode_handles(handles: &[HandleOutcome]) -> Bytes {
    let mut buffer = start(HANDLES_KIND, 4 + handles.len() * 9);
    put_count(&mut buffer, handles.len());
    for handle in handles {
        match handle {
            HandleOutcome::Done => buffer.put_u8(0),
            HandleOutcome::Renewed { popped_at } => {
                buffer.put_u8(1);
                buffer.put_u64(*popped_at);
            }
            HandleOutcome::Superseded => buffer.put_u8(2),
            HandleOutcome::Gone => buffer.put_u8(3),
        }
    }
    buffer.freeze()
}

fn decode_handle(reader: &mut Reader) -> Result<HandleOutcome, DecodeError> {
    match reader.u8().ok_or(DecodeError::Truncated)? {
        0 => Ok(HandleOutcome::Done),
        1 => Ok(HandleOutcome::Renewed { popped_at: reader.u64().ok_or(DecodeError::Truncated)? }),
        2 => Ok(HandleOutcome::Superseded),
        3 => Ok(HandleOutcome::Gone),
        _ => Err(DecodeError::Value("a handle outcome")),
    }
}

/// A counted list. Each item takes at least one byte, which bounds what a lying count can make us reserve.
fn decode_list<T>(reader: &mut Reader, item: fn(&mut Reader) -> Result<T, DecodeError>) -> Result<Vec<T>, DecodeError> {
    let count = reader.u32().ok_or(DecodeError::Truncated)? as usize;
    if count > reader.remaining() {
        return Err(DecodeError::Truncated);
    }
    let mut items = Vec::with_capacity(count);
    for _ in 0..count {
        items.push(item(reader)?);
    }
    Ok(items)
}
