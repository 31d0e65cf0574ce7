//! Decides when gathered appends become a group, whether its write makes it durable, and when groups that are only
//! written are synced.
//!
//! Pure: no I/O, no clock. Source of the rule: DESIGN 4, "Group commit".

use crate::io::disk::WriteMode;

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

/// The most bytes that are written and not on their way to being synced: a sync costs the device about as much as
/// writing a megabyte.
///
/// Source: docs/BENCHMARKS.md, "not synced".
pub const UNSYNCED_BYTES_MAX: usize = 8 << 20;

/// How many times that may be on its way in all: one part in a sync, one written, one being written.
pub const UNDURABLE_SYNCS_MAX: usize = 3;

/// The share of a shard's memory that such groups may hold, where that is less: they serve readers from memory until
/// they are durable.
pub const UNSYNCED_ARENA_SHARE: usize = 8;

/// What is known of a group and of its log when it goes to the device.
#[derive(Clone, Copy, Debug)]
pub struct GroupToWrite {
    /// Its bytes, header included.
    pub bytes: usize,
    /// Whether something waits for it, or for a group before it, to be durable.
    pub is_awaited: bool,
}

/// Decides how a group is written.
///
/// A large group that nobody waits for is only written; many of them then share one sync. A small one costs the device
/// the same either way, and is durable at once.
#[must_use]
pub fn write_mode(group: GroupToWrite) -> WriteMode {
    match group.is_awaited || group.bytes < GROUP_BYTES_TARGET {
        true => WriteMode::Durable,
        false => WriteMode::Written,
    }
}

/// What is known when groups are written and not synced.
#[derive(Clone, Copy, Debug)]
pub struct Unsynced {
    /// Their bytes.
    pub bytes: usize,
    /// The bytes from which a sync is due in any case.
    pub bytes_max: usize,
    /// Whether something waits for them to be durable.
    pub is_awaited: bool,
    /// Whether more groups are on their way, whose completion brings the next decision.
    pub is_writing: bool,
}

/// Decides whether the groups that are written are to be synced now, with no sync on its way.
///
/// A log that has gone quiet syncs at once, so what was accepted is durable and readable soon after.
#[must_use]
pub fn is_sync_due(unsynced: Unsynced) -> bool {
    unsynced.bytes > 0
        && (unsynced.is_awaited || !unsynced.is_writing || unsynced.bytes >= unsynced.bytes_max)
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
    fn only_a_large_group_that_nobody_waits_for_goes_unsynced() {
        let mode = |bytes, is_awaited| write_mode(GroupToWrite { bytes, is_awaited });
        assert_eq!(mode(GROUP_BYTES_TARGET, false), WriteMode::Written);
        assert_eq!(mode(GROUP_BYTES_TARGET, true), WriteMode::Durable);
        assert_eq!(mode(GROUP_BYTES_TARGET - 1, false), WriteMode::Durable);
    }

    #[test]
    fn sync_waits_for_more_but_for_nobody_who_waits_for_it() {
        let few = Unsynced { bytes: 1, bytes_max: 9, is_awaited: false, is_writing: true };
        assert!(!is_sync_due(few));
        assert!(is_sync_due(Unsynced { bytes: 9, ..few }));
        assert!(is_sync_due(Unsynced { is_awaited: true, ..few }));
        assert!(is_sync_due(Unsynced { is_writing: false, ..few }));
        assert!(!is_sync_due(Unsynced { bytes: 0, is_awaited: true, is_writing: false, ..few }));
    }
}
