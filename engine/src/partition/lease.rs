//! The lease as a value, and the atomics through which every shard checks it on each append.
//!
//! `deadline = sent + duration` on this machine's clocks; elapsed time is the larger of the two clocks, and
//! clocks that have parted drop the lease. Source: DESIGN 5.2.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::io::clock::ClockReading;

/// How far the two lease clocks may part before the lease is dropped.
///
/// NTP slews CLOCK_BOOTTIME by at most 500 ppm: 2 ms over a lease of 4 s. Ten times that is no slew.
pub const CLOCKS_PARTED_MAX: Duration = Duration::from_millis(20);

/// What one look at the lease says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseState {
    /// Usable for at least `left`.
    Usable {
        /// Until the deadline, on the clock that is further ahead.
        left: Duration,
    },
    /// The deadline has passed, or no lease was ever given.
    Expired,
    /// The clocks have parted since the lease was asked for; time cannot be trusted.
    ClocksParted,
}

/// A lease as its holder computes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTerm {
    /// The clocks *before* the request was sent.
    pub sent: ClockReading,
    /// How long it lasts from then.
    pub duration: Duration,
}

impl LeaseTerm {
    /// Judges the lease at `now`.
    #[must_use]
    pub fn state_at(self, now: ClockReading) -> LeaseState {
        let deadline = Deadline::of(self);
        deadline.state_at(now, true)
    }
}

/// A lease as its two deadlines in nanoseconds; zero means none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Deadline {
    boottime_ns: u64,
    monotonic_raw_ns: u64,
}

impl Deadline {
    const NONE: Deadline = Deadline { boottime_ns: 0, monotonic_raw_ns: 0 };

    fn of(lease: LeaseTerm) -> Deadline {
        Deadline {
            boottime_ns: nanoseconds(lease.sent.boottime.saturating_add(lease.duration)),
            monotonic_raw_ns: nanoseconds(lease.sent.monotonic_raw.saturating_add(lease.duration)),
        }
    }

    /// Both deadlines carry the same duration, so their difference is the clocks' difference when sent.
    fn state_at(self, now: ClockReading, whole: bool) -> LeaseState {
        if self == Deadline::NONE {
            return LeaseState::Expired;
        }
        let boottime = nanoseconds(now.boottime);
        let raw = nanoseconds(now.monotonic_raw);
        let left = self
            .boottime_ns
            .saturating_sub(boottime)
            .min(self.monotonic_raw_ns.saturating_sub(raw));
        if left == 0 {
            return LeaseState::Expired;
        }
        let apart_then = i128::from(self.boottime_ns) - i128::from(self.monotonic_raw_ns);
        let apart_now = i128::from(boottime) - i128::from(raw);
        if whole && apart_then.abs_diff(apart_now) > CLOCKS_PARTED_MAX.as_nanos() {
            return LeaseState::ClocksParted;
        }
        LeaseState::Usable { left: Duration::from_nanos(left) }
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The lease every shard checks: written by one renewing thread at a time, read without a lock.
///
/// A reader that meets a write half done sees one old and one new deadline. Deadlines only grow while a
/// lease lives, so the pair ends no later than the new lease; only the judgement whether the clocks have
/// parted is left to the next look. Nobody ever spins on a preempted writer.
#[derive(Debug, Default)]
pub struct SharedLease {
    version: AtomicU64,
    boottime_ns: AtomicU64,
    monotonic_raw_ns: AtomicU64,
}

impl SharedLease {
    /// Takes a new lease. Calls must not overlap: the gate's lock sees to that.
    pub fn set(&self, lease: LeaseTerm) {
        self.store(Deadline::of(lease));
    }

    /// Drops the lease: from here on every check fails.
    pub fn clear(&self) {
        self.store(Deadline::NONE);
    }

    /// Judges the lease at `now`.
    #[must_use]
    pub fn state_at(&self, now: ClockReading) -> LeaseState {
        let before = self.version.load(Ordering::Acquire);
        let deadline = Deadline {
            boottime_ns: self.boottime_ns.load(Ordering::Acquire),
            monotonic_raw_ns: self.monotonic_raw_ns.load(Ordering::Acquire),
        };
        let after = self.version.load(Ordering::Acquire);
        let whole = before == after && before.is_multiple_of(2);
        deadline.state_at(now, whole)
    }

    fn store(&self, deadline: Deadline) {
        self.version.fetch_add(1, Ordering::AcqRel);
        self.boottime_ns.store(deadline.boottime_ns, Ordering::Release);
        self.monotonic_raw_ns.store(deadline.monotonic_raw_ns, Ordering::Release);
        self.version.fetch_add(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn reading(boottime_ms: u64, raw_ms: u64) -> ClockReading {
        ClockReading {
            boottime: Duration::from_millis(boottime_ms),
            monotonic_raw: Duration::from_millis(raw_ms),
        }
    }

    fn lease() -> LeaseTerm {
        LeaseTerm { sent: reading(10_000, 9_000), duration: SECOND }
    }

    #[test]
    fn lease_counts_from_sending() {
        assert_eq!(
            lease().state_at(reading(10_999, 9_999)),
            LeaseState::Usable { left: Duration::from_millis(1) }
        );
        assert_eq!(lease().state_at(reading(11_000, 10_000)), LeaseState::Expired);
    }

    #[test]
    fn faster_clock_ends_the_lease() {
        assert_eq!(lease().state_at(reading(11_000, 9_999)), LeaseState::Expired);
        assert_eq!(lease().state_at(reading(10_999, 10_000)), LeaseState::Expired);
    }

    #[test]
    fn parted_clocks_drop_the_lease() {
        assert_eq!(lease().state_at(reading(10_100, 9_121)), LeaseState::ClocksParted);
        assert_eq!(
            lease().state_at(reading(10_100, 9_120)),
            LeaseState::Usable { left: Duration::from_millis(880) }
        );
    }

    #[test]
    fn no_lease_is_expired() {
        let shared = SharedLease::default();

        assert_eq!(shared.state_at(reading(0, 0)), LeaseState::Expired);
    }

    #[test]
    fn renewal_extends_and_clear_ends() {
        let shared = SharedLease::default();
        shared.set(lease());
        let now = reading(10_500, 9_500);
        assert!(matches!(shared.state_at(now), LeaseState::Usable { .. }));

        shared.clear();

        assert_eq!(shared.state_at(now), LeaseState::Expired);
    }
}
