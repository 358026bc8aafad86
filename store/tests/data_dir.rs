//! Whose folder it is.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::sync::Arc;

use raftmq_model::ids::NodeId;
use raftmq_store::testing::Fault;
use raftmq_store::{DataDir, DataDirError, FaultyIo, RealIo};

fn open(path: &Path, node: u32) -> Result<DataDir, DataDirError> {
    DataDir::open(Arc::new(RealIo), path, NodeId(node), 1)
}

#[test]
fn a_folder_is_made_taken_and_given_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a/b");
    let data = open(&path, 3).unwrap();
    assert!(matches!(open(&path, 3), Err(DataDirError::Locked { .. })));
    data.adopt("5e3c-1", 1).unwrap();
    data.adopt("5e3c-1", 1).unwrap();
    assert!(matches!(data.adopt("other", 1), Err(DataDirError::ForeignCluster { .. })));
    assert!(matches!(data.adopt("two\nlines", 1), Err(DataDirError::ClusterId { .. })));
    drop(data);
    let data = DataDir::open(Arc::new(RealIo), &path, NodeId(3), 9).unwrap();
    let identity = data.identity();
    assert_eq!((identity.node, identity.incarnation), (NodeId(3), 1), "a folder keeps the life it was made for");
    assert_eq!(identity.cluster_id.as_deref(), Some("5e3c-1"));
}

#[test]
fn other_folders_are_refused_with_a_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("node");
    drop(open(&path, 3).unwrap());
    let error = open(&path, 4).unwrap_err();
    assert_eq!(error.to_string(), format!("{} belongs to node 3, and this is node 4", path.display()));

    let format = path.join("FORMAT");
    let text = std::fs::read_to_string(&format).unwrap();
    std::fs::write(&format, text.replace("version 1", "version 2")).unwrap();
    assert!(matches!(open(&path, 3), Err(DataDirError::Newer { found: 2, .. })));
    std::fs::write(&format, text.replace("node 3", "node 5")).unwrap();
    assert!(matches!(open(&path, 3), Err(DataDirError::Damaged { .. })));

    let foreign = dir.path().join("foreign");
    std::fs::create_dir(&foreign).unwrap();
    std::fs::write(foreign.join("letter.txt"), "dear").unwrap();
    assert!(matches!(open(&foreign, 3), Err(DataDirError::Foreign { found, .. }) if found == "letter.txt"));
    assert_eq!(std::fs::read_dir(&foreign).unwrap().count(), 1, "and left as it was");
}

#[test]
fn a_failed_operation_leaves_a_folder_that_opens() {
    let path = Path::new("/data/node");
    let run = |io: &FaultyIo| {
        let data = DataDir::open(Arc::new(io.clone()), path, NodeId(3), 1).ok()?;
        data.adopt("c", 1).ok()
    };
    let whole = FaultyIo::new();
    assert!(run(&whole).is_some());
    for fault in [Fault::NoSpace, Fault::Device] {
        for operation in 1..=whole.operations() {
            let io = FaultyIo::new();
            io.fail_at(operation, fault);
            assert!(run(&io).is_none(), "operation {operation} failed and nobody was told");
            io.restart(operation);
            let data = DataDir::open(Arc::new(io.clone()), path, NodeId(3), 1).unwrap();
            data.adopt("c", 1).unwrap();
        }
    }
}

#[test]
fn a_crash_at_any_operation_leaves_a_folder_that_opens() {
    let path = Path::new("/data/node");
    for cut in 1..20 {
        for seed in 0..20 {
            let io = FaultyIo::new();
            io.cut_power_at(cut);
            let open = || DataDir::open(Arc::new(io.clone()), path, NodeId(3), 1);
            let adopted = open().is_ok_and(|data| data.adopt("c", 1).is_ok());
            io.restart(seed);
            let identity = open().unwrap().identity();
            assert!(!adopted || identity.cluster_id.as_deref() == Some("c"));
        }
    }
}

#[test]
fn the_cluster_says_which_life_of_the_node_a_new_folder_is() {
    let dir = tempfile::tempdir().unwrap();
    let data = open(dir.path(), 3).unwrap();
    assert_eq!(data.identity().incarnation, 1);
    data.adopt("5e3c-1", 4).unwrap();
    // From then on that stays.
    data.adopt("5e3c-1", 5).unwrap();
    drop(data);
    assert_eq!(open(dir.path(), 3).unwrap().identity().incarnation, 4);
}

/// Many pairs of bits of the file that says whose folder it is: none passes, and each is refused with a sentence that says which folder.
#[test]
fn two_flipped_bits_of_the_format_file_are_refused() {
    use raftmq_store::io::{read_file, replace_file};
    let io = FaultyIo::new();
    let (path, file) = (Path::new("/data"), Path::new("/data/FORMAT"));
    let data = DataDir::open(Arc::new(io.clone()), path, NodeId(3), 1).unwrap();
    data.adopt("5e3c-1", 1).unwrap();
    drop(data);
    let whole = read_file(&io, file, 4096).unwrap().unwrap();
    for first in 0..whole.len() * 8 {
        for second in (first + 1..whole.len() * 8).step_by(11) {
            let mut flipped = whole.clone();
            [first, second].iter().for_each(|bit| flipped[bit / 8] ^= 1 << (bit % 8));
            replace_file(&io, file, &flipped).unwrap();
            let error = DataDir::open(Arc::new(io.clone()), path, NodeId(3), 1).unwrap_err();
            let refused = matches!(error, DataDirError::Damaged { .. } | DataDirError::Newer { .. });
            assert!(refused && error.to_string().contains("/data"), "bits {first} and {second}: {error}");
        }
    }
}
