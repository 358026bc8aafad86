//! Where each entry lies: 12 bytes an entry, terms as runs.

use std::collections::VecDeque;

use super::EntryId;
use crate::frame::{EntryKind, HEADER_BYTES, PAYLOAD_BYTES_MAX, frame_bytes};

const KIND_SHIFT: u32 = 30;
const _: () = assert!(PAYLOAD_BYTES_MAX < 1 << KIND_SHIFT);

/// One entry's place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) term: u64,
    pub(crate) index: u64,
    pub(crate) kind: EntryKind,
    /// Physical offset of the frame.
    pub(crate) offset: u64,
    pub(crate) payload_bytes: u32,
}

impl Place {
    pub(crate) fn end(&self) -> u64 {
        self.offset + frame_bytes(u64::from(self.payload_bytes))
    }

    pub(crate) fn payload_offset(&self) -> u64 {
        self.offset + HEADER_BYTES as u64
    }
}

/// The entries from `first` on, without gaps.
#[derive(Default)]
pub(super) struct EntryIndex {
    first: u64,
    offsets: VecDeque<u64>,
    /// Kind in the upper two bits, payload bytes below.
    sizes: VecDeque<u32>,
    /// (first index, term), ascending in both.
    runs: VecDeque<(u64, u64)>,
}

impl EntryIndex {
    /// An empty index whose next entry has the index `first`.
    pub(super) fn starting_at(first: u64) -> EntryIndex {
        EntryIndex { first, ..EntryIndex::default() }
    }

    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// The index after the last one.
    pub(super) fn end(&self) -> u64 {
        self.first + self.offsets.len() as u64
    }

    pub(super) fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    pub(super) fn last(&self) -> Option<EntryId> {
        (!self.is_empty()).then(|| (self.runs.back().map_or(0, |run| run.1), self.end() - 1))
    }

    pub(super) fn push(&mut self, place: Place) {
        if self.is_empty() {
            self.first = place.index;
        }
        assert_eq!(place.index, self.end(), "entries have no gaps");
        assert!(place.payload_bytes as usize <= PAYLOAD_BYTES_MAX, "the size fits beside the kind");
        match self.runs.back() {
            Some((_, term)) if *term == place.term => {}
            Some((_, term)) => {
                assert!(*term < place.term, "terms do not run backwards");
                self.runs.push_back((place.index, place.term));
            }
            None => self.runs.push_back((place.index, place.term)),
        }
        self.offsets.push_back(place.offset);
        self.sizes.push_back((place.kind as u32) << KIND_SHIFT | place.payload_bytes);
    }

    fn position(&self, index: u64) -> Option<usize> {
        let position = usize::try_from(index.checked_sub(self.first)?).ok()?;
        (position < self.offsets.len()).then_some(position)
    }

    pub(super) fn term(&self, index: u64) -> Option<u64> {
        self.position(index)?;
        let run = self.runs.partition_point(|(first, _)| *first <= index);
        run.checked_sub(1).and_then(|run| self.runs.get(run)).map(|(_, term)| *term)
    }

    pub(super) fn get(&self, index: u64) -> Option<Place> {
        let position = self.position(index)?;
        let size = self.sizes[position];
        Some(Place {
            term: self.term(index)?,
            index,
            kind: EntryKind::from_u8((size >> KIND_SHIFT) as u8)?,
            offset: self.offsets[position],
            payload_bytes: size & PAYLOAD_BYTES_MAX as u32,
        })
    }

    /// The index of the first entry whose frame begins at or after `offset` ([`EntryIndex::end`] when there is none).
    pub(super) fn first_at(&self, offset: u64) -> u64 {
        self.first + self.offsets.partition_point(|begin| *begin < offset) as u64
    }

    pub(super) fn pop_last(&mut self) -> Option<Place> {
        let place = self.get(self.end().checked_sub(1)?)?;
        self.offsets.pop_back();
        self.sizes.pop_back();
        if self.runs.back().is_some_and(|(first, _)| *first == place.index) {
            self.runs.pop_back();
        }
        Some(place)
    }

    /// Forgets all entries up to and with `index`, which must be in the index.
    pub(super) fn forget_upto(&mut self, index: u64) {
        assert!(self.first <= index && index < self.end(), "only what is there is forgotten");
        let count = usize::try_from(index + 1 - self.first).unwrap_or(self.offsets.len());
        self.offsets.drain(..count);
        self.sizes.drain(..count);
        self.first = index + 1;
        while self.runs.get(1).is_some_and(|(first, _)| *first <= self.first) {
            self.runs.pop_front();
        }
        if self.offsets.is_empty() {
            self.runs.clear();
        } else if let Some(run) = self.runs.front_mut() {
            run.0 = self.first;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(term: u64, index: u64) -> Place {
        Place { term, index, kind: EntryKind::Batch, offset: index * 64, payload_bytes: 16 }
    }

    fn filled() -> EntryIndex {
        let mut entries = EntryIndex::default();
        for (term, index) in [(1, 5), (1, 6), (3, 7), (3, 8), (4, 9)] {
            entries.push(place(term, index));
        }
        entries
    }

    #[test]
    fn terms_come_from_runs() {
        let entries = filled();
        let terms: Vec<_> = (4..11).map(|index| entries.term(index)).collect();
        assert_eq!(terms, [None, Some(1), Some(1), Some(3), Some(3), Some(4), None]);
        assert_eq!(entries.get(8), Some(place(3, 8)));
        assert_eq!(entries.last(), Some((4, 9)));
    }

    #[test]
    fn both_ends_shrink() {
        let mut entries = filled();
        entries.forget_upto(6);
        assert_eq!((entries.first(), entries.term(6), entries.term(7)), (7, None, Some(3)));
        assert_eq!(entries.pop_last(), Some(place(4, 9)));
        assert_eq!(entries.last(), Some((3, 8)));
        entries.forget_upto(8);
        assert_eq!((entries.first(), entries.end(), entries.last()), (9, 9, None));
        entries.push(place(2, 9));
        assert_eq!(entries.last(), Some((2, 9)));
    }

    #[test]
    fn an_offset_finds_its_entry() {
        let entries = filled();
        assert_eq!((entries.first_at(0), entries.first_at(6 * 64), entries.first_at(6 * 64 + 1)), (5, 6, 7));
        assert_eq!(entries.first_at(10_000), 10);
    }
}
