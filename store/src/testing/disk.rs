//! The state of the simulated disk: files in sectors, durable and volatile contents apart.

use std::collections::BTreeMap;
use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};

use crate::io::SECTOR_BYTES;

const SECTOR: usize = SECTOR_BYTES as usize;

type Sector = Box<[u8; SECTOR]>;

/// A small generator (SplitMix64), so that runs repeat from a seed without a dependency.
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    pub(super) fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides
    }
}

/// How a loss of power treats what was not synced; chosen once per loss, so that the extremes are met often.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mood {
    LoseAll,
    KeepAll,
    Mixed,
}

impl Mood {
    fn keeps(self, dice: &mut Dice) -> bool {
        match self {
            Mood::LoseAll => false,
            Mood::KeepAll => true,
            Mood::Mixed => dice.roll(2) == 0,
        }
    }
}

/// A file's contents. Reads see `dirty` over `doomed` over `durable`.
#[derive(Clone, Default)]
pub(super) struct Inode {
    durable: BTreeMap<u64, Sector>,
    durable_len: u64,
    /// Written and not synced: survives a loss of power by chance.
    dirty: BTreeMap<u64, Sector>,
    /// Written, and then a sync failed: readable until the power goes, never durable.
    doomed: BTreeMap<u64, Sector>,
    pub(super) len: u64,
    pub(super) locked: bool,
}

impl Inode {
    fn sector(&self, number: u64) -> Option<&Sector> {
        self.dirty.get(&number).or_else(|| self.doomed.get(&number)).or_else(|| self.durable.get(&number))
    }

    pub(super) fn read(&self, buffer: &mut [u8], offset: u64) -> usize {
        let count = buffer.len().min(usize::try_from(self.len.saturating_sub(offset)).unwrap_or(usize::MAX));
        let mut done = 0;
        while done < count {
            let at = offset + done as u64;
            let (number, within) = (at / SECTOR_BYTES, (at % SECTOR_BYTES) as usize);
            let step = (SECTOR - within).min(count - done);
            match self.sector(number) {
                Some(sector) => buffer[done..done + step].copy_from_slice(&sector[within..within + step]),
                None => buffer[done..done + step].fill(0),
            }
            done += step;
        }
        count
    }

    pub(super) fn write(&mut self, bytes: &[u8], offset: u64) {
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let (number, within) = (at / SECTOR_BYTES, (at % SECTOR_BYTES) as usize);
            let step = (SECTOR - within).min(bytes.len() - done);
            if !self.dirty.contains_key(&number) {
                let sector = self.sector(number).cloned().unwrap_or_else(|| Box::new([0; SECTOR]));
                self.dirty.insert(number, sector);
            }
            if let Some(sector) = self.dirty.get_mut(&number) {
                sector[within..within + step].copy_from_slice(&bytes[done..done + step]);
            }
            done += step;
        }
        self.len = self.len.max(offset + bytes.len() as u64);
    }

    pub(super) fn set_len(&mut self, len: u64) {
        if len < self.len {
            let zeros = [0; SECTOR];
            let within = (len % SECTOR_BYTES) as usize;
            if within > 0 {
                self.write(&zeros[within..], len);
            }
            let first = len.div_ceil(SECTOR_BYTES);
            let gone: Vec<u64> = [&self.dirty, &self.doomed, &self.durable]
                .into_iter()
                .flat_map(|sectors| sectors.range(first..).map(|(number, _)| *number))
                .collect();
            self.dirty.extend(gone.into_iter().map(|number| (number, Box::new(zeros))));
        }
        self.len = len;
    }

    pub(super) fn sync(&mut self) {
        // Not `append`, which builds the whole map anew.
        self.durable.extend(std::mem::take(&mut self.dirty));
        self.durable_len = self.len;
    }

    /// Flips bits of a durable byte, and of its copy in memory where there is one; false when the file ends before.
    pub(super) fn rot(&mut self, offset: u64, mask: u8) -> bool {
        if offset >= self.durable_len {
            return false;
        }
        let (number, within) = (offset / SECTOR_BYTES, (offset % SECTOR_BYTES) as usize);
        self.durable.entry(number).or_insert_with(|| Box::new([0; SECTOR]))[within] ^= mask;
        [&mut self.dirty, &mut self.doomed]
            .into_iter()
            .filter_map(|sectors| sectors.get_mut(&number))
            .for_each(|sector| sector[within] ^= mask);
        true
    }

    /// What a failed sync leaves behind: the system takes the pages for clean, and they never reach the disk.
    pub(super) fn doom(&mut self) {
        self.doomed.append(&mut self.dirty);
    }

    pub(super) fn next_data(&self, offset: u64) -> Option<u64> {
        let first = offset / SECTOR_BYTES;
        [&self.dirty, &self.doomed, &self.durable]
            .into_iter()
            .filter_map(|sectors| sectors.range(first..).next().map(|(number, _)| *number))
            .min()
            .map(|number| (number * SECTOR_BYTES).max(offset))
            .filter(|position| *position < self.len)
    }

    fn lose_power(&mut self, dice: &mut Dice, mood: Mood) {
        let keeps_len = mood.keeps(dice);
        for (number, sector) in std::mem::take(&mut self.dirty) {
            if mood.keeps(dice) {
                self.durable.insert(number, sector);
            }
        }
        self.doomed.clear();
        if keeps_len {
            self.durable_len = self.len;
        }
        self.len = self.durable_len;
        let len = self.len;
        self.durable.retain(|number, _| number * SECTOR_BYTES < len);
        let within = (len % SECTOR_BYTES) as usize;
        if let Some(sector) = self.durable.get_mut(&(len / SECTOR_BYTES)) {
            sector[within..].fill(0);
        }
        self.locked = false;
    }
}

