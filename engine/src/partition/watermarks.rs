//! The four watermarks of a partition, their order, and the atomics through which handles see them.
//!
//! Every change is asserted: a watermark that crosses its neighbour is a bug that must not be served.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::id::Offset;

/// The four watermarks of a partition; all but `log_start` are exclusive ends.
///
/// `log_start <= committed <= durable <= log_end`, always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watermarks {
    /// The first offset that has not been trimmed.
    pub log_start: Offset,
    /// Everything below is durable on this machine.
    pub durable: Offset,
    /// Everything below is durable on the ack quorum and may be read.
    pub committed: Offset,
    /// The offset the next record gets.
    pub log_end: Offset,
}

impl Watermarks {
    /// The watermarks of a log that holds `start..end`, all of it durable and committed up to `committed`.
    ///
    /// # Panics
    ///
    /// If the offsets are not in order.
    #[must_use]
    pub fn recovered(start: Offset, committed: Offset, end: Offset) -> Watermarks {
        Watermarks { log_start: start, durable: end, committed, log_end: end }.checked()
    }

    /// Moves the log end over `records` admitted records.
    ///
    /// # Panics
    ///
    /// Past 2^64 - 1 offsets.
    pub fn admit(&mut self, records: u64) {
        self.log_end = self.log_end.checked_add(records).expect("an offset past 2^64");
        *self = self.checked();
    }

    /// Moves `durable` forward to `end`; an older report changes nothing.
    ///
    /// # Panics
    ///
    /// If `end` is above the log end.
    pub fn make_durable(&mut self, end: Offset) {
        self.durable = self.durable.max(end);
        *self = self.checked();
    }

    /// Moves `committed` forward to `end`; an older point changes nothing.
    ///
    /// # Panics
    ///
    /// If `end` is above `durable`.
    pub fn commit(&mut self, end: Offset) {
        self.committed = self.committed.max(end);
        *self = self.checked();
    }

    /// Drops the prefix below `start`; a lower one changes nothing.
    ///
    /// # Panics
    ///
    /// If `start` is above `committed`: retention and trims are bounded by their callers.
    pub fn trim(&mut self, start: Offset) {
        self.log_start = self.log_start.max(start);
        *self = self.checked();
    }

    /// Drops the suffix from `end` on, once nothing is in flight.
    ///
    /// # Panics
    ///
    /// If the cut lies below `log_start`, above the log end, or something is in flight.
    pub fn truncate(&mut self, end: Offset) {
        assert!(self.durable == self.log_end, "a cut with appends in flight");
        assert!(end <= self.log_end, "a cut to {end} above the log end {}", self.log_end);
        self.log_end = end;
        self.durable = end;
        self.committed = self.committed.min(end);
        *self = self.checked();
    }

    /// Gives up what was admitted and never became durable: the log has stopped.
    pub fn stop_at_durable(&mut self) {
        self.log_end = self.durable;
        *self = self.checked();
    }

    fn checked(self) -> Watermarks {
        assert!(self.log_start <= self.committed, "log start above committed: {self:?}");
        assert!(self.committed <= self.durable, "committed above durable: {self:?}");
        assert!(self.durable <= self.log_end, "durable above log end: {self:?}");
        self
    }
}

/// The watermarks as other threads see them: written by the shard, read without a hop.
#[derive(Debug, Default)]
pub struct SharedWatermarks {
    log_start: AtomicU64,
    committed: AtomicU64,
    durable: AtomicU64,
    log_end: AtomicU64,
}

impl SharedWatermarks {
    /// Publishes new values. Highest first, so that a reader, who goes the other way, sees them in order.
    pub fn publish(&self, watermarks: Watermarks) {
        self.log_end.store(watermarks.log_end.0, Ordering::Release);
        self.durable.store(watermarks.durable.0, Ordering::Release);
        self.committed.store(watermarks.committed.0, Ordering::Release);
        self.log_start.store(watermarks.log_start.0, Ordering::Release);
    }

    /// Reads all four. Each value was true at some instant during the call; their order always holds.
    pub fn load(&self) -> Watermarks {
        let log_start = self.log_start.load(Ordering::Acquire);
        let committed = self.committed.load(Ordering::Acquire).max(log_start);
        let durable = self.durable.load(Ordering::Acquire).max(committed);
        let log_end = self.log_end.load(Ordering::Acquire).max(durable);
        Watermarks {
            log_start: Offset(log_start),
            committed: Offset(committed),
            durable: Offset(durable),
            log_end: Offset(log_end),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watermarks_move_in_order() {
        let mut watermarks = Watermarks::default();

        watermarks.admit(10);
        watermarks.make_durable(Offset(7));
        watermarks.commit(Offset(7));
        watermarks.trim(Offset(3));

        assert_eq!(watermarks.log_end, Offset(10));
        assert_eq!(watermarks.durable, Offset(7));
        assert_eq!(watermarks.committed, Offset(7));
        assert_eq!(watermarks.log_start, Offset(3));
    }

    #[test]
    fn older_reports_change_nothing() {
        let mut watermarks = Watermarks::recovered(Offset(2), Offset(5), Offset(9));
        let before = watermarks;

        watermarks.make_durable(Offset(4));
        watermarks.commit(Offset(4));
        watermarks.trim(Offset(1));

        assert_eq!(watermarks, before);
    }

    #[test]
    #[should_panic(expected = "committed above durable")]
    fn committed_never_passes_durable() {
        let mut watermarks = Watermarks::default();
        watermarks.admit(10);
        watermarks.commit(Offset(1));
    }

    #[test]
    #[should_panic(expected = "log start above committed")]
    fn log_start_never_passes_committed() {
        let mut watermarks = Watermarks::recovered(Offset(0), Offset(5), Offset(9));
        watermarks.trim(Offset(6));
    }

    #[test]
    fn cut_takes_the_suffix_from_every_watermark() {
        let mut watermarks = Watermarks::recovered(Offset(2), Offset(8), Offset(9));

        watermarks.truncate(Offset(4));

        assert_eq!(watermarks, Watermarks::recovered(Offset(2), Offset(4), Offset(4)));
    }

    #[test]
    fn stopped_log_ends_at_durable() {
        let mut watermarks = Watermarks::recovered(Offset(0), Offset(5), Offset(5));
        watermarks.admit(3);

        watermarks.stop_at_durable();

        assert_eq!(watermarks.log_end, Offset(5));
    }

    #[test]
    fn published_watermarks_are_read_back() {
        let shared = SharedWatermarks::default();
        let watermarks = Watermarks::recovered(Offset(2), Offset(5), Offset(9));

        shared.publish(watermarks);

        assert_eq!(shared.load(), watermarks);
    }
}
