//! `palisade bench read`: scans of a log that lies on disk and in no memory, beside raw reads of the same files.

use std::path::PathBuf;

use anyhow::Context;
use futures_util::{StreamExt, TryStreamExt};
use palisade_benches::executor::block_on;
use palisade_benches::scratch::files_below;
use palisade_engine::{AppendError, AppendOptions, Engine, Partition, RecordBatch};

use super::args::{CommonArgs, RawArgs, ReadArgs};
use super::lane::Lane;
use super::meter::{Meter, Section};
use super::raw::{RawSide, RawTurn};
use super::reading::{Scanner, Span, split};
use super::report::{Place, Report};
use super::site::{Site, close, create, settings_of};
use super::{check, finish, make_batch};
use crate::outcome::{Outcome, UsageError};

/// Batches in flight while the log is filled.
const FILL_IN_FLIGHT: usize = 32;

pub(crate) fn run(args: &ReadArgs, json: bool) -> anyhow::Result<Outcome> {
    let common = &args.common;
    check::common(common)?;
    let batch = make_batch(args.batch, common.size)?;
    let batches = args.data.div_ceil(batch.bytes() as u64);
    if batches < u64::from(common.depth) {
        return Err(UsageError(format!(
            "--data {} holds {batches} batches, too few for --depth {}",
            args.data, common.depth
        ))
        .into());
    }
    let site = Site::new(common, args.data.saturating_mul(2))?;
    let place = Place::of(site.path());
    let engine = site.open("log", common)?;
    let filled = create(&engine, "bench", 1, settings_of(1, args.data))?;
    fill(&filled[0], &batch, batches)?;
    let name = filled[0].name().clone();
    drop(filled);
    close(engine)?;

    // Opened again, nothing of it is in memory.
    let engine = site.open("log", common)?;
    let partition = engine.find(&name).context("the partition that was filled")?;
    let marks = partition.watermarks();
    let whole = Span { from: marks.log_start, end: marks.committed };
    let mut ring = match args.raw.raw {
        true => Some(raw_side(&site, args, batches)?),
        false => None,
    };
    let mut meter = Meter::new(common.runtime * if ring.is_some() { 2 } else { 1 }, common.quiet);
    let lanes: Vec<Lane> = (0..common.threads).map(|_| Lane::new()).collect();
    let spans = split(whole, args.batch, u64::from(common.depth));
    let rounds = rounds(&args.raw);
    let section = Section { side: "palisade", ramp: common.ramp, length: common.runtime / rounds };
    let (mut turns, mut raw_turns) = (Vec::new(), Vec::<RawTurn>::new());
    for _ in 0..rounds {
        let work = |index: usize, lane: &Lane, stop: &super::meter::Stop| {
            let scanner = scanner(&partition, &spans, (index, lanes.len()), args.read_size, common);
            scanner.run(lane, stop);
        };
        turns.push(check::measured(meter.run(section, &lanes, work, || {}))?);
        if let Some(ring) = &mut ring {
            raw_turns.push(ring.turn(section, &mut meter)?);
        }
    }
    let cold_reads = cold_reads(&engine);
    drop(partition);
    close(engine)?;
    let report = Report::of("read", common, &turns, place)
        .with_cold_reads(cold_reads)
        .beside_raw(ring.as_ref(), &raw_turns);
    finish(&report, &meter, common, json)
}

/// What one of `threads` threads reads: every so-manieth span.
pub(crate) fn scanner<'a>(
    partition: &'a Partition,
    spans: &[Span],
    (thread, threads): (usize, usize),
    read_bytes: u64,
    common: &CommonArgs,
) -> Scanner<'a> {
    Scanner {
        partition,
        spans: spans.iter().skip(thread).step_by(threads).copied().collect(),
        bytes_max: usize::try_from(read_bytes).unwrap_or(usize::MAX),
        record_bytes: common.size,
    }
}

/// Appends `count` copies of `batch`, waiting for all of them.
pub(crate) fn fill(partition: &Partition, batch: &RecordBatch, count: u64) -> anyhow::Result<()> {
    let append = async || loop {
        match partition.append(batch.clone(), AppendOptions::default()).await {
            // Nothing else is in flight here but our own, which end.
            Err(AppendError::Busy { .. }) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(error),
        }
    };
    let appends = futures_util::stream::iter(0..count).map(|_| append());
    let filled = block_on(appends.buffer_unordered(FILL_IN_FLIGHT).try_collect::<Vec<()>>());
    filled.map(drop).context("filling the log")
}

/// Reads of this engine that went to the disk so far.
pub(crate) fn cold_reads(engine: &Engine) -> u64 {
    engine.metrics().shards.iter().map(|shard| shard.cold_reads).sum()
}

fn rounds(raw: &RawArgs) -> u32 {
    if raw.raw { u32::from(raw.rounds) } else { 1 }
}

/// The longest segments, as many as hold the log; what one read of them stands for follows from their bytes.
fn raw_side(site: &Site, args: &ReadArgs, batches: u64) -> anyhow::Result<RawSide> {
    let mut files: Vec<(PathBuf, u64)> = files_below(&site.join("log"))
        .into_iter()
        .filter(|(path, _)| path.extension().is_some_and(|extension| extension == "segment"))
        .collect();
    files.sort_by_key(|(_, length)| std::cmp::Reverse(*length));
    let mut bytes = 0;
    files.retain(|(_, length)| {
        let is_needed = bytes < args.data;
        bytes += if is_needed { *length } else { 0 };
        is_needed
    });
    let paths: Vec<PathBuf> = files.into_iter().map(|(path, _)| path).collect();
    let read_bytes = usize::try_from(args.read_size).context("--read-size")?;
    #[expect(clippy::cast_precision_loss, reason = "both are below 2^52")]
    let records_per_byte = (batches * args.batch) as f64 / args.data as f64;
    let depth = args.common.depth;
    RawSide::reading(&paths, read_bytes, depth, records_per_byte, args.common.size)
}