/// Names and inodes. A name is durable once its folder was synced; folders themselves are durable at once, as
/// [`crate::Io::create_dir_all`] promises.
#[derive(Clone, Default)]
pub(super) struct Disk {
    inodes: BTreeMap<u64, Inode>,
    durable_names: BTreeMap<PathBuf, u64>,
    names: BTreeMap<PathBuf, u64>,
    dirs: std::collections::BTreeSet<PathBuf>,
    inodes_made: u64,
}

impl Disk {
    pub(super) fn lookup(&self, path: &Path) -> Option<u64> {
        self.names.get(path).copied()
    }

    pub(super) fn is_dir(&self, path: &Path) -> bool {
        self.dirs.contains(path)
    }

    pub(super) fn inode(&mut self, number: u64) -> Result<&mut Inode> {
        self.inodes.get_mut(&number).ok_or_else(|| Error::new(ErrorKind::NotFound, "the file is gone"))
    }

    pub(super) fn create(&mut self, path: &Path) -> Result<u64> {
        let parent = path.parent().unwrap_or(Path::new(""));
        if !parent.as_os_str().is_empty() && !self.is_dir(parent) {
            return Err(ErrorKind::NotFound.into());
        }
        self.inodes_made += 1;
        self.inodes.insert(self.inodes_made, Inode::default());
        self.names.insert(path.to_path_buf(), self.inodes_made);
        Ok(self.inodes_made)
    }

    pub(super) fn create_dir_all(&mut self, dir: &Path) {
        for ancestor in dir.ancestors().filter(|ancestor| !ancestor.as_os_str().is_empty()) {
            self.dirs.insert(ancestor.to_path_buf());
        }
    }

    pub(super) fn list(&self, dir: &Path) -> Result<Vec<String>> {
        if !self.is_dir(dir) {
            return Err(ErrorKind::NotFound.into());
        }
        let children = self.names.keys().chain(&self.dirs).filter(|path| path.parent() == Some(dir));
        let mut names: Vec<String> =
            children.filter_map(|path| path.file_name()?.to_str().map(str::to_owned)).collect();
        names.sort_unstable();
        Ok(names)
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> Result<()> {
        let number = self.names.remove(from).ok_or(ErrorKind::NotFound)?;
        self.names.insert(to.to_path_buf(), number);
        Ok(())
    }

    pub(super) fn remove(&mut self, path: &Path) -> Result<()> {
        self.names.remove(path).map(|_| ()).ok_or_else(|| ErrorKind::NotFound.into())
    }

    pub(super) fn remove_dir_all(&mut self, dir: &Path) {
        self.names.retain(|path, _| !path.starts_with(dir));
        self.dirs.retain(|path| !path.starts_with(dir));
    }

    pub(super) fn sync_dir(&mut self, dir: &Path) {
        // A removed folder's files go with the sync of its parent.
        let (names, dirs) = (&self.names, &self.dirs);
        self.durable_names.retain(|path, _| {
            let parent = path.parent().unwrap_or(Path::new(""));
            (parent != dir || names.contains_key(path))
                && (parent == dir || dirs.contains(parent) || !path.starts_with(dir))
        });
        for (path, number) in names.iter().filter(|(path, _)| path.parent() == Some(dir)) {
            self.durable_names.insert(path.clone(), *number);
        }
    }

    pub(super) fn lose_power(&mut self, seed: u64) {
        let mut dice = Dice::new(seed);
        let mood = match dice.roll(4) {
            0 => Mood::LoseAll,
            1 => Mood::KeepAll,
            _ => Mood::Mixed,
        };
        let paths: std::collections::BTreeSet<PathBuf> =
            self.names.keys().chain(self.durable_names.keys()).cloned().collect();
        for path in paths {
            let (volatile, durable) = (self.names.get(&path).copied(), self.durable_names.get(&path).copied());
            if volatile != durable && mood.keeps(&mut dice) {
                match volatile {
                    Some(number) => self.durable_names.insert(path, number),
                    None => self.durable_names.remove(&path),
                };
            }
        }
        self.names = self.durable_names.clone();
        let parents: Vec<PathBuf> = self.names.keys().filter_map(|path| path.parent()).map(Path::to_path_buf).collect();
        parents.iter().for_each(|parent| self.create_dir_all(parent));
        let kept: std::collections::BTreeSet<u64> = self.names.values().copied().collect();
        self.inodes.retain(|number, _| kept.contains(number));
        for inode in self.inodes.values_mut() {
            inode.lose_power(&mut dice, mood);
        }
    }
}
