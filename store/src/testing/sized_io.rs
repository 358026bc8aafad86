//! A file system on a volume of any size that a test says: everything else is passed on to another one.

use std::io::Result;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::io::{Io, IoFile, OpenMode, Volume};

/// See the module. Clones share the said size; until one is said, the other file system's counts.
#[derive(Clone)]
pub struct SizedIo {
    io: Arc<dyn Io>,
    said: Arc<Mutex<Option<Volume>>>,
}

impl SizedIo {
    /// The files of `io`.
    #[must_use]
    pub fn new(io: Arc<dyn Io>) -> SizedIo {
        SizedIo { io, said: Arc::default() }
    }

    /// Says how much room the volume has from now on. It is only said: writes go on.
    pub fn set_volume(&self, volume: Volume) {
        *self.said.lock() = Some(volume);
    }
}

impl Io for SizedIo {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn IoFile>> {
        self.io.open(path, mode)
    }

    fn create_dir_all(&self, dir: &Path) -> Result<()> {
        self.io.create_dir_all(dir)
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        self.io.list(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.io.rename(from, to)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.io.remove(path)
    }

    fn remove_dir_all(&self, dir: &Path) -> Result<()> {
        self.io.remove_dir_all(dir)
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.io.sync_dir(dir)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.io.exists(path)
    }

    fn volume(&self, dir: &Path) -> Result<Volume> {
        let said = *self.said.lock();
        said.map_or_else(|| self.io.volume(dir), Ok)
    }

    fn allows_threads(&self) -> bool {
        self.io.allows_threads()
    }

    fn write_delay(&self) -> Duration {
        self.io.write_delay()
    }
}
