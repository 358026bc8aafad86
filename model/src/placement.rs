//! Which queue takes a message: rendezvous hashing with a hash of our own, so that each node and each version of the
//! program places a key alike.

use crate::ids::QueueId;

/// The queue of `queues` that `key` (a message group, else a message id) belongs to; `None` when there is no queue.
///
/// The choice depends on the set only, not on its order. When a queue leaves the set, only its own keys move.
#[must_use]
pub fn rendezvous(key: &[u8], queues: impl IntoIterator<Item = QueueId>) -> Option<QueueId> {
    let key = hash(key);
    queues.into_iter().max_by_key(|queue| (weight(key, *queue), std::cmp::Reverse(*queue)))
}

fn weight(key: u64, queue: QueueId) -> u64 {
    mix(key ^ mix(u64::from(queue.0).wrapping_add(GOLDEN)))
}

/// FNV-1a, finished by a mixer since its high bits are weak on short keys.
fn hash(bytes: &[u8]) -> u64 {
    const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    mix(bytes.iter().fold(OFFSET_BASIS, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME)))
}

/// 2^64 divided by the golden ratio.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finalizer of SplitMix64: a bijection in which each input bit changes each output bit with probability one half.
fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn queues(count: u32) -> impl Iterator<Item = QueueId> + Clone {
        (0..count).map(QueueId)
    }

    #[test]
    fn no_queue_no_choice() {
        assert_eq!(rendezvous(b"key", queues(0)), None);
    }

    /// These must never change: messages of one group would move to another queue on an upgrade.
    #[test]
    fn choices_are_fixed() {
        let chosen: Vec<u32> =
            ["", "a", "order-1", "order-2", "order-3", "0156F7E71C361B21BC024CCDBE00000000", "グループ"]
                .iter()
                .map(|key| rendezvous(key.as_bytes(), queues(8)).unwrap().0)
                .collect();
        assert_eq!(chosen, FIXED);
    }
    const FIXED: [u32; 7] = [0, 1, 5, 4, 2, 5, 1];

    #[test]
    fn keys_spread_evenly() {
        let mut counts = [0u32; 8];
        for key in 0..80_000u32 {
            let queue = rendezvous(format!("key-{key}").as_bytes(), queues(8)).unwrap();
            counts[queue.0 as usize] += 1;
        }
        assert!(counts.iter().all(|count| (9_500..10_500).contains(count)), "{counts:?}");
    }

    proptest! {
        #[test]
        fn order_of_the_set_does_not_matter(key: Vec<u8>, count in 1u32..40) {
            let forwards = rendezvous(&key, queues(count));
            let backwards = rendezvous(&key, (0..count).rev().map(QueueId));
            prop_assert_eq!(forwards, backwards);
        }

        #[test]
        fn only_keys_of_the_removed_queue_move(key: Vec<u8>, count in 2u32..40, removed: prop::sample::Index) {
            let removed = QueueId(removed.index(count as usize) as u32);
            let before = rendezvous(&key, queues(count));
            let after = rendezvous(&key, queues(count).filter(|queue| *queue != removed));
            if before != Some(removed) {
                prop_assert_eq!(before, after);
            }
        }
    }
}
