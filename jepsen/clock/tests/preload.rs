//! Another program sees the turned clock, and follows it while it runs.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// Cargo puts the library beside the tests that it builds it for.
fn library() -> PathBuf {
    let beside = std::env::current_exe().unwrap();
    let found = beside.ancestors().skip(1).take(2).map(|dir| dir.join("libraftmq_jepsen_clock.so"));
    found.into_iter().find(|path| path.is_file()).unwrap_or_else(|| panic!("no library beside {}", beside.display()))
}

/// Seconds by which `date` is ahead.
fn ahead_s(control: Option<&[i64; 3]>) -> i64 {
    let path = std::env::temp_dir().join(format!("raftmq-clock-{}", std::process::id()));
    let mut date = Command::new("date");
    date.args(["-u", "+%s"]).env("LD_PRELOAD", library());
    if let Some(fields) = control {
        fs::write(&path, fields.map(i64::to_le_bytes).concat()).unwrap();
        date.env("RAFTMQ_JEPSEN_CLOCK", &path);
    }
    let shown: i64 = String::from_utf8(date.output().unwrap().stdout).unwrap().trim().parse().unwrap();
    let _ = fs::remove_file(path);
    shown - SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64
}

#[test]
fn a_program_sees_the_turned_clock() {
    assert!(ahead_s(None).abs() <= 2, "nobody turned it");
    assert!((ahead_s(Some(&[60_000_000_000, 0, 0])) - 60).abs() <= 2);
    assert!((ahead_s(Some(&[-60_000_000_000, 0, 0])) + 60).abs() <= 2);
}
