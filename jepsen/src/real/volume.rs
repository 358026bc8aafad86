//! A file system of its own for one node: an ext4 image, mounted over a loop device.

use super::shell::sh;
use anyhow::{Context, Result};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// See the module. Unmounted when dropped.
pub(super) struct Volume {
    image: PathBuf,
    mount: PathBuf,
}

impl Volume {
    /// Makes and mounts a file system of `bytes` in `dir`.
    pub(super) fn new(dir: &Path, bytes: u64) -> Result<Volume> {
        let volume = Volume { image: dir.join("image"), mount: dir.join("mount") };
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
        sh("mount", &["-o", "loop", &text(&self.image), &text(&self.mount)]).map(drop)
    }

    /// From here on every access fails, and what was not synced is gone: the journal is not written out.
    pub(super) fn cut_power(&self) -> Result<()> {
        sh("xfs_io", &["-x", "-c", "shutdown", &text(&self.mount)]).map(drop)
    }

    /// After [`Volume::cut_power`], when no process uses it any more: the file system as a restart finds it.
    pub(super) fn restore_power(&self) -> Result<()> {
        sh("umount", &[&text(&self.mount)]).context("a volume is still in use")?;
        self.attach()
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
