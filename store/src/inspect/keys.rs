//! The IndexFiles of a group against its log.
//!
//! Entries lie in the log's order and say nothing that the log does not, so one walk over the log gives the entries that must
//! be there, one after the other. Complete files have a checksum beside. Memory is the entries of one file.

use super::finding::Findings;
use crate::commit_log::StoredEntry;
use crate::index_file::{self, Header, content_crc, read_entries, read_header};
use crate::io::{Io, IoFile, OpenMode};
use raftmq_model::ids::PhysicalOffset;
use std::collections::VecDeque;
use std::io::Result;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What was checked.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct KeysReport {
    /// Files.
    pub files: u64,
    /// Entries in them.
    pub entries: u64,
    /// Bytes of the files.
    pub bytes: u64,
    /// All log entries before this one are indexed.
    pub next_index: u64,
}

struct File {
    path: PathBuf,
    header: Header,
    /// Hash, physical offset, and seconds of the entries that are expected next, as long as the file is read.
    entries: VecDeque<(u32, PhysicalOffset, u32)>,
    /// The number of the first of `entries`.
    number: u32,
}

/// The check. Feed it every entry of the log in order, then call [`KeysCheck::finish`].
pub struct KeysCheck {
    io: Arc<dyn Io>,
    /// The next one last.
    ahead: Vec<(PathBuf, Header)>,
    file: Option<File>,
    /// The last file that was read to its end.
    last: Option<PathBuf>,
    start: PhysicalOffset,
    /// Where the log ends, as far as it was seen.
    end: PhysicalOffset,
    report: KeysReport,
}

impl KeysCheck {
    /// Reads the headers of the files in `dir`. `start` says where the log begins.
    pub fn begin(io: Arc<dyn Io>, dir: &Path, start: PhysicalOffset, findings: &mut Findings) -> KeysCheck {
        let mut check = KeysCheck {
            io,
            ahead: Vec::new(),
            file: None,
            last: None,
            start,
            end: start,
            report: KeysReport::default(),
        };
        match headers(&*check.io, dir, findings) {
            Ok(files) => check.ahead = files,
            Err(error) => findings.damage(dir, 0, format!("the index files cannot be listed: {error}")),
        }
        for (_, header) in &check.ahead {
            check.report.files += 1;
            check.report.entries += u64::from(header.count - 1);
            check.report.bytes += header.entry_at(header.count);
            check.report.next_index = check.report.next_index.max(header.next_index);
        }
        check.ahead.reverse();
        check
    }

    /// The next entry of the log.
    pub fn entry(&mut self, entry: &StoredEntry, findings: &mut Findings) {
        self.end = PhysicalOffset(entry.payload_offset.0 + entry.payload.len() as u64);
        if entry.index >= self.report.next_index {
            return;
        }
        // What cannot be read is told by others.
        let Ok(Some((now, keys))) = index_file::keys_of(entry) else { return };
        for (hash, physical) in keys {
            // What lies before is the log's that was forgotten, or that cannot be read.
            self.pass(physical, findings);
            let Some(file) = self.expecting(findings) else { return self.ends_early(entry.index, findings) };
            let (begin, number) = (file.header.begin_time, file.number);
            let expected = (hash, physical, index_file::seconds_between(begin, now));
            let at = file.header.entry_at(number);
            match file.entries.front() {
                Some(found) if *found == expected => file.advance(),
                found => {
                    let (path, index) = (file.path.clone(), entry.index);
                    if found.is_some_and(|(_, at, _)| *at == physical) {
                        file.advance();
                    }
                    let what = format!("index entry {number} is not that of a message of log entry {index}; {REMEDY}");
                    findings.damage(path, at, what);
                }
            }
        }
    }

    /// Says once that the files have nothing for an entry that they count.
    fn ends_early(&mut self, index: u64, findings: &mut Findings) {
        if let Some(path) = self.last.take() {
            findings.damage(
                path,
                0,
                format!("the index has nothing for log entry {index} and ends before it; {REMEDY}"),
            );
        }
    }

