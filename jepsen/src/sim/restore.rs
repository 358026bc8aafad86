//! A node's disk is put back from an older copy, as from a backup. The node must not run on it; then the disk counts as lost.

use super::host::Image;
use super::net::Host;

/// One disk that is put back. There is at most one in a run.
pub(super) struct Restore {
    pub(super) node: Host,
    /// From when on the copy may be put back.
    pub(super) due_us: u64,
    pub(super) state: State,
}

/// How far it is.
pub(super) enum State {
    /// The copy is made, and the node goes on.
    Copied(Image),
    /// The copy is in the machine: its process has to end by itself, before it opens a group.
    PutBack,
}

/// Whether the process that ended so did because of the copy.
pub(super) fn is_refusal(reason: &str) -> bool {
    reason.contains("is an older copy of the disk of node")
}
