//! A message as it lies in the CommitLog: RocketMQ's record layout, versions 1 and 2.
//!
//! ```text
//!   0 | size i32 | magic i32 | body_crc i32 | queue_id i32 | flag i32 |
//!  20 | queue_offset i64 = 0 | physical_offset i64 = 0 | sys_flag i32 | born_timestamp i64 |
//!  48 | born_host: ip 4 or 16, port i32 | store_timestamp i64 | store_host: ip 4 or 16, port i32 |
//!     | reconsume_times i32 | prepared_transaction_offset i64 | body_len i32 | body |
//!     | topic_len i8 (version 1) or i16 (version 2) | topic | properties_len i16 | properties |
//! properties: ( name 0x01 value 0x02 )*
//! ```
//! Both offsets are positions, known from where a record lies: they are zero in the stored bytes, and readers fill them in
//! ([`fill_positions`]). Bits 4 and 5 of `sys_flag` say whether a host is IPv6; they are the encoding's own business and
//! not part of [`Record::sys_flag`].

mod keys;
pub mod property;
mod view;

use bytes::{BufMut, Bytes, BytesMut};
use std::net::{IpAddr, SocketAddr};
use thiserror::Error;

pub use keys::{KEYS_PER_MESSAGE_COUNT_MAX, key_hash};
pub use view::RecordView;

/// Magic number of version 1, for topics of up to [`TOPIC_BYTES_MAX_V1`] bytes.
pub const RECORD_MAGIC_V1: u32 = 0xDAA3_20A7;
/// Magic number of version 2.
pub const RECORD_MAGIC_V2: u32 = 0xDAA3_20AB;
/// Longest topic of a version 1 record.
pub const TOPIC_BYTES_MAX_V1: usize = 127;
/// Longest topic that a record of ours may have (dead-letter and retry topics are longer than what clients may name).
pub const TOPIC_BYTES_MAX: usize = 255;
/// Longest properties block.
pub const PROPERTIES_BLOCK_BYTES_MAX: usize = 32_767;
/// Longest body.
pub const RECORD_BODY_BYTES_MAX: usize = 4 << 20;
/// Offset of the queue offset field.
pub const QUEUE_OFFSET_AT: usize = 20;
/// Offset of the physical offset field.
pub const PHYSICAL_OFFSET_AT: usize = 28;

const BORN_HOST_AT: usize = 48;
const BORN_HOST_V6: i32 = 0x10;
const STORE_HOST_V6: i32 = 0x20;
const NAME_END: u8 = 1;
const VALUE_END: u8 = 2;
/// Size of a version 1 record with IPv4 hosts and nothing in it.
const FIXED_BYTES: usize = 91;
/// What IPv6 adds per host.
const V6_EXTRA_BYTES: usize = 12;

/// Why a record cannot be encoded, or bytes are not a record.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RecordError {
    /// The body is longer than [`RECORD_BODY_BYTES_MAX`].
    #[error("the body has {0} bytes, which is more than {RECORD_BODY_BYTES_MAX}")]
    BodyTooLarge(usize),
    /// The properties block is longer than [`PROPERTIES_BLOCK_BYTES_MAX`].
    #[error("the properties have {0} bytes, which is more than {PROPERTIES_BLOCK_BYTES_MAX}")]
    PropertiesTooLarge(usize),
    /// The topic is empty or longer than [`TOPIC_BYTES_MAX`].
    #[error("a topic of {0} bytes is not within 1 and {TOPIC_BYTES_MAX}")]
    TopicLength(usize),
    /// A property's name or value holds a byte that separates properties, or the name is empty.
    #[error("the property {0:?} has an empty name or holds a separator byte (0x01 or 0x02)")]
    Property(String),
    /// The bytes end in the middle of a field.
    #[error("the record ends in the middle of a field")]
    Truncated,
    /// The magic number is neither version's.
    #[error("the record has magic number {0:#010x}, which is not known")]
    Magic(u32),
    /// The size field does not say how long the record is.
    #[error("the record says that it has {said} bytes but has {found}")]
    Size {
        /// The size field.
        said: u32,
        /// What the fields and the buffer say.
        found: usize,
    },
    /// The body does not have the checksum that the record says.
    #[error("the body has checksum {found:#010x}, the record says {said:#010x}")]
    BodyCrc {
        /// The checksum field.
        said: u32,
        /// The body's checksum.
        found: u32,
    },
    /// A field has a value that cannot be: a negative length or id, a port above 65535, text that is not UTF-8.
    #[error("the record's {0} has a value that cannot be")]
    Field(&'static str),
}