    /// What was checked. Entries that are left over are of no message, or of one behind the end of the log, which the next start cuts.
    pub fn finish(mut self, gaps: &[(u64, u64)], findings: &mut Findings) -> KeysReport {
        let (start, end) = (self.start, self.end);
        let Some(file) = self.expecting(findings) else { return self.report };
        let Some((_, physical, _)) = file.entries.front().copied() else { return self.report };
        let (path, at, number) = (file.path.clone(), file.header.entry_at(file.number), file.number);
        if physical >= end && end > start {
            let what =
                format!("index entry {number} is of a message behind the end of the log: the next start cuts it");
            findings.note(path, at, what);
        } else if gaps.is_empty() && physical >= start {
            findings.damage(path, at, format!("index entry {number} is of no message in the log; {REMEDY}"));
        }
        self.report
    }

    /// Passes entries of what lies before `physical`. In the log's middle there are none, unless the log has a gap there.
    fn pass(&mut self, physical: PhysicalOffset, findings: &mut Findings) {
        while let Some(file) = self.expecting(findings) {
            match file.entries.front() {
                Some((_, at, _)) if *at < physical => file.advance(),
                _ => return,
            }
        }
    }

    /// The file whose entry is expected next, read as far as needed.
    fn expecting(&mut self, findings: &mut Findings) -> Option<&mut File> {
        while self.file.as_ref().is_none_or(|file| file.entries.is_empty()) {
            let (path, header) = self.ahead.pop()?;
            match self.read(&path, &header) {
                Ok(entries) => {
                    self.last = Some(path.clone());
                    self.file = Some(File { path, header, entries, number: 1 });
                }
                Err(error) => {
                    self.last = None;
                    findings.damage(path, 0, format!("{error}; {REMEDY}"));
                }
            }
        }
        self.file.as_mut()
    }

    fn read(&self, path: &Path, header: &Header) -> Result<VecDeque<(u32, PhysicalOffset, u32)>> {
        let file = self.io.open(path, OpenMode::Read)?;
        let mut entries = VecDeque::with_capacity(header.count as usize);
        read_entries(&*file, header, path, |_, entry| {
            entries.push_back((entry.hash, entry.physical, entry.seconds));
            true
        })?;
        check_content(&*file, header, path)?;
        Ok(entries)
    }
}

/// What an operator does about a damaged index.
const REMEDY: &str = "remove the folder keyindex while the node is stopped, and it is built again from the log";

impl File {
    fn advance(&mut self) {
        self.entries.pop_front();
        self.number += 1;
    }
}

fn check_content(file: &dyn IoFile, header: &Header, path: &Path) -> Result<()> {
    if !header.complete || content_crc(file, header)? == header.content_crc {
        return Ok(());
    }
    let what = format!("{} is damaged: its content does not match its checksum", path.display());
    Err(std::io::Error::new(std::io::ErrorKind::InvalidData, what))
}

/// The headers of the index files in `dir`, ascending; none when there is no folder. A last file that a crash left without a
/// header is a note.
pub(super) fn headers(io: &dyn Io, dir: &Path, findings: &mut Findings) -> Result<Vec<(PathBuf, Header)>> {
    let bases = index_file::bases(io, dir)?;
    let mut files = Vec::with_capacity(bases.len());
    for (at, base) in bases.iter().enumerate() {
        let path = index_file::path_of(dir, *base);
        match io.open(&path, OpenMode::Read).and_then(|file| read_header(&*file, &path, *base)) {
            Ok(header) => files.push((path, header)),
            Err(error) if at + 1 == bases.len() => {
                findings.note(path, 0, format!("{error}: the next start builds it again from the log"));
            }
            Err(error) => findings.damage(path, 0, format!("{error}; {REMEDY}")),
        }
    }
    Ok(files)
}

/// How much the index files in `dir` have, by their headers.
pub fn key_stats(io: &Arc<dyn Io>, dir: &Path, findings: &mut Findings) -> KeysReport {
    KeysCheck::begin(Arc::clone(io), dir, PhysicalOffset(0), findings).report
}
