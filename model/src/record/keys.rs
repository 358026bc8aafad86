//! The keys under which a message is found, and what they hash to in an IndexFile.

use super::{RecordView, property};

/// Different keys of one message that are indexed; by those behind, it is not found.
pub const KEYS_PER_MESSAGE_COUNT_MAX: usize = 128;

impl<'a> RecordView<'a> {
    /// The user's keys: the words of the property KEYS, in order, empty ones left out.
    pub fn keys(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.property(property::KEYS).unwrap_or_default().split(' ').filter(|key| !key.is_empty())
    }

    /// The client's message id, if the record has one.
    #[must_use]
    pub fn message_id(&self) -> Option<&'a str> {
        self.property(property::UNIQ_KEY).filter(|id| !id.is_empty())
    }

    /// The hashes of what the message is found by: its id and its keys, in that order, each hash once, at most
    /// [`KEYS_PER_MESSAGE_COUNT_MAX`]. They are added to `hashes`, which is emptied before.
    pub fn key_hashes(&self, hashes: &mut Vec<u32>) {
        hashes.clear();
        for key in self.message_id().into_iter().chain(self.keys()) {
            if hashes.len() == KEYS_PER_MESSAGE_COUNT_MAX {
                return;
            }
            let hash = key_hash(self.topic(), key);
            if !hashes.contains(&hash) {
                hashes.push(hash);
            }
        }
    }
}

/// RocketMQ's hash of a key: Java's `hashCode` of `topic#key`, made positive. Below 2^31.
#[must_use]
pub fn key_hash(topic: &str, key: &str) -> u32 {
    let text = [topic, "#", key];
    let units = text.into_iter().flat_map(str::encode_utf16);
    let hash = units.fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)));
    // The most negative number has no counterpart; Java takes 0.
    hash.checked_abs().unwrap_or(0).unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Record;

    #[test]
    fn hashes_are_those_of_java() {
        assert_eq!(key_hash("a", "b"), 31 * 31 * 97 + 31 * 35 + 98);
        assert_eq!(key_hash("", ""), 35);
        // U+20AC is one UTF-16 unit, U+1F600 two.
        assert_eq!(key_hash("", "\u{20ac}"), 35 * 31 + 0x20ac);
        assert_eq!(key_hash("", "\u{1f600}"), (35 * 31 + 0xd83d) * 31 + 0xde00);
    }

    fn record(properties: &[(&str, &str)]) -> Vec<u8> {
        let host = "10.0.0.1:9".parse().unwrap();
        let record = Record {
            topic: "orders".into(),
            queue_id: 0,
            flag: 0,
            sys_flag: 0,
            born_timestamp: 1,
            born_host: host,
            store_timestamp: 2,
            store_host: host,
            reconsume_times: 0,
            prepared_transaction_offset: 0,
            body: bytes::Bytes::from_static(b"x"),
            properties: properties.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        };
        record.encode().unwrap().to_vec()
    }

    #[test]
    fn a_message_is_found_by_its_id_and_by_each_of_its_keys_once() {
        let bytes = record(&[("KEYS", " a b  a id c "), ("UNIQ_KEY", "id")]);
        let view = RecordView::parse(&bytes).unwrap();
        assert_eq!(view.keys().collect::<Vec<_>>(), ["a", "b", "a", "id", "c"]);
        let mut hashes = vec![7];
        view.key_hashes(&mut hashes);
        assert_eq!(hashes, ["id", "a", "b", "c"].map(|key| key_hash("orders", key)));
        let bytes = record(&[]);
        RecordView::parse(&bytes).unwrap().key_hashes(&mut hashes);
        assert_eq!(hashes, Vec::<u32>::new());
    }

    #[test]
    fn keys_are_bounded() {
        let keys: Vec<String> = (0..500).map(|key| format!("k{key}")).collect();
        let bytes = record(&[("KEYS", &keys.join(" "))]);
        let mut hashes = Vec::new();
        RecordView::parse(&bytes).unwrap().key_hashes(&mut hashes);
        assert_eq!(hashes.len(), KEYS_PER_MESSAGE_COUNT_MAX);
    }
}
