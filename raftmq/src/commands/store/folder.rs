//! A data folder that is looked at: its lock, whose it is, and where its groups lie.
//!
//! The lock is held as long as the value lives, so that no node starts on the folder meanwhile.

use super::FolderArgs;
use crate::exit::Failure;
use crate::serve::placement;
use raftmq_broker::decode_placement;
use raftmq_model::ids::{GroupId, ReplicaId};
use raftmq_store::data_dir::{self, DataDirError, Identity, ReadLock};
use raftmq_store::inspect::{Checkpoint, Contents, Findings, GroupFolder, ReadOnlyIo};
use raftmq_store::io::read_file;
use raftmq_store::state::RocksState;
use raftmq_store::{Io, RealIo, Stamps};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A placement file of a broker group is not longer.
const PLACEMENT_BYTES_MAX: u64 = 64 * 1024;
/// Written when RocksDB makes a store, and never missing afterwards.
const STATE_MARK: &str = "CURRENT";

/// The folder.
pub(super) struct Folder {
    pub(super) io: Arc<dyn Io>,
    pub(super) path: PathBuf,
    pub(super) groups: Vec<Group>,
    _lock: ReadLock,
}

/// A group in it.
pub(super) struct Group {
    pub(super) id: GroupId,
    pub(super) name: String,
    pub(super) folder: GroupFolder,
    dir: PathBuf,
}

impl Folder {
    /// Takes the folder's lock and lists its groups.
    pub(super) fn open(args: &FolderArgs) -> Result<Folder, Failure> {
        let path = args.folder.clone();
        let io: Arc<dyn Io> = Arc::new(ReadOnlyIo::new(Arc::new(RealIo)));
        let lock = data_dir::lock_for_reading(&*io, &path).map_err(|error| refusal(&error))?;
        if let Err(newer @ DataDirError::Newer { .. }) = data_dir::read_identity(&*io, &path) {
            return Err(refusal(&newer));
        }
        let mut groups = list_groups(&*io, &path)
            .map_err(|error| Failure::failed(format!("{} cannot be listed: {error}", path.display())))?;
        if let Some(name) = &args.group {
            groups.retain(|group| group.name == *name);
            if groups.is_empty() {
                return Err(Failure::not_found(format!("{} holds no group {name}", path.display())));
            }
        }
        Ok(Folder { io, path, groups, _lock: lock })
    }

    /// Whose folder it is; damage is added to `findings`.
    pub(super) fn identity(&self, findings: &mut Findings) -> Option<Identity> {
        let file = self.path.join("FORMAT");
        match data_dir::read_identity(&*self.io, &self.path) {
            Ok(identity) => Some(identity),
            Err(DataDirError::Damaged { reason, .. }) => {
                findings.damage(file, 0, reason);
                None
            }
            Err(error) => {
                findings.damage(file, 0, error.to_string());
                None
            }
        }
    }

    /// Checks the record of the cluster's birth, which a node of a cluster must have.
    pub(super) fn check_placement(&self, identity: Option<&Identity>, findings: &mut Findings) {
        let file = self.path.join("placement");
        let cluster = identity.and_then(|identity| identity.cluster_id.as_ref());
        match (placement::read(&*self.io, &self.path), cluster) {
            (Err(error), _) => findings.damage(file, 0, error.to_string()),
            (Ok(None), Some(cluster)) => {
                findings.damage(file, 0, format!("it is missing, and the folder belongs to cluster {cluster}"));
            }
            (Ok(Some(birth)), Some(cluster)) if birth.cluster_id != *cluster => {
                let what = format!("it is of cluster {}, the folder belongs to cluster {cluster}", birth.cluster_id);
                findings.damage(file, 0, what);
            }
            _ => {}
        }
    }

    /// Checks the stamps; a folder need not have any.
    pub(super) fn check_stamps(&self, identity: Option<&Identity>, findings: &mut Findings) {
        let Some(Identity { node, incarnation, .. }) = identity else { return };
        let own = ReplicaId { node: *node, incarnation: *incarnation };
        if let Err(error) = Stamps::open(Arc::clone(&self.io), &self.path, own) {
            findings.damage(self.path.join("stamps"), 0, error.to_string());
        }
    }
}

fn refusal(error: &DataDirError) -> Failure {
    match error {
        DataDirError::Locked { dir } => {
            Failure::usage(format!("a node runs on {}: stop it first, or look at a copy of the folder", dir.display()))
        }
        DataDirError::Foreign { dir, .. } => Failure::usage(format!(
            "{} is no data folder of a node: it has no file FORMAT (of a playground give DIR/node-N/data)",
            dir.display()
        )),
        error => Failure::usage(error.to_string()),
    }
}

