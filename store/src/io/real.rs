//! The operating system's files. All writes are `pwritev`; memory maps are for reading only, so that a full disk is an
//! error of a call and never a signal.

use std::fs::{self, File, OpenOptions};
use std::io::{Error, ErrorKind, IoSlice, Result};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use memmap2::Mmap;
use parking_lot::Mutex;

use super::{Io, IoFile, OpenMode, Volume};

/// Slices that one `pwritev` takes (`IOV_MAX` of Linux).
const SLICES_PER_CALL_MAX: usize = 1024;

/// The operating system's file system.
#[derive(Clone, Copy, Default, Debug)]
pub struct RealIo;

impl Io for RealIo {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn IoFile>> {
        let mut options = OpenOptions::new();
        options.read(true);
        match mode {
            OpenMode::Read => &mut options,
            OpenMode::Write => options.write(true),
            OpenMode::Create => options.write(true).create(true).truncate(false),
            OpenMode::CreateNew => options.write(true).create_new(true),
        };
        Ok(Arc::new(RealFile { file: options.open(path)?, map: Mutex::new(None) }))
    }

    fn create_dir_all(&self, dir: &Path) -> Result<()> {
        if dir.as_os_str().is_empty() || dir.is_dir() {
            return Ok(());
        }
        let parent = dir.parent().unwrap_or(Path::new("."));
        self.create_dir_all(parent)?;
        match fs::create_dir(dir) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists && dir.is_dir() => {}
            other => other?,
        }
        self.sync_dir(if parent.as_os_str().is_empty() { Path::new(".") } else { parent })
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(dir)? {
            let name = entry?.file_name();
            let name = name.into_string().map_err(|name| {
                Error::new(ErrorKind::InvalidData, format!("{} holds a name that is no UTF-8: {name:?}", dir.display()))
            })?;
            names.push(name);
        }
        names.sort_unstable();
        Ok(names)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir_all(&self, dir: &Path) -> Result<()> {
        match fs::remove_dir_all(dir) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        File::open(dir)?.sync_all()
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        fs::exists(path)
    }

    fn volume(&self, dir: &Path) -> Result<Volume> {
        let said = rustix::fs::statvfs(dir)?;
        let bytes = |blocks: u64| blocks.saturating_mul(said.f_frsize);
        Ok(Volume { total_bytes: bytes(said.f_blocks), available_bytes: bytes(said.f_bavail) })
    }

    fn allows_threads(&self) -> bool {
        true
    }
}

struct RealFile {
    file: File,
    /// The whole file as it was when it was last mapped; mapped again when a range beyond it is asked for.
    map: Mutex<Option<Bytes>>,
}

