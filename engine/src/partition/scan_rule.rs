//! Which pieces of a segment to read ahead of a reader that reads it in order. Pure.
//!
//! A read that goes on where another ended is part of a scan. The window ahead of a scan opens with its second read
//! and doubles with each further one; a read from anywhere else begins a scan of its own, with nothing ahead.

use std::ops::Range;

use crate::format::IndexEntry;
use crate::id::Position;

/// The scans of one partition that are followed at the same time; one more takes the place of the one that has
/// waited longest.
pub const SCANS_MAX: usize = 8;

/// The bytes of one read ahead, unless one group is longer. Source: ADR-0011.
pub const PIECE_BYTES: u64 = 512 << 10;

/// The same beside appends: what is in flight stands before an append at the device.
pub const PIECE_BYTES_BESIDE_APPENDS: u64 = 128 << 10;

/// The window of a scan that has just been recognised.
const WINDOW_BYTES_FIRST: usize = 512 << 10;

/// How far to read ahead of one reader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScanWindow {
    bytes: usize,
}

impl ScanWindow {
    /// The window after one more read in order.
    #[must_use]
    pub fn grown(self, bytes_max: usize) -> ScanWindow {
        let doubled = self.bytes.saturating_mul(2).max(WINDOW_BYTES_FIRST);
        ScanWindow { bytes: doubled.min(bytes_max) }
    }

    /// Tells whether more is to be read ahead when `ahead_bytes` are there or on their way.
    #[must_use]
    pub fn wants_more(self, ahead_bytes: usize) -> bool {
        ahead_bytes < self.bytes
    }
}

/// The next piece from `start`, where a group starts, before `end`, where the last one ends: it ends where a group
/// ends, so that no group lies in two pieces. `None` when the index does not tell, or at the end.
#[must_use]
pub fn next_piece(
    entries: &[IndexEntry],
    start: Position,
    end: Position,
    piece_bytes: u64,
) -> Option<Range<Position>> {
    let left = end.0.checked_sub(start.0).filter(|left| *left > 0)?;
    if left <= piece_bytes {
        return Some(start..end);
    }
    let behind = entries.partition_point(|entry| entry.position <= start);
    let fitting = entries.partition_point(|entry| entry.position.0 <= start.0 + piece_bytes);
    let last = if fitting > behind { fitting - 1 } else { behind };
    let found = entries.get(last)?.position;
    Some(start..found.min(end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Offset;
    use crate::io::clock::WallTime;

    const KIB: u64 = 1 << 10;

    fn index(positions_kib: &[u64]) -> Vec<IndexEntry> {
        let entry = |kib: &u64| IndexEntry {
            offset: Offset(*kib),
            position: Position(kib * KIB),
            time: WallTime(1),
        };
        positions_kib.iter().map(entry).collect()
    }

    fn piece(entries: &[IndexEntry], start_kib: u64, end_kib: u64) -> Option<(u64, u64)> {
        let (start, end) = (Position(start_kib * KIB), Position(end_kib * KIB));
        let found = next_piece(entries, start, end, 256 * KIB)?;
        Some((found.start.0 / KIB, found.end.0 / KIB))
    }

    #[test]
    fn window_opens_with_the_second_read_and_doubles_to_its_limit() {
        let closed = ScanWindow::default();
        assert!(!closed.wants_more(0));

        let opened = closed.grown(2 << 20);
        assert!(opened.wants_more(WINDOW_BYTES_FIRST - 1));
        assert!(!opened.wants_more(WINDOW_BYTES_FIRST));

        let mut window = opened;
        for _ in 0..100 {
            window = window.grown(2 << 20);
        }
        assert_eq!(window, ScanWindow { bytes: 2 << 20 });
        assert_eq!(closed.grown(1), ScanWindow { bytes: 1 });
    }

    #[test]
    fn pieces_end_where_groups_end_and_leave_nothing_out() {
        let entries = index(&[4, 84, 164, 244, 324, 404, 1404, 1484]);
        let mut start = 4;
        let mut ends = Vec::new();
        while let Some((from, end)) = piece(&entries, start, 1500) {
            assert_eq!(from, start);
            ends.push(end);
            start = end;
        }

        // 404 to 1404 is one long group, or groups of which the index knows no start.
        assert_eq!(ends, [244, 404, 1404, 1500]);
    }

    #[test]
    fn without_an_index_only_a_short_rest_is_a_piece() {
        assert_eq!(piece(&[], 4, 260), Some((4, 260)));
        assert_eq!(piece(&[], 4, 264), None);
        assert_eq!(piece(&index(&[4]), 4, 264), None);
        assert_eq!(piece(&index(&[4]), 264, 264), None);
        assert_eq!(piece(&index(&[4]), 268, 264), None);
    }

    #[test]
    fn no_piece_passes_the_end() {
        let entries = index(&[4, 800, 900]);

        assert_eq!(piece(&entries, 4, 300), Some((4, 300)));
    }
}
