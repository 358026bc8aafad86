//! Zero-writes blocks ahead of the tail, so that a later sync changes no block map and needs no journal commit.
//!
//! A helper thread does it, chunk by chunk, each synced by itself; the writer waits only when the tail catches up.
//! Invariant: the helper touches only `zeroed..target`, the writer only what lies below `zeroed`. Where helper threads are
//! not allowed the writer zeroes inline. Large runs of frames are written into holes: one journal commit costs less than writing
//! all that twice. On a volume that is nearly full nothing is zeroed: entries are then written into holes, which costs their
//! syncs more and takes no room that acks and votes need.

use std::io::{Error, IoSlice, Result};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::CommitLogOptions;
use crate::io::{Io, IoFile};

/// Bytes that are zeroed between two syncs: what an append's sync may have to write beside its own bytes.
const CHUNK_BYTES: u64 = 1 << 20;
const ZEROS_BYTES: usize = 1 << 16;
static ZEROS: [u8; ZEROS_BYTES] = [0; ZEROS_BYTES];

/// Writes zeros over `from..to` of a file.
pub(super) fn write_zeros(file: &dyn IoFile, mut from: u64, to: u64) -> Result<()> {
    while from < to {
        let count = (to - from).min(CHUNK_BYTES);
        let mut slices = vec![IoSlice::new(&ZEROS); (count / ZEROS_BYTES as u64) as usize];
        slices.push(IoSlice::new(&ZEROS[..(count % ZEROS_BYTES as u64) as usize]));
        file.write_at(&slices, from)?;
        from += count;
    }
    Ok(())
}

/// The segment that is written. Positions are in the file.
struct Zone {
    file: Arc<dyn IoFile>,
    zeroed: u64,
    target: u64,
}

#[derive(Default)]
struct Progress {
    zone: Option<Zone>,
    /// The helper writes a chunk right now.
    busy: bool,
    failed: Option<Error>,
    closed: bool,
}

#[derive(Default)]
struct Common {
    progress: Mutex<Progress>,
    changed: Condvar,
}

/// Whether there is room to zero into.
struct Room {
    io: Arc<dyn Io>,
    dir: PathBuf,
    reserve_bytes: u64,
}

impl Room {
    /// A volume that does not say has room: a write will tell.
    fn has(&self, bytes: u64) -> bool {
        if self.reserve_bytes == 0 {
            return true;
        }
        self.io.volume(&self.dir).map_or(true, |volume| {
            volume.available_bytes >= volume.reserve_bytes(self.reserve_bytes).saturating_add(bytes)
        })
    }
}

pub(super) struct ZeroAhead {
    step: u64,
    segment_bytes: u64,
    holes_bytes_min: u64,
    room: Room,
    common: Arc<Common>,
    helper: Option<JoinHandle<()>>,
}

impl ZeroAhead {
    /// `step` 0 turns it off.
    pub(super) fn start(step: u64, options: &CommitLogOptions, threaded: bool) -> Result<ZeroAhead> {
        let room = Room { io: Arc::clone(&options.io), dir: options.dir.clone(), reserve_bytes: options.reserve_bytes };
        let (segment_bytes, holes_bytes_min) = (options.segment_bytes_max, options.holes_bytes_min);
        let common = Arc::new(Common::default());
        let helper = if threaded && step > 0 {
            let common = Arc::clone(&common);
            Some(std::thread::Builder::new().name("log-zero".into()).spawn(move || help(&common))?)
        } else {
            None
        };
        Ok(ZeroAhead { step, segment_bytes, holes_bytes_min, room, common, helper })
    }

    /// Goes on in another segment file from `from` on. What it did before is over when this returns.
    pub(super) fn begin(&self, file: &Arc<dyn IoFile>, from: u64) {
        let mut progress = self.paused();
        progress.zone = Some(Zone { file: Arc::clone(file), zeroed: from, target: from });
    }

