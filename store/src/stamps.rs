//! Stamps: how far the disk of each node has come, so that an older copy of one can be told from it.
//!
//! A node's stamp grows with time, on its own disk first, and then the other nodes are told. So what another node has heard
//! of is never ahead of the disk, unless an older copy was put in its place. One small file has the node's own stamp and
//! what it heard of the others, replaced in one step:
//!
//! ```text
//! <dir>/stamps
//!  0 magic u32 | 4 version u8 | 5 zero u8 x 3 | 8 rows u32
//! 12 for each node, ascending: node u32 | incarnation u32 | stamp u64
//!    CRC-32 over all before, u32
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use raftmq_model::ids::{NodeId, ReplicaId};

use crate::io::{Io, read_file, replace_file};

const MAGIC: u32 = 0x524d_5154; // "RMQT"
const VERSION: u8 = 1;
const HEADER_BYTES: usize = 12;
const ROW_BYTES: usize = 16;
const CRC_BYTES: usize = 4;
/// Nodes whose stamps are kept, the own one among them: more than a cluster can have.
pub const STAMPS_COUNT_MAX: usize = 256;
const FILE_BYTES_MAX: u64 = (HEADER_BYTES + STAMPS_COUNT_MAX * ROW_BYTES + CRC_BYTES) as u64;

/// How far the disk of one life of a node had come at a moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp {
    /// The node, and which life of it.
    pub replica: ReplicaId,
    /// Grows with time; from 1.
    pub stamp: u64,
}

/// Why stamps cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum StampsError {
    /// The file is damaged. What it said is not known, so it cannot be taken for new.
    #[error("{} is damaged: {reason}", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// What was found.
        reason: String,
    },
    /// A newer program wrote it.
    #[error("{} has version {found}, and this program knows up to {VERSION}: use a newer one", file.display())]
    Newer {
        /// The file.
        file: PathBuf,
        /// Its version.
        found: u8,
    },
    /// The disk says no.
    #[error("{} cannot be read: {source}", file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

/// The stamps that one node knows, its own among them. Everything it says is durable.
pub struct Stamps {
    io: Arc<dyn Io>,
    file: PathBuf,
    own: ReplicaId,
    rows: Rows,
}

/// Of each node the latest life that was heard of, and its stamp.
type Rows = BTreeMap<NodeId, (u32, u64)>;

impl Stamps {
    /// Reads the stamps in `dir`, the folder of `own`. Where there are none, none are known and the own one is 0.
    ///
    /// # Errors
    /// See [`StampsError`].
    pub fn open(io: Arc<dyn Io>, dir: &Path, own: ReplicaId) -> Result<Stamps, StampsError> {
        let file = dir.join("stamps");
        let bytes = read_file(&*io, &file, FILE_BYTES_MAX);
        let rows = match bytes.map_err(|source| StampsError::Io { file: file.clone(), source })? {
            Some(bytes) => decode(&file, &bytes)?,
            None => Rows::new(),
        };
        Ok(Stamps { io, file, own, rows })
    }

    /// The file.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The stamp of this node; 0 when it has none yet.
    #[must_use]
    pub fn own(&self) -> u64 {
        self.of(self.own)
    }

