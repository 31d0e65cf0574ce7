//! How long to pause between attempts: doubling, with jitter, under a cap. Never a storm (DESIGN 6).

use std::time::Duration;

/// The first pause, before jitter.
const FIRST: Duration = Duration::from_millis(20);

/// Counts failed attempts in a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Backoff {
    cap: Duration,
    failures: u32,
}

impl Backoff {
    /// Pauses never exceed `cap`.
    pub(super) fn new(cap: Duration) -> Backoff {
        Backoff { cap, failures: 0 }
    }

    /// An attempt succeeded: the next failure starts from the first pause again.
    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }

    /// An attempt failed: returns how long to pause. `random` is uniform in 0..1.
    ///
    /// Half of the pause is fixed and half drawn, so that many nodes that lost the same voter spread out.
    pub(super) fn next(&mut self, random: f64) -> Duration {
        let doubled = FIRST.saturating_mul(1 << self.failures.min(16));
        self.failures = self.failures.saturating_add(1);
        let pause = doubled.min(self.cap);
        pause.mul_f64(0.5 + random.clamp(0.0, 1.0) / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_cap_and_start_again_after_success() {
        let mut backoff = Backoff::new(Duration::from_millis(100));

        let pauses: Vec<_> = (0..5).map(|_| backoff.next(1.0).as_millis()).collect();
        assert_eq!(pauses, [20, 40, 80, 100, 100]);

        backoff.reset();
        assert_eq!(backoff.next(0.0).as_millis(), 10);
    }

    #[test]
    fn no_number_of_failures_overflows() {
        let mut backoff = Backoff { cap: Duration::from_secs(1), failures: u32::MAX };

        assert_eq!(backoff.next(1.0), Duration::from_secs(1));
    }
}
