//! Counts what callers get acknowledged within a span of time, after a warm-up, up to a bound of bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use palisade_benches::machine::BusyTime;
use palisade_benches::stopwatch::{Stopwatch, pause, quantile};
use serde::{Deserialize, Serialize};

/// How often the clock is looked at.
const TICK: Duration = Duration::from_millis(2);

/// A system that acknowledges nothing for this long gives no sample.
const SLOWEST: Duration = Duration::from_secs(20);

/// How long and how much.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Not counted.
    pub warm_up: Duration,
    /// Counted.
    pub span: Duration,
    /// Ends either early: bounds the disk space of one sample.
    pub bytes_max: u64,
}

/// What one run of one system gave.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// Acknowledged records a second.
    pub records_per_s: f64,
    /// Acknowledged bytes of records a second, in 10^6.
    pub mb_per_s: f64,
    /// Half of the acknowledgements came within this. Reads have none.
    pub ack_p50_us: Option<f64>,
    /// 99 of 100 did.
    pub ack_p99_us: Option<f64>,
    /// Opening, making partitions and what else is needed before.
    pub setup_s: f64,
    /// Part of the machine's processor time that others used meanwhile (kernel threads count as others).
    pub used_by_others: f64,
}

/// What callers and the clock share.
#[derive(Debug, Default)]
pub struct Gauge {
    phase: AtomicU8,
    bytes: AtomicU64,
}

const WARMING: u8 = 0;
const MEASURING: u8 = 1;
const OVER: u8 = 2;

impl Gauge {
    /// Tells a caller to stop.
    pub fn is_over(&self) -> bool {
        self.phase.load(Ordering::Relaxed) == OVER
    }

    /// Runs `callers`, which return their tallies once [`is_over`](Self::is_over), and counts.
    ///
    /// # Errors
    ///
    /// The callers'.
    pub fn measure(
        limits: Limits,
        shape: BatchShape,
        callers: impl FnOnce(&Arc<Gauge>) -> anyhow::Result<Vec<Tally>> + Send,
    ) -> anyhow::Result<Sample> {
        let gauge = Arc::<Gauge>::default();
        let (tallies, elapsed, others) = thread::scope(|scope| {
            let running = scope.spawn(|| callers(&gauge));
            let has_ended = || running.is_finished();
            gauge.wait(limits.warm_up, limits.bytes_max / 4, has_ended);
            let busy = BusyTime::now();
            let clock = Stopwatch::start();
            gauge.phase.store(MEASURING, Ordering::Relaxed);
            let before = gauge.bytes.load(Ordering::Relaxed);
            gauge.wait(limits.span, limits.bytes_max, has_ended);
            // One acknowledgement at least, however slow: a batch may take longer than the span.
            gauge.wait(SLOWEST, before + 1, has_ended);
            let elapsed = clock.elapsed();
            gauge.phase.store(OVER, Ordering::Relaxed);
            let others = BusyTime::now().used_by_others_since(busy);
            (running.join(), elapsed, others)
        });
        let tallies = tallies.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let latencies = tallies.into_iter().flat_map(|tally| tally.latencies).collect();
        Sample::of(latencies, elapsed, shape, others)
    }

    fn wait(&self, length: Duration, bytes_max: u64, has_ended: impl Fn() -> bool) {
        let clock = Stopwatch::start();
        while clock.elapsed() < length
            && self.bytes.load(Ordering::Relaxed) < bytes_max
            && !has_ended()
        {
            pause(TICK);
        }
    }
}

/// What one batch counts for.
#[derive(Clone, Copy, Debug)]
pub struct BatchShape {
    /// Records of a batch.
    pub records: usize,
    /// Bytes of its records.
    pub bytes: u64,
}

impl Sample {
    /// Sums up acknowledgements that came within `elapsed`.
    ///
    /// # Errors
    ///
    /// If there was none.
    pub fn of(
        mut latencies: Vec<Duration>,
        elapsed: Duration,
        shape: BatchShape,
        used_by_others: f64,
    ) -> anyhow::Result<Sample> {
        anyhow::ensure!(!latencies.is_empty(), "no acknowledgement within {elapsed:?}");
        let batches_per_s = latencies.len() as f64 / elapsed.as_secs_f64();
        let us = |latency: Duration| latency.as_secs_f64() * 1e6;
        Ok(Sample {
            records_per_s: batches_per_s * shape.records as f64,
            mb_per_s: batches_per_s * shape.bytes as f64 / 1e6,
            ack_p50_us: Some(us(quantile(&mut latencies, 0.5))),
            ack_p99_us: Some(us(quantile(&mut latencies, 0.99))),
            setup_s: 0.0,
            used_by_others,
        })
    }
}

/// What one caller got acknowledged while it counted.
#[derive(Debug, Default)]
pub struct Tally {
    latencies: Vec<Duration>,
}

impl Tally {
    /// Counts one acknowledgement of `bytes`, asked for at `asked`.
    pub fn acknowledge(&mut self, gauge: &Gauge, asked: Stopwatch, bytes: u64) {
        gauge.bytes.fetch_add(bytes, Ordering::Relaxed);
        match gauge.phase.load(Ordering::Relaxed) {
            MEASURING => self.latencies.push(asked.elapsed()),
            WARMING | OVER => {}
            phase => unreachable!("no phase {phase}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(bytes_max: u64) -> Limits {
        let second = Duration::from_secs(1);
        Limits { warm_up: second, span: 3_600 * second, bytes_max }
    }

    #[test]
    fn bytes_end_a_run_that_time_would_not() {
        let shape = BatchShape { records: 2, bytes: 10 };

        let sample = Gauge::measure(limits(1 << 20), shape, |gauge| {
            let mut tally = Tally::default();
            while !gauge.is_over() {
                tally.acknowledge(gauge, Stopwatch::start(), 10);
            }
            Ok(vec![tally])
        });

        let sample = sample.expect("a sample");
        assert!((sample.records_per_s / sample.mb_per_s - 2e5).abs() < 1.0, "{sample:?}");
    }

    #[test]
    fn failed_caller_fails_the_sample() {
        let shape = BatchShape { records: 1, bytes: 1 };

        let sample = Gauge::measure(limits(1), shape, |_| anyhow::bail!("out of tea"));

        assert!(sample.is_err_and(|error| error.to_string() == "out of tea"));
    }
}
