//! The stored-once window: which message ids were stored lately, and where (architecture §7.5).
//!
//! A ring of chunks with one 48-byte slot per message id and the packed ids beside them, and a hash table from (topic,
//! id) to the slot's number. Message ids are usually hexadecimal and are kept at half their length. About 80 MiB at a
//! million ids of 34 digits, and nothing while empty.
//!
//! What is in the window is decided by the log alone: an id leaves it by log time, by count, or by bytes, whichever
//! comes first. The table's order is never looked at.

use super::changes::Changes;
use super::digest::Mix;
use super::key::{window_chunk, window_from::WindowFrom};
use super::limits::Limits;
use crate::ids::{PhysicalOffset, QueueId, QueueOffset, Timestamp, TopicUid};
use hashbrown::HashTable;
use std::collections::VecDeque;

/// Slots of a chunk, at most; a replay begins with a chunk, so a small window has small ones.
const CHUNK_COUNT_MAX: usize = 4096;
/// Slots of a chunk, at least.
const CHUNK_COUNT_MIN: usize = 16;
/// Chunks of a full window, at least.
const CHUNKS_COUNT: usize = 64;
/// Bytes of a message id, as the log's one-byte length allows.
const ID_BYTES_MAX: usize = 255;

/// The message id as it came.
const PACKING_PLAIN: u8 = 0;
/// The message id is an even number of upper-case hexadecimal digits; two of them are one byte.
const PACKING_HEX: u8 = 1;

/// Where a message was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Receipt {
    pub(super) queue: QueueId,
    pub(super) offset: QueueOffset,
    pub(super) physical: PhysicalOffset,
}

/// A stored-once key: topic and packed message id.
#[derive(Clone, Debug)]
pub(super) struct MessageKey<'a> {
    topic: TopicUid,
    packing: u8,
    packed: Packed<'a>,
}

#[derive(Clone, Debug)]
enum Packed<'a> {
    Borrowed(&'a [u8]),
    Inline { bytes: [u8; ID_BYTES_MAX / 2], len: u8 },
}

/// One entry of the window.
#[derive(Clone, Debug)]
pub(super) struct Remembered<'a> {
    pub(super) key: MessageKey<'a>,
    pub(super) receipt: Receipt,
    pub(super) at: Timestamp,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    topic: TopicUid,
    offset: QueueOffset,
    physical: PhysicalOffset,
    at: Timestamp,
    queue: QueueId,
    /// Where the packed id begins in the chunk's `ids`.
    id_at: u32,
    id_len: u8,
    packing: u8,
}

#[derive(Clone, Debug)]
struct Chunk {
    /// Log index of the entry that stored the first slot.
    first_index: u64,
    slots: Vec<Slot>,
    ids: Vec<u8>,
}

/// How far back the window went at the checkpoint that was loaded.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Replay {
    pub(super) clock: Timestamp,
    pub(super) floor: PhysicalOffset,
}

/// See the module's header.
#[derive(Clone, Debug)]
pub(super) struct StoredOnce {
    limits: Limits,
    /// Slots of a chunk.
    chunk_count: usize,
    chunks: VecDeque<Chunk>,
    /// Slots at the front of the first chunk that have left the window.
    gone: usize,
    /// Number of the first chunk's first slot; slot numbers wrap around.
    base: u32,
    len: usize,
    id_bytes: usize,
    /// Hash and slot number. The hash is kept so that growing the table does not touch the slots.
    table: HashTable<(u32, u32)>,
    /// What refills the window after a load: the log clock there, and where the first record lies that was in it.
    pub(super) replay: Replay,
    /// Keys of window chunks in the state store (from an installed snapshot) with the number behind their last slot.
    pairs: VecDeque<(Vec<u8>, u32)>,
}

