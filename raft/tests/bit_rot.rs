//! Flipped bits in the files of running and stopped replicas, over real connections and real files.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use bytes::Bytes;
use raftmq_raft::{CommitLogOptions, Group};
use raftmq_store::commit_log::is_damage;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use support::cluster::{Cluster, GROUP};
use tokio::time::{Instant, sleep, timeout};

const SEGMENT: u64 = 128 << 10;
const PATIENCE: Duration = Duration::from_secs(20);

/// Several segments, and nothing kept in memory: all reads are of files.
fn small_log(dir: &Path) -> CommitLogOptions {
    CommitLogOptions {
        segment_bytes_max: SEGMENT,
        write_bytes_max: 64 << 10,
        cache_bytes_max: 0,
        zero_ahead_bytes: 0,
        ..CommitLogOptions::new(dir)
    }
}

async fn cluster(commands: u32) -> Cluster {
    let mut cluster = Cluster::prepare(3);
    cluster.log = small_log;
    cluster.scrub_interval_ms = 50;
    cluster.be_born(&[GROUP]).await;
    let leader = cluster.agreed_leader(GROUP).await;
    for n in 0..commands {
        let command = Bytes::from(vec![n as u8; 100 + (n as usize * 977) % 5000]);
        cluster.group(leader, GROUP).propose(command).await.unwrap();
    }
    for node in 1..=3 {
        cluster.wait_for_commands(node, GROUP, commands as usize).await;
    }
    cluster
}

/// Flips a bit of the byte at a physical offset.
fn flip(dir: &Path, offset: u64, bit: u8) {
    let file = file_of(dir, offset);
    let file = OpenOptions::new().read(true).write(true).open(file).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset % SEGMENT).unwrap();
    file.write_all_at(&[byte[0] ^ (1 << bit)], offset % SEGMENT).unwrap();
}

fn file_of(dir: &Path, offset: u64) -> PathBuf {
    dir.join("commitlog").join(format!("{:020}", offset - offset % SEGMENT))
}

fn bytes_upto(dir: &Path, tail: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    for base in (0..tail).step_by(SEGMENT as usize) {
        bytes.extend(std::fs::read(file_of(dir, base)).unwrap());
    }
    bytes.truncate(usize::try_from(tail).unwrap());
    bytes
}

fn committed_tail(group: &Group) -> u64 {
    let (_, index) = group.status().committed.unwrap();
    group.log().end_offset(index).unwrap().0
}

