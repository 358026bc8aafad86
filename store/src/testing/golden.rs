//! Golden folders: data folders of a released format, kept in the repository and opened by tests, so that a change of a
//! format that nobody meant is noticed.
//!
//! Segment files are mostly zeros. A kept folder leaves out runs of at least [`ZEROS_BYTES_MIN`] zeros; a text file says
//! what belongs where:
//!
//! ```text
//! <kept>/FILES            one line for each file:  <path> <bytes> <CRC-32 of all bytes> [<from>+<bytes> ...]
//! <kept>/files/<path>     the runs of the file that are not left out, one behind the other
//! ```
//! [`unpack`] makes the folder again, byte for byte, and checks each sum; [`pack`] is how one is made.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Error, ErrorKind, Result};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Zeros that are left out when so many follow each other.
pub const ZEROS_BYTES_MIN: usize = 64;
const INDEX: &str = "FILES";
const FILES: &str = "files";

/// Keeps the folder `from` as `kept`, which is replaced; files for which `wanted` says false are left out.
///
/// # Errors
/// What the file system says; a name that is no text or has a space.
pub fn pack(from: &Path, kept: &Path, wanted: impl Fn(&Path) -> bool) -> Result<()> {
    if kept.exists() {
        fs::remove_dir_all(kept)?;
    }
    let mut index = String::new();
    for (path, bytes) in files(from)?.into_iter().filter(|(path, _)| wanted(path)) {
        let name = path.to_str().filter(|name| !name.contains(char::is_whitespace));
        let name = name.ok_or_else(|| invalid(&format!("the name {} cannot be kept", path.display())))?;
        let runs = runs(&bytes);
        index.push_str(&format!("{name} {} {:08x}", bytes.len(), crc32fast::hash(&bytes)));
        runs.iter().for_each(|run| index.push_str(&format!(" {}+{}", run.start, run.len())));
        index.push('\n');
        let file = kept.join(FILES).join(&path);
        fs::create_dir_all(file.parent().unwrap_or(kept))?;
        fs::write(file, runs.into_iter().map(|run| &bytes[run]).collect::<Vec<_>>().concat())?;
    }
    fs::write(kept.join(INDEX), index)
}

/// Makes the folder that was kept as `kept` again, in `to`.
///
/// # Errors
/// What the file system says; a file that does not match its sum.
pub fn unpack(kept: &Path, to: &Path) -> Result<()> {
    for line in fs::read_to_string(kept.join(INDEX))?.lines() {
        let wrong = || invalid(&format!("{}: \"{line}\" does not match the file", kept.join(INDEX).display()));
        let mut words = line.split(' ');
        let name = words.next().ok_or_else(wrong)?;
        let len: u64 = words.next().and_then(|word| word.parse().ok()).ok_or_else(wrong)?;
        let sum = words.next().and_then(|word| u32::from_str_radix(word, 16).ok()).ok_or_else(wrong)?;
        let data = fs::read(kept.join(FILES).join(name))?;
        let path = to.join(name);
        fs::create_dir_all(path.parent().unwrap_or(to))?;
        let file = fs::OpenOptions::new().create_new(true).read(true).write(true).open(&path)?;
        file.set_len(len)?;
        let mut rest = data.as_slice();
        for word in words {
            let (from, bytes) = word.split_once('+').ok_or_else(wrong)?;
            let (from, bytes): (u64, usize) = from.parse().ok().zip(bytes.parse().ok()).ok_or_else(wrong)?;
            let (run, behind) = rest.split_at_checked(bytes).ok_or_else(wrong)?;
            file.write_all_at(run, from)?;
            rest = behind;
        }
        if !rest.is_empty() || crc32fast::hash(&fs::read(&path)?) != sum {
            return Err(wrong());
        }
    }
    Ok(())
}

/// All files below a folder with their bytes, by path.
///
/// # Errors
/// What the file system says.
pub fn files(folder: &Path) -> Result<BTreeMap<PathBuf, Vec<u8>>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let bytes = fs::read(&path)?;
                found.insert(path.strip_prefix(folder).unwrap_or(&path).to_path_buf(), bytes);
            }
        }
    }
    Ok(found)
}

/// What is between runs of [`ZEROS_BYTES_MIN`] zeros.
fn runs(bytes: &[u8]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for at in (0..bytes.len()).filter(|at| bytes[*at] != 0) {
        match runs.last_mut() {
            Some(run) if at - run.end < ZEROS_BYTES_MIN => run.end = at + 1,
            _ => runs.push(at..at + 1),
        }
    }
    runs
}

fn invalid(what: &str) -> Error {
    Error::new(ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_comes_back_byte_for_byte_and_damage_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let (from, kept, to) = (dir.path().join("from"), dir.path().join("kept"), dir.path().join("to"));
        fs::create_dir_all(from.join("a/b")).unwrap();
        let mut bytes = vec![0; 10_000];
        bytes[5_000..5_003].copy_from_slice(&[1, 0, 2]);
        bytes[5_000 + ZEROS_BYTES_MIN] = 3;
        bytes[5_300] = 4;
        fs::write(from.join("a/b/holes"), &bytes).unwrap();
        fs::write(from.join("a/empty"), []).unwrap();
        fs::write(from.join("full"), [7; 100]).unwrap();
        fs::write(from.join("LOG"), "not wanted").unwrap();
        pack(&from, &kept, |path| path != Path::new("LOG")).unwrap();
        let size: u64 =
            ["a/b/holes", "full"].map(|path| fs::metadata(kept.join(FILES).join(path)).unwrap().len()).iter().sum();
        assert!(size < 300, "{size}");
        unpack(&kept, &to).unwrap();
        fs::remove_file(from.join("LOG")).unwrap();
        assert_eq!(files(&to).unwrap(), files(&from).unwrap());

        fs::remove_dir_all(&to).unwrap();
        fs::write(kept.join(FILES).join("full"), [8; 100]).unwrap();
        assert_eq!(unpack(&kept, &to).unwrap_err().kind(), ErrorKind::InvalidData);
    }
}
