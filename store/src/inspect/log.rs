//! A walk over the log of one group, entry by entry, that goes on behind damage.
//!
//! The rules are those of `commit_log::scan`, with which a log is opened. Where opening stops at the first frame that
//! is not intact, the walk looks for the next intact one: with one behind it, the frame was damaged after it was
//! written; without one, in the last segment, the bytes are a torn tail, which the next start cuts.

use super::finding::Findings;
use super::log_files::{self, LogFacts};
use crate::commit_log::index::Place;
use crate::commit_log::manifest::Manifest;
use crate::commit_log::scan::{SegmentScan, Step};
use crate::commit_log::{CommitLogOptions, EntryId, StoredEntry};
use crate::frame::{FRAME_ALIGN, FrameHeader, HEADER_BYTES, MAGIC, VERSION};
use crate::io::{Io, IoFile, OpenMode};
use crate::segment::{SEGMENT_DIR, segment_base, segment_name};
use raftmq_model::ids::PhysicalOffset;
use std::io::Result;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes that are searched at once for an intact frame.
const SEARCH_BYTES: usize = 1 << 16;

/// An entry and where its frame lies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WalkedEntry {
    /// The entry.
    pub entry: StoredEntry,
    /// The segment's file.
    pub file: PathBuf,
    /// Where the frame begins in the file.
    pub at: u64,
    /// Bytes of the frame, with its padding.
    pub frame_bytes: u64,
    /// Whether the log still counts it; a purged entry may lie before the first one that is kept.
    pub purged: bool,
}

/// A part of the log that cannot be read: physical offsets from and to.
pub type Gap = (u64, u64);

struct Segment {
    file: Arc<dyn IoFile>,
    path: PathBuf,
    base: u64,
    segment_bytes: u64,
    len: u64,
    is_last: bool,
}

impl Segment {
    fn scan(&self) -> SegmentScan<'_> {
        SegmentScan { file: &*self.file, base: self.base, segment_bytes: self.segment_bytes, len: self.len }
    }
}

/// The walk. Reads one segment at a time and keeps nothing of what it gave out.
pub struct LogWalk {
    io: Arc<dyn Io>,
    dir: PathBuf,
    manifest: Manifest,
    facts: LogFacts,
    /// Bases of the segments that are still to come, the next one last.
    ahead: Vec<u64>,
    segment: Option<Segment>,
    /// Where the next frame may lie.
    at: u64,
    last: Option<EntryId>,
    /// Where the frame of `last` ends.
    tail: u64,
    gaps: Vec<Gap>,
    /// The last entry of which something else says that it was durable.
    durable: Option<u64>,
    ended: bool,
}

impl LogWalk {
    /// Reads the manifest, the vote file and the list of segments in `dir`. `None` when there is no manifest to go by.
    pub fn open(io: Arc<dyn Io>, dir: &Path, findings: &mut Findings) -> Option<LogWalk> {
        let (manifest, facts, mut ahead) = log_files::read(&*io, dir, findings)?;
        ahead.reverse();
        let (at, dir) = (manifest.start, dir.to_path_buf());
        let (segment, last, gaps, durable, ended) = (None, None, Vec::new(), None, false);
        Some(LogWalk { io, dir, manifest, facts, ahead, segment, at, last, tail: at, gaps, durable, ended })
    }

    /// Says that the entry at `index` was durable here, so that the walk takes nothing before it for a torn write.
    pub fn known_durable(&mut self, index: u64) {
        self.durable = Some(index);
    }

    /// The log, beside its entries.
    #[must_use]
    pub fn facts(&self) -> &LogFacts {
        &self.facts
    }

    /// The last entry that was given out; the purged one when nothing comes after it.
    #[must_use]
    pub fn last(&self) -> Option<EntryId> {
        self.last.max(self.manifest.purged)
    }

    /// The parts that could not be read so far, in order.
    #[must_use]
    pub fn gaps(&self) -> &[Gap] {
        &self.gaps
    }

    /// The file and the position in it of a physical offset.
    #[must_use]
    pub fn place(&self, physical: u64) -> (PathBuf, u64) {
        let base = segment_base(physical, self.manifest.segment_bytes);
        (self.dir.join(SEGMENT_DIR).join(segment_name(base)), physical - base)
    }

    /// Where the last entry ends that was given out.
    #[must_use]
    pub fn end_place(&self) -> (PathBuf, u64) {
        // In the last file also when the entry fills it.
        let (file, at) = self.place(self.tail.saturating_sub(1));
        (file, if self.tail == 0 { 0 } else { at + 1 })
    }

