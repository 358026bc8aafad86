//! The simulation as its users run it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::process::{Command, Output};

fn simulate(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_raftmq-jepsen")).arg("sim").args(arguments).output().unwrap()
}

/// The lines that name seeds, in the order of the seeds.
fn seeds(output: &Output) -> Vec<String> {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    let mut lines: Vec<String> = text.lines().filter(|line| line.starts_with("seed ")).map(str::to_owned).collect();
    lines.sort();
    lines
}

/// Each seed runs in a process of its own, so this compares two processes; once alone and once beside others.
#[test]
fn a_seed_is_a_run_in_any_process() {
    let one = seeds(&simulate(&["--seeds", "0..4", "--seconds", "20", "--threads", "1"]));
    let other = seeds(&simulate(&["--seeds", "0..4", "--seconds", "20", "--threads", "4"]));
    assert_eq!(one.len(), 4);
    assert_eq!(one, other);
    let digests: std::collections::BTreeSet<&str> = one.iter().filter_map(|line| line.split(' ').nth(3)).collect();
    assert_eq!(digests.len(), 4, "{one:?}");
}

/// Bits flip on one node, running and stopped, beside all other faults: nothing wrong is served, nothing is lost, and every log is
/// whole in the end without an operator. `RAFTMQ_ROT_SEEDS` says how many seeds.
#[test]
fn flipped_bits_are_repaired_from_the_peers() {
    let count = std::env::var("RAFTMQ_ROT_SEEDS").unwrap_or_else(|_| "12".to_owned());
    let output = simulate(&["--rot", "--seeds", &format!("0..{count}"), "--seconds", "30"]);
    assert_eq!(seeds(&output).len(), count.parse::<usize>().unwrap());
    let text = String::from_utf8(output.stdout).unwrap();
    for kind in ["(rot log)", "(repair)"] {
        assert!(text.contains(kind), "there was none of {kind}:\n{text}");
    }
}

#[test]
fn a_build_without_planted_faults_says_so() {
    let output = simulate(&["--seeds", "0", "--planted", "ack-before-sync"]);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("no planted faults"));
}
