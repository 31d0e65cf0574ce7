//! The readers of a partition that read in order, and what was read ahead of each; the most recent last.

use std::cell::RefCell;
use std::collections::VecDeque;

use super::read_ahead::Piece;
use super::scan_rule::{SCANS_MAX, ScanWindow};
use crate::id::{Offset, Position, SegmentId};
use crate::segment::SegmentCursor;

/// One reader, as far as its reads tell.
#[derive(Debug)]
pub(super) struct Scan {
    /// Where its next read starts, if it goes on.
    pub(super) next_offset: Offset,
    pub(super) segment: SegmentId,
    /// The group in which it starts.
    pub(super) cursor: SegmentCursor,
    pub(super) window: ScanWindow,
    /// Without gaps, from the one with the cursor on.
    pub(super) pieces: VecDeque<Piece>,
}

impl Scan {
    pub(super) fn new(segment: SegmentId, cursor: SegmentCursor, next_offset: Offset) -> Scan {
        let window = ScanWindow::default();
        Scan { next_offset, segment, cursor, window, pieces: VecDeque::new() }
    }

    /// Goes on in another segment.
    pub(super) fn enter(&mut self, segment: SegmentId, cursor: SegmentCursor) {
        self.segment = segment;
        self.cursor = cursor;
        self.pieces.clear();
    }

    /// Moves to where the next read starts, and lets go of what lies before.
    pub(super) fn advance(&mut self, cursor: SegmentCursor, next_offset: Offset) {
        self.cursor = cursor;
        self.next_offset = next_offset;
        while self.pieces.front().is_some_and(|piece| piece.positions.end <= cursor.position) {
            self.pieces.pop_front();
        }
    }

    /// Where the next piece starts.
    pub(super) fn ahead_end(&self) -> Position {
        self.pieces.back().map_or(self.cursor.position, |piece| piece.positions.end)
    }

    /// Tells whether the next read need not wait.
    pub(super) fn is_ready(&self) -> bool {
        self.pieces.front().is_some_and(|piece| piece.slot.is_settled())
    }

    pub(super) fn ahead_bytes(&self) -> usize {
        self.pieces.iter().map(Piece::bytes).sum()
    }
}

/// The scans of one partition.
#[derive(Debug, Default)]
pub(super) struct Scans {
    scans: RefCell<Vec<Scan>>,
}

impl Scans {
    /// Takes out the scan that a read from `from` goes on with. It is put back when the read is done.
    pub(super) fn take(&self, from: Offset) -> Option<Scan> {
        let mut scans = self.scans.borrow_mut();
        let place = scans.iter().position(|scan| scan.next_offset == from)?;
        Some(scans.remove(place))
    }

    /// Follows a scan, in place of the one that has waited longest if there are too many.
    pub(super) fn put(&self, scan: Scan) {
        let mut scans = self.scans.borrow_mut();
        // Of two readers in step the one with something ahead of it leads.
        if let Some(other) = scans.iter_mut().find(|other| other.next_offset == scan.next_offset) {
            if other.pieces.is_empty() {
                *other = scan;
            }
            return;
        }
        if scans.len() >= SCANS_MAX {
            scans.remove(0);
        }
        scans.push(scan);
    }

    /// Lets go of what was read ahead of a segment that is removed or cut.
    pub(super) fn forget(&self, segment: SegmentId) {
        self.scans.borrow_mut().retain(|scan| scan.segment != segment);
    }

    pub(super) fn clear(&self) {
        self.scans.borrow_mut().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(next: u64, segment: u64) -> Scan {
        let cursor = SegmentCursor { position: Position(4096), offset: Offset(next) };
        Scan::new(SegmentId(segment), cursor, Offset(next))
    }

    #[test]
    fn only_a_read_that_goes_on_finds_its_scan() {
        let scans = Scans::default();
        scans.put(scan(10, 1));

        assert!(scans.take(Offset(9)).is_none());
        assert!(scans.take(Offset(11)).is_none());
        assert!(scans.take(Offset(10)).is_some());
        assert!(scans.take(Offset(10)).is_none(), "it is taken");
    }

    #[test]
    fn scans_are_bounded_and_the_longest_idle_goes_first() {
        let scans = Scans::default();
        (0..=SCANS_MAX as u64).for_each(|number| scans.put(scan(number, 1)));

        assert!(scans.take(Offset(0)).is_none());
        assert!(scans.take(Offset(1)).is_some());
        assert_eq!(scans.scans.borrow().len(), SCANS_MAX - 1);
    }

    #[test]
    fn cut_segment_takes_its_scans_along() {
        let scans = Scans::default();
        scans.put(scan(1, 1));
        scans.put(scan(2, 2));

        scans.forget(SegmentId(1));

        assert!(scans.take(Offset(1)).is_none());
        assert!(scans.take(Offset(2)).is_some());
    }
}
