//! The one door to the file system.
//!
//! All code of this crate reads and writes files through [`Io`] and [`IoFile`]. [`RealIo`] passes the calls on to the
//! operating system; [`crate::testing::FaultyIo`] keeps files in memory and loses what was not synced.
//!
//! The contract that callers may rely on, and no more: a write is durable after [`IoFile::sync_data`] returned `Ok`; a
//! name (created, renamed or removed) is durable after [`Io::sync_dir`] of its folder returned `Ok`; before that, each
//! 512-byte sector and each name may or may not survive a loss of power, in any combination. A failed sync is final.

mod real;
mod volume;

use std::io::{ErrorKind, IoSlice, Result};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

pub use real::RealIo;
pub use volume::{RESERVE_SHARE, Volume};

/// Bytes that a disk writes as a whole or not at all.
pub const SECTOR_BYTES: u64 = 512;

/// How a file is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenMode {
    /// For reading; it must exist.
    Read,
    /// For reading and writing; it must exist.
    Write,
    /// For reading and writing; made when missing, its contents kept when there.
    Create,
    /// For reading and writing; it must not exist.
    CreateNew,
}

/// A file system. Paths are taken as they are; folders must exist before files are made in them.
pub trait Io: Send + Sync + 'static {
    /// Opens a file. Creating one is durable only after [`Io::sync_dir`] of its folder.
    ///
    /// # Errors
    /// What the system says, `NotFound` and `AlreadyExists` among it.
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn IoFile>>;

    /// Makes a folder and its missing parents, durable when it returns.
    ///
    /// # Errors
    /// What the system says.
    fn create_dir_all(&self, dir: &Path) -> Result<()>;

    /// The names of the files and folders in `dir`, sorted.
    ///
    /// # Errors
    /// What the system says, `NotFound` when there is no such folder.
    fn list(&self, dir: &Path) -> Result<Vec<String>>;

    /// Gives a file another name in one step, replacing what had it. Durable after [`Io::sync_dir`].
    ///
    /// # Errors
    /// What the system says.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;

    /// Removes a file. Durable after [`Io::sync_dir`].
    ///
    /// # Errors
    /// What the system says, `NotFound` when there is no such file.
    fn remove(&self, path: &Path) -> Result<()>;

    /// Removes a folder with all it holds; fine when there is none. Durable after [`Io::sync_dir`] of its parent.
    ///
    /// # Errors
    /// What the system says.
    fn remove_dir_all(&self, dir: &Path) -> Result<()>;

    /// Makes the names in `dir` durable.
    ///
    /// # Errors
    /// What the system says. Final: the names must be taken as unknown.
    fn sync_dir(&self, dir: &Path) -> Result<()>;

    /// Whether there is a file or a folder of that name.
    ///
    /// # Errors
    /// What the system says.
    fn exists(&self, path: &Path) -> Result<bool>;

    /// How much room the volume has that `dir` lies on. May block as long as the device does.
    ///
    /// # Errors
    /// What the system says, `NotFound` when there is no such folder.
    fn volume(&self, dir: &Path) -> Result<Volume>;

    /// Whether calls may come from helper threads at any time. An implementation whose runs must repeat says no, and
    /// then each component makes its calls on one thread, in one order.
    fn allows_threads(&self) -> bool;

    /// How long the next write to a log takes, for an owner that drives its log ([`crate::CommitLog::poll_work`]) on a clock
    /// of its own. Nothing where writes take the time that they take.
    fn write_delay(&self) -> std::time::Duration {
        std::time::Duration::ZERO
    }
}

/// An open file. All calls are positional and may be made from several threads.
pub trait IoFile: Send + Sync {
    /// Reads up to `buffer.len()` bytes at `offset`; 0 at the end of the file.
    ///
    /// # Errors
    /// What the system says.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize>;

