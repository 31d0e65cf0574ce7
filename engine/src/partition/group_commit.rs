//! Decides when gathered appends become a group, and turns completions in any order into one durable end.
//!
//! Pure: no I/O, no clock. Source of the rule: DESIGN 4, "Group commit".

use std::collections::VecDeque;

/// Gathered bytes from which a group is worth submitting beside others in flight.
pub const GROUP_BYTES_TARGET: usize = 64 << 10;

/// Groups of one partition that may be in flight at a time.
///
/// Source: FACTS, "64 KiB, queue depth 16": more depth gains nothing on the devices measured.
pub const GROUPS_IN_FLIGHT_MAX: usize = 16;

/// What to do with what has been gathered, at the end of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupDecision {
    /// Hand the gathered group to the device now.
    Submit,
    /// Keep gathering; a completion or more bytes will bring the next decision.
    Gather,
}

/// Decides about `gathered_bytes` with `groups_in_flight` groups on their way to the device.
///
/// With nothing in flight everything goes at once, so a lone append waits for nobody. With something in
/// flight only a large enough group goes, so that the device is not filled with small writes.
#[must_use]
pub fn decide(gathered: GatheredBytes, in_flight: GroupsInFlight) -> GroupDecision {
    if gathered.0 == 0 || in_flight.0 >= GROUPS_IN_FLIGHT_MAX {
        return GroupDecision::Gather;
    }
    if in_flight.0 == 0 || gathered.0 >= GROUP_BYTES_TARGET {
        return GroupDecision::Submit;
    }
    GroupDecision::Gather
}

/// Bytes gathered and not submitted.
#[derive(Clone, Copy, Debug)]
pub struct GatheredBytes(pub usize);

/// Groups submitted and not completed.
#[derive(Clone, Copy, Debug)]
pub struct GroupsInFlight(pub usize);

/// The number of a submitted group in its partition's run, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupNumber(pub u64);

/// The groups in flight, in the order they were submitted.
///
/// `T` is what becomes true once the group and all before it are durable.
#[derive(Debug)]
pub struct InFlight<T> {
    first: u64,
    groups: VecDeque<(T, bool)>,
}

impl<T> Default for InFlight<T> {
    fn default() -> Self {
        InFlight { first: 0, groups: VecDeque::new() }
    }
}

impl<T> InFlight<T> {
    /// Notes a submitted group.
    pub fn submit(&mut self, group: T) -> GroupNumber {
        let number = self.first + self.groups.len() as u64;
        self.groups.push_back((group, false));
        GroupNumber(number)
    }

    /// Notes that a group is on the medium, and hands out, in order, every group whose predecessors are too.
    ///
    /// # Panics
    ///
    /// If the group was never submitted, or completed already.
    pub fn complete(&mut self, number: GroupNumber) -> Vec<T> {
        let place = number.0.checked_sub(self.first).expect("a group completed twice");
        let place = usize::try_from(place).expect("few groups are in flight");
        let (_, done) = self.groups.get_mut(place).expect("a group that was never submitted");
        assert!(!*done, "a group completed twice");
        *done = true;
        let mut durable = Vec::new();
        while let Some((_, true)) = self.groups.front() {
            let (group, _) = self.groups.pop_front().expect("the front was just seen");
            self.first += 1;
            durable.push(group);
        }
        durable
    }

    /// The oldest group not yet durable.
    #[must_use]
    pub fn oldest(&self) -> Option<&T> {
        self.groups.front().map(|(group, _)| group)
    }

    /// The groups not yet durable, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.groups.iter().map(|(group, _)| group)
    }

    /// Counts the groups not yet durable, holes included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// Tells whether nothing is in flight.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Counts the groups whose completion has not arrived.
    #[must_use]
    pub fn incomplete(&self) -> usize {
        self.groups.iter().filter(|(_, done)| !done).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decided(gathered: usize, in_flight: usize) -> GroupDecision {
        decide(GatheredBytes(gathered), GroupsInFlight(in_flight))
    }

    #[test]
    fn lone_append_goes_at_once() {
        assert_eq!(decided(1, 0), GroupDecision::Submit);
    }

    #[test]
    fn small_group_waits_behind_one_in_flight() {
        assert_eq!(decided(GROUP_BYTES_TARGET - 1, 1), GroupDecision::Gather);
    }

    #[test]
    fn large_group_goes_beside_others() {
        assert_eq!(decided(GROUP_BYTES_TARGET, 1), GroupDecision::Submit);
        assert_eq!(decided(GROUP_BYTES_TARGET, GROUPS_IN_FLIGHT_MAX - 1), GroupDecision::Submit);
    }

    #[test]
    fn depth_is_bounded() {
        assert_eq!(decided(GROUP_BYTES_TARGET * 9, GROUPS_IN_FLIGHT_MAX), GroupDecision::Gather);
    }

    #[test]
    fn nothing_gathered_is_never_submitted() {
        assert_eq!(decided(0, 0), GroupDecision::Gather);
    }

    #[test]
    fn durable_moves_over_the_contiguous_prefix_only() {
        let mut in_flight = InFlight::default();
        let groups: Vec<_> = (1..=4).map(|end| in_flight.submit(end)).collect();

        assert_eq!(in_flight.complete(groups[1]), Vec::<i32>::new());
        assert_eq!(in_flight.complete(groups[3]), Vec::<i32>::new());
        assert_eq!(in_flight.complete(groups[0]), vec![1, 2]);
        assert_eq!(in_flight.incomplete(), 1);
        assert_eq!(in_flight.complete(groups[2]), vec![3, 4]);
        assert!(in_flight.is_empty());
    }

    #[test]
    fn numbers_go_on_after_the_queue_ran_empty() {
        let mut in_flight = InFlight::default();
        let first = in_flight.submit('a');
        in_flight.complete(first);

        let second = in_flight.submit('b');

        assert_eq!(second, GroupNumber(1));
        assert_eq!(in_flight.complete(second), vec!['b']);
    }

    #[test]
    #[should_panic(expected = "completed twice")]
    fn a_group_completes_once() {
        let mut in_flight = InFlight::default();
        let first = in_flight.submit(());
        in_flight.submit(());
        in_flight.complete(first);
        in_flight.complete(first);
    }
}
