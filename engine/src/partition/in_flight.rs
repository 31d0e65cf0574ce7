//! The groups a log has handed to the device, and how far each has come: turns completions in any order, and syncs that
//! cover many groups, into one durable end.
//!
//! Pure: no I/O, no clock.

use std::collections::VecDeque;

use crate::io::disk::WriteMode;

/// The number of a submitted group in its partition's run, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupNumber(pub u64);

/// How far a group has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Its write has not completed.
    Submitted,
    /// Written, and durable only once a sync that begins from now on has succeeded.
    Written,
    /// Written before the sync that is on its way began.
    Syncing,
    /// On the medium; others before it may not be.
    Durable,
}

#[derive(Debug)]
struct Group<T> {
    after: T,
    mode: WriteMode,
    bytes: usize,
    stage: Stage,
}

/// The groups not yet durable, in the order they were submitted, and those behind them.
///
/// `T` is what becomes true once the group and all before it are durable.
#[derive(Debug)]
pub struct InFlight<T> {
    first: u64,
    groups: VecDeque<Group<T>>,
    /// Groups whose write has not completed.
    submitted: usize,
    /// Groups written or being synced.
    unsynced: usize,
    written_bytes: usize,
    /// The bytes of all groups that a sync makes durable, those on their way included.
    undurable_bytes: usize,
    is_syncing: bool,
}

impl<T> Default for InFlight<T> {
    fn default() -> Self {
        InFlight {
            first: 0,
            groups: VecDeque::new(),
            submitted: 0,
            unsynced: 0,
            written_bytes: 0,
            undurable_bytes: 0,
            is_syncing: false,
        }
    }
}

impl<T> InFlight<T> {
    /// Notes a submitted group of `bytes`, written as `mode` says.
    pub fn submit(&mut self, after: T, bytes: usize, mode: WriteMode) -> GroupNumber {
        let number = self.first + self.groups.len() as u64;
        self.submitted += 1;
        if mode == WriteMode::Written {
            self.undurable_bytes += bytes;
        }
        self.groups.push_back(Group { after, mode, bytes, stage: Stage::Submitted });
        GroupNumber(number)
    }

    /// Notes that a group's write has completed. What is durable now comes from [`pop_durable`](Self::pop_durable).
    ///
    /// # Panics
    ///
    /// If the group was never submitted, or completed already.
    pub fn complete(&mut self, number: GroupNumber) {
        let place = number.0.checked_sub(self.first).expect("a group completed twice");
        let place = usize::try_from(place).expect("few groups are in flight");
        let group = self.groups.get_mut(place).expect("a group that was never submitted");
        assert!(group.stage == Stage::Submitted, "a group completed twice");
        self.submitted -= 1;
        match group.mode {
            WriteMode::Durable => group.stage = Stage::Durable,
            WriteMode::Written => {
                group.stage = Stage::Written;
                self.unsynced += 1;
                self.written_bytes += group.bytes;
            }
        }
    }

    /// Notes that a sync begins, which covers those of the written groups that `covers` tells of.
    ///
    /// # Panics
    ///
    /// If one is on its way.
    pub fn begin_sync(&mut self, covers: impl Fn(&T) -> bool) {
        assert!(!self.is_syncing, "one sync at a time");
        self.is_syncing = true;
        for group in &mut self.groups {
            if group.stage == Stage::Written && covers(&group.after) {
                group.stage = Stage::Syncing;
                self.written_bytes -= group.bytes;
            }
        }
    }

    /// Notes that the sync has succeeded.
    ///
    /// # Panics
    ///
    /// If none was on its way.
    pub fn complete_sync(&mut self) {
        assert!(self.is_syncing, "a sync that never began");
        self.is_syncing = false;
        for group in &mut self.groups {
            if group.stage == Stage::Syncing {
                group.stage = Stage::Durable;
                self.unsynced -= 1;
                self.undurable_bytes -= group.bytes;
            }
        }
    }

    /// Takes the oldest group if it is durable: it and all before it are then.
    pub fn pop_durable(&mut self) -> Option<T> {
        let group = self.groups.pop_front_if(|group| group.stage == Stage::Durable)?;
        self.first += 1;
        Some(group.after)
    }

    /// The oldest group not yet durable.
    #[must_use]
    pub fn oldest(&self) -> Option<&T> {
        self.groups.front().map(|group| &group.after)
    }

    /// The oldest group that waits for a sync to begin.
    #[must_use]
    pub fn oldest_written(&self) -> Option<&T> {
        if self.written_bytes == 0 {
            return None;
        }
        let written = self.groups.iter().find(|group| group.stage == Stage::Written);
        written.map(|group| &group.after)
    }

