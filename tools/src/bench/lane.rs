//! What one thread of a load has done since somebody last looked: a histogram, counts, and its first error.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;

/// The longest latency a histogram tells apart.
const LATENCY_MAX_NS: u64 = 600_000_000_000;

/// What was done within some time. Latencies are of calls that succeeded.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) latency_ns: Histogram<u64>,
    pub(crate) records: u64,
    /// Bytes of the records themselves.
    pub(crate) record_bytes: u64,
    /// Calls that met a limit and were tried again.
    pub(crate) busy: u64,
    /// Calls that failed.
    pub(crate) errors: u64,
    pub(crate) first_error: Option<String>,
}

impl Sample {
    pub(crate) fn new() -> Sample {
        Sample {
            latency_ns: Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3)
                .expect("bounds and digits within the histogram's own limits"),
            records: 0,
            record_bytes: 0,
            busy: 0,
            errors: 0,
            first_error: None,
        }
    }

    /// Adds what `other` saw.
    pub(crate) fn merge(&mut self, other: &Sample) {
        self.latency_ns.add(&other.latency_ns).expect("all histograms here have one shape");
        self.records += other.records;
        self.record_bytes += other.record_bytes;
        self.busy += other.busy;
        self.errors += other.errors;
        if self.first_error.is_none() {
            self.first_error.clone_from(&other.first_error);
        }
    }

    /// Adds one call that took `latency`.
    pub(crate) fn note(&mut self, latency: Duration, records: u64, record_bytes: u64) {
        self.latency_ns.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
        self.records += records;
        self.record_bytes += record_bytes;
    }

    fn clear(&mut self) {
        self.latency_ns.reset();
        (self.records, self.record_bytes, self.busy, self.errors) = (0, 0, 0, 0);
        self.first_error = None;
    }
}

/// A [`Sample`] that its thread fills and another takes. The lock is contended only at a look.
#[derive(Debug)]
pub(crate) struct Lane(Mutex<Sample>);

impl Lane {
    pub(crate) fn new() -> Lane {
        Lane(Mutex::new(Sample::new()))
    }

    pub(crate) fn note(&self, latency: Duration, records: u64, record_bytes: u64) {
        self.with(|sample| sample.note(latency, records, record_bytes));
    }

    pub(crate) fn note_busy(&self) {
        self.with(|sample| sample.busy += 1);
    }

    pub(crate) fn note_error(&self, error: impl std::fmt::Display) {
        self.with(|sample| {
            sample.errors += 1;
            sample.first_error.get_or_insert_with(|| error.to_string());
        });
    }

    /// Adds what was noted since the last call to `total`.
    pub(crate) fn move_into(&self, total: &mut Sample) {
        self.with(|sample| {
            total.merge(sample);
            sample.clear();
        });
    }

    fn with<T>(&self, change: impl FnOnce(&mut Sample) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_merge_without_counting_twice() {
        let lanes = [Lane::new(), Lane::new()];
        lanes[0].note(Duration::from_micros(10), 1, 100);
        lanes[1].note(Duration::from_micros(90), 2, 200);
        lanes[1].note_error("first");
        lanes[1].note_error("second");
        let mut total = Sample::new();

        for lane in lanes.iter().chain(&lanes) {
            lane.move_into(&mut total);
        }

        assert_eq!((total.records, total.record_bytes, total.errors), (3, 300, 2));
        assert_eq!(total.latency_ns.len(), 2);
        assert_eq!(total.first_error.as_deref(), Some("first"));
    }
}