impl<'a> MessageKey<'a> {
    /// The key of a message id; `None` when it is empty, that is never deduplicated.
    pub(super) fn new(topic: TopicUid, id: &'a [u8]) -> Option<MessageKey<'a>> {
        assert!(id.len() <= ID_BYTES_MAX, "the log has one byte for the length of a message id");
        if id.is_empty() {
            return None;
        }
        let key = match pack_hex(id) {
            Some(packed) => MessageKey { topic, packing: PACKING_HEX, packed },
            None => MessageKey { topic, packing: PACKING_PLAIN, packed: Packed::Borrowed(id) },
        };
        Some(key)
    }

    pub(super) fn from_packed(topic: TopicUid, packing: u8, packed: &'a [u8]) -> Option<MessageKey<'a>> {
        let known = packing == PACKING_PLAIN || packing == PACKING_HEX;
        (known && !packed.is_empty()).then_some(MessageKey { topic, packing, packed: Packed::Borrowed(packed) })
    }

    pub(super) fn topic(&self) -> TopicUid {
        self.topic
    }

    pub(super) fn packing(&self) -> u8 {
        self.packing
    }

    pub(super) fn packed(&self) -> &[u8] {
        match &self.packed {
            Packed::Borrowed(bytes) => bytes,
            Packed::Inline { bytes, len } => &bytes[..usize::from(*len)],
        }
    }

    fn hash(&self) -> u32 {
        hash(self.topic, self.packing, self.packed())
    }
}

impl StoredOnce {
    pub(super) fn new(limits: Limits) -> StoredOnce {
        StoredOnce {
            limits,
            chunk_count: (limits.stored_once_count_max / CHUNKS_COUNT).clamp(CHUNK_COUNT_MIN, CHUNK_COUNT_MAX),
            chunks: VecDeque::new(),
            gone: 0,
            base: 0,
            len: 0,
            id_bytes: 0,
            table: HashTable::new(),
            replay: Replay::default(),
            pairs: VecDeque::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Where the message was stored, if the window remembers it.
    pub(super) fn get(&self, key: &MessageKey<'_>) -> Option<Receipt> {
        let number = self.find(key, key.hash())?;
        let (_, slot) = self.slot(number);
        Some(Receipt { queue: slot.queue, offset: slot.offset, physical: slot.physical })
    }

    /// Remembers a message that is not in the window, and forgets what no longer has room.
    pub(super) fn insert(&mut self, key: &MessageKey<'_>, receipt: Receipt, index: u64, now: Timestamp) {
        let number = self.push(key, receipt, index, now);
        let hash = key.hash();
        self.table.insert_unique(spread(hash), (hash, number), |(hash, _)| spread(*hash));
        while self.len > self.limits.stored_once_count_max || self.id_bytes > self.limits.stored_once_id_bytes_max {
            self.pop_front();
        }
    }

    /// As [`StoredOnce::insert`] for a message that was stored before the checkpoint that was loaded, whose clock is
    /// `now`: it may be in the window already, or have left it before.
    pub(super) fn remember(&mut self, entry: &Remembered<'_>, index: u64, now: Timestamp) {
        if entry.receipt.physical < self.replay.floor || self.too_old(entry.at, now) {
            return;
        }
        if self.find(&entry.key, entry.key.hash()).is_none() {
            self.insert(&entry.key, entry.receipt, index, entry.at);
        }
    }

    /// Forgets a topic that is deleted, so that what is remembered of others does not depend on whether this replica
    /// was restarted since (a replay skips the topic). Costs a walk over the window.
    pub(super) fn forget_topic(&mut self, topic: TopicUid) {
        let mut found = false;
        self.for_each(|entry| found |= entry.key.topic == topic);
        if !found {
            return;
        }
        let empty = StoredOnce { replay: self.replay, ..StoredOnce::new(self.limits) };
        let StoredOnce { mut chunks, mut gone, base, mut pairs, .. } = std::mem::replace(self, empty);
        let mut number = base.wrapping_add(gone as u32);
        // Chunk by chunk, so that the old window goes as the new one comes.
        while let Some(chunk) = chunks.pop_front() {
            for slot in &chunk.slots[gone..] {
                while pairs.front().is_some_and(|(_, end)| is_behind(number, *end)) {
                    let end = self.end();
                    self.pairs.extend(pairs.pop_front().map(|(key, _)| (key, end)));
                }
                if slot.topic != topic {
                    let entry = chunk.remembered(slot);
                    self.insert(&entry.key, entry.receipt, chunk.first_index, entry.at);
                }
                number = number.wrapping_add(1);
            }
            gone = 0;
        }
        let end = self.end();
        self.pairs.extend(pairs.into_iter().map(|(key, _)| (key, end)));
    }

    /// Forgets what is older than the window.
    pub(super) fn evict(&mut self, now: Timestamp) {
        while let Some(slot) = self.front() {
            if !self.too_old(slot.at, now) {
                break;
            }
            self.pop_front();
        }
    }

    /// Where a replay has to begin to refill the window as it is.
    pub(super) fn replay_from(&self) -> WindowFrom {
        match (self.chunks.front(), self.front()) {
            (Some(chunk), Some(slot)) => {
                WindowFrom { index: chunk.first_index, clock: chunk.slots[0].at, floor: slot.physical }
            }
            _ => WindowFrom::NOTHING,
        }
    }

    /// Takes a chunk of an installed snapshot from the state store.
    pub(super) fn load_chunk(&mut self, key: &[u8], index: u64, entries: &[Remembered<'_>], now: Timestamp) {
        for entry in entries {
            self.remember(entry, index, now);
        }
        self.pairs.push_back((key.to_vec(), self.end()));
    }

    /// Deletes from the state store the chunks of an installed snapshot that the window has moved past.
    pub(super) fn drop_outlived_pairs(&mut self, changes: &mut Changes) {
        let first = self.end().wrapping_sub(self.len as u32);
        while self.pairs.front().is_some_and(|(_, end)| is_behind(first, *end)) {
            if let Some((key, _)) = self.pairs.pop_front() {
                changes.delete(key);
            }
        }
    }

    /// Calls `visit` with each entry, oldest first.
    pub(super) fn for_each(&self, mut visit: impl FnMut(&Remembered<'_>)) {
        let mut gone = self.gone;
        for chunk in &self.chunks {
            for slot in &chunk.slots[gone..] {
                visit(&chunk.remembered(slot));
            }
            gone = 0;
        }
    }

    /// The window as pairs for a snapshot.
    pub(super) fn export(&self, put: &mut dyn FnMut(Vec<u8>, Vec<u8>)) {
        let mut gone = self.gone;
        for (number, chunk) in (0u64..).zip(&self.chunks) {
            let mut value = window_chunk::value(chunk.first_index);
            for slot in &chunk.slots[gone..] {
                window_chunk::push(&mut value, &chunk.remembered(slot));
            }
            put(window_chunk::key(number), value);
            gone = 0;
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let chunk = |c: &Chunk| size_of::<Chunk>() + c.slots.capacity() * size_of::<Slot>() + c.ids.capacity();
        self.table.allocation_size() + self.chunks.iter().map(chunk).sum::<usize>()
    }

    fn too_old(&self, at: Timestamp, now: Timestamp) -> bool {
        now.ms_since(at) >= self.limits.stored_once_ms
    }

    /// The number that the next slot gets.
    fn end(&self) -> u32 {
        self.base.wrapping_add((self.gone + self.len) as u32)
    }

    fn front(&self) -> Option<&Slot> {
        if self.len == 0 { None } else { self.chunks.front()?.slots.get(self.gone) }
    }

    fn slot(&self, number: u32) -> (&Chunk, &Slot) {
        let at = number.wrapping_sub(self.base) as usize;
        let chunk = &self.chunks[at / self.chunk_count];
        (chunk, &chunk.slots[at % self.chunk_count])
    }

    fn find(&self, key: &MessageKey<'_>, hash: u32) -> Option<u32> {
        let same = |number: u32| {
            let (chunk, slot) = self.slot(number);
            slot.topic == key.topic && slot.packing == key.packing && chunk.id(slot) == key.packed()
        };
        self.table.find(spread(hash), |(h, number)| *h == hash && same(*number)).map(|(_, number)| *number)
    }

    fn push(&mut self, key: &MessageKey<'_>, receipt: Receipt, index: u64, at: Timestamp) -> u32 {
        let number = self.end();
        if self.chunks.back().is_none_or(|chunk| chunk.slots.len() == self.chunk_count) {
            if let Some(full) = self.chunks.back_mut() {
                full.ids.shrink_to_fit();
            }
            self.chunks.push_back(Chunk {
                first_index: index,
                slots: Vec::with_capacity(self.chunk_count),
                ids: Vec::new(),
            });
        }
        if let Some(chunk) = self.chunks.back_mut() {
            // A chunk has at most 4096 ids of 255 bytes, and a packed id fits a byte's length.
            let (id_at, id_len) = (chunk.ids.len() as u32, key.packed().len() as u8);
            chunk.ids.extend_from_slice(key.packed());
            let Receipt { queue, offset, physical } = receipt;
            let (topic, packing) = (key.topic, key.packing);
            chunk.slots.push(Slot { topic, offset, physical, at, queue, id_at, id_len, packing });
            self.len += 1;
            self.id_bytes += usize::from(id_len);
        }
        number
    }

    fn pop_front(&mut self) {
        let Some(chunk) = self.chunks.front() else { return };
        let slot = chunk.slots[self.gone];
        let hash = hash(slot.topic, slot.packing, chunk.id(&slot));
        self.unlink(hash, self.base.wrapping_add(self.gone as u32));
        self.gone += 1;
        self.len -= 1;
        self.id_bytes -= usize::from(slot.id_len);
        if self.gone == self.chunk_count {
            self.chunks.pop_front();
            self.gone = 0;
            self.base = self.base.wrapping_add(self.chunk_count as u32);
        } else if self.len == 0 {
            // The last chunk is only partly used: start over, so that an idle group holds no memory.
            self.base = self.end();
            self.gone = 0;
            self.chunks.clear();
        }
    }

    fn unlink(&mut self, hash: u32, number: u32) {
        if let Ok(entry) = self.table.find_entry(spread(hash), |(_, n)| *n == number) {
            entry.remove();
        }
    }
}

impl Chunk {
    fn id(&self, slot: &Slot) -> &[u8] {
        let at = slot.id_at as usize;
        &self.ids[at..at + usize::from(slot.id_len)]
    }

    fn remembered(&self, slot: &Slot) -> Remembered<'_> {
        let key = MessageKey { topic: slot.topic, packing: slot.packing, packed: Packed::Borrowed(self.id(slot)) };
        let receipt = Receipt { queue: slot.queue, offset: slot.offset, physical: slot.physical };
        Remembered { key, receipt, at: slot.at }
    }
}

/// Whether slot number `a` is `b` or behind it. Numbers wrap, so they are compared by their distance; the window is far
/// shorter than half the circle.
fn is_behind(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) < u32::MAX / 2
}

/// Two digits a byte, when all are upper-case hexadecimal digits: then packing loses nothing.
fn pack_hex<'a>(id: &[u8]) -> Option<Packed<'a>> {
    let (pairs, rest) = id.as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    let mut bytes = [0; ID_BYTES_MAX / 2];
    for (packed, [high, low]) in bytes.iter_mut().zip(pairs) {
        *packed = hex_digit(*high)? << 4 | hex_digit(*low)?;
    }
    Some(Packed::Inline { bytes, len: pairs.len() as u8 })
}

fn hex_digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

fn hash(topic: TopicUid, packing: u8, packed: &[u8]) -> u32 {
    let mut mix = Mix::new();
    mix.word(topic.0 ^ u64::from(packing) << 63);
    mix.bytes(packed);
    (mix.finish() >> 32) as u32
}

/// A 64-bit hash for the table from the 32 bits that are kept: it takes the bucket from the low bits and the tag from
/// the highest seven.
fn spread(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}
