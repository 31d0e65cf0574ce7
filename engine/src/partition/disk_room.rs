//! Decides how much of a disk segments may take, and how long the next one may be.
//!
//! Pure. What is kept free is for checkpoints, footers and promises: so a trim works, and a restart, when appends are
//! refused. Source: DESIGN 4, "Disk full".

use crate::id::BLOCK_BYTES;
use crate::io::disk::DiskSpace;

/// The share of a disk that segments leave free: one in this many.
const RESERVE_SHARE: u64 = 32;

/// The most they leave free: checkpoints of ten thousand partitions.
const RESERVE_BYTES_MAX: u64 = 64 << 20;

/// How much shorter than due the shortest segment may be that is still worth its syncs.
const SEGMENT_BYTES_LEAST: u64 = 64 << 10;

/// The next segment, as the log would like it.
#[derive(Clone, Copy, Debug)]
pub(super) struct WantedSegment {
    /// Its length, were there room.
    pub(super) due_bytes: u64,
    /// The length below which what waits would not fit.
    pub(super) needed_bytes: u64,
    /// Appends are being refused: they are let in again when there is room for more than one batch.
    pub(super) is_refusing: bool,
    /// The marker of an epoch waits for it: a promise has been made, and the reserve is for what that takes.
    pub(super) has_marker: bool,
}

/// What a log with too little room is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooLittle {
    /// What the disk must have free before a segment is made.
    pub(super) needed_bytes: u64,
}

/// Chooses the length of the next segment: the one that is due, or halves of it down to what is needed.
///
/// # Errors
///
/// [`TooLittle`]: there is no room for any, the reserve left alone.
pub(super) fn choose_bytes(wanted: WantedSegment, space: DiskSpace) -> Result<u64, TooLittle> {
    if wanted.has_marker && space.available_bytes >= wanted.needed_bytes {
        let least = choose_bytes(WantedSegment { has_marker: false, ..wanted }, space);
        return Ok(least.unwrap_or(wanted.needed_bytes));
    }
    let reserve_bytes = (space.total_bytes / RESERVE_SHARE).min(RESERVE_BYTES_MAX);
    let free_bytes = space.available_bytes.saturating_sub(reserve_bytes);
    let least = wanted.needed_bytes.max(SEGMENT_BYTES_LEAST).min(wanted.due_bytes);
    let mark = if wanted.is_refusing { 2 * least } else { least };
    if free_bytes < mark {
        return Err(TooLittle { needed_bytes: mark + reserve_bytes });
    }
    let mut bytes = wanted.due_bytes;
    while bytes > free_bytes {
        bytes = (bytes / 2).next_multiple_of(BLOCK_BYTES as u64).max(least);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DUE: u64 = 64 << 20;
    const WANTED: WantedSegment = WantedSegment {
        due_bytes: DUE,
        needed_bytes: 100 << 10,
        is_refusing: false,
        has_marker: false,
    };
    const TOTAL: u64 = 10 << 30;

    fn chosen(wanted: WantedSegment, free_bytes: u64) -> Result<u64, TooLittle> {
        let available_bytes = free_bytes + RESERVE_BYTES_MAX;
        choose_bytes(wanted, DiskSpace { available_bytes, total_bytes: TOTAL })
    }

    #[test]
    fn segment_is_as_long_as_due_while_there_is_room() {
        assert_eq!(chosen(WANTED, DUE), Ok(DUE));
    }

    #[test]
    fn shorter_ones_are_made_down_to_what_is_needed() {
        assert_eq!(chosen(WANTED, DUE - 1), Ok(DUE / 2));
        assert_eq!(chosen(WANTED, 1 << 20), Ok(1 << 20));
        assert_eq!(chosen(WANTED, 100 << 10), Ok(100 << 10));
        let needed_bytes = (100 << 10) + RESERVE_BYTES_MAX;
        assert_eq!(chosen(WANTED, (100 << 10) - 1), Err(TooLittle { needed_bytes }));
    }

    #[test]
    fn short_segment_that_is_due_is_never_made_longer() {
        let short = WantedSegment { due_bytes: 16 << 10, needed_bytes: 0, ..WANTED };
        assert_eq!(chosen(short, 16 << 10), Ok(16 << 10));
    }

    #[test]
    fn refused_appends_come_back_at_a_higher_mark() {
        let refusing = WantedSegment { is_refusing: true, ..WANTED };
        assert!(chosen(refusing, 199 << 10).is_err());
        assert_eq!(chosen(refusing, 200 << 10), Ok(128 << 10));
    }

    #[test]
    fn marker_takes_what_it_needs_of_the_reserve() {
        let marker = WantedSegment { needed_bytes: 20 << 10, has_marker: true, ..WANTED };
        let space = |available_bytes| DiskSpace { available_bytes, total_bytes: TOTAL };
        assert_eq!(choose_bytes(marker, space(20 << 10)), Ok(20 << 10));
        assert!(choose_bytes(marker, space((20 << 10) - 1)).is_err());
        assert_eq!(choose_bytes(marker, space(TOTAL)), Ok(DUE));
    }

    #[test]
    fn small_disk_keeps_a_share_of_itself() {
        let space = DiskSpace { available_bytes: 200 << 10, total_bytes: 3_200 << 10 };
        let needed_bytes = 200 << 10;
        let just = WantedSegment { needed_bytes: 101 << 10, ..WANTED };
        assert_eq!(choose_bytes(WANTED, space), Ok(100 << 10));
        assert_eq!(choose_bytes(just, space), Err(TooLittle { needed_bytes: needed_bytes + 1024 }));
    }
}
