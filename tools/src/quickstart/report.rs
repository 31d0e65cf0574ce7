//! What quickstart found out: one JSON object for scripts, one table for people.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use hdrhistogram::Histogram;
use serde::Serialize;

/// Everything quickstart measured. The keys are stable: add, never rename.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) records_appended: u64,
    pub(crate) records_verified: u64,
    pub(crate) bytes: u64,
    pub(crate) records_per_s: f64,
    pub(crate) mb_per_s: f64,
    pub(crate) read_records_per_s: f64,
    pub(crate) ack_us: Latency,
    pub(crate) group_bytes_mean: f64,
    pub(crate) raw_write_us: Latency,
    pub(crate) majority_lost: MajorityLost,
    pub(crate) majority_back: MajorityBack,
    /// What was appended, for people.
    pub(crate) input: String,
}

/// Percentiles in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Latency {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
}

/// What happened while two of three voters were down.
#[derive(Debug, Serialize)]
pub(crate) struct MajorityLost {
    pub(crate) appended: u64,
    pub(crate) create_refused_ms: f64,
    pub(crate) live: usize,
    pub(crate) needed: usize,
    pub(crate) missing: Vec<String>,
    pub(crate) continues: Vec<String>,
    pub(crate) stops: Vec<String>,
}

/// What happened when they were back.
#[derive(Debug, Serialize)]
pub(crate) struct MajorityBack {
    pub(crate) create_admitted_ms: f64,
    pub(crate) index: u64,
}

impl Latency {
    /// Takes the percentiles of latencies in nanoseconds.
    pub(crate) fn of(latencies_ns: &Histogram<u64>) -> Latency {
        let us = |quantile| {
            // A latency is far below 2^52 ns: the conversion is exact.
            latencies_ns.value_at_quantile(quantile) as f64 / 1000.0
        };
        Latency { p50: us(0.5), p99: us(0.99), p999: us(0.999) }
    }
}

impl Report {
    /// Prints the closing table.
    pub(crate) fn print_table(&self) {
        let mut table = Table::new();
        table.load_preset(UTF8_FULL_CONDENSED);
        table.set_header(["", "measured"]);
        for (name, value) in self.rows() {
            table.add_row([name.to_owned(), value]);
        }
        if let Some(column) = table.column_mut(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        println!("{table}");
        println!("Input: {}.", self.input);
    }

    fn rows(&self) -> Vec<(&'static str, String)> {
        let us = |latency: &Latency| {
            format!("{:.0} / {:.0} / {:.0} us", latency.p50, latency.p99, latency.p999)
        };
        vec![
            ("records appended, synced and acknowledged", grouped(self.records_appended)),
            ("records read back and found equal", grouped(self.records_verified)),
            ("bytes of records", grouped(self.bytes)),
            ("append rate", format!("{:.0} records/s", self.records_per_s)),
            ("append throughput", format!("{:.1} MB/s", self.mb_per_s)),
            ("read rate", format!("{:.0} records/s", self.read_records_per_s)),
            ("acknowledgement of a batch, p50 / p99 / p99.9", us(&self.ack_us)),
            ("bytes a group, mean", format!("{:.0}", self.group_bytes_mean)),
            ("one raw durable write of 4 KiB, p50 / p99 / p99.9", us(&self.raw_write_us)),
            ("appended while the majority was lost", grouped(self.majority_lost.appended)),
            (
                "create refused after",
                format!(
                    "{:.0} ms (live {}, needed {})",
                    self.majority_lost.create_refused_ms,
                    self.majority_lost.live,
                    self.majority_lost.needed
                ),
            ),
            (
                "create admitted once they were back, after",
                format!("{:.0} ms", self.majority_back.create_admitted_ms),
            ),
        ]
    }
}

/// Writes a number with a space between thousands.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::raw_device::record;
    use super::*;

    #[test]
    fn thousands_are_set_apart() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_000_000), "1 000 000");
    }

    #[test]
    fn latencies_are_shown_in_microseconds() {
        let mut latencies_ns = super::super::raw_device::latencies();
        for _ in 0..100 {
            record(&mut latencies_ns, Duration::from_micros(5));
        }

        let latency = Latency::of(&latencies_ns);

        assert!((latency.p50 - 5.0).abs() < 0.01, "{latency:?}");
    }
}
