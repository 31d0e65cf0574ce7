//! Real time for benches, read in one place.

use std::time::{Duration, Instant};

/// A running measurement of real time.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    started: Instant,
}

impl Stopwatch {
    /// Starts measuring.
    #[must_use]
    #[expect(
        clippy::disallowed_methods,
        reason = "a bench measures real time, nothing simulates it"
    )]
    pub fn start() -> Stopwatch {
        Stopwatch { started: Instant::now() }
    }

    /// Returns the time since the start.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }
}

/// Waits without using the processor, for what can only be polled: files of another thread.
#[expect(
    clippy::disallowed_methods,
    reason = "a bench waits for the file system between measurements"
)]
pub fn pause(length: Duration) {
    std::thread::sleep(length);
}

/// Returns the `part`-quantile (0.5 is the median) of latencies, sorting them.
///
/// # Panics
///
/// If there are none, or `part` is not within 0 and 1.
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "the index lies within the slice"
)]
pub fn quantile(latencies: &mut [Duration], part: f64) -> Duration {
    assert!(!latencies.is_empty());
    assert!((0.0..=1.0).contains(&part));
    let index = ((latencies.len() - 1) as f64 * part).round() as usize;
    *latencies.select_nth_unstable(index).1
}
