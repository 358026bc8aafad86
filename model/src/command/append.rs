//! `Append`: the one hot command, with a hand-made layout so that each record is encoded once and its CommitLog offset
//! is known from where it lies.
//!
//! ```text
//! body:  | count u32 | count × entry |                                    (all integers big-endian)
//! entry: | topic u64 | queue u32 | tags_code i64 | id_len u8 | message id | record_len u32 | record |
//! ```

use super::codec::{APPEND_KIND, APPEND_VERSION, COMMAND_HEADER_BYTES, DecodeError};
use crate::ids::{QueueId, TopicUid};
use crate::reader::Reader;
use crate::record::{Record, RecordError};
use bytes::{BufMut, Bytes, BytesMut};

/// Longest message id that an [`AppendEntry`] can hold.
pub const MESSAGE_ID_BYTES_MAX: usize = 255;

const COUNT_AT: usize = COMMAND_HEADER_BYTES;
/// Bytes of an entry beside the message id and the record.
const ENTRY_OVERHEAD_BYTES: usize = 8 + 4 + 8 + 1 + 4;

/// Messages to store, in order. Entries may belong to different topics and queues of the group.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Append {
    /// The messages.
    pub entries: Vec<AppendEntry>,
}

/// One message to store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppendEntry {
    /// The topic.
    pub topic: TopicUid,
    /// A queue of it that this group hosts.
    pub queue: QueueId,
    /// Tag hash of the ConsumeQueue unit ([`crate::filter::tags_code`]).
    pub tags_code: i64,
    /// The client's message id, the stored-once key within the topic. At most 255 bytes; empty: never deduplicated.
    pub message_id: Bytes,
    /// The record in RocketMQ's layout ([`crate::record`]).
    pub record: Bytes,
    /// Offset of the first byte of `record` within the encoded command; filled in by `decode`, 0 in a command that was
    /// never encoded.
    pub record_at: u32,
}

impl Append {
    /// Encodes the whole command, each record copied once.
    ///
    /// # Panics
    /// When a message id is longer than [`MESSAGE_ID_BYTES_MAX`] or the command would pass 4 GiB.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let bytes = self.entries.iter().map(|e| ENTRY_OVERHEAD_BYTES + e.message_id.len() + e.record.len()).sum();
        let mut writer = AppendWriter::with_capacity(bytes);
        for entry in &self.entries {
            writer.push(entry.topic, entry.queue, entry.tags_code, &entry.message_id, &entry.record);
        }
        writer.finish()
    }

    /// Decodes the body behind the command header; message ids and records are slices of the command.
    pub(super) fn decode_body(mut reader: Reader) -> Result<Append, DecodeError> {
        let count = reader.u32().ok_or(DecodeError::Truncated)?;
        // A lying count must not make us reserve memory: there are at most as many entries as fit into the bytes.
        let count_max = reader.remaining() / ENTRY_OVERHEAD_BYTES;
        if count as usize > count_max {
            return Err(DecodeError::Truncated);
        }
        let mut entries = Vec::with_capacity(count as usize);
        for _ in 0..count {
            entries.push(AppendEntry::decode(&mut reader).ok_or(DecodeError::Truncated)?);
        }
        match reader.remaining() {
            0 => Ok(Append { entries }),
            trailing => Err(DecodeError::Trailing(trailing)),
        }
    }
}

impl AppendEntry {
    fn decode(reader: &mut Reader) -> Option<AppendEntry> {
        let topic = TopicUid(reader.u64()?);
        let queue = QueueId(reader.u32()?);
        let tags_code = reader.i64()?;
        let id_len = reader.u8()?;
        let message_id = reader.bytes(usize::from(id_len))?;
        let record_len = reader.u32()?;
        let record_at = u32::try_from(reader.at()).ok()?;
        let record = reader.bytes(record_len as usize)?;
        Some(AppendEntry { topic, queue, tags_code, message_id, record, record_at })
    }
}

/// Writes an encoded `Append` entry by entry. With [`AppendWriter::push_record`] a message goes from its fields straight
/// into the command, without a buffer in between.
#[derive(Debug)]
pub struct AppendWriter {
    buffer: BytesMut,
    count: u32,
}

impl Default for AppendWriter {
    fn default() -> AppendWriter {
        AppendWriter::with_capacity(0)
    }
}

impl AppendWriter {
    /// An empty command with room for `entry_bytes` without growing.
    #[must_use]
    pub fn with_capacity(entry_bytes: usize) -> AppendWriter {
        let mut buffer = BytesMut::with_capacity(COMMAND_HEADER_BYTES + 4 + entry_bytes);
        buffer.put_u8(APPEND_KIND);
        buffer.put_u8(APPEND_VERSION);
        assert_eq!(buffer.len(), COUNT_AT);
        buffer.put_u32(0);
        AppendWriter { buffer, count: 0 }
    }

    /// Adds a message whose record is encoded already.
    ///
    /// # Panics
    /// When the message id is longer than [`MESSAGE_ID_BYTES_MAX`] or the command would pass 4 GiB.
    pub fn push(&mut self, topic: TopicUid, queue: QueueId, tags_code: i64, message_id: &[u8], record: &[u8]) {
        self.entry_header(topic, queue, tags_code, message_id, record.len());
        self.buffer.put_slice(record);
        self.count += 1;
    }

    /// Adds a message and encodes its record in place. On an error the command is as it was before.
    ///
    /// # Errors
    /// What [`Record::encode`] refuses.
    ///
    /// # Panics
    /// Like [`AppendWriter::push`].
    pub fn push_record(
        &mut self,
        topic: TopicUid,
        queue: QueueId,
        tags_code: i64,
        message_id: &[u8],
        record: &Record,
    ) -> Result<(), RecordError> {
        let lengths = record.measure()?;
        self.entry_header(topic, queue, tags_code, message_id, lengths.record);
        record.put(&mut self.buffer, lengths);
        self.count += 1;
        Ok(())
    }

    fn entry_header(&mut self, topic: TopicUid, queue: QueueId, tags_code: i64, message_id: &[u8], record_len: usize) {
        assert!(message_id.len() <= MESSAGE_ID_BYTES_MAX, "a message id of {} bytes", message_id.len());
        let entry_bytes = ENTRY_OVERHEAD_BYTES + message_id.len() + record_len;
        assert!(u32::try_from(self.buffer.len() + entry_bytes).is_ok(), "an append of more than 4 GiB");
        self.buffer.reserve(entry_bytes);
        self.buffer.put_u64(topic.0);
        self.buffer.put_u32(queue.0);
        self.buffer.put_i64(tags_code);
        self.buffer.put_u8(message_id.len() as u8);
        self.buffer.put_slice(message_id);
        self.buffer.put_u32(record_len as u32);
    }

    /// Messages so far.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Bytes of the command so far.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // never empty of bytes; `count` tells about messages
    pub fn len(&self) -> usize {
        self.buffer.len()
    }

    /// The encoded command.
    #[must_use]
    pub fn finish(mut self) -> Bytes {
        self.buffer[COUNT_AT..COUNT_AT + 4].copy_from_slice(&self.count.to_be_bytes());
        self.buffer.freeze()
    }
}
