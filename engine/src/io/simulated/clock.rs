//! The simulated clock of one machine: virtual time, bent by a drift and jumps of its own.
//!
//! Never moves by itself. The three clocks of a machine bend apart, because real ones do.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::runtime::{SimulatedRuntime, VirtualTime};
use crate::io::clock::{Clock, ClockReading, WallTime};

/// Wall time when a simulation begins: some day in 2023, far from 0, which means unknown.
const WALL_AT_START: Duration = Duration::from_secs(1_700_000_000);

const MILLION: i128 = 1_000_000;

/// Which clock of a machine a test bends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimulatedClockKind {
    /// CLOCK_BOOTTIME.
    Boottime,
    /// CLOCK_MONOTONIC_RAW.
    MonotonicRaw,
    /// CLOCK_REALTIME.
    Wall,
}

/// A machine's clocks. `Clone` shares them.
#[derive(Clone, Debug)]
pub struct SimulatedClock {
    virtual_time: Arc<VirtualTime>,
    /// In the order of [`SimulatedClockKind`].
    bends: Arc<Mutex<[Bend; 3]>>,
}

/// A straight line from a point in virtual time.
#[derive(Clone, Copy, Debug)]
struct Bend {
    since: Duration,
    shown_then: Duration,
    drift_ppm: i32,
}

impl Bend {
    fn shown_at(&self, now: Duration) -> Duration {
        let passed = i128::try_from(now.saturating_sub(self.since).as_nanos()).expect("fits");
        let bent = passed * (MILLION + i128::from(self.drift_ppm)) / MILLION;
        self.shown_then + Duration::from_nanos(u64::try_from(bent.max(0)).expect("fits"))
    }
}

impl SimulatedClock {
    /// Makes a machine's clocks, true ones until bent.
    #[must_use]
    pub fn new(runtime: &SimulatedRuntime) -> SimulatedClock {
        let line = |shown_then| Bend { since: Duration::ZERO, shown_then, drift_ppm: 0 };
        SimulatedClock {
            virtual_time: runtime.scheduler().virtual_time(),
            bends: Arc::new(Mutex::new([
                line(Duration::ZERO),
                line(Duration::ZERO),
                line(WALL_AT_START),
            ])),
        }
    }

    /// Lets one clock run fast (or slow, below 0) by `drift_ppm` millionths from now on.
    ///
    /// # Panics
    ///
    /// Below -1,000,000: no clock of a machine runs backwards, it jumps.
    pub fn set_drift(&self, kind: SimulatedClockKind, drift_ppm: i32) {
        assert!(i128::from(drift_ppm) >= -MILLION, "a drift below -1,000,000 ppm");
        self.bend(kind, |shown| shown, drift_ppm);
    }

    /// Moves one clock forward by `duration` at once: a suspension for boottime, a step for wall time.
    pub fn jump(&self, kind: SimulatedClockKind, duration: Duration) {
        let drift_ppm = self.drift_of(kind);
        self.bend(kind, |shown| shown + duration, drift_ppm);
    }

    /// Moves wall time backwards by `duration`, at most to 0. The lease clocks never do that.
    pub fn jump_wall_back(&self, duration: Duration) {
        let drift_ppm = self.drift_of(SimulatedClockKind::Wall);
        self.bend(SimulatedClockKind::Wall, |shown| shown.saturating_sub(duration), drift_ppm);
    }

    /// Starts the lease clocks anew from zero, as a machine that boots does; wall time goes on.
    pub fn reboot(&self) {
        self.bend(
            SimulatedClockKind::Boottime,
            |_| Duration::ZERO,
            self.drift_of(SimulatedClockKind::Boottime),
        );
        self.bend(
            SimulatedClockKind::MonotonicRaw,
            |_| Duration::ZERO,
            self.drift_of(SimulatedClockKind::MonotonicRaw),
        );
    }

    fn bend(&self, kind: SimulatedClockKind, to: impl Fn(Duration) -> Duration, drift_ppm: i32) {
        let now = self.virtual_time.now();
        let bend = &mut self.bends()[kind as usize];
        *bend = Bend { since: now, shown_then: to(bend.shown_at(now)), drift_ppm };
    }

    fn drift_of(&self, kind: SimulatedClockKind) -> i32 {
        self.bends()[kind as usize].drift_ppm
    }

    fn bends(&self) -> MutexGuard<'_, [Bend; 3]> {
        self.bends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shown(&self, kind: SimulatedClockKind) -> Duration {
        self.bends()[kind as usize].shown_at(self.virtual_time.now())
    }
}

impl Clock for SimulatedClock {
    fn now(&self) -> ClockReading {
        ClockReading {
            boottime: self.shown(SimulatedClockKind::Boottime),
            monotonic_raw: self.shown(SimulatedClockKind::MonotonicRaw),
        }
    }

    fn wall(&self) -> WallTime {
        let microseconds = self.shown(SimulatedClockKind::Wall).as_micros();
        WallTime(u64::try_from(microseconds).expect("a wall time before the year 586912"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn clocks_of_machines_follow_virtual_time_each_at_its_own_rate() {
        let runtime = SimulatedRuntime::new(1);
        let (true_clock, fast) = (SimulatedClock::new(&runtime), SimulatedClock::new(&runtime));
        fast.set_drift(SimulatedClockKind::Boottime, 1_000);
        let (true_start, fast_start) = (true_clock.now(), fast.now());

        runtime.run_for(HOUR);

        assert_eq!(true_clock.now().elapsed_for_holder(true_start), HOUR);
        assert_eq!(fast.now().elapsed_for_waiter(fast_start), HOUR);
        assert_eq!(fast.now().parted_since(fast_start), Duration::from_millis(3600));
    }

    #[test]
    fn drift_set_later_does_not_change_the_past() {
        let runtime = SimulatedRuntime::new(1);
        let clock = SimulatedClock::new(&runtime);
        runtime.run_for(HOUR);

        clock.set_drift(SimulatedClockKind::MonotonicRaw, -500_000);
        let at_change = clock.now().monotonic_raw;
        runtime.run_for(HOUR);

        assert_eq!(at_change, HOUR);
        assert_eq!(clock.now().monotonic_raw, HOUR + HOUR / 2);
    }

    #[test]
    fn wall_jumps_both_ways_and_leases_do_not_notice() {
        let runtime = SimulatedRuntime::new(1);
        let clock = SimulatedClock::new(&runtime);
        let (start, wall) = (clock.now(), clock.wall());

        clock.jump(SimulatedClockKind::Wall, HOUR);
        let ahead = clock.wall();
        clock.jump_wall_back(HOUR * 2);

        assert_eq!(ahead.0 - wall.0, 3_600_000_000);
        assert_eq!(wall.0 - clock.wall().0, 3_600_000_000);
        assert_eq!(clock.now(), start);
    }

    #[test]
    fn suspension_shows_on_boottime_alone() {
        let runtime = SimulatedRuntime::new(1);
        let clock = SimulatedClock::new(&runtime);
        let start = clock.now();

        clock.jump(SimulatedClockKind::Boottime, HOUR);

        assert_eq!(clock.now().parted_since(start), HOUR);
        assert_eq!(clock.now().elapsed_for_holder(start), HOUR);
        assert_eq!(clock.now().elapsed_for_waiter(start), Duration::ZERO);
    }
}