    /// The next entry that is intact; what lies between and is not, is added to `findings`.
    pub fn next(&mut self, findings: &mut Findings) -> Option<WalkedEntry> {
        loop {
            let Some(segment) = self.segment.take().or_else(|| self.enter(findings)) else {
                self.end(findings);
                return None;
            };
            match segment.scan().step(self.at, self.last, self.manifest.purged, true) {
                Ok(Step::Entry(place)) => {
                    let walked = self.entry(&segment, &place, findings);
                    self.segment = Some(segment);
                    if walked.is_some() {
                        return walked;
                    }
                }
                Ok(Step::Complete) => self.complete(&segment, findings),
                Ok(Step::NoFrame) => self.no_frame(segment, findings),
                Ok(Step::Stray(header)) => self.stray(segment, &header, findings),
                Err(error) => {
                    findings.damage(&segment.path, self.at - segment.base, format!("cannot be read: {error}"));
                    self.gaps.push((self.at, segment.scan().end()));
                }
            }
        }
    }

    fn entry(&mut self, segment: &Segment, place: &Place, findings: &mut Findings) -> Option<WalkedEntry> {
        let (scan, at, payload_bytes) = (segment.scan(), place.offset - segment.base, place.payload_bytes as usize);
        let payload_end = place.payload_offset() + u64::from(place.payload_bytes);
        (self.at, self.tail, self.last) = (place.end(), place.end(), Some((place.term, place.index)));
        if let Ok(Some((stray, _))) = scan.nonzero(payload_end, place.end()) {
            let what = format!("the padding behind entry {} is not zero", place.index);
            findings.damage(&segment.path, stray - segment.base, what);
        }
        // It was read a moment ago, so that only a file that changes or a failing device can refuse it now.
        let Ok(Some(payload)) = scan.bytes(place.payload_offset(), payload_bytes) else {
            findings.damage(&segment.path, at, format!("entry {} cannot be read again", place.index));
            return None;
        };
        let entry = StoredEntry {
            term: place.term,
            index: place.index,
            kind: place.kind,
            payload,
            payload_offset: PhysicalOffset(place.payload_offset()),
        };
        let purged = self.manifest.purged.is_some_and(|(_, purged)| place.index <= purged);
        let frame_bytes = place.end() - place.offset;
        Some(WalkedEntry { entry, file: segment.path.clone(), at, frame_bytes, purged })
    }

    /// The segment has no further entry: what is left of it must be zeros.
    fn complete(&mut self, segment: &Segment, findings: &mut Findings) {
        let scan = segment.scan();
        let from = (self.at + HEADER_BYTES as u64).min(scan.end());
        if let Ok(Some((stray, _))) = scan.nonzero(from, scan.end()) {
            findings.damage(&segment.path, stray - segment.base, "the filler of the segment is not zero");
        }
    }

    /// There is no intact frame where one may lie: the end of the log, a torn tail, or damage.
    fn no_frame(&mut self, segment: Segment, findings: &mut Findings) {
        let (scan, at) = (segment.scan(), self.at);
        if let Ok(Some(found)) = scan.newer(at) {
            let what = format!(
                "a frame of the format version {found}, and this program knows up to {VERSION}: use a newer one"
            );
            findings.damage(&segment.path, at - segment.base, what);
            self.gaps.push((at, scan.end()));
            return;
        }
        let header = scan.frame(at, false).ok().flatten();
        let from = header.map_or(at + FRAME_ALIGN, |header| at + header.frame_bytes());
        let what = match (header, self.last) {
            (Some(header), _) => format!("entry {} does not match its checksum", header.index),
            (None, Some((_, last))) => format!("no intact frame lies there, behind entry {last}"),
            (None, None) => "no intact frame lies there".to_owned(),
        };
        match next_intact(&scan, from) {
            Ok(Some(next)) => {
                let (next_at, behind) = (next.offset - segment.base, next_name(&next));
                let may_be_torn = segment.is_last && self.may_be_torn(&next);
                let verdict = if may_be_torn { "damaged, or a write of several frames was torn" } else { "damaged" };
                let what = format!("{what}, and {behind} lies intact at byte {next_at}: {verdict}");
                findings.damage(&segment.path, at - segment.base, what);
                self.resume(&next);
                self.segment = Some(segment);
            }
            Ok(None) if segment.is_last => self.tail_end(&segment, header.is_some(), findings),
            Ok(None) => {
                findings.damage(&segment.path, at - segment.base, format!("{what}, and there are later segments"));
                self.gaps.push((at, scan.end()));
            }
            Err(error) => {
                findings.damage(&segment.path, at - segment.base, format!("{what}; the rest cannot be read: {error}"));
                self.gaps.push((at, scan.end()));
            }
        }
    }

    /// Whether what lies up to `next` can have been on its way to the disk when the power went.
    fn may_be_torn(&self, next: &FrameHeader) -> bool {
        let index = self.last.map_or(0, |(_, last)| last.saturating_add(1));
        self.durable.is_none_or(|durable| durable < index) && next.offset - self.at < write_bytes_max()
    }

    /// Goes on at an intact frame behind damage.
    fn resume(&mut self, next: &FrameHeader) {
        self.gaps.push((self.at, next.offset));
        self.at = next.offset;
        if next.kind.is_none() {
            return;
        }
        let (term, last) = self.last.unwrap_or((0, 0));
        // What is lost in between has been told; only a step backwards would be news.
        if next.index > last {
            self.last = Some((term, next.index - 1));
        }
    }

