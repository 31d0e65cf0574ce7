//! The closed segments of a partition that are open for reading, the most recently used last. Bounded.
//! And who uses a segment's file at all: reads in flight, open handles, maps on other threads.

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use super::scans::Scans;
use crate::format::ClosedSegment;
use crate::id::SegmentId;
use crate::io::disk::Disk;
use crate::segment::{SegmentReader, SparseIndex};

/// A counted claim on the file of a segment, from any thread. While one lives the file keeps its bytes: it may
/// lose its name, but it is not recycled.
#[derive(Clone, Debug)]
pub(crate) struct SegmentHold {
    _claim: Arc<SegmentId>,
}

/// A closed segment with its index.
#[derive(Debug)]
pub(super) struct OpenSegment<D: Disk> {
    pub(super) hold: SegmentHold,
    pub(super) closed: ClosedSegment,
    pub(super) reader: SegmentReader<D>,
    pub(super) index: Arc<SparseIndex>,
}

/// The open ones of one partition.
#[derive(Debug)]
pub(super) struct ReadSegments<D: Disk> {
    open: RefCell<Vec<std::rc::Rc<OpenSegment<D>>>>,
    open_max: usize,
    /// Who reads in order.
    pub(super) scans: Scans,
    /// Claims given out; the dead ones go with the next claim.
    held: RefCell<Vec<(SegmentId, Weak<SegmentId>)>>,
}

impl<D: Disk> ReadSegments<D> {
    pub(super) fn new(open_max: usize) -> ReadSegments<D> {
        ReadSegments {
            open: RefCell::default(),
            open_max: open_max.max(1),
            scans: Scans::default(),
            held: RefCell::default(),
        }
    }

    /// Claims the file of `segment`. To be called in the same stretch without awaits in which the log's state
    /// was seen to name it.
    pub(super) fn hold(&self, segment: SegmentId) -> SegmentHold {
        let mut held = self.held.borrow_mut();
        held.retain(|(_, claim)| claim.strong_count() > 0);
        let found = held.iter().find(|(of, _)| *of == segment);
        if let Some(claim) = found.and_then(|(_, claim)| claim.upgrade()) {
            return SegmentHold { _claim: claim };
        }
        let claim = Arc::new(segment);
        held.push((segment, Arc::downgrade(&claim)));
        SegmentHold { _claim: claim }
    }

    /// Tells whether anybody reads the file of `segment`, holds it open or has it mapped. Once the log's state
    /// names it no more and it was [forgotten](Self::forget), a `false` stays `false`.
    pub(super) fn is_in_use(&self, segment: SegmentId) -> bool {
        self.held.borrow().iter().any(|(of, claim)| *of == segment && claim.strong_count() > 0)
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
        self.scans.forget(segment);
    }

    /// Lets go of all.
    pub(super) fn clear(&self) {
        self.open.borrow_mut().clear();
        self.scans.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::simulated::SimulatedDisk;

    #[test]
    fn segment_is_in_use_until_its_last_hold_drops() {
        let segments = ReadSegments::<SimulatedDisk>::new(1);
        let (one, other) = (SegmentId(1), SegmentId(2));
        assert!(!segments.is_in_use(one));

        let first = segments.hold(one);
        let second = segments.hold(one);
        let elsewhere = std::thread::spawn(move || drop(first));
        elsewhere.join().unwrap();

        assert!(segments.is_in_use(one));
        assert!(!segments.is_in_use(other));
        drop(second);
        assert!(!segments.is_in_use(one));
        let _again = segments.hold(one);
        assert!(segments.is_in_use(one));
    }
}
