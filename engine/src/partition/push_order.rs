//! Orders grants and pushes by (lineage, metadata index); older ones are dropped and counted (I8).

/// Where a push stands in the history of the metadata: a newer lineage is above every index of an older one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PushPoint {
    /// Raised when the metadata role was recovered from permanent loss.
    pub lineage: u64,
    /// The Raft index of the entry that decided it.
    pub index: u64,
}

/// What has been applied of a sequence of pushes, and what came too late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PushOrder {
    applied: PushPoint,
    dropped: u64,
}

impl PushOrder {
    /// Accepts a push that is newer than, or the same as, the last one; counts and refuses an older one.
    ///
    /// The same point again is accepted: one entry may carry pushes for several partitions, and a push may
    /// be sent twice.
    pub fn accept(&mut self, push: PushPoint) -> bool {
        if push < self.applied {
            self.dropped += 1;
            return false;
        }
        self.applied = push;
        true
    }

    /// Tells whether everything up to `point` has been applied.
    #[must_use]
    pub fn has_applied(&self, point: PushPoint) -> bool {
        self.applied >= point
    }

    /// The newest point applied.
    #[must_use]
    pub fn applied(&self) -> PushPoint {
        self.applied
    }

    /// How many pushes came too late.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(lineage: u64, index: u64) -> PushPoint {
        PushPoint { lineage, index }
    }

    #[test]
    fn older_push_is_dropped_and_counted() {
        let mut order = PushOrder::default();
        assert!(order.accept(point(1, 7)));

        assert!(!order.accept(point(1, 6)));

        assert_eq!(order.dropped(), 1);
        assert_eq!(order.applied(), point(1, 7));
    }

    #[test]
    fn same_push_again_is_accepted() {
        let mut order = PushOrder::default();
        assert!(order.accept(point(1, 7)));

        assert!(order.accept(point(1, 7)));
    }

    #[test]
    fn newer_lineage_beats_any_index() {
        let mut order = PushOrder::default();
        assert!(order.accept(point(1, 1_000)));

        assert!(order.accept(point(2, 1)));
        assert!(!order.accept(point(1, 1_001)));
    }
}
