//! Message ids in the form of the official SDKs.
//!
//! ```text
//! | 0x01 | node 6 | process id, low 2 bytes | seconds since 2021-01-01T00:00:00Z u32 | sequence u32 |   34 hex digits
//! ```

use std::fmt::Write;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

const VERSION: u8 = 1;
/// 2021-01-01T00:00:00Z in seconds since the Unix epoch.
const EPOCH_SECONDS: u64 = 1_609_459_200;

/// Makes ids that are unique: `node` is random, and the sequence does not repeat within a second.
#[derive(Debug)]
pub struct MessageIds {
    node: [u8; 6],
    process: u16,
    sequence: AtomicU32,
}

impl Default for MessageIds {
    fn default() -> MessageIds {
        let mut node: [u8; 6] = rand::random();
        // Marks a made-up hardware address: locally administered, not a real card's.
        node[0] |= 0b11;
        MessageIds { node, process: std::process::id() as u16, sequence: AtomicU32::new(0) }
    }
}

impl MessageIds {
    /// The next id: 34 upper-case hex digits.
    #[must_use]
    pub fn next_id(&self) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let seconds = now.saturating_sub(EPOCH_SECONDS) as u32;
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed);
        let mut bytes = [0u8; 17];
        bytes[0] = VERSION;
        bytes[1..7].copy_from_slice(&self.node);
        bytes[7..9].copy_from_slice(&self.process.to_be_bytes());
        bytes[9..13].copy_from_slice(&seconds.to_be_bytes());
        bytes[13..17].copy_from_slice(&sequence.to_be_bytes());
        let mut id = String::with_capacity(34);
        for byte in bytes {
            // Writing to a String cannot fail.
            let _ = write!(id, "{byte:02X}");
        }
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn ids_have_the_form_and_never_repeat() {
        let ids = MessageIds::default();
        let made: BTreeSet<String> = (0..1000).map(|_| ids.next_id()).collect();
        assert_eq!(made.len(), 1000);
        for id in made {
            assert_eq!(id.len(), 34);
            assert!(id.starts_with("01") && id.bytes().all(|b| b.is_ascii_digit() || (b'A'..=b'F').contains(&b)));
        }
        assert_ne!(MessageIds::default().next_id()[..14], ids.next_id()[..14]);
    }
}
