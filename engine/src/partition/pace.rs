//! How long the making of a next segment rests after a piece of zeros, so that appends find the device free. Pure.
//!
//! Zeros go to the device in pieces, one after the other. While there are appends and time is left, the maker rests as
//! long as its last piece took; when the active segment fills up faster than the next one is made, it does not rest.

use std::time::Duration;

/// The longest rest: a maker that always rests makes 64 MiB in half a second all the same, and others wait for it.
const REST_MAX: Duration = Duration::from_millis(4);

/// The share of the active segment that may be filled by the time the next one is made, in percent.
const FILLED_PERCENT_MAX: u64 = 75;

/// Where the making of a segment stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Making {
    /// How much of the next segment's file is written, and its length.
    pub(super) made_bytes: u64,
    pub(super) file_bytes: u64,
    /// How much of the active segment is filled, how much was when the making began, and its length. 0 without one.
    pub(super) filled_bytes: u64,
    pub(super) filled_before: u64,
    pub(super) active_bytes: u64,
    /// Whether appends of the shard wait for their acknowledgement.
    pub(super) is_appending: bool,
    /// Whether an append waits for this very segment.
    pub(super) is_awaited: bool,
    /// How long the last piece took.
    pub(super) last_piece: Duration,
}

/// Returns how long to rest before the next piece.
pub(super) fn rest_after(making: Making) -> Duration {
    if !making.is_appending || making.is_awaited || is_behind(making) {
        return Duration::ZERO;
    }
    making.last_piece.min(REST_MAX)
}

/// Tells whether the active segment is on its way to being full before the next one is made.
fn is_behind(making: Making) -> bool {
    let limit = making.active_bytes / 100 * FILLED_PERCENT_MAX;
    let left = limit.saturating_sub(making.filled_before);
    let filled = making.filled_bytes.saturating_sub(making.filled_before);
    // made / file < filled / left, without fractions.
    let made = u128::from(making.made_bytes) * u128::from(left);
    made <= u128::from(filled) * u128::from(making.file_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const PIECE: Duration = Duration::from_millis(1);

    /// A quarter of 64 MiB was filled when the making began, half is now, and half of the next one is made.
    fn on_time() -> Making {
        Making {
            made_bytes: 33 * MIB,
            file_bytes: 64 * MIB,
            filled_bytes: 31 * MIB,
            filled_before: 16 * MIB,
            active_bytes: 64 * MIB,
            is_appending: true,
            is_awaited: false,
            last_piece: PIECE,
        }
    }

    #[test]
    fn maker_on_time_rests_as_long_as_it_works() {
        assert_eq!(rest_after(on_time()), PIECE);
    }

    #[test]
    fn slow_device_makes_no_rest_longer_than_the_limit() {
        let making = Making { last_piece: Duration::from_secs(1), ..on_time() };

        assert_eq!(rest_after(making), REST_MAX);
    }

    #[test]
    fn maker_that_is_behind_does_not_rest() {
        let behind = Making { made_bytes: 10 * MIB, ..on_time() };
        let nearly_full = Making { filled_bytes: 60 * MIB, made_bytes: 60 * MIB, ..on_time() };
        let full_before = Making { filled_before: 50 * MIB, filled_bytes: 50 * MIB, ..on_time() };

        assert_eq!(rest_after(behind), Duration::ZERO);
        assert_eq!(rest_after(nearly_full), Duration::ZERO);
        assert_eq!(rest_after(full_before), Duration::ZERO);
    }

    #[test]
    fn nobody_to_stall_means_no_rest() {
        assert_eq!(rest_after(Making { is_appending: false, ..on_time() }), Duration::ZERO);
    }

    #[test]
    fn awaited_segment_is_made_at_once() {
        assert_eq!(rest_after(Making { is_awaited: true, ..on_time() }), Duration::ZERO);
        let first = Making { active_bytes: 0, filled_bytes: 0, filled_before: 0, ..on_time() };
        assert_eq!(rest_after(first), Duration::ZERO);
    }
}
