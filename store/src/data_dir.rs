//! The folder of a node: who may use it, and in which format.
//!
//! ```text
//! <dir>/LOCK      held while a process uses the folder
//! <dir>/FORMAT    text, one "key value" a line, the last one a CRC-32 of those before:
//!                     raftmq data folder
//!                     version 1
//!                     node 3
//!                     incarnation 1
//!                     cluster 5e3c...          (once the node was adopted)
//!                     crc 1a2b3c4d
//! ```
//!
//! The node is written when the folder is made and never changes; the cluster is written once, when it adopts the node, with
//! the incarnation that it knows the node's new life by ([`DataDir::adopt`]); from then on that stays, too. A folder that
//! lost its `FORMAT` file is a foreign folder.

use std::io::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use raftmq_model::ids::NodeId;

use crate::io::{Io, IoFile, OpenMode, read_file, replace_file};

const LOCK: &str = "LOCK";
const FORMAT: &str = "FORMAT";
const MAGIC: &str = "raftmq data folder";
/// The format of everything in a data folder: raised together with the version of any unit in it, since one unit alone that
/// looks newer can be rot.
pub const FORMAT_VERSION: u32 = 1;
const FORMAT_BYTES_MAX: u64 = 4096;
/// Bytes that a cluster id may have.
pub const CLUSTER_ID_BYTES_MAX: usize = 64;

/// Why a data folder cannot be used. Each is one sentence for the operator.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// Another process uses it.
    #[error("{} is in use by another process", dir.display())]
    Locked {
        /// The folder.
        dir: PathBuf,
    },
    /// It is another node's.
    #[error("{} belongs to node {found}, and this is node {expected}", dir.display())]
    ForeignNode {
        /// The folder.
        dir: PathBuf,
        /// Whose it is.
        found: NodeId,
        /// Who asked for it.
        expected: NodeId,
    },
    /// It is another cluster's.
    #[error("{} belongs to cluster {found} and cannot be taken into cluster {expected}", dir.display())]
    ForeignCluster {
        /// The folder.
        dir: PathBuf,
        /// Whose it is.
        found: String,
        /// Who asked for it.
        expected: String,
    },
    /// A newer program wrote it.
    #[error("{} has the format version {found}, and this program knows up to {FORMAT_VERSION}: use a newer one", dir.display())]
    Newer {
        /// The folder.
        dir: PathBuf,
        /// Its version.
        found: u32,
    },
    /// It holds something else.
    #[error("{} is not empty and no data folder of raftmq (it holds {found})", dir.display())]
    Foreign {
        /// The folder.
        dir: PathBuf,
        /// A name in it.
        found: String,
    },
    /// The `FORMAT` file cannot be read.
    #[error("{} is damaged: {reason}", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// What was found.
        reason: String,
    },
    /// The cluster id does not fit.
    #[error("the cluster id {found:?} must be 1 to {CLUSTER_ID_BYTES_MAX} letters, digits and dashes")]
    ClusterId {
        /// The id.
        found: String,
    },
    /// A file operation failed.
    #[error("{} cannot be used: {source}", dir.display())]
    Io {
        /// The folder.
        dir: PathBuf,
        /// What the system said.
        source: Error,
    },
}

/// Whose folder it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The node.
    pub node: NodeId,
    /// The node's life: 1, and more on a disk that replaced a lost one. Open until the node is adopted.
    pub incarnation: u32,
    /// The cluster, once it adopted the node.
    pub cluster_id: Option<String>,
}

/// A data folder in use. Dropping it gives the lock back.
pub struct DataDir {
    io: Arc<dyn Io>,
    path: PathBuf,
    identity: Mutex<Identity>,
    _lock: Arc<dyn IoFile>,
}

impl DataDir {
    /// Takes the folder for `node`. When there is none or an empty one it is made, for the life `incarnation_if_new`.
    ///
    /// # Errors
    /// See [`DataDirError`]; then the folder is as it was.
    pub fn open(
        io: Arc<dyn Io>,
        path: impl Into<PathBuf>,
        node: NodeId,
        incarnation_if_new: u32,
    ) -> Result<DataDir, DataDirError> {
        let path = path.into();
        let failed = |source| DataDirError::Io { dir: path.clone(), source };
        io.create_dir_all(&path).map_err(failed)?;
        let format = read_file(&*io, &path.join(FORMAT), FORMAT_BYTES_MAX).map_err(failed)?;
        if format.is_none() {
            check_empty(&*io, &path)?;
        }
        let lock = io.open(&path.join(LOCK), OpenMode::Create).map_err(failed)?;
        if !lock.try_lock().map_err(failed)? {
            return Err(DataDirError::Locked { dir: path });
        }
        // Read again: only the holder of the lock writes it.
        let identity = match read_file(&*io, &path.join(FORMAT), FORMAT_BYTES_MAX).map_err(failed)? {
            Some(bytes) => decode(&path, &bytes)?,
            None => {
                let identity = Identity { node, incarnation: incarnation_if_new, cluster_id: None };
                replace_file(&*io, &path.join(FORMAT), encode(&identity).as_bytes()).map_err(failed)?;
                identity
            }
        };
        if identity.node != node {
            return Err(DataDirError::ForeignNode { dir: path, found: identity.node, expected: node });
        }
        Ok(DataDir { io, path, identity: Mutex::new(identity), _lock: lock })
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whose folder it is.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.identity.lock().clone()
    }

