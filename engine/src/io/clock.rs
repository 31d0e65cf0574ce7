//! The clock seam: readings for leases and wall time for stamping appends.

use std::time::Duration;

/// One look at the machine's clocks.
///
/// Two clocks are read because each lies in its own way: CLOCK_BOOTTIME counts suspension but is slewed by
/// NTP, CLOCK_MONOTONIC_RAW is never slewed but stops in suspension. Source: clock_gettime(2), DESIGN 5.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockReading {
    /// CLOCK_BOOTTIME.
    pub boottime: Duration,
    /// CLOCK_MONOTONIC_RAW.
    pub monotonic_raw: Duration,
}

impl ClockReading {
    /// The time since `earlier` as the holder of a lease must count it: the larger of the two.
    #[must_use]
    pub fn elapsed_for_holder(self, earlier: ClockReading) -> Duration {
        let (boottime, raw) = self.elapsed_both(earlier);
        boottime.max(raw)
    }

    /// The time since `earlier` as one who waits for a lease to end must count it: the smaller.
    #[must_use]
    pub fn elapsed_for_waiter(self, earlier: ClockReading) -> Duration {
        let (boottime, raw) = self.elapsed_both(earlier);
        boottime.min(raw)
    }

    /// How far the two clocks have parted since `earlier`.
    #[must_use]
    pub fn parted_since(self, earlier: ClockReading) -> Duration {
        let (boottime, raw) = self.elapsed_both(earlier);
        boottime.abs_diff(raw)
    }

    fn elapsed_both(self, earlier: ClockReading) -> (Duration, Duration) {
        (
            self.boottime.saturating_sub(earlier.boottime),
            self.monotonic_raw.saturating_sub(earlier.monotonic_raw),
        )
    }
}

/// Server wall time in microseconds since 1970, for append times; `0` means unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WallTime(pub u64);

impl WallTime {
    /// No time is known; such data never expires by age.
    pub const UNKNOWN: WallTime = WallTime(0);
}

/// Reads the machine's clocks. Shared by every thread of an engine; a read costs no system call.
pub trait Clock: Send + Sync + std::fmt::Debug + 'static {
    /// Reads both lease clocks, freshly.
    fn now(&self) -> ClockReading;

    /// Reads wall time. It may jump in either direction; nothing about safety may depend on it.
    fn wall(&self) -> WallTime;
}
