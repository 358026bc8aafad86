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

#[test]
fn a_build_without_planted_faults_says_so() {
    let output = simulate(&["--seeds", "0", "--planted", "ack-before-sync"]);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("no planted faults"));
}
