//! `raftmq-jepsen-planted`: the same program in a build that has planted faults, to see that they are found.

use std::process::ExitCode;

fn main() -> ExitCode {
    raftmq_jepsen::cli::main()
}
