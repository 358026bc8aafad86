//! What the files of a log hold, read without changing them: the rules that opening a log and inspecting one share.
//!
//! Frames are read one after the other from where the manifest says that the log starts. An entry's frame must be
//! intact and follow the entry before it; a filler must end where its segment ends.

use std::io::Result;

use super::EntryId;
use super::index::Place;
use crate::frame::{FrameHeader, HEADER_BYTES, check_frame, newer_version};
use crate::io::IoFile;

/// Bytes read at a time when bytes other than zeros are looked for.
const SEARCH_BYTES: usize = 1 << 16;

/// What lies where a frame may lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// The entry that follows.
    Entry(Place),
    /// Nothing more: a filler, or a rest of zeros that is too short for a frame.
    Complete,
    /// No intact frame.
    NoFrame,
    /// An intact frame that cannot lie here: an entry that does not follow, or a filler that ends too early.
    Stray(FrameHeader),
}

/// One segment file.
#[derive(Clone, Copy)]
pub(crate) struct SegmentScan<'a> {
    pub(crate) file: &'a dyn IoFile,
    /// Physical offset of its first byte.
    pub(crate) base: u64,
    /// Bytes that a segment of this log has.
    pub(crate) segment_bytes: u64,
    /// Bytes that the file has, if fewer.
    pub(crate) len: u64,
}

impl SegmentScan<'_> {
    /// Physical offset of the segment's end.
    pub(crate) fn end(&self) -> u64 {
        self.base + self.segment_bytes
    }

    /// What lies at the physical offset `at`, behind the entry `last`. Payloads are looked at when `verify` says so.
    pub(crate) fn step(&self, at: u64, last: Option<EntryId>, purged: Option<EntryId>, verify: bool) -> Result<Step> {
        if self.end() - at < HEADER_BYTES as u64 {
            return Ok(if self.nonzero(at, self.end())?.is_none() { Step::Complete } else { Step::NoFrame });
        }
        let Some(header) = self.frame(at, verify)? else { return Ok(Step::NoFrame) };
        let Some(kind) = header.kind else {
            return Ok(if at + header.frame_bytes() == self.end() { Step::Complete } else { Step::Stray(header) });
        };
        if !follows(last, purged, &header) {
            return Ok(Step::Stray(header));
        }
        let FrameHeader { term, index, payload_bytes, .. } = header;
        Ok(Step::Entry(Place { term, index, kind, offset: at, payload_bytes }))
    }

    /// The header of the filler at `at`, when there is an intact one; past the map.
    pub(super) fn frame_copied(&self, at: u64) -> Result<Option<FrameHeader>> {
        let mut bytes = [0; HEADER_BYTES];
        self.file.read_exact_at(&mut bytes, at - self.base)?;
        Ok(check_frame(&bytes::Bytes::copy_from_slice(&bytes), self.base, at))
    }

    /// The header of the frame at `at`, when there is an intact one that ends within the segment. A filler's checksum
    /// is always looked at.
    pub(crate) fn frame(&self, at: u64, verify: bool) -> Result<Option<FrameHeader>> {
        let Some(bytes) = self.bytes(at, HEADER_BYTES)? else { return Ok(None) };
        let header = bytes.first_chunk().and_then(|bytes| FrameHeader::decode(bytes, self.base, at));
        let Some(header) = header else { return Ok(None) };
        if header.frame_bytes() > self.end() - at {
            return Ok(None);
        }
        let payload = if header.kind.is_some() { header.payload_bytes as usize } else { 0 };
        if !verify && header.kind.is_some() {
            return Ok(Some(header));
        }
        Ok(self.bytes(at, HEADER_BYTES + payload)?.and_then(|frame| check_frame(&frame, self.base, at)))
    }

    /// The format version of the frame at `at`, when a newer program wrote it.
    pub(crate) fn newer(&self, at: u64) -> Result<Option<u8>> {
        if self.end() - at < HEADER_BYTES as u64 {
            return Ok(None);
        }
        let bytes = self.bytes(at, HEADER_BYTES)?;
        Ok(bytes.and_then(|bytes| newer_version(bytes.first_chunk()?, self.base)))
    }

    /// Bytes of the file, `None` when it ends before.
    pub(crate) fn bytes(&self, at: u64, len: usize) -> Result<Option<bytes::Bytes>> {
        let within = at - self.base;
        if within + len as u64 > self.len {
            return Ok(None);
        }
        self.file.bytes(within, len).map(Some)
    }

    /// Physical offsets of the first byte in `from..to` that is not zero, and of the end of the last one.
    pub(crate) fn nonzero(&self, from: u64, to: u64) -> Result<Option<(u64, u64)>> {
        let to = (to - self.base).min(self.len);
        let (mut at, mut found) = (from - self.base, None);
        let mut buffer = vec![0; SEARCH_BYTES];
        while let Some(next) = self.file.next_data(at)?.filter(|next| *next < to) {
            let count = (SEARCH_BYTES as u64).min(to - next) as usize;
            self.file.read_exact_at(&mut buffer[..count], next)?;
            let read = &buffer[..count];
            if let (Some(first), Some(last)) =
                (read.iter().position(|byte| *byte != 0), read.iter().rposition(|byte| *byte != 0))
            {
                let (first, end) = (self.base + next + first as u64, self.base + next + last as u64 + 1);
                found = Some((found.map_or(first, |(first, _)| first), end));
            }
            at = next + count as u64;
        }
        Ok(found)
    }
}

/// Whether the entry of `header` may come behind `last`, or come first in a log that was purged up to `purged`.
pub(crate) fn follows(last: Option<EntryId>, purged: Option<EntryId>, header: &FrameHeader) -> bool {
    match (last, purged) {
        (Some((term, last)), _) => Some(header.index) == last.checked_add(1) && header.term >= term,
        (None, Some((_, purged))) => header.index <= purged.saturating_add(1),
        (None, None) => true,
    }
}
