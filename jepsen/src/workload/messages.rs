//! The messages of a run: each body names its sender and its number; some are large, and some travel in batches.

use raftmq_client::Message;

/// Of so many messages one has a large body.
const LARGE_ONE_OF: u64 = 32;
/// Of so many sends one is a batch.
const BATCH_ONE_OF: u64 = 8;
const BATCH_COUNT_MAX: u64 = 8;
/// A longer body is written into histories as its beginning, its length and its checksum.
const WHOLE_BYTES_MAX: usize = 64;

/// Property that names a message's run.
pub(super) const RUN_PROPERTY: &str = "run";

/// How many messages the send has that begins with a number.
pub(super) fn batch_count(number: u64) -> u64 {
    if number % BATCH_ONE_OF == BATCH_ONE_OF - 1 { 2 + number / BATCH_ONE_OF % (BATCH_COUNT_MAX - 1) } else { 1 }
}

/// The body of a sender's message; a large one has up to `body_bytes_max`.
pub(super) fn body(process: u32, number: u64, body_bytes_max: usize) -> Vec<u8> {
    let mut body = format!("{process}/{number}").into_bytes();
    if body_bytes_max > body.len() && number % LARGE_ONE_OF == LARGE_ONE_OF - 1 {
        // Another length each time, from a few bytes to the largest.
        let len = (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 16) as usize % (body_bytes_max - body.len());
        let salt = number ^ u64::from(process);
        body.push(b' ');
        body.extend((0..len as u64).map(|at| (at ^ salt).wrapping_mul(0x2545_F491_4F6C_DD1D) as u8));
    }
    body
}

/// The body as it stands in histories: two bodies that differ differ there too.
pub(super) fn summary(body: &[u8]) -> String {
    if body.len() <= WHOLE_BYTES_MAX
        && let Ok(text) = std::str::from_utf8(body)
    {
        return text.to_owned();
    }
    let name = body.split(|byte| *byte == b' ').next().unwrap_or_default();
    let name = String::from_utf8_lossy(&name[..name.len().min(WHOLE_BYTES_MAX)]);
    format!("{name} and {} bytes of checksum {:08x}", body.len(), crc32fast::hash(body))
}

/// A message of a run.
pub(super) fn message(topic: &str, run: &str, id: &str, body: Vec<u8>) -> Message {
    Message::new(topic, body).with_message_id(id).property(RUN_PROPERTY, run)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_differ_and_so_do_their_summaries() {
        let bodies: std::collections::BTreeSet<String> =
            (0..500).flat_map(|number| [1, 2].map(|process| summary(&body(process, number, 4_096)))).collect();
        assert_eq!(bodies.len(), 1_000);
        let mut large = body(1, LARGE_ONE_OF - 1, 4_096);
        let before = summary(&large);
        *large.last_mut().unwrap() ^= 1;
        assert_ne!(summary(&large), before, "one bit");
        assert!((0..500).all(|number| body(1, number, 4_096).len() <= 4_096));
    }

    #[test]
    fn one_send_of_eight_is_a_batch() {
        let counts: Vec<u64> = (0..64).map(batch_count).collect();
        assert_eq!(counts.iter().filter(|count| **count > 1).count(), 8);
        assert!(counts.iter().all(|count| (1..=BATCH_COUNT_MAX).contains(count)));
    }
}