/// A message with all that its record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The topic's name; 1 to [`TOPIC_BYTES_MAX`] bytes.
    pub topic: String,
    /// The queue, below 2^31.
    pub queue_id: u32,
    /// For the user; opaque here.
    pub flag: i32,
    /// System flags (compression, transaction state) without the two bits about hosts.
    pub sys_flag: i32,
    /// When the producer made the message, by its clock, in milliseconds since the Unix epoch.
    pub born_timestamp: i64,
    /// The producer's address.
    pub born_host: SocketAddr,
    /// When the message was stored, in milliseconds since the Unix epoch.
    pub store_timestamp: i64,
    /// The node that took the message.
    pub store_host: SocketAddr,
    /// How often a consumer sent it back.
    pub reconsume_times: i32,
    /// Physical offset of the half message of a committed one, else 0.
    pub prepared_transaction_offset: i64,
    /// The body as it travels, possibly compressed.
    pub body: Bytes,
    /// Properties in the order of the record. Names are not empty; neither part holds 0x01 or 0x02.
    pub properties: Vec<(String, String)>,
}

/// What [`Record::measure`] found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordLengths {
    /// Bytes of the whole record.
    pub(crate) record: usize,
    /// Bytes of its properties block.
    properties: usize,
}

impl Record {
    /// The value of the first property called `name`.
    #[must_use]
    pub fn property(&self, name: &str) -> Option<&str> {
        self.properties.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// Bytes of the encoded record.
    ///
    /// # Errors
    /// When a bound of the layout is passed or a property cannot be written.
    pub fn encoded_len(&self) -> Result<usize, RecordError> {
        self.measure().map(|lengths| lengths.record)
    }

    /// Checks everything that an encoder could refuse.
    pub(crate) fn measure(&self) -> Result<RecordLengths, RecordError> {
        let topic = self.topic.len();
        if topic == 0 || topic > TOPIC_BYTES_MAX {
            return Err(RecordError::TopicLength(topic));
        }
        if self.body.len() > RECORD_BODY_BYTES_MAX {
            return Err(RecordError::BodyTooLarge(self.body.len()));
        }
        if i32::try_from(self.queue_id).is_err() {
            return Err(RecordError::Field("queue id"));
        }
        let hosts = [self.born_host, self.store_host].iter().filter(|host| host.is_ipv6()).count() * V6_EXTRA_BYTES;
        let version_2 = usize::from(topic > TOPIC_BYTES_MAX_V1);
        let properties = self.properties_len()?;
        let record = FIXED_BYTES + hosts + version_2 + self.body.len() + topic + properties;
        Ok(RecordLengths { record, properties })
    }

    fn properties_len(&self) -> Result<usize, RecordError> {
        let separator = |byte: u8| matches!(byte, NAME_END | VALUE_END);
        let mut len = 0;
        for (name, value) in &self.properties {
            if name.is_empty() || name.bytes().any(separator) || value.bytes().any(separator) {
                return Err(RecordError::Property(name.clone()));
            }
            len += name.len() + value.len() + 2;
        }
        if len > PROPERTIES_BLOCK_BYTES_MAX {
            return Err(RecordError::PropertiesTooLarge(len));
        }
        Ok(len)
    }

    /// The encoded record, written in one pass into a buffer of exactly its size.
    ///
    /// # Errors
    /// Like [`Record::encoded_len`].
    pub fn encode(&self) -> Result<Bytes, RecordError> {
        let lengths = self.measure()?;
        let mut buffer = BytesMut::with_capacity(lengths.record);
        self.put(&mut buffer, lengths);
        Ok(buffer.freeze())
    }

    /// Appends the encoded record to `buffer`, which is left as it is on an error.
    ///
    /// # Errors
    /// Like [`Record::encoded_len`].
    pub fn encode_into(&self, buffer: &mut BytesMut) -> Result<(), RecordError> {
        let lengths = self.measure()?;
        buffer.reserve(lengths.record);
        self.put(buffer, lengths);
        Ok(())
    }

    /// Appends the record, whose lengths are those of [`Record::measure`].
    pub(crate) fn put(&self, buffer: &mut BytesMut, lengths: RecordLengths) {
        let start = buffer.len();
        self.put_head(buffer, lengths.record);
        buffer.put_i32(self.body.len() as i32);
        buffer.put_slice(&self.body);
        if self.topic.len() > TOPIC_BYTES_MAX_V1 {
            buffer.put_i16(self.topic.len() as i16);
        } else {
            buffer.put_i8(self.topic.len() as i8);
        }
        buffer.put_slice(self.topic.as_bytes());
        buffer.put_i16(lengths.properties as i16);
        for (name, value) in &self.properties {
            buffer.put_slice(name.as_bytes());
            buffer.put_u8(NAME_END);
            buffer.put_slice(value.as_bytes());
            buffer.put_u8(VALUE_END);
        }
        assert_eq!(buffer.len() - start, lengths.record, "a record's length was computed wrong");
    }

    /// Everything before the body's length.
    fn put_head(&self, buffer: &mut BytesMut, len: usize) {
        let start = buffer.len();
        let version_2 = self.topic.len() > TOPIC_BYTES_MAX_V1;
        buffer.put_u32(len as u32);
        buffer.put_u32(if version_2 { RECORD_MAGIC_V2 } else { RECORD_MAGIC_V1 });
        buffer.put_u32(body_crc(&self.body));
        buffer.put_u32(self.queue_id);
        buffer.put_i32(self.flag);
        assert_eq!(buffer.len() - start, QUEUE_OFFSET_AT);
        buffer.put_i64(0);
        buffer.put_i64(0);
        buffer.put_i32(self.sys_flag_on_disk());
        buffer.put_i64(self.born_timestamp);
        assert_eq!(buffer.len() - start, BORN_HOST_AT);
        put_host(buffer, self.born_host);
        buffer.put_i64(self.store_timestamp);
        put_host(buffer, self.store_host);
        buffer.put_i32(self.reconsume_times);
        buffer.put_i64(self.prepared_transaction_offset);
    }

    fn sys_flag_on_disk(&self) -> i32 {
        let born = if self.born_host.is_ipv6() { BORN_HOST_V6 } else { 0 };
        let store = if self.store_host.is_ipv6() { STORE_HOST_V6 } else { 0 };
        (self.sys_flag & !(BORN_HOST_V6 | STORE_HOST_V6)) | born | store
    }

    /// Decodes a record and verifies its lengths and the body's checksum; the body is a slice of `bytes`.
    ///
    /// # Errors
    /// When `bytes` is not exactly one record.
    pub fn decode(bytes: Bytes) -> Result<Record, RecordError> {
        let view = RecordView::parse(&bytes)?;
        view.verify_body()?;
        Ok(Record {
            topic: view.topic().to_owned(),
            queue_id: view.queue_id(),
            flag: view.flag(),
            sys_flag: view.sys_flag(),
            born_timestamp: view.born_timestamp(),
            born_host: view.born_host(),
            store_timestamp: view.store_timestamp(),
            store_host: view.store_host(),
            reconsume_times: view.reconsume_times(),
            prepared_transaction_offset: view.prepared_transaction_offset(),
            body: bytes.slice_ref(view.body()),
            properties: view.properties().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        })
    }
}

/// Writes the two positions into an encoded record, for tools that show a record as RocketMQ stores it.
///
/// # Errors
/// When `record` is too short to be a record.
pub fn fill_positions(record: &mut [u8], queue_offset: u64, physical_offset: u64) -> Result<(), RecordError> {
    if record.len() < FIXED_BYTES {
        return Err(RecordError::Truncated);
    }
    record[QUEUE_OFFSET_AT..PHYSICAL_OFFSET_AT].copy_from_slice(&queue_offset.to_be_bytes());
    record[PHYSICAL_OFFSET_AT..PHYSICAL_OFFSET_AT + 8].copy_from_slice(&physical_offset.to_be_bytes());
    Ok(())
}

/// CRC-32 of the body without the sign bit; 0 for an empty body, where readers do not check.
fn body_crc(body: &[u8]) -> u32 {
    crc32fast::hash(body) & 0x7FFF_FFFF
}

fn put_host(buffer: &mut BytesMut, host: SocketAddr) {
    match host.ip() {
        IpAddr::V4(ip) => buffer.put_slice(&ip.octets()),
        IpAddr::V6(ip) => buffer.put_slice(&ip.octets()),
    }
    buffer.put_i32(i32::from(host.port()));
}

#[cfg(test)]
mod tests;
