//! Counts what is taken on the disk and holds no record yet: what is left of active segments, segments made ahead,
//! files that wait to be recycled, the journal's file. Now and then, by the watchdog.

use std::rc::Rc;

use super::context::LogContext;
use super::log::PartitionLog;
use crate::io::disk::Disk;

/// Counts a segment's file among those made ahead while it is being made.
pub(super) struct MadeAhead<'a, D: Disk> {
    context: &'a LogContext<D>,
    bytes: u64,
}

impl<D: Disk> Drop for MadeAhead<'_, D> {
    fn drop(&mut self) {
        self.context.making_bytes.set(self.context.making_bytes.get() - self.bytes);
    }
}

impl<D: Disk> LogContext<D> {
    /// Counts a file of `bytes` until the answer is dropped.
    pub(super) fn count_making(&self, bytes: u64) -> MadeAhead<'_, D> {
        self.making_bytes.set(self.making_bytes.get() + bytes);
        MadeAhead { context: self, bytes }
    }

    /// Adds up what the partitions of the shard have taken in advance.
    pub(crate) fn note_preallocated<'a>(
        &self,
        logs: impl Iterator<Item = &'a Rc<PartitionLog<D>>>,
    ) {
        let (mut active_bytes, mut next_bytes) = (0, self.making_bytes.get());
        for log in logs {
            let state = log.state.borrow();
            let unfilled = state.active.as_ref().map(|active| {
                active.writer.file_bytes().saturating_sub(active.writer.point().position.0)
            });
            let next = state.next.as_ref().map(|next| next.made.file_bytes);
            active_bytes += unfilled.unwrap_or(0);
            next_bytes += next.unwrap_or(0);
            log.status().set_preallocated(unfilled.unwrap_or(0) + next.unwrap_or(0));
        }
        self.counters.unfilled_bytes.set(active_bytes);
        self.counters.next_segment_bytes.set(next_bytes);
    }
}
