//! `raftmq-jepsen`: see `cli`.

use std::process::ExitCode;

fn main() -> ExitCode {
    raftmq_jepsen::cli::main()
}
