//! What a bench says at its end: the JSON that scripts rely on, or the same in words.

use std::path::Path;

use palisade_benches::machine::Machine;
use serde::Serialize;

use super::args::CommonArgs;
use super::lane::Sample;
use super::meter::{Measured, quantile_us};
use super::raw::{RawSide, RawTurn};

/// Latencies of calls, in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Quantiles {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
    pub(crate) max: f64,
}

impl Quantiles {
    fn of(sample: &Sample) -> Quantiles {
        let at = |quantile| quantile_us(sample, quantile);
        Quantiles { p50: at(0.5), p99: at(0.99), p999: at(0.999), max: at(1.0) }
    }
}

/// The raw ring's side.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RawReport {
    mb_per_s: f64,
    records_per_s: f64,
    ack_us: Quantiles,
    operation_bytes: usize,
    depth: u32,
}

/// What it was measured on.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Place {
    device: String,
    kernel: String,
    file_system: String,
    cpu: String,
    cores: usize,
}

impl Place {
    pub(crate) fn of(directory: &Path) -> Place {
        let Machine { cpu, cores, kernel, file_system, device, .. } = Machine::of(directory);
        Place { device, kernel, file_system, cpu, cores }
    }
}

/// One bench's figures. With several rounds rates are medians of them, latencies are of all rounds together.
/// Bytes are those of the records themselves, on every side.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    outcome: &'static str,
    bench: &'static str,
    pub(crate) records_per_s: f64,
    mb_per_s: f64,
    ack_us: Quantiles,
    cpu_s_per_gb: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    raw: Option<RawReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    raw_ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    one_partition_records_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio_to_one: Option<f64>,
    records: u64,
    seconds: f64,
    rounds_records_per_s: Vec<f64>,
    context_switches: u64,
    busy: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    cold_reads: Option<u64>,
    size: u64,
    depth: u32,
    shards: u16,
    #[serde(flatten)]
    place: Place,
}

impl Report {
    /// Sums up the turns of the engine's own side.
    pub(crate) fn of(
        bench: &'static str,
        common: &CommonArgs,
        turns: &[Measured],
        place: Place,
    ) -> Report {
        let mut sample = Sample::new();
        turns.iter().for_each(|turn| sample.merge(&turn.sample));
        let rounds_records_per_s: Vec<f64> = turns.iter().map(Measured::records_per_s).collect();
        let records_per_s = median(&rounds_records_per_s);
        let cpu_s: f64 = turns.iter().map(|turn| turn.usage.cpu.as_secs_f64()).sum();
        Report {
            outcome: "done",
            bench,
            records_per_s,
            mb_per_s: megabytes(records_per_s, common.size),
            ack_us: Quantiles::of(&sample),
            cpu_s_per_gb: cpu_s / (megabytes(1.0, sample.record_bytes) / 1e3),
            raw: None,
            raw_ratio: None,
            one_partition_records_per_s: None,
            ratio_to_one: None,
            records: sample.records,
            seconds: turns.iter().map(|turn| turn.elapsed.as_secs_f64()).sum(),
            rounds_records_per_s,
            context_switches: turns.iter().map(|turn| turn.usage.switches).sum(),
            busy: sample.busy,
            cold_reads: None,
            size: common.size,
            depth: common.depth,
            shards: common.shards,
            place,
        }
    }

    /// Adds the raw ring's turns, if there were any.
    pub(crate) fn beside_raw(mut self, side: Option<&RawSide>, turns: &[RawTurn]) -> Report {
        let Some(side) = side else { return self };
        let mut sample = Sample::new();
        turns.iter().for_each(|turn| sample.merge(&turn.sample));
        let rates: Vec<f64> = turns.iter().map(|turn| turn.records_per_s).collect();
        let records_per_s = median(&rates);
        self.raw = Some(RawReport {
            mb_per_s: megabytes(records_per_s, self.size),
            records_per_s,
            ack_us: Quantiles::of(&sample),
            operation_bytes: side.operation_bytes(),
            depth: side.depth(),
        });
        self.raw_ratio = Some(self.records_per_s / records_per_s);
        self
    }

    /// Adds the turns with one partition.
    pub(crate) fn beside_one(mut self, turns: &[Measured]) -> Report {
        let rates: Vec<f64> = turns.iter().map(Measured::records_per_s).collect();
        let one = median(&rates);
        self.one_partition_records_per_s = Some(one);
        self.ratio_to_one = Some(self.records_per_s / one);
        self
    }

    /// Adds how many reads had to go to the disk.
    pub(crate) fn with_cold_reads(mut self, cold_reads: u64) -> Report {
        self.cold_reads = Some(cold_reads);
        self
    }

    pub(crate) fn print(&self, json: bool) -> anyhow::Result<()> {
        if json {
            println!("{}", serde_json::to_string(self)?);
            return Ok(());
        }
        for line in self.lines() {
            println!("{line}");
        }
        Ok(())
    }

    /// The same in words.
    pub(crate) fn lines(&self) -> Vec<String> {
        let place = &self.place;
        let mut lines = vec![
            format!("device: {}; file system: {}", place.device, place.file_system),
            format!("kernel: {}; {}, {} cores", place.kernel, place.cpu, place.cores),
            format!(
                "{}: {:.0} records/s, {:.1} MB/s; {}; {:.2} CPU s/GB, {} context switches, {} records in {:.1} s",
                self.bench,
                self.records_per_s,
                self.mb_per_s,
                self.ack_us.words(),
                self.cpu_s_per_gb,
                self.context_switches,
                self.records,
                self.seconds
            ),
        ];
        if let (Some(raw), Some(ratio)) = (&self.raw, self.raw_ratio) {
            lines.push(format!(
                "raw ring, {} bytes x {}: {:.0} records/s, {:.1} MB/s; {}; ratio {ratio:.2}",
                raw.operation_bytes,
                raw.depth,
                raw.records_per_s,
                raw.mb_per_s,
                raw.ack_us.words(),
            ));
        }
        if let (Some(one), Some(ratio)) = (self.one_partition_records_per_s, self.ratio_to_one) {
            lines.push(format!("one partition: {one:.0} records/s; ratio {ratio:.2}"));
        }
        if let Some(cold_reads) = self.cold_reads {
            lines.push(format!("reads that went to the disk: {cold_reads}"));
        }
        lines
    }
}

impl Quantiles {
    fn words(&self) -> String {
        let Quantiles { p50, p99, p999, max } = self;
        format!("p50 {p50:.0} us, p99 {p99:.0} us, p99.9 {p999:.0} us, max {max:.0} us")
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
fn megabytes(records: f64, bytes: u64) -> f64 {
    records * bytes as f64 / 1e6
}

fn median(values: &[f64]) -> f64 {
    palisade_benches::figure::Spread::of(values).map_or(0.0, |spread| spread.median)
}
