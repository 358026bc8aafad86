//! The vote file.
//!
//! ```text
//!     0  slot | 4096  slot | 8192  committed hint                      12288 bytes
//! slot: magic u32 | version u8 | flags u8 (1 there is a vote) | length u16 | sequence u64 | CRC u32 | zero u32 | vote
//! hint: magic u32 | zero u32 | term u64 | index u64 | CRC u32          (CRCs over what precedes them, and the vote)
//! ```
//!
//! A vote is written to one slot, synced, written to the other and synced: a crash damages at most the slot it was
//! writing, and rot in one slot forgets nothing. The hint lies in a page of its own and is never synced.

use std::io::Result;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use super::{EntryId, OpenError};
use crate::io::{Io, IoFile, OpenMode};
use raftmq_model::planted::{self, Planted};

/// Bytes that a vote may have.
pub const VOTE_BYTES_MAX: usize = 1024;

const MAGIC: u32 = 0x524d_5156; // "RMQV"
const VERSION: u8 = 1;
const SLOT_HEADER: usize = 24;
const SLOTS: [u64; 2] = [0, 4096];
const HINT_AT: u64 = 8192;
const HINT_BYTES: usize = 28;
const FILE_BYTES: u64 = 12288;
/// Why a vote file is refused in which no slot can be read.
pub(crate) const BOTH_DAMAGED: &str = "both slots are damaged";

#[derive(Clone, PartialEq, Eq, Debug)]
struct Slot {
    sequence: u64,
    vote: Option<Bytes>,
}

impl Slot {
    fn encode(&self) -> Vec<u8> {
        let vote = self.vote.as_deref().unwrap_or_default();
        assert!(vote.len() <= VOTE_BYTES_MAX, "a vote fits into its slot");
        let mut bytes = Vec::with_capacity(SLOT_HEADER + vote.len());
        bytes.extend_from_slice(&MAGIC.to_be_bytes());
        bytes.extend_from_slice(&[VERSION, u8::from(self.vote.is_some())]);
        bytes.extend_from_slice(&(vote.len() as u16).to_be_bytes());
        bytes.extend_from_slice(&self.sequence.to_be_bytes());
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&bytes);
        hasher.update(vote);
        bytes.extend_from_slice(&hasher.finalize().to_be_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(vote);
        bytes
    }

    /// The version of a slot that a newer program wrote; none when only the version byte has rotted.
    fn newer_version(bytes: &[u8]) -> Option<u8> {
        let version = *bytes.get(4)?;
        if !bytes.starts_with(&MAGIC.to_be_bytes()) || version <= VERSION {
            return None;
        }
        let mut ours = bytes.to_vec();
        ours[4] = VERSION;
        Slot::decode(&ours).is_none().then_some(version)
    }

    fn decode(bytes: &[u8]) -> Option<Slot> {
        let header = bytes.first_chunk::<SLOT_HEADER>()?;
        if header[0..4] != MAGIC.to_be_bytes() || header[4] != VERSION {
            return None;
        }
        let vote = bytes.get(SLOT_HEADER..SLOT_HEADER + usize::from(u16::from_be_bytes([header[6], header[7]])))?;
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&header[..16]);
        hasher.update(vote);
        if hasher.finalize().to_be_bytes() != header[16..20] {
            return None;
        }
        let sequence = header[8..16].iter().fold(0, |value: u64, byte| value << 8 | u64::from(*byte));
        Some(Slot { sequence, vote: (header[5] == 1).then(|| Bytes::copy_from_slice(vote)) })
    }
}

pub(super) struct VoteFile {
    file: Arc<dyn IoFile>,
    sequence: u64,
}

/// What the vote file holds, as it is.
pub(crate) struct Contents {
    slots: [Option<Slot>; 2],
    /// The committed hint.
    pub(crate) hint: Option<EntryId>,
    bytes: Vec<u8>,
}

