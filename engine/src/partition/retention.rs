//! Which closed segments have expired, by bytes and by server append time; and when the active one rolls.
//!
//! Pure: the caller brings the time. Data of unknown time never expires by age, and nothing at or above
//! `committed` ever does.

use std::time::Duration;

use crate::id::Offset;
use crate::io::clock::WallTime;

/// How long and how much a partition keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetentionLimits {
    /// Closed segments go, oldest first, while the log is larger than this.
    pub bytes_max: Option<u64>,
    /// A segment goes once its newest record is older than this.
    pub age_max: Option<Duration>,
}

/// What retention must know of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentSpan {
    /// One past its last record.
    pub end: Offset,
    /// Its bytes on disk.
    pub bytes: u64,
    /// The server's append time of its last batch; unknown never expires.
    pub last_time: WallTime,
}

/// Returns the log start that retention asks for: the end of the last closed segment that expires.
///
/// `closed` is oldest first; `active_bytes` counts towards the size. Only whole segments expire, in order:
/// one that must stay keeps all after it.
#[must_use]
pub fn retained_start(
    limits: RetentionLimits,
    closed: &[SegmentSpan],
    active_bytes: u64,
    committed: Offset,
    now: WallTime,
) -> Option<Offset> {
    let mut total: u64 = active_bytes + closed.iter().map(|segment| segment.bytes).sum::<u64>();
    let mut start = None;
    for segment in closed {
        let too_large = limits.bytes_max.is_some_and(|bytes_max| total > bytes_max);
        if segment.end > committed || !(too_large || is_older(segment.last_time, limits, now)) {
            break;
        }
        total -= segment.bytes;
        start = Some(segment.end);
    }
    start
}

/// Tells whether the active segment must roll because its newest batch is older than retention allows.
///
/// Without it an idle partition's last segment would never expire.
#[must_use]
pub fn must_roll_for_age(limits: RetentionLimits, last_time: WallTime, now: WallTime) -> bool {
    is_older(last_time, limits, now)
}

fn is_older(last_time: WallTime, limits: RetentionLimits, now: WallTime) -> bool {
    let Some(age_max) = limits.age_max else { return false };
    if last_time == WallTime::UNKNOWN || now == WallTime::UNKNOWN {
        return false;
    }
    u128::from(now.0.saturating_sub(last_time.0)) > age_max.as_micros()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    fn hours(count: u64) -> WallTime {
        WallTime(count * 3_600_000_000)
    }

    fn segment(end: u64, bytes: u64, last_time: WallTime) -> SegmentSpan {
        SegmentSpan { end: Offset(end), bytes, last_time }
    }

    fn by_bytes(bytes_max: u64) -> RetentionLimits {
        RetentionLimits { bytes_max: Some(bytes_max), age_max: None }
    }

    fn by_age() -> RetentionLimits {
        RetentionLimits { bytes_max: None, age_max: Some(HOUR) }
    }

    #[test]
    fn oldest_segments_go_until_the_log_fits() {
        let closed =
            [segment(10, 100, hours(1)), segment(20, 100, hours(1)), segment(30, 100, hours(1))];

        let start = retained_start(by_bytes(250), &closed, 50, Offset(35), hours(1));

        assert_eq!(start, Some(Offset(10)));
    }

    #[test]
    fn log_that_fits_stays_whole() {
        let closed = [segment(10, 100, hours(1))];

        assert_eq!(retained_start(by_bytes(150), &closed, 50, Offset(12), hours(1)), None);
    }

    #[test]
    fn nothing_uncommitted_expires() {
        let closed = [segment(10, 100, hours(1)), segment(20, 100, hours(1))];

        assert_eq!(retained_start(by_bytes(0), &closed, 0, Offset(15), hours(9)), Some(Offset(10)));
    }

    #[test]
    fn old_segments_go_by_server_time() {
        let closed = [segment(10, 1, hours(1)), segment(20, 1, hours(8)), segment(30, 1, hours(2))];

        assert_eq!(retained_start(by_age(), &closed, 0, Offset(30), hours(9)), Some(Offset(10)));
    }

    #[test]
    fn unknown_time_never_expires() {
        let closed = [segment(10, 1, WallTime::UNKNOWN), segment(20, 1, hours(1))];

        assert_eq!(retained_start(by_age(), &closed, 0, Offset(20), hours(9)), None);
        assert!(!must_roll_for_age(by_age(), WallTime::UNKNOWN, hours(9)));
    }

    #[test]
    fn wall_clock_behind_the_log_expires_nothing() {
        let closed = [segment(10, 1, hours(8))];

        assert_eq!(retained_start(by_age(), &closed, 0, Offset(10), hours(2)), None);
    }

    #[test]
    fn active_segment_rolls_on_age() {
        assert!(must_roll_for_age(by_age(), hours(1), hours(3)));
        assert!(!must_roll_for_age(by_age(), hours(1), hours(2)));
    }

    #[test]
    fn no_limits_keep_everything() {
        let closed = [segment(10, u64::MAX / 2, hours(1))];
        let limits = RetentionLimits::default();

        assert_eq!(retained_start(limits, &closed, 0, Offset(10), hours(1_000)), None);
    }
}
