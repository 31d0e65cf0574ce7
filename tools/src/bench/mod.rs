//! `palisade bench`: loads on an engine in a scratch directory, measured the way fio does. One file a concern.
//!
//! `args` says what can be asked and `check` refuses; `append`, `read` and `tail` put a bench together out of a `site`,
//! threads that are `appending` or `reading` into `lane`s, the `meter` that runs them, and the `raw` side;
//! `report` and `html` say what came of it.

mod append;
mod appending;
pub(crate) mod args;
mod calls;
mod check;
mod html;
mod lane;
mod meter;
mod pace;
mod quantity;
mod raw;
mod read;
mod reading;
mod report;
mod site;
mod tail;
mod usage;

use palisade_benches::raw_ring::fill_with_noise;
use palisade_engine::RecordBatch;

use crate::outcome::{Outcome, UsageError};
use args::{BenchCommand, CommonArgs};
use meter::Meter;
use report::Report;

pub(crate) fn run(command: &BenchCommand, json: bool) -> anyhow::Result<Outcome> {
    match command {
        BenchCommand::Append(args) => append::run(args, json),
        BenchCommand::Read(args) => read::run(args, json),
        BenchCommand::Tail(args) => tail::run(args, json),
        BenchCommand::Partitions(args) => append::run_partitions(args, json),
    }
}

/// Makes the batch that is appended over and over: noise, which no layer can compress.
fn make_batch(records: u64, record_bytes: u64) -> anyhow::Result<RecordBatch> {
    let too_large = |error: &dyn std::fmt::Display| {
        UsageError(format!("--batch {records} records of --size {record_bytes}: {error}"))
    };
    if records == 0 {
        return Err(too_large(&"a batch holds at least one record").into());
    }
    // Refused before memory is asked for: no batch is longer.
    if record_bytes > palisade_engine::format::BATCH_BYTES_MAX as u64 {
        return Err(too_large(&"longer than the longest batch").into());
    }
    let mut record = vec![0; usize::try_from(record_bytes)?];
    let mut builder = RecordBatch::builder();
    for seed in 0..records {
        fill_with_noise(&mut record, seed);
        builder.push(&record).map_err(|error| too_large(&error))?;
    }
    Ok(builder.finish())
}

fn finish(
    report: &Report,
    meter: &Meter,
    common: &CommonArgs,
    json: bool,
) -> anyhow::Result<Outcome> {
    if let Some(path) = &common.html {
        html::write(path, report, &meter.points)?;
    }
    report.print(json)?;
    Ok(Outcome::Done)
}
