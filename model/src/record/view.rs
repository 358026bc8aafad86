//! A record read in place: fields without copies, for filters and for rebuilding indexes.

use super::{
    BORN_HOST_V6, NAME_END, RECORD_MAGIC_V1, RECORD_MAGIC_V2, RecordError, STORE_HOST_V6, VALUE_END, body_crc,
};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

/// A borrowed record whose structure was checked by [`RecordView::parse`]; its body only by [`RecordView::verify_body`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordView<'a> {
    body_crc: u32,
    queue_id: u32,
    flag: i32,
    queue_offset: i64,
    physical_offset: i64,
    sys_flag: i32,
    born_timestamp: i64,
    born_host: SocketAddr,
    store_timestamp: i64,
    store_host: SocketAddr,
    reconsume_times: i32,
    prepared_transaction_offset: i64,
    body: &'a [u8],
    topic: &'a str,
    properties: &'a str,
}

impl<'a> RecordView<'a> {
    /// Reads one record and checks every length.
    ///
    /// # Errors
    /// When `bytes` is not exactly one record.
    pub fn parse(bytes: &'a [u8]) -> Result<RecordView<'a>, RecordError> {
        let mut fields = Fields { rest: bytes };
        let size = fields.u32()?;
        if size as usize != bytes.len() {
            return Err(RecordError::Size { said: size, found: bytes.len() });
        }
        let magic = fields.u32()?;
        let version_2 = match magic {
            RECORD_MAGIC_V1 => false,
            RECORD_MAGIC_V2 => true,
            _ => return Err(RecordError::Magic(magic)),
        };
        let body_crc = fields.u32()?;
        let queue_id = fields.length("queue id")?;
        let flag = fields.i32()?;
        let queue_offset = fields.i64()?;
        let physical_offset = fields.i64()?;
        let sys_flag_on_disk = fields.i32()?;
        let view = RecordView {
            body_crc,
            queue_id,
            flag,
            queue_offset,
            physical_offset,
            sys_flag: sys_flag_on_disk & !(BORN_HOST_V6 | STORE_HOST_V6),
            born_timestamp: fields.i64()?,
            born_host: fields.host(sys_flag_on_disk & BORN_HOST_V6 != 0)?,
            store_timestamp: fields.i64()?,
            store_host: fields.host(sys_flag_on_disk & STORE_HOST_V6 != 0)?,
            reconsume_times: fields.i32()?,
            prepared_transaction_offset: fields.i64()?,
            body: fields.body()?,
            topic: fields.topic(version_2)?,
            properties: fields.properties()?,
        };
        match fields.rest.len() {
            0 => Ok(view),
            rest => Err(RecordError::Size { said: size, found: bytes.len() - rest }),
        }
    }

    /// Checks the body against the record's checksum. A checksum of 0 means "not computed", as in RocketMQ.
    ///
    /// # Errors
    /// [`RecordError::BodyCrc`].
    pub fn verify_body(&self) -> Result<(), RecordError> {
        if self.body_crc == 0 {
            return Ok(());
        }
        match body_crc(self.body) {
            found if found == self.body_crc => Ok(()),
            found => Err(RecordError::BodyCrc { said: self.body_crc, found }),
        }
    }

    /// The topic's name.
    #[must_use]
    pub fn topic(&self) -> &'a str {
        self.topic
    }

    /// The queue.
    #[must_use]
    pub fn queue_id(&self) -> u32 {
        self.queue_id
    }

    /// The user's flag.
    #[must_use]
    pub fn flag(&self) -> i32 {
        self.flag
    }

    /// The queue offset field; 0 in stored bytes.
    #[must_use]
    pub fn queue_offset(&self) -> i64 {
        self.queue_offset
    }

    /// The physical offset field; 0 in stored bytes.
    #[must_use]
    pub fn physical_offset(&self) -> i64 {
        self.physical_offset
    }

    /// System flags without the two bits about hosts.
    #[must_use]
    pub fn sys_flag(&self) -> i32 {
        self.sys_flag
    }

