//! The birth record of the cluster in the node's folder: which groups there are and where their replicas live, so that a
//! node starts its groups without asking anybody.
//!
//! ```text
//! placement: | magic "RMQB" | version u32 1 | length u32 | crc32 u32 | Birth, protobuf |      big-endian
//! ```
//! Written before the cluster id, so a folder with a cluster id always has it.

use prost::Message;
use raftmq_model::meta::Birth;
use raftmq_store::Io;
use raftmq_store::io::{read_file, replace_file};
use std::io;
use std::path::Path;

const FILE: &str = "placement";
const MAGIC: &[u8; 4] = b"RMQB";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 16;
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Writes the record, durable when it returns.
pub(super) fn write(io: &dyn Io, data_dir: &Path, birth: &Birth) -> io::Result<()> {
    let body = birth.encode_to_vec();
    let length = u32::try_from(body.len()).map_err(|_| invalid("it is too long"))?;
    let mut bytes = Vec::with_capacity(HEADER_BYTES + body.len());
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&VERSION.to_be_bytes());
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(&crc32fast::hash(&body).to_be_bytes());
    bytes.extend_from_slice(&body);
    assert!(bytes.len() as u64 <= FILE_BYTES_MAX, "a birth record is bounded by the number of nodes and groups");
    replace_file(io, &data_dir.join(FILE), &bytes)
}

/// Reads the record; `None` when there is none.
pub(crate) fn read(io: &dyn Io, data_dir: &Path) -> io::Result<Option<Birth>> {
    let Some(bytes) = read_file(io, &data_dir.join(FILE), FILE_BYTES_MAX)? else { return Ok(None) };
    let (header, body) = bytes.split_at_checked(HEADER_BYTES).ok_or_else(|| invalid("it is cut off"))?;
    let word = |at: usize| header[at..at + 4].iter().fold(0u32, |word, byte| word << 8 | u32::from(*byte));
    if &header[..4] != MAGIC {
        return Err(invalid("it does not begin as one"));
    }
    if word(4) != VERSION {
        return Err(invalid(&format!("its version is {}, this program reads {VERSION}", word(4))));
    }
    if word(8) as usize != body.len() || word(12) != crc32fast::hash(body) {
        return Err(invalid("its checksum does not match"));
    }
    Birth::decode(body).map(Some).map_err(|error| invalid(&error.to_string()))
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the file {FILE} is not a birth record: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use raftmq_store::RealIo;

    #[test]
    fn what_was_written_is_read_and_damage_is_found() {
        let dir = tempfile::tempdir().expect("dir");
        let io = RealIo;
        assert_eq!(read(&io, dir.path()).expect("none"), None);
        let birth = Birth { cluster_id: "c".into(), ..Birth::default() };
        write(&io, dir.path(), &birth).expect("write");
        assert_eq!(read(&io, dir.path()).expect("read"), Some(birth));
        let path = dir.path().join(FILE);
        let mut bytes = std::fs::read(&path).expect("bytes");
        for at in 0..bytes.len() {
            bytes[at] ^= 1;
            std::fs::write(&path, &bytes).expect("write");
            assert!(read(&io, dir.path()).is_err(), "a flipped bit in byte {at} must be found");
            bytes[at] ^= 1;
        }
        std::fs::write(&path, &bytes[..10]).expect("write");
        assert!(read(&io, dir.path()).is_err());
    }
}
