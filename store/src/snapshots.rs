//! The snapshots that a replica keeps, one file each.
//!
//! ```text
//! <dir>/<log index, 20 digits>
//!
//!  0 magic u32 | 4 version u8 | 5 zero u24 | 8 index u64 | 16 body bytes u64 | 24 CRC u32 over 0..24 and the body | 28 zero u32
//! 32 body
//! ```
//! A file is there as a whole or not at all: it gets its name when all of it is durable. What a body means is the
//! caller's business. Any thread may call; calls do not overlap with each other for one index.

use crate::io::{Io, read_file, replace_file};
use bytes::Bytes;
use std::io::{Error, ErrorKind, Result};
use std::path::PathBuf;
use std::sync::Arc;

const MAGIC: u32 = 0x524d_5153; // "RMQS"
const VERSION: u8 = 1;
const HEADER_BYTES: usize = 32;
/// What CRC does not cover: itself and what is behind it.
const CRC_AT: usize = 24;
/// Digits of a name.
const NAME_CHARS: usize = 20;
/// Bytes of a snapshot's body; a larger one is refused when it is written.
pub const SNAPSHOT_BYTES_MAX: u64 = 1 << 30;

/// The snapshots of one group.
#[derive(Clone)]
pub struct Snapshots {
    dir: PathBuf,
    io: Arc<dyn Io>,
}

impl Snapshots {
    /// The snapshots in `dir` (usually `<group>/snapshots`), which is made with the first one.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>, io: Arc<dyn Io>) -> Snapshots {
        Snapshots { dir: dir.into(), io }
    }

    /// The file of the snapshot behind the entry at `index`.
    #[must_use]
    pub fn path(&self, index: u64) -> PathBuf {
        self.dir.join(format!("{index:0NAME_CHARS$}"))
    }

    /// Log indexes of the snapshots, ascending. Half-written ones are none.
    ///
    /// # Errors
    /// What the file system says.
    pub fn indexes(&self) -> Result<Vec<u64>> {
        if !self.io.exists(&self.dir)? {
            return Ok(Vec::new());
        }
        let names = self.io.list(&self.dir)?;
        Ok(names.iter().filter(|name| name.len() == NAME_CHARS).filter_map(|name| name.parse().ok()).collect())
    }

    /// Keeps a snapshot, durable when this returns.
    ///
    /// # Errors
    /// `InvalidInput` when it is larger than [`SNAPSHOT_BYTES_MAX`], or what the file system says.
    pub fn write(&self, index: u64, body: &[u8]) -> Result<()> {
        if body.len() as u64 > SNAPSHOT_BYTES_MAX {
            let sentence = format!("a snapshot of {} bytes, {SNAPSHOT_BYTES_MAX} at most", body.len());
            return Err(Error::new(ErrorKind::InvalidInput, sentence));
        }
        self.io.create_dir_all(&self.dir)?;
        let mut file = header(index, body.len() as u64, 0);
        let crc = crc(&file, body);
        file = header(index, body.len() as u64, crc);
        file.extend_from_slice(body);
        replace_file(self.io.as_ref(), &self.path(index), &file)
    }

    /// The body of a snapshot; `None` when there is none of that index.
    ///
    /// # Errors
    /// `InvalidData` with the file's name when it is damaged or of a newer version, or what the file system says.
    pub fn read(&self, index: u64) -> Result<Option<Bytes>> {
        let path = self.path(index);
        let Some(file) = read_file(self.io.as_ref(), &path, SNAPSHOT_BYTES_MAX + HEADER_BYTES as u64)? else {
            return Ok(None);
        };
        let file = Bytes::from(file);
        let damaged = |what: &str| Error::new(ErrorKind::InvalidData, format!("{} {what}", path.display()));
        let Some((head, _)) = file.split_first_chunk::<HEADER_BYTES>() else {
            return Err(damaged("is damaged: it is shorter than its header"));
        };
        if head[..4] == MAGIC.to_be_bytes() && head[4] > VERSION {
            return Err(damaged("was written by a newer version of raftmq"));
        }
        let body = file.slice(HEADER_BYTES..);
        let expected = header(index, body.len() as u64, crc(head, &body));
        if expected != head {
            return Err(damaged("is damaged: its header or its checksum does not fit"));
        }
        Ok(Some(body))
    }

    /// Drops the snapshots that `keep` does not want.
    ///
    /// # Errors
    /// What the file system says.
    pub fn retain(&self, keep: impl Fn(u64) -> bool) -> Result<()> {
        let gone: Vec<u64> = self.indexes()?.into_iter().filter(|index| !keep(*index)).collect();
        for index in &gone {
            self.io.remove(&self.path(*index))?;
        }
        if gone.is_empty() { Ok(()) } else { self.io.sync_dir(&self.dir) }
    }
}