    /// Milliseconds since the Unix epoch, by the producer's clock.
    #[must_use]
    pub fn born_timestamp(&self) -> i64 {
        self.born_timestamp
    }

    /// The producer's address.
    #[must_use]
    pub fn born_host(&self) -> SocketAddr {
        self.born_host
    }

    /// Milliseconds since the Unix epoch.
    #[must_use]
    pub fn store_timestamp(&self) -> i64 {
        self.store_timestamp
    }

    /// The node that took the message.
    #[must_use]
    pub fn store_host(&self) -> SocketAddr {
        self.store_host
    }

    /// How often a consumer sent it back.
    #[must_use]
    pub fn reconsume_times(&self) -> i32 {
        self.reconsume_times
    }

    /// Physical offset of the half message of a committed one, else 0.
    #[must_use]
    pub fn prepared_transaction_offset(&self) -> i64 {
        self.prepared_transaction_offset
    }

    /// The body.
    #[must_use]
    pub fn body(&self) -> &'a [u8] {
        self.body
    }

    /// Properties in order. Parts without a name and a separator are passed over, as RocketMQ's readers do.
    pub fn properties(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        self.properties
            .split(char::from(VALUE_END))
            .filter_map(|part| part.split_once(char::from(NAME_END)))
            .filter(|(name, _)| !name.is_empty())
    }

    /// The value of the first property called `name`.
    #[must_use]
    pub fn property(&self, name: &str) -> Option<&'a str> {
        self.properties().find(|(n, _)| *n == name).map(|(_, value)| value)
    }
}

/// Reads fields from the front of a slice.
struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], RecordError> {
        let (front, rest) = self.rest.split_first_chunk::<N>().ok_or(RecordError::Truncated)?;
        self.rest = rest;
        Ok(*front)
    }

    fn slice(&mut self, len: usize) -> Result<&'a [u8], RecordError> {
        let (front, rest) = self.rest.split_at_checked(len).ok_or(RecordError::Truncated)?;
        self.rest = rest;
        Ok(front)
    }

    fn u32(&mut self) -> Result<u32, RecordError> {
        self.array().map(u32::from_be_bytes)
    }

    fn i32(&mut self) -> Result<i32, RecordError> {
        self.array().map(i32::from_be_bytes)
    }

    fn i64(&mut self) -> Result<i64, RecordError> {
        self.array().map(i64::from_be_bytes)
    }

    /// A number that is signed on disk and must not be negative.
    fn length(&mut self, field: &'static str) -> Result<u32, RecordError> {
        u32::try_from(self.i32()?).map_err(|_| RecordError::Field(field))
    }

    fn short_length(&mut self, field: &'static str) -> Result<usize, RecordError> {
        usize::try_from(i16::from_be_bytes(self.array()?)).map_err(|_| RecordError::Field(field))
    }

    fn host(&mut self, v6: bool) -> Result<SocketAddr, RecordError> {
        let ip =
            if v6 { Ipv6Addr::from(self.array::<16>()?).into() } else { Ipv4Addr::from(self.array::<4>()?).into() };
        let port = u16::try_from(self.u32()?).map_err(|_| RecordError::Field("port"))?;
        Ok(SocketAddr::new(ip, port))
    }

    fn body(&mut self) -> Result<&'a [u8], RecordError> {
        let len = self.length("body length")?;
        self.slice(len as usize)
    }

    fn topic(&mut self, version_2: bool) -> Result<&'a str, RecordError> {
        let len = if version_2 {
            self.short_length("topic length")?
        } else {
            let [len] = self.array()?;
            usize::try_from(len as i8).map_err(|_| RecordError::Field("topic length"))?
        };
        std::str::from_utf8(self.slice(len)?).map_err(|_| RecordError::Field("topic"))
    }

    fn properties(&mut self) -> Result<&'a str, RecordError> {
        let len = self.short_length("properties length")?;
        std::str::from_utf8(self.slice(len)?).map_err(|_| RecordError::Field("properties"))
    }
}
