//! An in-memory file system that loses power and fails on command.
//!
//! Everything repeats from the seeds given: the same calls, cut at the same operation and restarted with the same seed,
//! leave the same files. Operations that change something are counted from 1; [`FaultyIo::cut_power_at`] and
//! [`FaultyIo::fail_at`] name them by that number. Reads are not counted.

use std::collections::BTreeMap;
use std::io::{Error, ErrorKind, IoSlice, Result};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;

use super::disk::Disk;
use crate::io::{Io, IoFile, OpenMode, Volume};

/// What an operation fails with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The disk is full. A write gets its first half done.
    NoSpace,
    /// The device answers an error. A write gets its first half done; a sync fails and what it should have made
    /// durable never will be, though it reads well until the power goes.
    Device,
}

impl Fault {
    fn error(self) -> Error {
        Error::from_raw_os_error(match self {
            Fault::NoSpace => 28,
            Fault::Device => 5,
        })
    }
}

/// Says how long each write to a log takes.
pub type WriteDelays = Box<dyn FnMut() -> Duration + Send>;

#[derive(Default)]
struct State {
    disk: Disk,
    operations: u64,
    cut_at: Option<u64>,
    faults: BTreeMap<u64, Fault>,
    power_off: bool,
    /// Counts restarts: handles of an earlier life are dead.
    life: u64,
    delays: Option<WriteDelays>,
    /// What [`Io::volume`] says; `None`: a volume without bounds.
    volume: Option<Volume>,
}

/// What becomes of an operation.
enum Verdict {
    Do,
    /// Done in the volatile part, and then the power goes.
    DoThenCut,
    Fail(Fault),
}

impl State {
    /// Counts one operation and says what becomes of it.
    fn begin(&mut self) -> Result<Verdict> {
        self.powered()?;
        self.operations += 1;
        if self.cut_at == Some(self.operations) {
            self.power_off = true;
            return Ok(Verdict::DoThenCut);
        }
        Ok(self.faults.remove(&self.operations).map_or(Verdict::Do, Verdict::Fail))
    }

    fn powered(&self) -> Result<()> {
        if self.power_off { Err(power_is_off()) } else { Ok(()) }
    }

    /// An operation on names: done in the volatile part unless it fails.
    fn change(&mut self, change: impl FnOnce(&mut Disk) -> Result<()>) -> Result<()> {
        match self.begin()? {
            Verdict::Do => change(&mut self.disk),
            Verdict::DoThenCut => {
                let _ = change(&mut self.disk);
                Err(power_is_off())
            }
            Verdict::Fail(fault) => Err(fault.error()),
        }
    }
}

fn power_is_off() -> Error {
    Error::other("the power is off")
}

/// The file system. Clones share one disk.
#[derive(Clone, Default)]
pub struct FaultyIo(Arc<Mutex<State>>);

impl FaultyIo {
    /// An empty disk.
    #[must_use]
    pub fn new() -> FaultyIo {
        FaultyIo::default()
    }

    /// Operations done so far.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.0.lock().operations
    }

    /// Cuts the power in the middle of that operation: it and all later ones fail until [`FaultyIo::restart`].
    pub fn cut_power_at(&self, operation: u64) {
        self.0.lock().cut_at = Some(operation);
    }

    /// Cuts the power now.
    pub fn cut_power(&self) {
        self.0.lock().power_off = true;
    }

    /// Fails that operation.
    pub fn fail_at(&self, operation: u64, fault: Fault) {
        self.0.lock().faults.insert(operation, fault);
    }

    /// Says how long writes to logs take from now on, see [`Io::write_delay`].
    pub fn set_write_delays(&self, delays: WriteDelays) {
        self.0.lock().delays = Some(delays);
    }

    /// Says how much room the disk has from now on. It is only said: writes go on (see [`Fault::NoSpace`]).
    pub fn set_volume(&self, volume: Volume) {
        self.0.lock().volume = Some(volume);
    }

    /// Whether the power is off.
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.0.lock().power_off
    }

    /// Cuts the power if it is on, decides by `seed` what of the unsynced sectors and names survived, and comes back
    /// without planned faults. Files opened before are dead, locks are free.
    pub fn restart(&self, seed: u64) {
        let mut state = self.0.lock();
        state.disk.lose_power(seed);
        state.power_off = false;
        state.cut_at = None;
        state.faults.clear();
        state.life += 1;
    }

    /// A disk of its own with what a loss of power now would leave on this one, as `seed` decides: an image to be put back later.
    #[must_use]
    pub fn image(&self, seed: u64) -> FaultyIo {
        let disk = self.0.lock().disk.clone();
        let image = FaultyIo(Arc::new(Mutex::new(State { disk, ..State::default() })));
        image.restart(seed);
        image
    }

    /// Flips the bits of `mask` in one byte at rest, as rot does. What is not synced stays so.
    ///
    /// # Errors
    /// `NotFound` when there is no such file, or it ends before.
    pub fn rot(&self, path: &Path, offset: u64, mask: u8) -> Result<()> {
        let mut state = self.0.lock();
        let number = state.disk.lookup(path).ok_or(ErrorKind::NotFound)?;
        if state.disk.inode(number)?.rot(offset, mask) { Ok(()) } else { Err(ErrorKind::NotFound.into()) }
    }
}

