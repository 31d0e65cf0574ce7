//! One look at this machine's clocks, as one who waits for another's lease to end counts them.

use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

/// A reading of CLOCK_BOOTTIME and CLOCK_MONOTONIC_RAW.
///
/// The waiter trusts whichever says less has passed: the first is slewed, the second stops in suspension.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    boottime: Duration,
    monotonic_raw: Duration,
}

impl Reading {
    /// Reads the clocks.
    #[must_use]
    pub fn now() -> Reading {
        Reading {
            boottime: duration_of(clock_gettime(ClockId::Boottime)),
            monotonic_raw: duration_of(clock_gettime(ClockId::MonotonicRaw)),
        }
    }

    /// Makes a reading on which both clocks show the same.
    #[must_use]
    pub fn at(both: Duration) -> Reading {
        Reading { boottime: both, monotonic_raw: both }
    }

    /// The time since `earlier` that has passed for certain: the smaller of the two.
    #[must_use]
    pub fn since(self, earlier: Reading) -> Duration {
        let boottime = self.boottime.saturating_sub(earlier.boottime);
        boottime.min(self.monotonic_raw.saturating_sub(earlier.monotonic_raw))
    }
}

fn duration_of(time: Timespec) -> Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}
