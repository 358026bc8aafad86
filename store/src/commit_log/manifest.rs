//! The log's small durable facts, replaced in one step.
//!
//! ```text
//!  0 magic u32 | 4 version u8 | 5 flags u8 (1 something was purged, 2 discard) | 6 zero u16
//!  8 segment bytes u64 | 16 start u64 | 24 purged term u64 | 32 purged index u64 | 40 purged end u64 | 48 zero u32
//! 52 CRC u32 over 0..52
//! ```

use std::path::{Path, PathBuf};

use super::{EntryId, OpenError};
use crate::io::{Io, read_file, replace_file};

const MAGIC: u32 = 0x524d_514d; // "RMQM"
const VERSION: u8 = 1;
const BYTES: usize = 56;
const FLAG_PURGED: u8 = 1;
const FLAG_DISCARD: u8 = 2;

/// The contents of the file `manifest`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Manifest {
    /// The size of all segments of this log.
    pub(crate) segment_bytes: u64,
    /// Where reading begins: the first frame, purged or not, lies here or (when it does not fit) in the next segment.
    /// Segments before it are leftovers.
    pub(crate) start: u64,
    /// The last purged entry.
    pub(crate) purged: Option<EntryId>,
    /// Where its frame ends (or would on a replica that has it).
    pub(crate) purged_end: u64,
    /// All segments are leftovers: the log was reset and goes on at `start`.
    pub(crate) discard: bool,
}

pub(crate) fn path(dir: &Path) -> PathBuf {
    dir.join("manifest")
}

impl Manifest {
    pub(crate) fn new(segment_bytes: u64) -> Manifest {
        Manifest { segment_bytes, start: 0, purged: None, purged_end: 0, discard: false }
    }

    fn encode(&self) -> [u8; BYTES] {
        let (term, index) = self.purged.unwrap_or((0, 0));
        let mut bytes = [0; BYTES];
        bytes[0..4].copy_from_slice(&MAGIC.to_be_bytes());
        bytes[4] = VERSION;
        bytes[5] = if self.purged.is_some() { FLAG_PURGED } else { 0 } | if self.discard { FLAG_DISCARD } else { 0 };
        for (at, value) in [(8, self.segment_bytes), (16, self.start), (24, term), (32, index), (40, self.purged_end)] {
            bytes[at..at + 8].copy_from_slice(&value.to_be_bytes());
        }
        let crc = crc32fast::hash(&bytes[..52]);
        bytes[52..].copy_from_slice(&crc.to_be_bytes());
        bytes
    }

    /// The version of a manifest that a newer program wrote, whose length and checksum may be others; none when only the
    /// version byte has rotted.
    fn newer_version(bytes: &[u8]) -> Option<u8> {
        let version = *bytes.get(4)?;
        if !bytes.starts_with(&MAGIC.to_be_bytes()) || version <= VERSION {
            return None;
        }
        let mut ours = bytes.to_vec();
        ours[4] = VERSION;
        Manifest::decode(&ours).is_err().then_some(version)
    }

    fn decode(bytes: &[u8]) -> Result<Manifest, String> {
        let bytes: &[u8; BYTES] = bytes.try_into().map_err(|_| format!("it has {} bytes", bytes.len()))?;
        let u64_at = |at: usize| bytes[at..at + 8].iter().fold(0, |value: u64, byte| value << 8 | u64::from(*byte));
        if bytes[0..4] != MAGIC.to_be_bytes() || bytes[4] != VERSION {
            return Err("it is no manifest of a raftmq log".into());
        }
        if crc32fast::hash(&bytes[..52]).to_be_bytes() != bytes[52..] {
            return Err("its checksum does not match".into());
        }
        Ok(Manifest {
            segment_bytes: u64_at(8),
            start: u64_at(16),
            purged: (bytes[5] & FLAG_PURGED != 0).then(|| (u64_at(24), u64_at(32))),
            purged_end: u64_at(40),
            discard: bytes[5] & FLAG_DISCARD != 0,
        })
    }

    pub(crate) fn save(&self, io: &dyn Io, dir: &Path) -> std::io::Result<()> {
        replace_file(io, &path(dir), &self.encode())
    }

    /// What contradicts the manifest in a log whose last entry, purged or not, is `last` and ends at `tail`: where,
    /// why.
    pub(crate) fn objection(&self, last: Option<EntryId>, tail: u64) -> Option<(u64, String)> {
        let (term, index) = self.purged?;
        let end = self.purged_end;
        match last {
            Some((_, last)) if last < index => {
                Some((tail, format!("the log ends at entry {last}, and {term}/{index} was purged")))
            }
            Some((_, last)) if last == index && tail != end => {
                Some((tail, format!("the purged entry {index} should end at offset {end}")))
            }
            None if end > self.start => Some((self.start, "a frame was expected there".into())),
            _ => None,
        }
    }

    /// Reads the manifest of the log in `dir`; `None` when there is none.
    pub(crate) fn load(io: &dyn Io, dir: &Path) -> Result<Option<Manifest>, OpenError> {
        let file = path(dir);
        let bytes = read_file(io, &file, 4096).map_err(|source| OpenError::Io { dir: dir.to_path_buf(), source })?;
        let Some(bytes) = bytes else { return Ok(None) };
        if let Some(found) = Manifest::newer_version(&bytes) {
            return Err(OpenError::Newer { file, offset: 0, found, known: VERSION, wanted: None });
        }
        Manifest::decode(&bytes).map(Some).map_err(|reason| OpenError::Damaged {
            file,
            offset: 0,
            reason,
            wanted: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_back_and_damage_is_noticed() {
        let manifest =
            Manifest { segment_bytes: 4096, start: 8192, purged: Some((3, 9)), purged_end: 8200, discard: true };
        let bytes = manifest.encode();
        assert_eq!(Manifest::decode(&bytes), Ok(manifest));
        for at in 0..BYTES {
            let mut damaged = bytes;
            damaged[at] ^= 0x10;
            assert!(Manifest::decode(&damaged).is_err(), "byte {at}");
        }
    }
}
