//! Which epoch wrote from which offset on, so that a later owner finds where two logs part.
//!
//! Epochs never fall along a log (I1), and at most one entry starts at an offset. Fault met in the field:
//! SCENARIOS L12.

use crate::format::EpochStart;
use crate::id::{Epoch, Offset};

/// The epochs of a log, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EpochHistory {
    starts: Vec<EpochStart>,
}

impl EpochHistory {
    /// Takes over what was stored. Entries that break the order are left out, the first one kept.
    #[must_use]
    pub fn from_entries(entries: impl IntoIterator<Item = EpochStart>) -> EpochHistory {
        let mut history = EpochHistory::default();
        for entry in entries {
            if history
                .starts
                .last()
                .is_none_or(|last| last.epoch < entry.epoch && last.start <= entry.start)
            {
                history.starts.push(entry);
            }
        }
        history
    }

    /// Notes that `epoch` starts at `start`. The same epoch again changes nothing.
    ///
    /// An epoch that wrote no record is replaced by the next one at the same offset, except the first of the
    /// log, which is kept: it is the floor of every comparison.
    ///
    /// # Panics
    ///
    /// If the epoch is below the last one, or starts before it.
    pub fn begin(&mut self, epoch: Epoch, start: Offset) {
        if let Some(last) = self.starts.last() {
            if last.epoch == epoch {
                return;
            }
            assert!(last.epoch < epoch, "epoch {epoch} after {}", last.epoch);
            assert!(last.start <= start, "epoch {epoch} starts below its predecessor");
            if last.start == start && self.starts.len() > 1 {
                self.starts.pop();
            }
        }
        self.starts.push(EpochStart { epoch, start });
    }

    /// Forgets what a cut to `end` takes away: every epoch that starts above it, and those that start exactly
    /// there, since no record of theirs is left. The first entry of the log is always kept.
    pub fn truncate(&mut self, end: Offset) {
        let kept = self.starts.partition_point(|entry| entry.start < end).max(1);
        self.starts.truncate(kept);
    }

    /// Forgets epochs that lie wholly below `start`; the one that covers it stays.
    pub fn trim(&mut self, start: Offset) {
        let covering = self.starts.partition_point(|entry| entry.start <= start).max(1) - 1;
        self.starts.drain(..covering);
    }

    /// The epoch of the record at `offset`.
    #[must_use]
    pub fn epoch_at(&self, offset: Offset) -> Option<Epoch> {
        let after = self.starts.partition_point(|entry| entry.start <= offset);
        after.checked_sub(1).map(|place| self.starts[place].epoch)
    }

    /// The last epoch that began.
    #[must_use]
    pub fn last(&self) -> Option<EpochStart> {
        self.starts.last().copied()
    }

    /// All entries, in order.
    #[must_use]
    pub fn entries(&self) -> &[EpochStart] {
        &self.starts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epoch(term: u32) -> Epoch {
        Epoch::promise_of(term)
    }

    fn history(entries: &[(u32, u64)]) -> EpochHistory {
        let mut history = EpochHistory::default();
        for (term, start) in entries {
            history.begin(epoch(*term), Offset(*start));
        }
        history
    }

    fn pairs(history: &EpochHistory) -> Vec<(u32, u64)> {
        history.entries().iter().map(|entry| (entry.epoch.term(), entry.start.0)).collect()
    }

    // L12: two changes of epoch without data, then a cut at the log end.
    #[test]
    fn conflicting_entries_go_and_the_cut_ends() {
        let mut history = history(&[(1, 0), (2, 10), (3, 10)]);
        assert_eq!(pairs(&history), vec![(1, 0), (3, 10)]);

        history.truncate(Offset(10));

        assert_eq!(pairs(&history), vec![(1, 0)]);
        history.truncate(Offset(10));
        assert_eq!(pairs(&history), vec![(1, 0)]);
    }

    // L12: an epoch at the very first offset survives a cut of everything.
    #[test]
    fn first_entry_is_kept() {
        let mut history = history(&[(1, 0), (2, 0), (3, 5)]);
        assert_eq!(pairs(&history), vec![(1, 0), (2, 0), (3, 5)]);

        history.truncate(Offset(0));

        assert_eq!(pairs(&history), vec![(1, 0)]);
    }

    #[test]
    fn epoch_of_a_record_is_found() {
        let history = history(&[(1, 0), (4, 10), (9, 20)]);

        assert_eq!(history.epoch_at(Offset(9)), Some(epoch(1)));
        assert_eq!(history.epoch_at(Offset(10)), Some(epoch(4)));
        assert_eq!(history.epoch_at(Offset(500)), Some(epoch(9)));
        assert_eq!(EpochHistory::default().epoch_at(Offset(0)), None);
    }

    #[test]
    fn same_epoch_again_changes_nothing() {
        let mut history = history(&[(1, 0), (4, 10)]);

        history.begin(epoch(4), Offset(30));

        assert_eq!(pairs(&history), vec![(1, 0), (4, 10)]);
    }

    #[test]
    fn trim_keeps_the_covering_epoch() {
        let mut history = history(&[(1, 0), (4, 10), (9, 20)]);

        history.trim(Offset(15));

        assert_eq!(pairs(&history), vec![(4, 10), (9, 20)]);
    }

    #[test]
    fn stored_entries_out_of_order_are_left_out() {
        let entry = |term, start| EpochStart { epoch: epoch(term), start: Offset(start) };

        let history = EpochHistory::from_entries([entry(2, 5), entry(1, 9), entry(3, 7)]);

        assert_eq!(pairs(&history), vec![(2, 5), (3, 7)]);
    }

    #[test]
    #[should_panic(expected = "after")]
    fn epochs_never_fall_along_a_log() {
        history(&[(4, 0), (3, 10)]);
    }
}