    /// The groups not yet durable, oldest first, and those behind them.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.groups.iter().map(|group| &group.after)
    }

    /// Counts the groups whose write has not completed.
    #[must_use]
    pub fn submitted(&self) -> usize {
        self.submitted
    }

    /// Counts the groups that take the device's depth: on their way, or durable behind such.
    #[must_use]
    pub fn writing(&self) -> usize {
        self.groups.len() - self.unsynced
    }

    /// The bytes of groups that wait for a sync to begin.
    #[must_use]
    pub fn written_bytes(&self) -> usize {
        self.written_bytes
    }

    /// The bytes of groups that are not made durable by their own write and are not durable.
    #[must_use]
    pub fn undurable_bytes(&self) -> usize {
        self.undurable_bytes
    }

    /// Tells whether a sync is on its way.
    #[must_use]
    pub fn is_syncing(&self) -> bool {
        self.is_syncing
    }

    /// Tells whether every group is durable.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: usize = 100;

    fn submit(in_flight: &mut InFlight<i32>, mode: WriteMode, end: i32) -> GroupNumber {
        in_flight.submit(end, BYTES, mode)
    }

    fn durable(in_flight: &mut InFlight<i32>) -> Vec<i32> {
        std::iter::from_fn(|| in_flight.pop_durable()).collect()
    }

    #[test]
    fn durable_moves_over_the_contiguous_prefix_only() {
        let mut in_flight = InFlight::default();
        let groups: Vec<_> =
            (1..=4).map(|end| submit(&mut in_flight, WriteMode::Durable, end)).collect();

        in_flight.complete(groups[1]);
        in_flight.complete(groups[3]);
        assert_eq!(durable(&mut in_flight), []);
        in_flight.complete(groups[0]);
        assert_eq!(durable(&mut in_flight), [1, 2]);
        assert_eq!(in_flight.writing(), 2, "one on its way, one behind it");
        in_flight.complete(groups[2]);
        assert_eq!(durable(&mut in_flight), [3, 4]);
        assert!(in_flight.is_empty());
    }

    #[test]
    fn written_group_is_durable_after_a_sync_that_began_behind_it() {
        let mut in_flight = InFlight::default();
        let before = submit(&mut in_flight, WriteMode::Written, 1);
        let late = submit(&mut in_flight, WriteMode::Written, 2);
        let synced = submit(&mut in_flight, WriteMode::Durable, 3);
        in_flight.complete(before);
        in_flight.complete(synced);
        assert_eq!(durable(&mut in_flight), []);

        in_flight.begin_sync(|_| true);
        in_flight.complete(late);
        in_flight.complete_sync();

        assert_eq!(durable(&mut in_flight), [1]);
        assert_eq!(in_flight.oldest_written(), Some(&2));
        in_flight.begin_sync(|_| true);
        in_flight.complete_sync();
        assert_eq!(durable(&mut in_flight), [2, 3]);
    }

    #[test]
    fn sync_covers_the_groups_of_its_file_only() {
        let mut in_flight = InFlight::default();
        for end in 1..=2 {
            let number = submit(&mut in_flight, WriteMode::Written, end);
            in_flight.complete(number);
        }
        assert_eq!(in_flight.written_bytes(), 2 * BYTES);

        in_flight.begin_sync(|end| *end == 1);
        in_flight.complete_sync();

        assert_eq!(durable(&mut in_flight), [1]);
        assert_eq!((in_flight.written_bytes(), in_flight.writing()), (BYTES, 0));
        assert_eq!((in_flight.submitted(), in_flight.undurable_bytes()), (0, BYTES));
    }

    #[test]
    fn numbers_go_on_after_the_queue_ran_empty() {
        let mut in_flight = InFlight::default();
        let first = submit(&mut in_flight, WriteMode::Durable, 1);
        in_flight.complete(first);
        assert_eq!(durable(&mut in_flight), [1]);

        let second = submit(&mut in_flight, WriteMode::Durable, 2);

        assert_eq!(second, GroupNumber(1));
    }

    #[test]
    #[should_panic(expected = "completed twice")]
    fn a_group_completes_once() {
        let mut in_flight = InFlight::default();
        let first = submit(&mut in_flight, WriteMode::Durable, 1);
        submit(&mut in_flight, WriteMode::Durable, 2);
        in_flight.complete(first);
        in_flight.complete(first);
    }
}