    /// Stops; what it did before is over when this returns.
    pub(super) fn pause(&self) {
        drop(self.paused());
    }

    fn paused(&self) -> MutexGuard<'_, Progress> {
        let mut progress = self.common.progress.lock();
        if let Some(zone) = &mut progress.zone {
            zone.target = zone.zeroed;
        }
        while progress.busy {
            self.common.changed.wait(&mut progress);
        }
        if let Some(zone) = &mut progress.zone {
            zone.target = zone.zeroed;
        }
        progress
    }

    /// Returns when `from..to`, where the log goes on, may be written, and sees to it that zeroing goes on ahead of it.
    pub(super) fn prepare(&self, from: u64, to: u64) -> Result<()> {
        if self.step == 0 {
            return Ok(());
        }
        if to - from >= self.holes_bytes_min {
            return self.leave_holes(to);
        }
        let mut progress = self.common.progress.lock();
        let Some(zone) = &mut progress.zone else { return Ok(()) };
        let mut skips = false;
        if zone.target < to + self.step / 2 {
            let target = (zone.target.max(to) + self.step).min(self.segment_bytes);
            skips = target > zone.target && !self.room.has(target - zone.zeroed);
            zone.target = if skips { zone.target } else { target };
        }
        if self.helper.is_none() {
            write_zeros(&*zone.file, zone.zeroed, zone.target)?;
            zone.zeroed = zone.zeroed.max(zone.target);
        }
        if zone.zeroed < zone.target && !progress.busy {
            self.common.changed.notify_all();
        }
        loop {
            if let Some(error) = progress.failed.take() {
                return Err(error);
            }
            match &mut progress.zone {
                // The helper is done with all that it was asked for, and leaves the rest to the writer.
                Some(zone) if skips && zone.zeroed == zone.target => {
                    zone.zeroed = zone.zeroed.max(to);
                    zone.target = zone.zeroed;
                    return Ok(());
                }
                Some(zone) if zone.zeroed < to => {}
                _ => return Ok(()),
            }
            self.common.changed.wait(&mut progress);
        }
    }

    /// Returns when everything below `to` may be written, and the helper is done.
    fn leave_holes(&self, to: u64) -> Result<()> {
        if self.common.progress.lock().zone.as_ref().is_none_or(|zone| zone.zeroed >= to) {
            return Ok(());
        }
        let mut progress = self.paused();
        if let Some(error) = progress.failed.take() {
            return Err(error);
        }
        if let Some(zone) = &mut progress.zone {
            zone.zeroed = zone.zeroed.max(to);
            zone.target = zone.zeroed;
        }
        Ok(())
    }
}

fn help(common: &Common) {
    let mut progress = common.progress.lock();
    while !progress.closed {
        let zone = progress.zone.as_ref().filter(|zone| zone.zeroed < zone.target);
        let Some((file, from, target)) = zone.map(|zone| (Arc::clone(&zone.file), zone.zeroed, zone.target)) else {
            common.changed.wait(&mut progress);
            continue;
        };
        let to = target.min(from + CHUNK_BYTES);
        progress.busy = true;
        let outcome = MutexGuard::unlocked(&mut progress, || {
            write_zeros(&*file, from, to)?;
            file.sync_data()
        });
        progress.busy = false;
        match (outcome, &mut progress.zone) {
            (Ok(()), Some(zone)) => zone.zeroed = to,
            (Ok(()), None) => {}
            (Err(error), zone) => {
                if let Some(zone) = zone {
                    zone.target = zone.zeroed;
                }
                progress.failed = Some(error);
            }
        }
        common.changed.notify_all();
    }
}

impl Drop for ZeroAhead {
    fn drop(&mut self) {
        self.common.progress.lock().closed = true;
        self.common.changed.notify_all();
        if let Some(helper) = self.helper.take() {
            let _ = helper.join();
        }
    }
}
