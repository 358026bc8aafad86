//! A file system of its own for one node: an ext4 image, mounted over a loop device.

use super::shell::sh;
use anyhow::{Context, Result};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

const CANARY: &[u8] = &[0xCA; 4096];

/// See the module. Unmounted when dropped.
pub(super) struct Volume {
    image: PathBuf,
    mount: PathBuf,
    /// Its power was cut and is not back.
    dark: bool,
}

impl Volume {
    /// Makes and mounts a file system of `bytes` in `dir`.
    pub(super) fn new(dir: &Path, bytes: u64) -> Result<Volume> {
        let volume = Volume { image: dir.join("image"), mount: dir.join("mount"), dark: false };
        fs::create_dir_all(&volume.mount)?;
        // A hole: room is taken as it is written.
        File::create(&volume.image)?.set_len(bytes)?;
        sh("mkfs.ext4", &["-q", "-F", &text(&volume.image)])?;
        volume.attach()?;
        Ok(volume)
    }

    /// Where it is mounted.
    pub(super) fn mount(&self) -> &Path {
        &self.mount
    }

    fn attach(&self) -> Result<()> {
        sh("mount", &["-o", "loop,errors=remount-ro", &text(&self.image), &text(&self.mount)]).map(drop)
    }

    /// From here on every access fails, and what was not synced is gone: the journal is not written out. A file that was
    /// written a moment before and not synced tells [`Volume::restore`] whether that is so.
    pub(super) fn cut_power(&mut self) -> Result<()> {
        fs::write(self.canary(), CANARY).context("a volume cannot be written")?;
        self.dark = true;
        self.fail()
    }

    /// From here on every access fails.
    pub(super) fn fail(&self) -> Result<()> {
        sh("xfs_io", &["-x", "-c", "shutdown", &text(&self.mount)]).map(drop)
    }

    /// The file system finds an error and lets nobody write any more, as `errors=remount-ro` says.
    pub(super) fn find_error(&self) -> Result<()> {
        let device = sh("findmnt", &["-n", "-o", "SOURCE", &text(&self.mount)])?;
        let name = device.trim().rsplit('/').next().unwrap_or_default().to_owned();
        fs::write(format!("/sys/fs/ext4/{name}/trigger_fs_error"), "1\n").context("the file system finds no error")
    }

    /// Leaves only so many bytes to be written. The room is taken, nothing is written.
    pub(super) fn fill(&self, left_bytes: u64) -> Result<()> {
        let said = rustix::fs::statvfs(&self.mount)?;
        let taken = (said.f_bavail * said.f_frsize).saturating_sub(left_bytes);
        anyhow::ensure!(taken > 0, "a volume has no more than {left_bytes} bytes left already");
        let filler = File::create(self.filler())?;
        rustix::fs::fallocate(&filler, rustix::fs::FallocateFlags::empty(), 0, taken).context("a volume is not filled")
    }

    /// After [`Volume::fill`].
    pub(super) fn empty(&self) -> Result<()> {
        fs::remove_file(self.filler()).context("a full volume is not emptied")
    }

    /// After one of the above, when no process uses it any more: the file system as a restart finds it. After a power cut:
    /// whether bytes were really lost.
    pub(super) fn restore(&mut self) -> Result<Option<bool>> {
        sh("umount", &[&text(&self.mount)]).context("a volume is still in use")?;
        self.attach()?;
        let kept = fs::read(self.canary()).is_ok_and(|bytes| bytes == CANARY);
        let _ = fs::remove_file(self.canary());
        Ok(std::mem::take(&mut self.dark).then_some(!kept))
    }

    fn filler(&self) -> PathBuf {
        self.mount.join("filler")
    }

    fn canary(&self) -> PathBuf {
        self.mount.join("canary")
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        let _ = sh("umount", &["-l", &text(&self.mount)]);
        let _ = fs::remove_file(&self.image);
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
