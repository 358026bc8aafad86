//! A file system in which nothing can be changed, whatever is called.
//!
//! It also reads through calls and not through mapped memory: a device that cannot read a block is then an error of a
//! call, where a mapped page would end the process, and tools look at damaged disks.

use crate::io::{Io, IoFile, OpenMode, Volume};
use bytes::Bytes;
use parking_lot::Mutex;
use std::io::{Error, ErrorKind, IoSlice, Result};
use std::path::Path;
use std::sync::Arc;

/// Bytes that are read at once for [`IoFile::bytes`], which is called for many small ranges one after the other.
const WINDOW_BYTES: u64 = 1 << 20;

/// The files of another [`Io`], for reading.
#[derive(Clone)]
pub struct ReadOnlyIo(Arc<dyn Io>);

impl ReadOnlyIo {
    /// The files of `io`.
    #[must_use]
    pub fn new(io: Arc<dyn Io>) -> ReadOnlyIo {
        ReadOnlyIo(io)
    }
}

struct ReadOnlyFile {
    file: Arc<dyn IoFile>,
    /// What was read last: where it begins, and the bytes.
    window: Mutex<(u64, Bytes)>,
}

fn refused<T>() -> Result<T> {
    Err(Error::new(ErrorKind::PermissionDenied, "files are only read here"))
}

impl Io for ReadOnlyIo {
    fn open(&self, path: &Path, _mode: OpenMode) -> Result<Arc<dyn IoFile>> {
        let file = self.0.open(path, OpenMode::Read)?;
        Ok(Arc::new(ReadOnlyFile { file, window: Mutex::default() }))
    }

    fn create_dir_all(&self, dir: &Path) -> Result<()> {
        if self.0.exists(dir)? { Ok(()) } else { Err(ErrorKind::NotFound.into()) }
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        self.0.list(dir)
    }

    fn rename(&self, _from: &Path, _to: &Path) -> Result<()> {
        refused()
    }

    fn remove(&self, _path: &Path) -> Result<()> {
        refused()
    }

    fn remove_dir_all(&self, _dir: &Path) -> Result<()> {
        refused()
    }

    fn sync_dir(&self, _dir: &Path) -> Result<()> {
        refused()
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.0.exists(path)
    }

    fn volume(&self, dir: &Path) -> Result<Volume> {
        self.0.volume(dir)
    }

    fn allows_threads(&self) -> bool {
        self.0.allows_threads()
    }
}

impl ReadOnlyFile {
    fn read(&self, offset: u64, len: u64) -> Result<Bytes> {
        let len = usize::try_from(len).map_err(|_| ErrorKind::UnexpectedEof)?;
        let mut buffer = vec![0; len];
        self.file.read_exact_at(&mut buffer, offset)?;
        Ok(buffer.into())
    }
}

impl IoFile for ReadOnlyFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, _slices: &[IoSlice<'_>], _offset: u64) -> Result<()> {
        refused()
    }

    fn sync_data(&self) -> Result<()> {
        refused()
    }

    fn set_len(&self, _bytes: u64) -> Result<()> {
        refused()
    }

    fn len(&self) -> Result<u64> {
        self.file.len()
    }

    fn bytes(&self, offset: u64, len: usize) -> Result<Bytes> {
        let end = offset.checked_add(len as u64).ok_or(ErrorKind::UnexpectedEof)?;
        let mut window = self.window.lock();
        let (from, bytes) = &*window;
        if *from <= offset && end <= from + bytes.len() as u64 {
            let start = (offset - from) as usize;
            return Ok(bytes.slice(start..start + len));
        }
        let file_len = self.file.len()?;
        if end > file_len {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let ahead = WINDOW_BYTES.max(len as u64).min(file_len - offset);
        // A block further on that cannot be read must not hide what is asked for.
        let Ok(read) = self.read(offset, ahead) else { return self.read(offset, len as u64) };
        *window = (offset, read.clone());
        Ok(read.slice(..len))
    }

    fn next_data(&self, offset: u64) -> Result<Option<u64>> {
        self.file.next_data(offset)
    }

    fn try_lock(&self) -> Result<bool> {
        self.file.try_lock()
    }
}