    /// The last stamp that was heard of for one life of a node; 0: none.
    #[must_use]
    pub fn of(&self, replica: ReplicaId) -> u64 {
        let known = self.rows.get(&replica.node).filter(|(incarnation, _)| *incarnation == replica.incarnation);
        known.map_or(0, |(_, stamp)| *stamp)
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> Vec<Stamp> {
        let rows = self.rows.iter();
        rows.map(|(node, (incarnation, stamp))| Stamp {
            replica: ReplicaId { node: *node, incarnation: *incarnation },
            stamp: *stamp,
        })
        .collect()
    }

    /// Lets the own stamp grow by one, durably, and answers it.
    ///
    /// # Errors
    /// What the disk says; final.
    pub fn advance(&mut self) -> std::io::Result<u64> {
        let next = self.own().saturating_add(1);
        let mut rows = self.rows.clone();
        rows.insert(self.own.node, (self.own.incarnation, next));
        self.save(rows)?;
        Ok(next)
    }

    /// Keeps what is new in `heard` about other nodes, durable when it returns.
    ///
    /// # Errors
    /// What the disk says; final.
    pub fn learn(&mut self, heard: &[Stamp]) -> std::io::Result<()> {
        match self.with(heard) {
            Some(rows) => self.save(rows),
            None => Ok(()),
        }
    }

    /// The rows with what is new in `heard`; `None` when nothing is.
    fn with(&self, heard: &[Stamp]) -> Option<Rows> {
        let mut rows = None;
        for Stamp { replica: ReplicaId { node, incarnation }, stamp } in heard.iter().copied() {
            let now = rows.as_ref().unwrap_or(&self.rows);
            let fits = now.len() < STAMPS_COUNT_MAX || now.contains_key(&node);
            let later = now.get(&node).is_none_or(|known| (incarnation, stamp) > *known);
            if node != self.own.node && stamp > 0 && fits && later {
                rows.get_or_insert_with(|| self.rows.clone()).insert(node, (incarnation, stamp));
            }
        }
        rows
    }

    fn save(&mut self, rows: Rows) -> std::io::Result<()> {
        for (node, known) in &self.rows {
            assert!(rows.get(node).is_some_and(|row| row >= known), "a stamp never goes back");
        }
        replace_file(&*self.io, &self.file, &encode(&rows))?;
        self.rows = rows;
        Ok(())
    }
}

fn encode(rows: &Rows) -> Vec<u8> {
    assert!(rows.len() <= STAMPS_COUNT_MAX, "stamps are bounded by the number of nodes");
    let mut bytes = Vec::with_capacity(HEADER_BYTES + rows.len() * ROW_BYTES + CRC_BYTES);
    bytes.extend_from_slice(&MAGIC.to_be_bytes());
    bytes.extend_from_slice(&[VERSION, 0, 0, 0]);
    bytes.extend_from_slice(&(rows.len() as u32).to_be_bytes());
    for (node, (incarnation, stamp)) in rows {
        bytes.extend_from_slice(&node.0.to_be_bytes());
        bytes.extend_from_slice(&incarnation.to_be_bytes());
        bytes.extend_from_slice(&stamp.to_be_bytes());
    }
    bytes.extend_from_slice(&crc32fast::hash(&bytes).to_be_bytes());
    bytes
}

fn decode(file: &Path, bytes: &[u8]) -> Result<Rows, StampsError> {
    let damaged = |reason: &str| StampsError::Damaged { file: file.to_path_buf(), reason: reason.into() };
    let body = bytes.len().checked_sub(CRC_BYTES).and_then(|at| bytes.split_at_checked(at));
    let (body, crc) = body.filter(|(body, _)| body.len() >= HEADER_BYTES).ok_or_else(|| damaged("it is cut off"))?;
    let number = |bytes: &[u8]| bytes.iter().fold(0, |value: u64, byte| value << 8 | u64::from(*byte));
    if body[0..4] != MAGIC.to_be_bytes() {
        return Err(damaged("it does not begin as a file of stamps"));
    }
    if crc != crc32fast::hash(body).to_be_bytes() {
        return Err(damaged("its checksum does not match"));
    }
    if body[4] > VERSION {
        return Err(StampsError::Newer { file: file.to_path_buf(), found: body[4] });
    }
    let rows = &body[HEADER_BYTES..];
    if body[4] != VERSION || rows.len() as u64 != number(&body[8..12]) * ROW_BYTES as u64 {
        return Err(damaged("its length is another one than it says"));
    }
    let row = |row: &[u8]| (NodeId(number(&row[0..4]) as u32), (number(&row[4..8]) as u32, number(&row[8..16])));
    Ok(rows.chunks_exact(ROW_BYTES).map(row).collect())
}