    /// Notes durably which cluster the node belongs to, and as which incarnation: later than 1 when the folder replaces a lost
    /// one. Again with the same cluster is fine, and changes nothing.
    ///
    /// # Errors
    /// [`DataDirError::ForeignCluster`] when it already belongs to another cluster, or what the disk says.
    pub fn adopt(&self, cluster_id: &str, incarnation: u32) -> Result<(), DataDirError> {
        let valid = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        if cluster_id.is_empty() || cluster_id.len() > CLUSTER_ID_BYTES_MAX || !cluster_id.bytes().all(valid) {
            return Err(DataDirError::ClusterId { found: cluster_id.to_owned() });
        }
        let mut identity = self.identity.lock();
        if let Some(found) = &identity.cluster_id {
            if found == cluster_id {
                return Ok(());
            }
            return Err(DataDirError::ForeignCluster {
                dir: self.path.clone(),
                found: found.clone(),
                expected: cluster_id.to_owned(),
            });
        }
        let adopted = Identity { node: identity.node, incarnation, cluster_id: Some(cluster_id.to_owned()) };
        replace_file(&*self.io, &self.path.join(FORMAT), encode(&adopted).as_bytes())
            .map_err(|source| DataDirError::Io { dir: self.path.clone(), source })?;
        *identity = adopted;
        Ok(())
    }
}

/// Keeps nodes off a folder that is looked at, until it is dropped. Nothing is held when the folder has no lock file,
/// as a copy of one may not.
pub struct ReadLock {
    _lock: Option<Arc<dyn IoFile>>,
}

/// Takes the lock of a data folder without changing anything in it, so that no node runs on it meanwhile.
///
/// # Errors
/// [`DataDirError::Locked`] when a node runs, [`DataDirError::Foreign`] when it is no data folder, what the disk says.
pub fn lock_for_reading(io: &dyn Io, path: &Path) -> Result<ReadLock, DataDirError> {
    let failed = |source| DataDirError::Io { dir: path.to_path_buf(), source };
    let names = io.list(path).map_err(failed)?;
    if !names.iter().any(|name| name == FORMAT) {
        let found = names.into_iter().next().unwrap_or_else(|| "nothing".into());
        return Err(DataDirError::Foreign { dir: path.to_path_buf(), found });
    }
    match io.open(&path.join(LOCK), OpenMode::Read) {
        Ok(lock) if lock.try_lock().map_err(failed)? => Ok(ReadLock { _lock: Some(lock) }),
        Ok(_) => Err(DataDirError::Locked { dir: path.to_path_buf() }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(ReadLock { _lock: None }),
        Err(error) => Err(failed(error)),
    }
}

/// Whose folder it is, read without taking it.
///
/// # Errors
/// [`DataDirError::Damaged`] or [`DataDirError::Newer`], what the disk says.
pub fn read_identity(io: &dyn Io, path: &Path) -> Result<Identity, DataDirError> {
    let failed = |source| DataDirError::Io { dir: path.to_path_buf(), source };
    match read_file(io, &path.join(FORMAT), FORMAT_BYTES_MAX).map_err(failed)? {
        Some(bytes) => decode(path, &bytes),
        None => Err(DataDirError::Damaged { file: path.join(FORMAT), reason: "it is missing".into() }),
    }
}

impl std::fmt::Debug for DataDir {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DataDir").field("path", &self.path).field("identity", &*self.identity.lock()).finish()
    }
}

/// A folder without a `FORMAT` file may hold what a crash at birth left, nothing else.
fn check_empty(io: &dyn Io, path: &Path) -> Result<(), DataDirError> {
    let names = io.list(path).map_err(|source| DataDirError::Io { dir: path.to_path_buf(), source })?;
    match names.into_iter().find(|name| name != LOCK && name != "FORMAT.tmp" && name != "lost+found") {
        Some(found) => Err(DataDirError::Foreign { dir: path.to_path_buf(), found }),
        None => Ok(()),
    }
}

fn encode(identity: &Identity) -> String {
    let Identity { node, incarnation, cluster_id } = identity;
    let mut text = format!("{MAGIC}\nversion {FORMAT_VERSION}\nnode {node}\nincarnation {incarnation}\n");
    if let Some(cluster_id) = cluster_id {
        text.push_str(&format!("cluster {cluster_id}\n"));
    }
    let crc = crc32fast::hash(text.as_bytes());
    text.push_str(&format!("crc {crc:08x}\n"));
    text
}

fn decode(dir: &Path, bytes: &[u8]) -> Result<Identity, DataDirError> {
    let damaged = |reason: &str| DataDirError::Damaged { file: dir.join(FORMAT), reason: reason.into() };
    let text = std::str::from_utf8(bytes).map_err(|_| damaged("it is no text"))?;
    let mut lines = text.lines();
    if lines.next() != Some(MAGIC) {
        return Err(damaged("it does not begin like a FORMAT file"));
    }
    // The version comes before the CRC: a newer format may have another one.
    let field = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
    let number = |key: &str| {
        field(key).and_then(|value| value.parse().ok()).ok_or_else(|| damaged(&format!("it has no valid {key}")))
    };
    let version: u32 = number("version")?;
    if version > FORMAT_VERSION {
        return Err(DataDirError::Newer { dir: dir.to_path_buf(), found: version });
    }
    let body = text.rfind("crc ").map(|at| text.split_at(at));
    if body.is_none_or(|(body, crc)| crc != format!("crc {:08x}\n", crc32fast::hash(body.as_bytes()))) {
        return Err(damaged("its checksum does not match"));
    }
    let (node, incarnation) = (NodeId(number("node")?), number("incarnation")?);
    Ok(Identity { node, incarnation, cluster_id: field("cluster").map(str::to_owned) })
}