impl RealFile {
    fn mapped(&self, end: u64) -> Result<Bytes> {
        let mut map = self.map.lock();
        if let Some(bytes) = map.as_ref()
            && bytes.len() as u64 >= end
        {
            return Ok(bytes.clone());
        }
        if self.file.metadata()?.len() < end {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let bytes = Bytes::from_owner(map_file(&self.file)?);
        *map = Some(bytes.clone());
        Ok(bytes)
    }
}

#[allow(unsafe_code)]
fn map_file(file: &File) -> Result<Mmap> {
    // SAFETY: the map is read only and shared. Files of this crate are written by this process alone (the data folder
    // is locked), are never cut below a range that was given out, and a range that was given out is not written again:
    // frames are immutable once written (a repair writes the bytes that were there before they rotted), and ranges that may
    // still be truncated are copied (`commit_log::read`).
    unsafe { Mmap::map(file) }
}

/// Writes all of `slices` from `offset` on by calls of `write`, which may take a part only.
fn write_all(
    slices: &[IoSlice<'_>],
    mut offset: u64,
    mut write: impl FnMut(&[IoSlice<'_>], u64) -> rustix::io::Result<usize>,
) -> Result<()> {
    for chunk in slices.chunks(SLICES_PER_CALL_MAX) {
        let mut rest = chunk.to_vec();
        let mut rest = rest.as_mut_slice();
        IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            match write(rest, offset) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => {
                    offset += written as u64;
                    IoSlice::advance_slices(&mut rest, written);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

impl IoFile for RealFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        loop {
            match self.file.read_at(buffer, offset) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }

    fn write_at(&self, slices: &[IoSlice<'_>], offset: u64) -> Result<()> {
        write_all(slices, offset, |rest, at| rustix::io::pwritev(&self.file, rest, at))
    }

    fn sync_data(&self) -> Result<()> {
        // Not `File::sync_data`, which tries again after EINTR: whether that is safe is the file system's secret.
        Ok(rustix::fs::fdatasync(&self.file)?)
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        self.file.set_len(bytes)
    }

    fn len(&self) -> Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn bytes(&self, offset: u64, len: usize) -> Result<Bytes> {
        let end = offset.checked_add(len as u64).ok_or(ErrorKind::UnexpectedEof)?;
        if len == 0 {
            return Ok(Bytes::new());
        }
        let start = usize::try_from(offset).map_err(|_| ErrorKind::UnexpectedEof)?;
        Ok(self.mapped(end)?.slice(start..start + len))
    }

    fn forget_cached(&self, offset: u64, len: u64) {
        if let Some(len) = std::num::NonZeroU64::new(len) {
            let _ = rustix::fs::fadvise(&self.file, offset, Some(len), rustix::fs::Advice::DontNeed);
        }
    }

    fn next_data(&self, offset: u64) -> Result<Option<u64>> {
        if offset >= self.len()? {
            return Ok(None);
        }
        match rustix::fs::seek(&self.file, rustix::fs::SeekFrom::Data(offset)) {
            Ok(position) => Ok(Some(position)),
            Err(rustix::io::Errno::NXIO) => Ok(None),
            // A file system that cannot tell holes from data: it may all be data.
            Err(_) => Ok(Some(offset)),
        }
    }

    fn try_lock(&self) -> Result<bool> {
        match self.file.try_lock() {
            Ok(()) => Ok(true),
            Err(fs::TryLockError::WouldBlock) => Ok(false),
            Err(fs::TryLockError::Error(error)) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    /// A file that takes at most `step` bytes in one call, is interrupted before each, and has room for `room` bytes.
    fn write_in_steps(parts: &[&[u8]], step: usize, room: usize) -> (Vec<u8>, Result<()>) {
        let (mut file, mut interrupts) = (Vec::new(), true);
        let slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let outcome = write_all(&slices, 100, |rest, at| {
            interrupts = !interrupts;
            if !interrupts {
                return Err(Errno::INTR);
            }
            assert_eq!(at, 100 + file.len() as u64, "each call goes on where the last one ended");
            let bytes: Vec<u8> = rest.iter().flat_map(|slice| slice.iter().copied()).collect();
            let count = bytes.len().min(step).min(room - file.len());
            file.extend_from_slice(&bytes[..count]);
            if count == 0 && step > 0 { Err(Errno::NOSPC) } else { Ok(count) }
        });
        (file, outcome)
    }

    #[test]
    fn short_writes_are_gone_on_with() {
        let parts: [&[u8]; 4] = [b"abc", b"", b"defgh", b"i"];
        for step in 1..=10 {
            let (file, outcome) = write_in_steps(&parts, step, 100);
            assert!(outcome.is_ok(), "{outcome:?}");
            assert_eq!(file, b"abcdefghi", "{step} bytes a call");
        }
    }

    #[test]
    fn a_write_that_stops_short_is_an_error() {
        let (file, outcome) = write_in_steps(&[b"abc", b"def"], 2, 4);
        assert_eq!(
            (file.as_slice(), outcome.map_err(|error| error.kind())),
            (&b"abcd"[..], Err(ErrorKind::StorageFull))
        );
        let (_, outcome) = write_in_steps(&[b"abc"], 0, 4);
        assert_eq!(outcome.map_err(|error| error.kind()), Err(ErrorKind::WriteZero), "nothing taken, nothing said");
    }

    #[test]
    fn more_slices_than_one_call_takes_are_written() {
        let parts: Vec<Vec<u8>> = (0..SLICES_PER_CALL_MAX * 2 + 3).map(|i| vec![i as u8]).collect();
        let slices: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        let (file, outcome) = write_in_steps(&slices, 700, usize::MAX);
        assert!(outcome.is_ok());
        assert_eq!(file, parts.concat());
    }

    #[test]
    fn the_volume_of_a_folder_has_a_size() {
        let dir = tempfile::tempdir().unwrap();
        let volume = RealIo.volume(dir.path()).unwrap();
        assert!(volume.total_bytes > 0 && volume.available_bytes <= volume.total_bytes, "{volume:?}");
        let missing = RealIo.volume(&dir.path().join("missing"));
        assert_eq!(missing.map_err(|error| error.kind()), Err(ErrorKind::NotFound));
    }
}