impl Io for FaultyIo {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn IoFile>> {
        let mut state = self.0.lock();
        state.powered()?;
        let number = match (state.disk.lookup(path), mode) {
            (Some(_), OpenMode::CreateNew) => return Err(ErrorKind::AlreadyExists.into()),
            (Some(number), _) => number,
            (None, OpenMode::Read | OpenMode::Write) => return Err(ErrorKind::NotFound.into()),
            (None, _) => {
                let mut made = 0;
                state.change(|disk| disk.create(path).map(|number| made = number))?;
                made
            }
        };
        let life = state.life;
        Ok(Arc::new(FaultyFile { io: self.clone(), number, life, holds_lock: Mutex::new(false) }))
    }

    fn create_dir_all(&self, dir: &Path) -> Result<()> {
        let mut state = self.0.lock();
        state.powered()?;
        if state.disk.is_dir(dir) {
            return Ok(());
        }
        state.change(|disk| {
            disk.create_dir_all(dir);
            Ok(())
        })
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        let state = self.0.lock();
        state.powered()?;
        state.disk.list(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.0.lock().change(|disk| disk.rename(from, to))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.0.lock().change(|disk| disk.remove(path))
    }

    fn remove_dir_all(&self, dir: &Path) -> Result<()> {
        self.0.lock().change(|disk| {
            disk.remove_dir_all(dir);
            Ok(())
        })
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        let mut state = self.0.lock();
        match state.begin()? {
            Verdict::Do => {
                state.disk.sync_dir(dir);
                Ok(())
            }
            // Cut in the middle of a sync: nothing is promised, so the names stay in doubt.
            Verdict::DoThenCut => Err(power_is_off()),
            Verdict::Fail(fault) => Err(fault.error()),
        }
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        let state = self.0.lock();
        state.powered()?;
        Ok(state.disk.lookup(path).is_some() || state.disk.is_dir(path))
    }

    fn volume(&self, _dir: &Path) -> Result<Volume> {
        let state = self.0.lock();
        state.powered()?;
        Ok(state.volume.unwrap_or(Volume::BOUNDLESS))
    }

    fn allows_threads(&self) -> bool {
        false
    }

    fn write_delay(&self) -> Duration {
        self.0.lock().delays.as_mut().map_or(Duration::ZERO, |next| next())
    }
}

struct FaultyFile {
    io: FaultyIo,
    number: u64,
    life: u64,
    holds_lock: Mutex<bool>,
}

impl FaultyFile {
    fn state(&self) -> Result<parking_lot::MutexGuard<'_, State>> {
        let state = self.io.0.lock();
        state.powered()?;
        if state.life == self.life { Ok(state) } else { Err(Error::other("the file was opened before the restart")) }
    }
}

impl IoFile for FaultyFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        Ok(self.state()?.disk.inode(self.number)?.read(buffer, offset))
    }

    fn write_at(&self, slices: &[IoSlice<'_>], offset: u64) -> Result<()> {
        let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
        let mut state = self.state()?;
        let verdict = state.begin()?;
        let inode = state.disk.inode(self.number)?;
        match verdict {
            Verdict::Do => {
                inode.write(&bytes, offset);
                Ok(())
            }
            Verdict::DoThenCut => {
                inode.write(&bytes, offset);
                Err(power_is_off())
            }
            Verdict::Fail(fault) => {
                inode.write(&bytes[..bytes.len() / 2], offset);
                Err(fault.error())
            }
        }
    }

    fn sync_data(&self) -> Result<()> {
        let mut state = self.state()?;
        let verdict = state.begin()?;
        let inode = state.disk.inode(self.number)?;
        match verdict {
            Verdict::Do => {
                inode.sync();
                Ok(())
            }
            Verdict::DoThenCut => Err(power_is_off()),
            Verdict::Fail(fault) => {
                inode.doom();
                Err(fault.error())
            }
        }
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        let number = self.number;
        self.state()?.change(|disk| {
            disk.inode(number)?.set_len(bytes);
            Ok(())
        })
    }

    fn len(&self) -> Result<u64> {
        Ok(self.state()?.disk.inode(self.number)?.len)
    }

    fn bytes(&self, offset: u64, len: usize) -> Result<Bytes> {
        let mut buffer = vec![0; len];
        self.read_exact_at(&mut buffer, offset)?;
        Ok(buffer.into())
    }

    fn next_data(&self, offset: u64) -> Result<Option<u64>> {
        Ok(self.state()?.disk.inode(self.number)?.next_data(offset))
    }

    fn try_lock(&self) -> Result<bool> {
        let mut state = self.state()?;
        let mut holds = self.holds_lock.lock();
        let inode = state.disk.inode(self.number)?;
        if inode.locked && !*holds {
            return Ok(false);
        }
        inode.locked = true;
        *holds = true;
        Ok(true)
    }
}

impl Drop for FaultyFile {
    fn drop(&mut self) {
        let mut state = self.io.0.lock();
        if *self.holds_lock.lock()
            && state.life == self.life
            && let Ok(inode) = state.disk.inode(self.number)
        {
            inode.locked = false;
        }
    }
}

impl std::fmt::Debug for FaultyIo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.0.lock();
        f.debug_struct("FaultyIo").field("operations", &state.operations).field("off", &state.power_off).finish()
    }
}
