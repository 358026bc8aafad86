//! The file beside a replica that says how it was placed, so that it is opened at a start without the meta group.
//!
//! ```text
//! <data>/groups/<id>/placement      | BrokerGroupRecord (protobuf) | 0x7D | CRC u32 little-endian over the record |
//! ```
//! The checksum is a field of its own (15, fixed32) to a reader of the record, which passes it over: files of before have none.

use prost::Message;
use raftmq_model::meta::BrokerGroupRecord;

/// A placement file is not longer.
pub(super) const PLACEMENT_BYTES_MAX: u64 = 64 * 1024;
/// Key of the field 15, fixed32.
const CRC_KEY: u8 = 15 << 3 | 5;
/// Key and checksum.
const CRC_BYTES: usize = 5;

pub(super) fn encode(record: &BrokerGroupRecord) -> Vec<u8> {
    let mut bytes = record.encode_to_vec();
    let crc = crc32fast::hash(&bytes);
    bytes.push(CRC_KEY);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes
}

/// The record in the placement file of a group's folder; `None` when the file is damaged, or another group's.
#[must_use]
pub fn decode(bytes: &[u8], group: u32) -> Option<BrokerGroupRecord> {
    let record = match bytes.split_last_chunk::<CRC_BYTES>() {
        Some((record, [CRC_KEY, crc @ ..])) if crc32fast::hash(record) == u32::from_le_bytes(*crc) => {
            BrokerGroupRecord::decode(record).ok()
        }
        // Without a checksum there is nothing that is not the record's.
        _ => BrokerGroupRecord::decode(bytes).ok().filter(|record| record.encode_to_vec() == bytes),
    };
    record.filter(|record| record.id == group && !record.replicas.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> BrokerGroupRecord {
        let replicas = vec![1 << 32 | 1, 2 << 32 | 1, 3 << 32 | 1];
        BrokerGroupRecord { id: 1, name: "broker-1".to_owned(), replicas, leader_node: 2, leader_term: 7 }
    }

    #[test]
    fn two_flipped_bits_are_found_wherever_they_are() {
        let whole = encode(&record());
        assert_eq!(decode(&whole, 1), Some(record()));
        assert_eq!(decode(&whole, 2), None, "another folder's");
        for first in 0..whole.len() * 8 {
            for second in first + 1..whole.len() * 8 {
                let mut flipped = whole.clone();
                [first, second].iter().for_each(|bit| flipped[bit / 8] ^= 1 << (bit % 8));
                assert_eq!(decode(&flipped, 1), None, "bits {first} and {second}");
            }
        }
    }

    #[test]
    fn what_is_cut_or_older_is_told_apart() {
        let whole = encode(&record());
        let old = record().encode_to_vec();
        assert_eq!(decode(&old, 1), Some(record()), "a file of before has no checksum");
        for len in (0..whole.len()).filter(|len| *len != old.len()) {
            assert!(decode(&whole[..len], 1).is_none_or(|cut| cut != record()), "cut to {len}");
        }
        // Who knows no checksum reads the record.
        assert_eq!(BrokerGroupRecord::decode(whole.as_slice()).unwrap(), record());
    }
}