fn header(index: u64, body_bytes: u64, crc: u32) -> Vec<u8> {
    let mut header = Vec::with_capacity(HEADER_BYTES + body_bytes as usize);
    header.extend_from_slice(&MAGIC.to_be_bytes());
    header.extend_from_slice(&[VERSION, 0, 0, 0]);
    header.extend_from_slice(&index.to_be_bytes());
    header.extend_from_slice(&body_bytes.to_be_bytes());
    header.extend_from_slice(&crc.to_be_bytes());
    header.extend_from_slice(&[0; 4]);
    assert_eq!(header.len(), HEADER_BYTES);
    header
}

fn crc(header: &[u8], body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&header[..CRC_AT]);
    hasher.update(body);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::FaultyIo;

    fn snapshots() -> (FaultyIo, Snapshots) {
        let io = FaultyIo::new();
        (io.clone(), Snapshots::new("/group/snapshots", Arc::new(io)))
    }

    #[test]
    fn what_is_written_is_read_and_what_is_not_wanted_goes() {
        let (_, snapshots) = snapshots();
        assert_eq!(snapshots.indexes().unwrap(), Vec::<u64>::new());
        for index in [7, 300, 42] {
            snapshots.write(index, format!("state at {index}").as_bytes()).unwrap();
        }
        assert_eq!(snapshots.indexes().unwrap(), [7, 42, 300]);
        assert_eq!(snapshots.read(42).unwrap().unwrap(), "state at 42");
        assert_eq!(snapshots.read(43).unwrap(), None);
        snapshots.retain(|index| index >= 42).unwrap();
        assert_eq!(snapshots.indexes().unwrap(), [42, 300]);
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let (io, snapshots) = snapshots();
        snapshots.write(7, b"state").unwrap();
        let path = snapshots.path(7);
        let whole = read_file(&io, &path, 1 << 20).unwrap().unwrap();
        for bit in 0..whole.len() * 8 {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            replace_file(&io, &path, &flipped).unwrap();
            let error = snapshots.read(7).unwrap_err();
            assert!(error.to_string().contains("00000000000000000007"), "bit {bit}: {error}");
        }
        for len in 0..whole.len() {
            replace_file(&io, &path, &whole[..len]).unwrap();
            assert!(snapshots.read(7).is_err(), "cut to {len}");
        }
    }

    #[test]
    fn a_power_cut_leaves_a_whole_snapshot_or_none() {
        for seed in 0..20 {
            for cut in 1.. {
                let (io, snapshots) = snapshots();
                snapshots.write(7, b"an earlier one").unwrap();
                io.cut_power_at(io.operations() + cut);
                let written = snapshots.write(8, &[5; 3000]).is_ok();
                io.restart(seed);
                assert_eq!(snapshots.read(7).unwrap().unwrap(), "an earlier one");
                let there = snapshots.read(8).unwrap();
                assert!(there.is_some() || !written, "it was durable");
                assert!(there.is_none_or(|body| body == [5; 3000].as_slice()), "cut {cut} seed {seed}");
                if written {
                    assert!(cut > 4, "the cuts went through the whole write");
                    break;
                }
            }
        }
    }
}
