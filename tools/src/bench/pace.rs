//! When a batch of an open loop is meant to start. Pure.

use std::time::Duration;

/// The starts of one thread: every `threads`-th batch of the whole load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    batches_per_s: f64,
    thread: u64,
    threads: u64,
}

impl Pace {
    pub(crate) fn new(batches_per_s: f64, thread: u64, threads: u64) -> Pace {
        Pace { batches_per_s, thread, threads }
    }

    /// When this thread's batch `index` is to start, from the start of the load.
    #[expect(clippy::cast_precision_loss, reason = "a load has fewer than 2^52 batches")]
    pub(crate) fn start_of(&self, index: u64) -> Duration {
        let batch = index * self.threads + self.thread;
        Duration::from_secs_f64(batch as f64 / self.batches_per_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_share_the_starts_evenly() {
        let pace = |thread| Pace::new(1_000.0, thread, 2);

        assert_eq!(pace(0).start_of(0), Duration::ZERO);
        assert_eq!(pace(1).start_of(0), Duration::from_millis(1));
        assert_eq!(pace(0).start_of(1), Duration::from_millis(2));
        assert_eq!(pace(1).start_of(500), Duration::from_millis(1_001));
    }
}
