//! Encoding of [`Command`]: a kind and a version in front of a body.

use super::{Ack, Append, ChangeInvisible, Command, DeadLetter, Pop, Release};
use crate::config::{ConsumerGroupConfig, TopicConfig};
use crate::reader::Reader;
use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;
use thiserror::Error;

/// Bytes of kind and version.
pub(super) const COMMAND_HEADER_BYTES: usize = 2;

pub(super) const APPEND_KIND: u8 = 1;
const PUT_TOPIC_KIND: u8 = 2;
const DELETE_TOPIC_KIND: u8 = 3;
const PUT_CONSUMER_GROUP_KIND: u8 = 4;
const DELETE_CONSUMER_GROUP_KIND: u8 = 5;
const POP_KIND: u8 = 6;
const ACK_KIND: u8 = 7;
const CHANGE_INVISIBLE_KIND: u8 = 8;
const DEAD_LETTER_KIND: u8 = 9;
const RELEASE_KIND: u8 = 10;
const SNAPSHOT_KIND: u8 = 11;
const PURGE_KIND: u8 = 12;

pub(super) const APPEND_VERSION: u8 = 1;
/// Protobuf bodies grow by fields; this changes only when an old reader must refuse the command.
const MESSAGE_VERSION: u8 = 1;

/// Why bytes are not a command or an outcome.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// A field reaches past the end.
    #[error("the bytes end in the middle of a field")]
    Truncated,
    /// There are bytes behind the last field.
    #[error("there are {0} bytes behind the last field")]
    Trailing(usize),
    /// Written by a newer build, or not ours.
    #[error("kind {kind} version {version} is not known to this build")]
    Unknown {
        /// First byte.
        kind: u8,
        /// Second byte.
        version: u8,
    },
    /// The body is not the protobuf message that the kind asks for.
    #[error("the body of kind {kind} cannot be decoded: {source}")]
    Body {
        /// First byte.
        kind: u8,
        /// What protobuf says.
        source: prost::DecodeError,
    },
    /// A field has a value that does not exist.
    #[error("{0} has a value that does not exist")]
    Value(&'static str),
}

/// Body of the two kinds that name a uid only.
#[derive(Clone, PartialEq, Eq, Message)]
struct UidBody {
    #[prost(uint64, tag = "1")]
    uid: u64,
}

/// Body of a command that says nothing beside its kind.
#[derive(Clone, PartialEq, Eq, Message)]
struct EmptyBody {}

#[derive(Clone, PartialEq, Eq, Message)]
struct PurgeBody {
    #[prost(uint64, tag = "1")]
    upto_index: u64,
}

impl Command {
    /// The encoded command.
    ///
    /// # Panics
    /// See [`Append::encode`]; other commands never panic.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        match self {
            Command::Append(append) => append.encode(),
            Command::PutTopic(topic) => encode_message(PUT_TOPIC_KIND, topic),
            Command::DeleteTopic { uid } => encode_message(DELETE_TOPIC_KIND, &UidBody { uid: *uid }),
            Command::PutConsumerGroup(group) => encode_message(PUT_CONSUMER_GROUP_KIND, group),
            Command::DeleteConsumerGroup { uid } => encode_message(DELETE_CONSUMER_GROUP_KIND, &UidBody { uid: *uid }),
            Command::Pop(pop) => encode_message(POP_KIND, pop),
            Command::Ack(ack) => encode_message(ACK_KIND, ack),
            Command::ChangeInvisible(change) => encode_message(CHANGE_INVISIBLE_KIND, change),
            Command::DeadLetter(letter) => encode_message(DEAD_LETTER_KIND, letter),
            Command::Release(release) => encode_message(RELEASE_KIND, release),
            Command::Snapshot => encode_message(SNAPSHOT_KIND, &EmptyBody {}),
            Command::Purge { upto_index } => encode_message(PURGE_KIND, &PurgeBody { upto_index: *upto_index }),
        }
    }

    /// Decodes one command; records, message ids and letters are slices of `bytes`.
    ///
    /// # Errors
    /// When `bytes` is not exactly one command that this build knows.
    pub fn decode(bytes: Bytes) -> Result<Command, DecodeError> {
        let mut reader = Reader::new(bytes);
        let kind = reader.u8().ok_or(DecodeError::Truncated)?;
        let version = reader.u8().ok_or(DecodeError::Truncated)?;
        if version != MESSAGE_VERSION {
            return Err(DecodeError::Unknown { kind, version });
        }
        match kind {
            APPEND_KIND => Append::decode_body(reader).map(Command::Append),
            PUT_TOPIC_KIND => decode_message::<TopicConfig>(kind, reader).map(Command::PutTopic),
            DELETE_TOPIC_KIND => {
                decode_message::<UidBody>(kind, reader).map(|body| Command::DeleteTopic { uid: body.uid })
            }
            PUT_CONSUMER_GROUP_KIND => {
                decode_message::<ConsumerGroupConfig>(kind, reader).map(Command::PutConsumerGroup)
            }
            DELETE_CONSUMER_GROUP_KIND => {
                decode_message::<UidBody>(kind, reader).map(|body| Command::DeleteConsumerGroup { uid: body.uid })
            }
            POP_KIND => decode_message::<Pop>(kind, reader).map(Command::Pop),
            ACK_KIND => decode_message::<Ack>(kind, reader).map(Command::Ack),
            CHANGE_INVISIBLE_KIND => decode_message::<ChangeInvisible>(kind, reader).map(Command::ChangeInvisible),
            DEAD_LETTER_KIND => decode_message::<DeadLetter>(kind, reader).map(Command::DeadLetter),
            RELEASE_KIND => decode_message::<Release>(kind, reader).map(Command::Release),
            SNAPSHOT_KIND => decode_message::<EmptyBody>(kind, reader).map(|EmptyBody {}| Command::Snapshot),
            PURGE_KIND => {
                decode_message::<PurgeBody>(kind, reader).map(|body| Command::Purge { upto_index: body.upto_index })
            }
            _ => Err(DecodeError::Unknown { kind, version }),
        }
    }
}

/// Whether an encoded command adds messages to the log: what a full disk has no room for. All others are small and give
/// room in the end, or are needed to.
#[must_use]
pub fn stores_records(encoded: &[u8]) -> bool {
    matches!(encoded.first(), Some(&APPEND_KIND | &DEAD_LETTER_KIND))
}

fn encode_message(kind: u8, body: &impl Message) -> Bytes {
    let body_len = body.encoded_len();
    let mut buffer = BytesMut::with_capacity(COMMAND_HEADER_BYTES + body_len);
    buffer.put_u8(kind);
    buffer.put_u8(MESSAGE_VERSION);
    let encoded = body.encode(&mut buffer);
    assert!(encoded.is_ok(), "a growing buffer has room");
    assert_eq!(buffer.len(), COMMAND_HEADER_BYTES + body_len);
    buffer.freeze()
}

fn decode_message<M: Message + Default>(kind: u8, reader: Reader) -> Result<M, DecodeError> {
    M::decode(reader.rest()).map_err(|source| DecodeError::Body { kind, source })
}
