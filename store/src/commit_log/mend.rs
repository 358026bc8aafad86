//! A log that does not open since a frame in it is damaged, and the frame of another replica that makes it whole.
//!
//! Without an index in memory nobody knows how long a damaged frame is: its length may be what is damaged. But where it begins
//! is known, and on all replicas the same entry begins there. So [`OpenError::Damaged`] says which frame is wanted, whoever
//! has it answers it by its physical offset, [`put_frame`] checks it against both neighbours and writes it, and the log is
//! opened again.

use std::io::{Error, ErrorKind, Result};
use std::path::PathBuf;

use bytes::Bytes;
use raftmq_model::ids::PhysicalOffset;

use super::manifest::Manifest;
use super::repair::overwrite;
use super::scan::{SegmentScan, Step, follows};
use super::vote::VoteFile;
use super::{CommitLogOptions, EntryId};
use crate::frame::{FRAME_ALIGN, HEADER_BYTES, check_frame};
use crate::io::OpenMode;
use crate::segment::{SEGMENT_DIR, parse_segment_name, segment_name};

/// A frame without which a log does not open.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WantedFrame {
    /// The segment file.
    pub(super) file: PathBuf,
    /// Physical offset of the segment.
    pub(super) base: u64,
    /// Physical offset of the frame.
    pub(super) offset: u64,
    /// The entry before it, if any.
    pub(super) last: Option<EntryId>,
    pub(super) purged: Option<EntryId>,
    /// In the last segment: the entry that the log has to reach. A complete one has to be whole.
    pub(super) upto: Option<u64>,
}

/// What became of a frame that was put in its place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Put {
    /// It is there, durable, and what follows it is whole or not needed.
    Done,
    /// It is there, durable, and the frame that follows is wanted too.
    More(WantedFrame),
}

impl WantedFrame {
    /// Where it begins, on all replicas.
    #[must_use]
    pub fn offset(&self) -> PhysicalOffset {
        PhysicalOffset(self.offset)
    }
}

impl std::fmt::Display for WantedFrame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at byte {}", self.file.display(), self.offset - self.base)
    }
}

/// The highest entry that a damaged log can have: of all that is whole behind the wanted frame, and what was noted as committed.
///
/// # Errors
/// What the system says, and when the vote file cannot be read.
pub fn reach(options: &CommitLogOptions, wanted: &WantedFrame) -> Result<u64> {
    let (segment, io) = (options.segment_bytes_max, &*options.io);
    let hint = VoteFile::load(io, &options.dir).map_err(Error::other)?.committed;
    let mut reach = wanted.last.max(wanted.purged).max(hint).map_or(0, |(_, index)| index);
    let dir = options.dir.join(SEGMENT_DIR);
    let bases: Vec<u64> = io.list(&dir)?.iter().filter_map(|name| parse_segment_name(name)).collect();
    for base in bases.into_iter().filter(|base| *base >= wanted.base) {
        let file = io.open(&dir.join(segment_name(base)), OpenMode::Read)?;
        let scan = SegmentScan { file: &*file, base, segment_bytes: segment, len: file.len()?.min(segment) };
        // A frame says where it lies, so that one which is found anywhere is one.
        let mut at = wanted.offset.max(base);
        while at + HEADER_BYTES as u64 <= scan.end() {
            match scan.frame(at, false)? {
                Some(header) => {
                    reach = reach.max(header.index);
                    at = header.offset + header.frame_bytes();
                }
                // Blocks that were never written hold no frame.
                None => at = file.next_data(at + FRAME_ALIGN - base)?.map_or(scan.end(), |next| base + next),
            }
            at = at.next_multiple_of(FRAME_ALIGN);
        }
    }
    Ok(reach)
}

/// Makes a log that does not open an empty one; its vote stays. Only for a replica of which all others have all that it can have
/// ([`reach`]), and whose state was made empty before: it then starts over from a snapshot.
///
/// # Errors
/// What the system says, and when the vote file cannot be read.
pub fn start_over(options: &CommitLogOptions) -> Result<()> {
    let io = &*options.io;
    VoteFile::load(io, &options.dir).map_err(Error::other)?;
    // The next start goes on with it, and forgets what was committed: not before, since `reach` goes by that.
    Manifest { discard: true, ..Manifest::new(options.segment_bytes_max) }.save(io, &options.dir)
}

/// Writes a wanted frame (header and payload, of a filler its header) into a log that is not open.
///
/// # Errors
/// `InvalidInput` when the frame is not the wanted one or does not fit its neighbours: nothing was changed. `InvalidData` when the
/// file does not give back what was written. What the system says.
pub fn put_frame(options: &CommitLogOptions, wanted: &WantedFrame, frame: &Bytes) -> Result<Put> {
    let refuse = |what: &str| Err(Error::new(ErrorKind::InvalidInput, format!("{wanted}: the frame of a peer {what}")));
    let WantedFrame { base, offset, last, purged, .. } = *wanted;
    let Some(header) = check_frame(frame, base, offset) else { return refuse("is not whole, or of another place") };
    let file = options.io.open(&wanted.file, OpenMode::Write)?;
    let segment = options.segment_bytes_max;
    let scan = SegmentScan { file: &*file, base, segment_bytes: segment, len: segment };
    let end = offset + header.frame_bytes();
    if file.len()? != segment || end > scan.end() {
        return refuse("does not lie within its segment");
    }
    let id = match header.kind {
        None if end == scan.end() && wanted.upto.is_none() && frame.len() == HEADER_BYTES => last,
        None => return refuse("is a filler where none can be"),
        Some(_) if follows(last, purged, &header) => Some((header.term, header.index)),
        Some(_) => return refuse("does not follow the entry before it"),
    };
    let next = if header.kind.is_some() { Some(scan.step(end, id, purged, true)?) } else { None };
    if let Some(Step::Stray(_)) = next {
        return refuse("does not fit the one behind it");
    }
    let padding = [0; FRAME_ALIGN as usize];
    let padding = if header.kind.is_some() { &padding[..(end - offset) as usize - frame.len()] } else { &[] };
    if !overwrite(&*file, offset - base, frame, padding)? {
        return Err(Error::new(
            ErrorKind::InvalidData,
            format!("{wanted} is damaged, also after it was written again"),
        ));
    }
    let is_needed = wanted.upto.is_none_or(|upto| header.index < upto);
    match next {
        Some(Step::NoFrame) if is_needed && scan.end() - end >= HEADER_BYTES as u64 => {
            Ok(Put::More(WantedFrame { offset: end, last: id, ..wanted.clone() }))
        }
        _ => Ok(Put::Done),
    }
}
