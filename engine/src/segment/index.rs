//! The sparse index of a segment: where some of its groups start, by offset and by append time.
//!
//! A cache. Look-ups land at or below what is sought, and the reader walks on from there.

use crate::format::{INDEX_ENTRIES_MAX, IndexEntry};
use crate::id::{Offset, Position};
use crate::io::clock::WallTime;

/// The least distance between the groups of two entries, until the index is full.
pub const INDEX_SPACING_BYTES: u64 = 64 << 10;

/// Some groups of a segment, in order.
#[derive(Clone, Debug)]
pub struct SparseIndex {
    entries: Vec<IndexEntry>,
    spacing_bytes: u64,
}

impl Default for SparseIndex {
    fn default() -> SparseIndex {
        SparseIndex { entries: Vec::new(), spacing_bytes: INDEX_SPACING_BYTES }
    }
}

impl SparseIndex {
    /// Takes over the entries of a footer, which has checked their order.
    #[must_use]
    pub fn from_entries(entries: Vec<IndexEntry>) -> SparseIndex {
        SparseIndex { entries, ..SparseIndex::default() }
    }

    /// Notes the next group of the segment; most are left out.
    ///
    /// # Panics
    ///
    /// If the group lies before one noted already.
    pub fn note(&mut self, entry: IndexEntry) {
        if let Some(last) = self.entries.last() {
            assert!(last.position < entry.position, "groups are noted in order");
            if entry.position.0 - last.position.0 < self.spacing_bytes {
                return;
            }
        }
        if self.entries.len() == INDEX_ENTRIES_MAX {
            self.thin_out();
        }
        self.entries.push(entry);
    }

    /// The entry from which a walk finds `offset`: the last one below it, or the first one at it; `None` when
    /// the walk has to start at the segment's first group.
    #[must_use]
    pub fn locate(&self, offset: Offset) -> Option<IndexEntry> {
        let at_or_above = self.entries.partition_point(|entry| entry.offset < offset);
        match self.entries.get(at_or_above) {
            Some(entry) if entry.offset == offset => Some(*entry),
            _ => Some(self.entries[at_or_above.checked_sub(1)?]),
        }
    }

    /// The entry from which a walk finds the first batch appended at or after `time`.
    #[must_use]
    pub fn locate_time(&self, time: WallTime) -> Option<IndexEntry> {
        let at_or_after = self.entries.partition_point(|entry| entry.time < time);
        Some(self.entries[at_or_after.checked_sub(1)?])
    }

    /// Forgets the groups at `end` and behind.
    pub fn truncate(&mut self, end: Position) {
        let kept = self.entries.partition_point(|entry| entry.position < end);
        self.entries.truncate(kept);
    }

    /// All entries, in order.
    #[must_use]
    pub fn entries(&self) -> &[IndexEntry] {
        &self.entries
    }

    fn thin_out(&mut self) {
        let mut place = 0_usize;
        self.entries.retain(|_| {
            place += 1;
            !place.is_multiple_of(2)
        });
        self.spacing_bytes = self.spacing_bytes.saturating_mul(2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(offset: u64, position: u64) -> IndexEntry {
        IndexEntry { offset: Offset(offset), position: Position(position), time: WallTime(offset) }
    }

    // L32: offsets beyond 2^31 records apart, positions above 4 GiB.
    #[test]
    fn look_ups_are_exact_with_large_numbers() {
        let mut index = SparseIndex::default();
        let entries = [
            entry(0, 4096),
            entry(1 << 33, 5 << 30),
            entry(3 << 40, 9 << 40),
            entry(3 << 41, 9 << 41),
        ];
        entries.iter().for_each(|entry| index.note(*entry));

        assert_eq!(index.locate(Offset((1 << 33) - 1)), Some(entries[0]));
        assert_eq!(index.locate(Offset(1 << 33)), Some(entries[1]));
        assert_eq!(index.locate(Offset((3 << 40) - 1)), Some(entries[1]));
        assert_eq!(index.locate(Offset(u64::MAX)), Some(entries[3]));
        assert_eq!(index.locate_time(WallTime(3 << 40)), Some(entries[1]));
        assert_eq!(index.locate_time(WallTime(0)), None);
        index.truncate(Position(9 << 40));
        assert_eq!(index.entries(), &entries[..2]);
    }

    #[test]
    fn groups_close_to_the_last_entry_are_left_out() {
        let mut index = SparseIndex::default();
        (1..100).for_each(|number| index.note(entry(number, number * 4096)));

        let positions: Vec<_> =
            index.entries().iter().map(|entry| entry.position.0 / 4096).collect();

        assert_eq!(positions, [1, 17, 33, 49, 65, 81, 97]);
    }

    #[test]
    fn full_index_thins_itself_out_and_stays_in_order() {
        let mut index = SparseIndex::default();
        let noted = 3 * INDEX_ENTRIES_MAX as u64;
        (0..noted)
            .for_each(|number| index.note(entry(number, 4096 + number * INDEX_SPACING_BYTES)));

        assert!(index.entries().len() <= INDEX_ENTRIES_MAX);
        assert_eq!(index.entries()[0], entry(0, 4096));
        assert!(index.entries().is_sorted_by_key(|entry| entry.offset));
        assert!(index.locate(Offset(noted)).unwrap().offset.0 > noted - 8);
    }
}
