//! Sizes and leftovers that a reviewer should not have to look for. Limits ratchet: lower them when the tree allows.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};

/// Hard limit of a source file, in lines.
const FILE_LINES_MAX: usize = 800;
/// Hard limit of a line, in characters.
const LINE_CHARS_MAX: usize = 160;
/// Words that say that something is unfinished, split so that this file does not contain them.
const LEFTOVERS: [&str; 5] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X:"),
    concat!("todo", "!("),
    concat!("unimplemented", "!("),
];
const FOLDERS: [&str; 9] = ["proto", "model", "store", "raft", "namesrv", "broker", "client", "jepsen", "raftmq"];

fn sources(folder: &Path, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
        if entry.is_dir() {
            sources(&entry, out);
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            out.push(entry);
        }
    }
}

#[test]
fn sources_are_tidy() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let mut files = Vec::new();
    for folder in FOLDERS {
        sources(&root.join(folder), &mut files);
    }
    assert!(files.len() > 50, "only {} sources were found", files.len());
    let mut wrong = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).expect("UTF-8");
        let name = file.strip_prefix(root).expect("below the root").display().to_string();
        let lines = text.lines().count();
        if lines > FILE_LINES_MAX {
            wrong.push(format!("{name}: {lines} lines"));
        }
        if name.contains("/src/") && !text.starts_with("//!") {
            wrong.push(format!("{name}: no module header"));
        }
        for (number, line) in (1..).zip(text.lines()) {
            if line.chars().count() > LINE_CHARS_MAX {
                wrong.push(format!("{name}:{number}: {} characters", line.chars().count()));
            }
            if LEFTOVERS.iter().any(|word| line.contains(word)) {
                wrong.push(format!("{name}:{number}: {}", line.trim()));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