fn list_groups(io: &dyn Io, path: &Path) -> std::io::Result<Vec<Group>> {
    let mut groups = Vec::new();
    let meta = path.join("meta");
    if io.exists(&meta)? {
        let folder =
            GroupFolder { log: meta.clone(), queues: None, keys: None, snapshots: None, contents: Contents::Batches };
        groups.push(Group { id: GroupId::META, name: "namesrv".into(), folder, dir: meta });
    }
    let brokers = path.join("groups");
    if io.exists(&brokers)? {
        let ids = io.list(&brokers)?.into_iter().filter_map(|name| name.parse::<u32>().ok());
        let mut ids: Vec<u32> = ids.collect();
        ids.sort_unstable();
        groups.extend(ids.into_iter().map(|id| Group::broker(GroupId(id), brokers.join(id.to_string()))));
    }
    Ok(groups)
}

impl Group {
    fn broker(id: GroupId, dir: PathBuf) -> Group {
        let [queues, keys, snapshots] = ["consumequeue", "keyindex", "snapshots"].map(|name| Some(dir.join(name)));
        let folder = GroupFolder { log: dir.join("log"), queues, keys, snapshots, contents: Contents::Messages };
        Group { id, name: format!("broker-{id}"), folder, dir }
    }

    /// Folders of what is made from the log: the state, the ConsumeQueues, the IndexFiles.
    pub(super) fn derived(&self) -> Vec<PathBuf> {
        let derived = [Some(self.dir.join("state")), self.folder.queues.clone(), self.folder.keys.clone()];
        derived.into_iter().flatten().collect()
    }

    /// What the group's state says, read as a whole. `None` while there is no state, or when it is damaged.
    pub(super) fn checkpoint(&self, io: &dyn Io, findings: &mut Findings) -> Option<Checkpoint> {
        let dir = self.dir.join("state");
        if !io.exists(&dir.join(STATE_MARK)).unwrap_or(false) {
            let is_used = io.list(&dir).is_ok_and(|names| !names.is_empty());
            if is_used {
                let what = "it is missing: the next start makes the state anew, from the log";
                findings.note(dir.join(STATE_MARK), 0, what);
            }
            return None;
        }
        let read = RocksState::open_read_only(&dir).and_then(|store| match self.id {
            GroupId::META => raftmq_namesrv::runtime::stored_checkpoint(&store),
            id => raftmq_broker::machine::stored_checkpoint(id, &store),
        });
        match read {
            Ok(checkpoint) => Some(checkpoint),
            Err(error) => {
                let sentence = error.to_string();
                let (file, at) = rocksdb_place(&sentence).unwrap_or((dir, 0));
                findings.damage(file, at, sentence);
                None
            }
        }
    }

    /// Checks the record of where the replicas of a broker group live.
    pub(super) fn check_placement(&self, io: &dyn Io, findings: &mut Findings) {
        if self.id == GroupId::META {
            return;
        }
        let file = self.dir.join("placement");
        match read_file(io, &file, PLACEMENT_BYTES_MAX) {
            Ok(Some(bytes)) if decode_placement(&bytes, self.id.0).is_some() => {}
            Ok(Some(_)) => findings.damage(file, 0, "its checksum does not match, or it is no placement of this group"),
            Ok(None) => findings.note(file, 0, "there is none: the replica was never opened to its end"),
            Err(error) => findings.damage(file, 0, error.to_string()),
        }
    }
}

/// The file and the position that RocksDB names in a sentence about a damaged block: `... in FILE offset N size M`.
fn rocksdb_place(sentence: &str) -> Option<(PathBuf, u64)> {
    let (before, after) = sentence.rsplit_once(" offset ")?;
    let at = after.split_whitespace().next()?.parse().ok()?;
    let (_, file) = before.rsplit_once(" in ")?;
    Some((file.trim().into(), at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rocksdb_says_where() {
        let sentence = "cannot read the state in /d: Corruption: block checksum mismatch: stored = 1, computed = 2, \
                        type = 4  in /d/000012.sst offset 77 size 901";
        assert_eq!(rocksdb_place(sentence), Some(("/d/000012.sst".into(), 77)));
        assert_eq!(rocksdb_place("no such file"), None);
    }
}
