//! The real [`Clock`]: three `clock_gettime` calls that the vDSO answers without entering the kernel.

use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

use super::clock::{Clock, ClockReading, WallTime};

/// The machine's own clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

/// Between the two clocks of a reading the thread may lose its processor. A reading that took longer than this looks as
/// if the clocks had parted and is taken again. Above two ticks of the coarse clock, well below `CLOCKS_PARTED_MAX`.
const READING_MAX: Duration = Duration::from_millis(9);

/// On a machine so busy that each of these is disturbed, the last one has to do; a lease then reads as not usable.
const READINGS_MAX: u32 = 8;

impl Clock for SystemClock {
    fn now(&self) -> ClockReading {
        let coarse = || since_zero(clock_gettime(ClockId::MonotonicCoarse));
        undisturbed(coarse, || ClockReading {
            boottime: since_zero(clock_gettime(ClockId::Boottime)),
            monotonic_raw: since_zero(clock_gettime(ClockId::MonotonicRaw)),
        })
    }

    fn wall(&self) -> WallTime {
        let since_1970 = since_zero(clock_gettime(ClockId::Realtime));
        WallTime(u64::try_from(since_1970.as_micros()).unwrap_or(u64::MAX))
    }
}

/// Reads both clocks close together. The coarse clock around them costs a few nanoseconds, another fine one would add half.
fn undisturbed(
    mut coarse: impl FnMut() -> Duration,
    mut read: impl FnMut() -> ClockReading,
) -> ClockReading {
    let mut before = coarse();
    let mut reading = read();
    for _ in 1..READINGS_MAX {
        let after = coarse();
        if after.saturating_sub(before) <= READING_MAX {
            break;
        }
        before = after;
        reading = read();
    }
    reading
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

    fn reading(ms: u64) -> ClockReading {
        let at = Duration::from_millis(ms);
        ClockReading { boottime: at, monotonic_raw: at }
    }

    #[test]
    fn reading_that_lost_the_processor_is_taken_again() {
        let mut coarse = [0, 40, 44].map(Duration::from_millis).into_iter();
        let mut readings = [reading(1), reading(41), reading(45)].into_iter();

        let taken = undisturbed(|| coarse.next().unwrap(), || readings.next().unwrap());

        assert_eq!(taken, reading(41));
    }

    #[test]
    fn readings_end_on_a_machine_that_is_always_busy() {
        let mut count = 0;
        let mut ms = 0;
        let coarse = || {
            ms += 50;
            Duration::from_millis(ms)
        };

        undisturbed(coarse, || {
            count += 1;
            reading(count)
        });

        assert_eq!(count, u64::from(READINGS_MAX));
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