/// Waits until the scrubber has read the whole log once more and nothing is damaged.
async fn whole(group: &Group) {
    let passes = group.integrity().scrub_passes_count;
    let wait = async {
        loop {
            let now = group.integrity();
            if now.scrub_passes_count >= passes + 2 && now.damaged_count == 0 {
                return;
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("not whole: {:?}", group.integrity()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_whose_files_rotted_while_it_was_down_is_repaired_from_its_peers() {
    let mut cluster = cluster(200).await;
    let mut found = 0;
    for seed in 0..6_u64 {
        let leader = cluster.agreed_leader(GROUP).await;
        let follower = 1 + leader % 3;
        let (tail, dir) = (committed_tail(cluster.group(follower, GROUP)), cluster.log_dir(follower, GROUP));
        assert!(tail > 3 * SEGMENT, "{tail}");
        cluster.kill(follower);
        for n in 0..3 {
            flip(&dir, (seed * 7919 + n * 104_729 + 13) * 3571 % tail, (seed % 8) as u8);
        }
        let applied = cluster.state(leader, GROUP).get();
        if seed % 2 == 1 {
            // Everything is applied again: the damaged entries too.
            cluster.forget_state(follower);
        }
        timeout(PATIENCE, cluster.start(follower, &[GROUP])).await.expect("it starts");
        cluster.wait_for_commands(follower, GROUP, 200).await;
        whole(cluster.group(follower, GROUP)).await;
        assert_eq!(cluster.state(follower, GROUP).get().commands, applied.commands, "seed {seed}");
        assert!(
            bytes_upto(&dir, tail) == bytes_upto(&cluster.log_dir(leader, GROUP), tail),
            "seed {seed}: the files differ"
        );
        let integrity = cluster.group(follower, GROUP).integrity();
        assert_eq!(integrity.found_count, integrity.repaired_count);
        found += integrity.found_count;
    }
    assert!(found > 0, "some damage does not keep a log from opening, and is found behind that");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn running_replicas_find_and_repair_rot_by_themselves() {
    let cluster = cluster(150).await;
    let leader = cluster.agreed_leader(GROUP).await;
    for node in 1..=3_u32 {
        let (group, dir) = (cluster.group(node, GROUP), cluster.log_dir(node, GROUP));
        let tail = committed_tail(group);
        // Another place on each replica, the leader among them.
        for n in 0..2 {
            flip(&dir, u64::from(node) * tail / 4 + n * 40_001 % (tail / 4), 3);
        }
    }
    for node in 1..=3 {
        let group = cluster.group(node, GROUP);
        whole(group).await;
        let integrity = group.integrity();
        assert!(integrity.found_count >= 1 && integrity.repaired_count == integrity.found_count, "{integrity:?}");
    }
    let tail = committed_tail(cluster.group(leader, GROUP));
    let files: Vec<_> = (1..=3).map(|node| bytes_upto(&cluster.log_dir(node, GROUP), tail)).collect();
    assert!(files[0] == files[1] && files[1] == files[2]);
    cluster.group(leader, GROUP).propose(Bytes::from_static(b"goes on")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_no_replica_has_is_not_served_and_damaged_replicas_do_not_lead() {
    let mut cluster = cluster(60).await;
    let leader = cluster.agreed_leader(GROUP).await;
    let mut entry = cluster.group(leader, GROUP).log().read(20, 21, 0).unwrap().remove(0);
    // Not a slice of the file, which is about to rot.
    entry.payload = Bytes::copy_from_slice(&entry.payload);
    let at = entry.payload_offset.0 + 30;
    for node in 1..=3 {
        flip(&cluster.log_dir(node, GROUP), at, 5);
    }
    for node in 1..=3 {
        let group = cluster.group(node, GROUP).clone();
        assert!(is_damage(&group.log().read(20, 21, 0).unwrap_err()), "never wrong bytes");
        let waits = group.read_repaired(|log| log.record(entry.payload_offset, 8));
        assert!(timeout(Duration::from_millis(200), waits).await.is_err(), "it waits for a repair");
        assert_eq!(group.log().read(21, 22, 0).unwrap().len(), 1, "all else is served");
        assert_eq!(group.integrity().damaged_count, 1);
    }
    cluster.kill(leader);
    let survivors = cluster.living();
    // Three times as long as an election takes.
    let elected = timeout(Duration::from_millis(1500), cluster.leader(GROUP)).await;
    assert!(elected.is_err(), "a damaged replica does not campaign: {elected:?}");
    // One of them gets its bytes back, and repairs the other.
    flip(&cluster.log_dir(survivors[0], GROUP), at, 5);
    let began = Instant::now();
    let new = cluster.leader(GROUP).await;
    assert!(survivors.contains(&new), "elected after {:?}", began.elapsed());
    for node in &survivors {
        let group = cluster.group(*node, GROUP);
        let read = timeout(PATIENCE, group.read_repaired(|log| log.read(20, 21, 0))).await.unwrap().unwrap();
        assert!(read[0] == entry, "node {node}");
    }
    timeout(PATIENCE, cluster.start(leader, &[GROUP])).await.expect("it starts");
    whole(cluster.group(leader, GROUP)).await;
    assert!(cluster.group(leader, GROUP).log().read(20, 21, 0).unwrap()[0] == entry);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_peers_a_damaged_log_does_not_open_and_names_the_file() {
    let mut cluster = Cluster::prepare(1);
    cluster.log = small_log;
    cluster.start(1, &[GROUP]).await;
    cluster.group(1, GROUP).initialize(&support::cluster::replicas(1)).await.unwrap();
    cluster.leader(GROUP).await;
    for n in 0..60 {
        cluster.group(1, GROUP).propose(Bytes::from(vec![n; 3000])).await.unwrap();
    }
    let dir = cluster.log_dir(1, GROUP);
    cluster.kill(1);
    flip(&dir, 20, 1);
    let raft = raftmq_raft::RaftNode::start(support::cluster::options(1, "test", &cluster.peers)).unwrap();
    let error = raft.mend_log(GROUP, small_log(&dir), true).await.unwrap_err().to_string();
    assert!(error.contains(&file_of(&dir, 0).display().to_string()) && error.contains("damaged"), "{error}");
}
