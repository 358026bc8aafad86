//! A 64-bit digest of the state, for replicas to be compared at one index (law 6), and the hash it is made with, which
//! tools use for a digest of the log.

use super::{GroupState, key};

const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;
const SEED: u64 = 0xD1B5_4A32_D192_ED03;

/// A fixed hash over bytes: the same on every replica, in every version. Not meant against chosen input.
#[derive(Clone, Copy, Debug)]
pub struct Mix(u64);

impl Default for Mix {
    fn default() -> Mix {
        Mix::new()
    }
}

impl Mix {
    /// The hash of nothing.
    #[must_use]
    pub fn new() -> Mix {
        Mix(SEED)
    }

    /// Adds a number.
    pub fn word(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word) * u128::from(MULTIPLIER);
        self.0 = (product as u64 ^ (product >> 64) as u64).wrapping_add(SEED);
    }

    /// Adds bytes and their count.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u64);
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.word(u64::from_le_bytes(*word));
        }
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            self.word(u64::from_le_bytes(last));
        }
    }

    /// The hash of all that was added, in order.
    #[must_use]
    pub fn finish(mut self) -> u64 {
        self.word(MULTIPLIER);
        self.0
    }
}

impl GroupState {
    /// A digest over the whole ordered state. Equal at equal indexes on all replicas, however the log was split into
    /// runs and whether the replica was restarted in between. Costs a walk over the state.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let mut mix = Mix::new();
        let mut put = |key: Vec<u8>, value: Vec<u8>| {
            mix.bytes(&key);
            mix.bytes(&value);
        };
        self.export_records(&mut put);
        self.export_retention(&mut put);
        // The entries, not the chunks: where chunks begin depends on when this replica was started.
        let mut entry = Vec::new();
        self.window.for_each(|remembered| {
            entry.clear();
            key::window_chunk::push(&mut entry, remembered);
            mix.bytes(&entry);
        });
        mix.finish()
    }
}
