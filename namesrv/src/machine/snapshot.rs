//! The whole state as bytes, and back; also from the records of the local state store.
//!
//! ```text
//! | version u8 = 1 | protobuf: number_last, full change |
//! ```

use super::MetaState;
use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;
use raftmq_model::meta::{MetaChange, MetaRecord};

/// The first byte of a snapshot.
pub const SNAPSHOT_VERSION: u8 = 1;

/// Why bytes are no snapshot of this version.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// Empty, or written by a newer version.
    #[error("the snapshot of the meta group has version {0:?}, this program reads version {SNAPSHOT_VERSION}")]
    Version(Option<u8>),
    /// Not what [`MetaState::encode_snapshot`] wrote.
    #[error("the snapshot of the meta group is damaged: {0}")]
    Damaged(String),
}

#[derive(Clone, PartialEq, prost::Message)]
struct Snapshot {
    #[prost(uint64, tag = "1")]
    number_last: u64,
    #[prost(message, optional, tag = "2")]
    change: Option<MetaChange>,
}

impl MetaState {
    /// The state as bytes.
    #[must_use]
    pub fn encode_snapshot(&self) -> Bytes {
        let snapshot = Snapshot { number_last: self.number_last, change: Some(self.full_change()) };
        let mut bytes = BytesMut::with_capacity(1 + snapshot.encoded_len());
        bytes.put_u8(SNAPSHOT_VERSION);
        bytes.put_slice(&snapshot.encode_to_vec());
        bytes.freeze()
    }

    /// The inverse of [`MetaState::encode_snapshot`].
    pub fn decode_snapshot(bytes: &[u8]) -> Result<MetaState, SnapshotError> {
        let Some((&SNAPSHOT_VERSION, body)) = bytes.split_first() else {
            return Err(SnapshotError::Version(bytes.first().copied()));
        };
        let snapshot = Snapshot::decode(body).map_err(|error| SnapshotError::Damaged(error.to_string()))?;
        let Some(change) = snapshot.change else {
            return Err(SnapshotError::Damaged("it holds no state".to_owned()));
        };
        let mut records = Vec::with_capacity(change.records.len());
        for boxed in change.records {
            let record = boxed.record.ok_or_else(|| SnapshotError::Damaged("it holds an empty record".to_owned()))?;
            records.push(record);
        }
        Ok(MetaState::from_records(change.cluster_id, change.revision, snapshot.number_last, records))
    }

    /// Rebuilds a state from its parts.
    #[must_use]
    pub fn from_records(
        cluster_id: String,
        revision: u64,
        number_last: u64,
        records: impl IntoIterator<Item = MetaRecord>,
    ) -> MetaState {
        let mut state = MetaState { cluster_id, revision, number_last, ..MetaState::default() };
        for record in records {
            state.absorb(&record);
        }
        state
    }
}
