//! The node's log: lines on stderr.

use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

/// What the Raft library says about its own steps, and each time that a node that is down does not answer, is of use only
/// to who asks for it by name, as in `info,openraft=debug`: a later directive replaces this one.
const QUIET: &str = "openraft=error";

/// Starts to log what `filter` lets through. The filter was checked with the configuration.
pub(super) fn start(filter: &str) {
    let filter = EnvFilter::try_new(format!("{QUIET},{filter}")).unwrap_or_else(|_| EnvFilter::new("info"));
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(true);
    // Fails only when a log was started before, which is as good.
    let _ = subscriber.try_init();
}
