//! A state whose files are damaged is made anew from the newest whole snapshot that is kept here, or from nothing when the log has
//! everything: Raft applies the rest again.
//!
//! ```text
//! state          damaged ──▶ state.damaged-1, state.damaged-2: kept for who wants to look, and then no more is made anew
//! state.new      written, closed ──▶ state
//! ```
//! A crash between the two renames leaves `state.new` without `state`; before them, a `state.new` that is not complete beside the
//! damaged one. [`finish_rebuild`] tells them apart.

use super::checkpoint::{BOOKKEEPING_KEY, Kept};
use super::snapshot;
use raftmq_model::ids::GroupId;
use raftmq_model::machine::{GroupState, Limits};
use raftmq_store::state::{StateStore, WriteBatch};
use raftmq_store::{CommitLog, Io, Snapshots};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Damaged states that are kept; with one more, an operator has to look at the disk.
const DAMAGED_COUNT_MAX: u32 = 2;
const STATE: &str = "state";
const NEW: &str = "state.new";

/// Goes on with what a crash left in the folder of a group; before its state is opened.
///
/// # Errors
/// What the file system says.
pub(crate) fn finish_rebuild(io: &dyn Io, dir: &Path) -> io::Result<()> {
    if !io.exists(&dir.join(NEW))? {
        return Ok(());
    }
    if io.exists(&dir.join(STATE))? {
        io.remove_dir_all(&dir.join(NEW))?;
    } else {
        io.rename(&dir.join(NEW), &dir.join(STATE))?;
    }
    io.sync_dir(dir)
}

/// Puts the damaged state of a group aside and a new one in its place. `damage` says what is wrong with it.
///
/// # Errors
/// `damage`, with what is in the way: no snapshot that is whole, or damaged states enough already. What the file system says.
pub(crate) fn rebuild(
    io: &dyn Io,
    dir: &Path,
    (group, rules): (GroupId, Limits),
    (log, snapshots): (&CommitLog, &Snapshots),
    open: impl Fn(&Path) -> io::Result<Arc<dyn StateStore>>,
    damage: &io::Error,
) -> io::Result<()> {
    let refused = |why: &str| io::Error::new(io::ErrorKind::InvalidData, format!("{damage}; {why}"));
    let aside = (1..=DAMAGED_COUNT_MAX).map(|number| dir.join(format!("{STATE}.damaged-{number}")));
    let mut free = None;
    for path in aside {
        if free.is_none() && !io.exists(&path)? {
            free = Some(path);
        }
    }
    let free =
        free.ok_or_else(|| refused("it was made anew before: see to the disk, and remove the damaged states"))?;
    let newest = newest(group, rules, log, snapshots)?;
    let (from, pairs) = newest.ok_or_else(|| refused("no snapshot from which the log goes on is whole"))?;
    let new = dir.join(NEW);
    io.remove_dir_all(&new)?;
    let store = open(&new)?;
    store.replace(pairs)?;
    store.flush()?;
    drop(store);
    io.rename(&dir.join(STATE), &free)?;
    io.rename(&new, &dir.join(STATE))?;
    io.sync_dir(dir)?;
    tracing::error!(%group, kept = %free.display(), "{damage}; it is made anew from the log behind entry {from}");
    Ok(())
}

/// The pairs of the newest whole snapshot that lies within the log, and its entry; nothing when the log begins with its first entry.
fn newest(
    group: GroupId,
    rules: Limits,
    log: &CommitLog,
    snapshots: &Snapshots,
) -> io::Result<Option<(u64, WriteBatch)>> {
    let (purged, last) = (log.purged().map(|(_, index)| index), log.last().map(|(_, index)| index));
    let within = |index: &u64| Some(*index) >= purged && Some(*index) <= last;
    for index in snapshots.indexes()?.into_iter().rev().filter(within) {
        let read = snapshots.read(index).and_then(|body| {
            let Some(body) = body else { return Ok(None) };
            let kept = snapshot::decode(body)?;
            let (_, mut pairs) = snapshot::load(group, rules, kept.data)?;
            pairs.put(BOOKKEEPING_KEY, Kept { applied: index, bookkeeping: kept.bookkeeping }.encode());
            Ok(Some((index, pairs)))
        });
        match read {
            Ok(None) => {}
            Ok(found) => return Ok(found),
            Err(error) => tracing::error!(%group, %error, "a snapshot is passed over"),
        }
    }
    Ok(purged.is_none().then(|| (0, WriteBatch::new())))
}

/// The state of a kept snapshot; `None` when there is none.
///
/// # Errors
/// It is damaged, or what the file system says.
pub(crate) fn snapshot_state(group: GroupId, snapshots: &Snapshots, index: u64) -> io::Result<Option<GroupState>> {
    let Some(body) = snapshots.read(index)? else { return Ok(None) };
    let kept = snapshot::decode(body)?;
    // The rules only bound what is to come.
    snapshot::load(group, Limits::default(), kept.data).map(|(state, _)| Some(state))
}