    /// Nothing intact follows in the last segment.
    fn tail_end(&mut self, segment: &Segment, has_header: bool, findings: &mut Findings) {
        let torn = match segment.scan().nonzero(self.at, segment.scan().end()) {
            Ok(torn) => torn.map_or(0, |(_, end)| end - self.at),
            Err(error) => {
                return findings.damage(&segment.path, self.at - segment.base, format!("cannot be read: {error}"));
            }
        };
        let at = self.at - segment.base;
        let part = if has_header { "an entry whose payload is not whole" } else { "no intact frame" };
        if torn > write_bytes_max() {
            let what = format!("{torn} bytes with {part}, more than one write leaves behind that was torn");
            findings.damage(&segment.path, at, what);
            self.gaps.push((self.at, self.at + torn));
        } else if torn > 0 {
            let what = format!("a torn tail: {torn} bytes with {part}, which the next start cuts");
            findings.note(&segment.path, at, what);
        }
    }

    fn stray(&mut self, segment: Segment, header: &FrameHeader, findings: &mut Findings) {
        let FrameHeader { term, index, .. } = *header;
        let at = header.offset - segment.base;
        if header.kind.is_none() {
            findings.damage(&segment.path, at, "the filler does not end where the segment ends");
            self.at += HEADER_BYTES as u64;
        } else {
            let what = match self.last.or(self.manifest.purged) {
                Some((last_term, last)) => {
                    format!("entry {index} of term {term} cannot follow entry {last} of term {last_term}")
                }
                None => format!("entry {index} cannot be the first one"),
            };
            findings.damage(&segment.path, at, what);
            self.last = index.checked_sub(1).map(|before| (term, before));
            if self.last.is_none() {
                // Entry 0 has nothing before it; it is passed over.
                self.at += header.frame_bytes();
                self.last = Some((term, index));
            }
        }
        self.segment = Some(segment);
    }

    /// Opens the next segment.
    fn enter(&mut self, findings: &mut Findings) -> Option<Segment> {
        while let Some(base) = self.ahead.pop() {
            let (path, _) = self.place(base);
            let segment_bytes = self.manifest.segment_bytes;
            let opened = self.io.open(&path, OpenMode::Read).and_then(|file| Ok((file.len()?, file)));
            let is_last = self.ahead.is_empty();
            match opened {
                Ok((len, file)) => {
                    // A crash may come between making the last file and giving it its length.
                    if len > segment_bytes || (len < segment_bytes && !is_last) {
                        let what = format!("the segment has {len} bytes instead of {segment_bytes}");
                        findings.damage(&path, len.min(segment_bytes), what);
                    }
                    self.at = base.max(self.manifest.start);
                    return Some(Segment { file, path, base, segment_bytes, len: len.min(segment_bytes), is_last });
                }
                Err(error) => {
                    findings.damage(&path, 0, format!("the segment cannot be opened: {error}"));
                    self.gaps.push((base, base + segment_bytes));
                }
            }
        }
        None
    }

    /// Compares the end of the log with its manifest and with the note of what is committed, once.
    fn end(&mut self, findings: &mut Findings) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        if let Some((offset, reason)) = self.manifest.objection(self.last, self.tail) {
            let (file, at) = self.place(offset);
            findings.damage(file, at, reason);
        }
        if let Some((_, committed)) = self.facts.committed
            && self.last().is_none_or(|(_, last)| last < committed)
        {
            let (file, at) = self.place(self.tail);
            let what = format!("the log ends before entry {committed}, which was stored here and committed");
            findings.damage(file, at, what);
        }
    }
}

/// How far a torn write may reach.
fn write_bytes_max() -> u64 {
    CommitLogOptions::new("").write_bytes_max
}

fn next_name(next: &FrameHeader) -> String {
    if next.kind.is_some() { format!("entry {}", next.index) } else { "the segment's filler".to_owned() }
}

/// The first intact frame of the segment at or behind `from`.
fn next_intact(scan: &SegmentScan<'_>, from: u64) -> Result<Option<FrameHeader>> {
    let mut at = from.next_multiple_of(FRAME_ALIGN);
    let end = scan.base + scan.len;
    let magic = MAGIC.to_be_bytes();
    while at + HEADER_BYTES as u64 <= end {
        let Some(data) = scan.file.next_data(at - scan.base)? else { break };
        at = at.max(scan.base + data - data % FRAME_ALIGN);
        let count = (end.saturating_sub(at)).min(SEARCH_BYTES as u64);
        let Some(bytes) = scan.bytes(at, count as usize)? else { break };
        for (number, word) in bytes.chunks(FRAME_ALIGN as usize).enumerate() {
            if word.starts_with(&magic)
                && let Some(header) = scan.frame(at + number as u64 * FRAME_ALIGN, true)?
            {
                return Ok(Some(header));
            }
        }
        at += (bytes.len() as u64).next_multiple_of(FRAME_ALIGN).max(FRAME_ALIGN);
    }
    Ok(None)
}
