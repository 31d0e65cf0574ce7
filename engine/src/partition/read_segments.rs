//! The closed segments of a partition that are open for reading, the most recently used last. Bounded.

use std::cell::RefCell;

use crate::format::ClosedSegment;
use crate::id::SegmentId;
use crate::io::disk::Disk;
use crate::segment::{SegmentReader, SparseIndex};

/// A closed segment with its index.
#[derive(Debug)]
pub(super) struct OpenSegment<D: Disk> {
    pub(super) closed: ClosedSegment,
    pub(super) reader: SegmentReader<D>,
    pub(super) index: SparseIndex,
}

/// The open ones of one partition.
#[derive(Debug)]
pub(super) struct ReadSegments<D: Disk> {
    open: RefCell<Vec<std::rc::Rc<OpenSegment<D>>>>,
    open_max: usize,
}

impl<D: Disk> ReadSegments<D> {
    pub(super) fn new(open_max: usize) -> ReadSegments<D> {
        ReadSegments { open: RefCell::default(), open_max: open_max.max(1) }
    }

    /// Returns the segment if it is open and is still what the checkpoint says.
    pub(super) fn find(&self, closed: &ClosedSegment) -> Option<std::rc::Rc<OpenSegment<D>>> {
        let mut open = self.open.borrow_mut();
        let place = open.iter().position(|segment| segment.closed == *closed)?;
        let found = open.remove(place);
        open.push(found.clone());
        Some(found)
    }

    /// Keeps an opened segment, and lets go of the one not used for longest.
    pub(super) fn keep(&self, segment: std::rc::Rc<OpenSegment<D>>) {
        let mut open = self.open.borrow_mut();
        open.retain(|other| other.closed.segment != segment.closed.segment);
        if open.len() >= self.open_max {
            open.remove(0);
        }
        open.push(segment);
    }

    /// Lets go of a segment that is removed or cut.
    pub(super) fn forget(&self, segment: SegmentId) {
        self.open.borrow_mut().retain(|other| other.closed.segment != segment);
    }

    /// Lets go of all.
    pub(super) fn clear(&self) {
        self.open.borrow_mut().clear();
    }
}