    /// Writes all slices one after the other from `offset` on, growing the file where needed.
    ///
    /// # Errors
    /// What the system says; then some of the bytes may be written.
    fn write_at(&self, slices: &[IoSlice<'_>], offset: u64) -> Result<()>;

    /// Makes all written bytes and the length durable.
    ///
    /// # Errors
    /// What the system says. Final: the file must be taken as unknown and never be synced again.
    fn sync_data(&self) -> Result<()>;

    /// Cuts the file or extends it with zeros. Must not cut below a range that [`IoFile::bytes`] gave out.
    ///
    /// # Errors
    /// What the system says.
    fn set_len(&self, bytes: u64) -> Result<()>;

    /// The file's length in bytes.
    ///
    /// # Errors
    /// What the system says.
    fn len(&self) -> Result<u64>;

    /// The bytes `offset..offset + len` without a copy where the system can (mapped memory). They are the file: the
    /// caller sees to it that they are not written while it holds them.
    ///
    /// # Errors
    /// `UnexpectedEof` when the range goes beyond the file, or what the system says.
    fn bytes(&self, offset: u64, len: usize) -> Result<Bytes>;

    /// Has the system forget what it keeps in memory of a range that is durable, so that the next read comes from the disk. A wish:
    /// pages that are mapped stay.
    fn forget_cached(&self, _offset: u64, _len: u64) {}

    /// The first position at or after `offset` that may hold other bytes than zeros, `None` when there is none.
    ///
    /// # Errors
    /// What the system says.
    fn next_data(&self, offset: u64) -> Result<Option<u64>>;

    /// Takes the file's lock, held until the file is dropped; false when another holds it.
    ///
    /// # Errors
    /// What the system says.
    fn try_lock(&self) -> Result<bool>;

    /// Whether the file is empty.
    ///
    /// # Errors
    /// What the system says.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Fills `buffer` from `offset` on.
    ///
    /// # Errors
    /// `UnexpectedEof` when the file ends before, or what the system says.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        let mut done = 0;
        while done < buffer.len() {
            match self.read_at(&mut buffer[done..], offset + done as u64)? {
                0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                n => done += n,
            }
        }
        Ok(())
    }

    /// Writes one slice; see [`IoFile::write_at`].
    ///
    /// # Errors
    /// What the system says; then some of the bytes may be written.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.write_at(&[IoSlice::new(bytes)], offset)
    }
}

/// Reads a whole file of at most `bytes_max` bytes; `None` when there is none.
///
/// # Errors
/// `InvalidData` when it is longer, or what the system says.
pub fn read_file(io: &dyn Io, path: &Path, bytes_max: u64) -> Result<Option<Vec<u8>>> {
    let file = match io.open(path, OpenMode::Read) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let len = file.len()?;
    if len > bytes_max {
        let sentence = format!("{} is {len} bytes long, more than {bytes_max}", path.display());
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, sentence));
    }
    let mut buffer = vec![0; usize::try_from(len).unwrap_or(0)];
    file.read_exact_at(&mut buffer, 0)?;
    Ok(Some(buffer))
}

/// Puts `bytes` in the place of the file `path` in one step (`<path>.tmp`, sync, rename, sync of the folder), durable
/// when it returns.
///
/// # Errors
/// What the system says; then the file has its old or its new contents.
pub fn replace_file(io: &dyn Io, path: &Path, bytes: &[u8]) -> Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".tmp");
    let temporary = std::path::PathBuf::from(temporary);
    let file = match io.open(&temporary, OpenMode::CreateNew) {
        // A crash left it. It may be the file itself: not every file system takes the old name away with the same step that
        // gives the new one. So it is not written to.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            io.remove(&temporary)?;
            io.open(&temporary, OpenMode::CreateNew)?
        }
        opened => opened?,
    };
    file.set_len(0)?;
    file.write_all_at(bytes, 0)?;
    file.sync_data()?;
    io.rename(&temporary, path)?;
    match path.parent() {
        Some(dir) => io.sync_dir(dir),
        None => Ok(()),
    }
}