impl Contents {
    /// Reads the vote file.
    pub(crate) fn read(
        io: &dyn Io,
        dir: &Path,
        mode: OpenMode,
    ) -> std::result::Result<(Arc<dyn IoFile>, Contents), OpenError> {
        let failed = |source| OpenError::Io { dir: dir.to_path_buf(), source };
        let refused = |reason: &str| OpenError::Vote { file: path(dir), reason: reason.into() };
        let file = match io.open(&path(dir), mode) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(refused("the file is missing")),
            Err(error) => return Err(failed(error)),
        };
        let mut bytes = vec![0; FILE_BYTES as usize];
        if file.len().map_err(failed)? < FILE_BYTES {
            return Err(refused("the file is too short"));
        }
        file.read_exact_at(&mut bytes, 0).map_err(failed)?;
        let slots = SLOTS.map(|at| Slot::decode(&bytes[at as usize..at as usize + 4096]));
        // Beside an intact slot it is rot: what writes a newer one raises the version of the folder first (`data_dir.rs`),
        // and this program does not get here then.
        if slots == [None, None] {
            for at in SLOTS {
                if let Some(found) = Slot::newer_version(&bytes[at as usize..at as usize + 4096]) {
                    return Err(OpenError::Newer { file: path(dir), offset: at, found, known: VERSION, wanted: None });
                }
            }
        }
        let hint = decode_hint(&bytes[HINT_AT as usize..]);
        Ok((file, Contents { slots, hint, bytes }))
    }

    fn newest(&self) -> Option<&Slot> {
        self.slots.iter().flatten().max_by_key(|slot| slot.sequence)
    }

    /// The vote; the outer `None` when no slot is intact.
    pub(crate) fn vote(&self) -> Option<Option<&Bytes>> {
        self.newest().map(|slot| slot.vote.as_ref())
    }

    /// What is not as it was written though the file does its work: where, and what is wrong.
    pub(crate) fn remarks(&self) -> Vec<(u64, &'static str)> {
        let damaged = SLOTS.iter().zip(&self.slots).filter(|(_, slot)| slot.is_none());
        let mut remarks: Vec<_> =
            damaged.map(|(at, _)| (*at, "one of the two copies of the vote is not intact")).collect();
        let hint_at = HINT_AT as usize;
        if self.hint.is_none() && self.bytes[hint_at..hint_at + HINT_BYTES].iter().any(|byte| *byte != 0) {
            remarks.push((HINT_AT, "the note of what is committed is not intact"));
        }
        let slot_bytes = SLOT_HEADER + VOTE_BYTES_MAX;
        let unused = [slot_bytes..4096, 4096 + slot_bytes..hint_at, hint_at + HINT_BYTES..self.bytes.len()];
        let stray = unused.into_iter().flatten().find(|at| self.bytes[*at] != 0);
        remarks.extend(stray.map(|at| (at as u64, "a byte that is not used is not zero")));
        remarks
    }
}

/// What the vote file holds.
pub(super) struct Loaded {
    pub(super) vote_file: VoteFile,
    pub(super) vote: Option<Bytes>,
    pub(super) committed: Option<EntryId>,
}

pub(crate) fn path(dir: &Path) -> PathBuf {
    dir.join("vote")
}

impl VoteFile {
    /// Makes the vote file of a new log, durable, saying that there is no vote.
    pub(super) fn create(io: &dyn Io, dir: &Path) -> Result<()> {
        let file = io.open(&path(dir), OpenMode::Create)?;
        file.set_len(FILE_BYTES)?;
        let empty = Slot { sequence: 0, vote: None }.encode();
        for slot in SLOTS {
            file.write_all_at(&empty, slot)?;
        }
        file.write_all_at(&[0; HINT_BYTES], HINT_AT)?;
        file.sync_data()?;
        io.sync_dir(dir)
    }

    /// Opens the vote file, and makes both slots equal when a crash left them different.
    pub(super) fn load(io: &dyn Io, dir: &Path) -> std::result::Result<Loaded, OpenError> {
        let (file, contents) = Contents::read(io, dir, OpenMode::Write)?;
        let failed = |source| OpenError::Io { dir: dir.to_path_buf(), source };
        let Some(newest) = contents.newest().cloned() else {
            return Err(OpenError::Vote { file: path(dir), reason: BOTH_DAMAGED.into() });
        };
        let mut vote_file = VoteFile { file, sequence: newest.sequence };
        let behind = [0, 1].into_iter().filter(|number: &usize| contents.slots[*number].as_ref() != Some(&newest));
        vote_file.write(&newest, behind).map_err(failed)?;
        Ok(Loaded { vote_file, vote: newest.vote, committed: contents.hint })
    }

    fn write(&mut self, slot: &Slot, numbers: impl IntoIterator<Item = usize>) -> Result<()> {
        let bytes = slot.encode();
        for number in numbers {
            self.file.write_all_at(&bytes, SLOTS[number])?;
            if !planted::is(Planted::VoteNotSynced) {
                self.file.sync_data()?;
            }
        }
        Ok(())
    }

    /// Saves a vote, durable when it returns.
    pub(super) fn save(&mut self, vote: Bytes) -> Result<()> {
        self.sequence += 1;
        self.write(&Slot { sequence: self.sequence, vote: Some(vote) }, [0, 1])
    }

    /// Forgets the committed hint, durably.
    pub(super) fn forget_committed(&self) -> Result<()> {
        self.file.write_all_at(&[0; HINT_BYTES], HINT_AT)?;
        self.file.sync_data()
    }

    /// Writes the committed hint without a sync.
    pub(super) fn write_committed(&self, (term, index): EntryId) -> Result<()> {
        let mut bytes = [0; HINT_BYTES];
        bytes[0..4].copy_from_slice(&MAGIC.to_be_bytes());
        bytes[8..16].copy_from_slice(&term.to_be_bytes());
        bytes[16..24].copy_from_slice(&index.to_be_bytes());
        let crc = crc32fast::hash(&bytes[..24]);
        bytes[24..].copy_from_slice(&crc.to_be_bytes());
        self.file.write_all_at(&bytes, HINT_AT)
    }
}

fn decode_hint(bytes: &[u8]) -> Option<EntryId> {
    let bytes = bytes.first_chunk::<HINT_BYTES>()?;
    let intact = bytes[0..4] == MAGIC.to_be_bytes() && crc32fast::hash(&bytes[..24]).to_be_bytes() == bytes[24..];
    let u64_at = |at: usize| bytes[at..at + 8].iter().fold(0, |value: u64, byte| value << 8 | u64::from(*byte));
    intact.then(|| (u64_at(8), u64_at(16)))
}
