//! The small files of a log and the list of its segments, read without changing anything.

use super::finding::Findings;
use crate::commit_log::manifest::{self, Manifest};
use crate::commit_log::vote;
use crate::commit_log::{EntryId, OpenError};
use crate::io::{Io, OpenMode};
use crate::segment::{SEGMENT_DIR, parse_segment_name, segment_base, segment_name};
use bytes::Bytes;
use std::path::Path;

/// What a log is, beside its entries.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct LogFacts {
    /// Bytes of a segment.
    pub segment_bytes: u64,
    /// Segment files that belong to the log.
    pub segments: usize,
    /// Physical offset at which its entries begin.
    pub start: u64,
    /// The last purged entry.
    pub purged: Option<EntryId>,
    /// The vote.
    pub vote: Option<Bytes>,
    /// The note of what is committed, a lower bound.
    pub committed: Option<EntryId>,
}

/// Manifest, facts and the bases of the segments in order; `None` when there is no manifest to go by.
pub(super) fn read(io: &dyn Io, dir: &Path, findings: &mut Findings) -> Option<(Manifest, LogFacts, Vec<u64>)> {
    let manifest = read_manifest(io, dir, findings);
    let mut facts = LogFacts::default();
    read_vote(io, dir, &mut facts, findings);
    let manifest = manifest?;
    let bases = list_segments(io, dir, &manifest, findings);
    (facts.segment_bytes, facts.segments, facts.purged) = (manifest.segment_bytes, bases.len(), manifest.purged);
    facts.start = manifest.start;
    Some((manifest, facts, bases))
}

fn read_manifest(io: &dyn Io, dir: &Path, findings: &mut Findings) -> Option<Manifest> {
    let file = manifest::path(dir);
    match Manifest::load(io, dir) {
        Ok(Some(manifest)) if manifest.segment_bytes > 0 => Some(manifest),
        Ok(Some(_)) => {
            findings.damage(file, 8, "segments of 0 bytes");
            None
        }
        Ok(None) => {
            // The manifest of a new log is made last.
            let segments = io.list(&dir.join(SEGMENT_DIR)).unwrap_or_default();
            if segments.is_empty() {
                findings.note(file, 0, "there is no manifest and no segment: the log was never used");
            } else {
                findings.damage(file, 0, "there are segments and no manifest");
            }
            None
        }
        Err(OpenError::Damaged { file, offset, reason, .. }) => {
            findings.damage(file, offset, reason);
            None
        }
        Err(error) => {
            findings.damage(file, 0, error.to_string());
            None
        }
    }
}

fn read_vote(io: &dyn Io, dir: &Path, facts: &mut LogFacts, findings: &mut Findings) {
    let file = vote::path(dir);
    match vote::Contents::read(io, dir, OpenMode::Read) {
        Ok((_, contents)) => {
            match contents.vote() {
                None => findings.damage(&file, 0, vote::BOTH_DAMAGED),
                Some(vote) => facts.vote = vote.cloned(),
            }
            for (at, what) in contents.remarks() {
                findings.note(&file, at, what);
            }
            facts.committed = contents.hint;
        }
        Err(OpenError::Vote { reason, .. }) => findings.damage(file, 0, reason),
        Err(error) => findings.damage(file, 0, error.to_string()),
    }
}

/// The bases of the log's segments, in order.
fn list_segments(io: &dyn Io, dir: &Path, manifest: &Manifest, findings: &mut Findings) -> Vec<u64> {
    let (segment_dir, size) = (dir.join(SEGMENT_DIR), manifest.segment_bytes);
    let names = io.list(&segment_dir).unwrap_or_else(|error| {
        findings.damage(&segment_dir, 0, format!("the folder cannot be listed: {error}"));
        Vec::new()
    });
    let (first, mut bases) = (segment_base(manifest.start, size), Vec::new());
    for name in names {
        let base = parse_segment_name(&name).filter(|base| base.is_multiple_of(size));
        match base.filter(|base| base.checked_add(size).is_some()) {
            None => findings.damage(segment_dir.join(&name), 0, "it is no segment of this log"),
            Some(base) if manifest.discard || base < first => {
                findings.note(segment_dir.join(&name), 0, "left behind by a purge; the next start removes it");
            }
            Some(base) => bases.push(base),
        }
    }
    let mut expected = first;
    for base in &bases {
        if *base != expected {
            findings.damage(segment_dir.join(segment_name(expected)), 0, "the segment is missing");
        }
        expected = base.saturating_add(size);
    }
    bases
}
