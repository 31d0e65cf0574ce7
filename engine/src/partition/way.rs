//! Decides how a partition's gathered appends become durable: in a segment of its own, or in the shard's journal
//! together with the small groups of others.
//!
//! Pure: no I/O, no clock. Figures and alternatives: `docs/adr/0008-journal.md`.

use super::group_commit::{
    GROUP_BYTES_TARGET, GatheredBytes, GroupDecision, GroupsInFlight, decide,
};

/// Gathered bytes from which a group goes to its segment by itself: the write costs the device little more than
/// its bytes, and in the journal they would be written twice.
pub const DIRECT_BYTES_MIN: usize = 32 << 10;

/// What a shard and one of its partitions look like when the partition has something gathered.
#[derive(Clone, Copy, Debug)]
pub struct Situation {
    /// What the partition has gathered.
    pub gathered: GatheredBytes,
    /// Groups of the partition on their way to its segments.
    pub in_flight: GroupsInFlight,
    /// Whether groups of the partition in the journal have no place in a segment yet.
    pub has_journaled: bool,
    /// Whether the marker of an epoch is among what was gathered, or a change waits for the log to be drained.
    pub must_be_direct: bool,
    /// Whether other partitions of the shard have something to write, or are writing.
    pub is_crowded: bool,
    /// Whether the shard has a journal that takes groups.
    pub has_journal: bool,
    /// Whether most of those whose appends were just acknowledged have not come back yet, and may be about to.
    pub is_expecting: bool,
}

impl Situation {
    /// Whether a journal would be used if there were one.
    #[must_use]
    pub fn wants_journal(self) -> bool {
        !self.has_journal && choose(Situation { has_journal: true, ..self }) == Way::Journal
    }
}

/// What to do with what has been gathered, at the end of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Write it to the partition's segment now.
    Direct,
    /// Put it into the journal's next frame.
    Journal,
    /// Keep gathering.
    Gather,
    /// Keep gathering for one turn of the ring: callers on other threads take that long to come back, and the few that
    /// are here would make a small write that all the others wait behind.
    Expect,
}

/// Decides about what a partition has gathered.
///
/// A lone partition writes to its segment: one write, and the journal would add a second. Small groups of several
/// share one durable write. A partition with groups in the journal stays there until it has a large one, because
/// a segment takes groups in order.
#[must_use]
pub fn choose(situation: Situation) -> Way {
    let direct = || match decide(situation.gathered, situation.in_flight) {
        GroupDecision::Submit => Way::Direct,
        GroupDecision::Gather => Way::Gather,
    };
    if situation.gathered.0 == 0 {
        return Way::Gather;
    }
    if situation.must_be_direct {
        return direct();
    }
    let is_shared = situation.has_journaled || situation.is_crowded;
    let is_alone = !is_shared && situation.in_flight.0 == 0;
    if situation.is_expecting && is_alone && situation.gathered.0 < GROUP_BYTES_TARGET {
        return Way::Expect;
    }
    let is_small = situation.gathered.0 < DIRECT_BYTES_MIN;
    if is_small && is_shared && situation.has_journal {
        return Way::Journal;
    }
    direct()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONE: Situation = Situation {
        gathered: GatheredBytes(200),
        in_flight: GroupsInFlight(0),
        has_journaled: false,
        must_be_direct: false,
        is_crowded: false,
        has_journal: true,
        is_expecting: false,
    };

    const CROWDED: Situation = Situation { is_crowded: true, ..LONE };

    #[test]
    fn lone_small_group_goes_to_its_segment() {
        assert_eq!(choose(LONE), Way::Direct);
    }

    #[test]
    fn lone_partition_gathers_behind_its_write() {
        assert_eq!(choose(Situation { in_flight: GroupsInFlight(1), ..LONE }), Way::Gather);
    }

    #[test]
    fn few_of_many_callers_wait_for_the_others() {
        let expecting = Situation { is_expecting: true, ..LONE };
        assert_eq!(choose(expecting), Way::Expect);
        assert_eq!(choose(Situation { must_be_direct: true, ..expecting }), Way::Direct);
        let large = Situation { gathered: GatheredBytes(GROUP_BYTES_TARGET), ..expecting };
        assert_eq!(choose(large), Way::Direct);
        // The write in flight brings the next decision.
        assert_eq!(choose(Situation { in_flight: GroupsInFlight(1), ..expecting }), Way::Gather);
        // Others of the shard have a write to share.
        assert_eq!(choose(Situation { is_crowded: true, ..expecting }), Way::Journal);
    }

    #[test]
    fn small_groups_of_several_partitions_share_a_write() {
        assert_eq!(choose(CROWDED), Way::Journal);
        assert_eq!(choose(Situation { in_flight: GroupsInFlight(1), ..CROWDED }), Way::Journal);
    }

    #[test]
    fn partition_with_groups_in_the_journal_stays_there() {
        assert_eq!(choose(Situation { has_journaled: true, ..LONE }), Way::Journal);
    }

    #[test]
    fn large_group_goes_to_its_segment() {
        let large = Situation { gathered: GatheredBytes(DIRECT_BYTES_MIN), ..CROWDED };
        assert_eq!(choose(large), Way::Direct);
        assert_eq!(choose(Situation { has_journaled: true, ..large }), Way::Direct);
    }

    #[test]
    fn without_a_journal_every_group_goes_to_its_segment() {
        assert_eq!(choose(Situation { has_journal: false, ..CROWDED }), Way::Direct);
    }

    #[test]
    fn markers_and_drains_go_to_the_segment() {
        assert_eq!(choose(Situation { must_be_direct: true, ..CROWDED }), Way::Direct);
    }

    #[test]
    fn nothing_gathered_goes_nowhere() {
        assert_eq!(choose(Situation { gathered: GatheredBytes(0), ..CROWDED }), Way::Gather);
    }
}
