//! The real [`Clock`]: three `clock_gettime` calls that the vDSO answers without entering the kernel.

use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

use super::clock::{Clock, ClockReading, WallTime};

/// The machine's own clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> ClockReading {
        ClockReading {
            boottime: since_zero(clock_gettime(ClockId::Boottime)),
            monotonic_raw: since_zero(clock_gettime(ClockId::MonotonicRaw)),
        }
    }

    fn wall(&self) -> WallTime {
        let since_1970 = since_zero(clock_gettime(ClockId::Realtime));
        WallTime(u64::try_from(since_1970.as_micros()).unwrap_or(u64::MAX))
    }
}

/// A clock set before its zero (possible for wall time only) reads as zero: unknown.
fn since_zero(time: Timespec) -> Duration {
    Duration::try_from(time).unwrap_or(Duration::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_never_go_back() {
        let mut earlier = SystemClock.now();

        for _ in 0..1000 {
            let later = SystemClock.now();
            assert!(later.boottime >= earlier.boottime);
            assert!(later.monotonic_raw >= earlier.monotonic_raw);
            earlier = later;
        }
    }

    #[test]
    fn wall_time_is_known_and_in_microseconds() {
        let year_2020 = WallTime(1_577_836_800_000_000);
        let year_2200 = WallTime(7_258_118_400_000_000);

        let wall = SystemClock.wall();

        assert!(wall > year_2020);
        assert!(wall < year_2200);
    }

    #[test]
    fn time_before_zero_is_unknown() {
        assert_eq!(since_zero(Timespec { tv_sec: -1, tv_nsec: 0 }), Duration::ZERO);
    }
}
