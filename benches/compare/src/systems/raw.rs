//! The device itself: one write a batch, rounded up to blocks, `RWF_DSYNC` into pre-written blocks, no framing.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use palisade_benches::machine::BusyTime;
use palisade_benches::raw_ring::{DEPTH_MAX, RawFile, RawOperation, RawRing, RawWork};
use palisade_benches::stopwatch::Stopwatch;

use super::shape_of;
use crate::cold::drop_pages;
use crate::gauge::{BatchShape, Limits, Sample};
use crate::work::{Operation, Work};

const BLOCK_BYTES: usize = 4096;
const FILE_BYTES: u64 = 256 << 20;
/// What one read takes, and how many are in flight.
const READ_BYTES: usize = 1 << 20;
const READ_DEPTH: u32 = 2;

pub(super) fn sample(directory: &Path, work: &Work, limits: Limits) -> Result<Sample> {
    let clock = Stopwatch::start();
    let mut file = RawFile::prewritten(&directory.join("raw"), FILE_BYTES)?;
    drop_pages(directory)?;
    let callers = u32::try_from(work.callers)?.min(DEPTH_MAX);
    let (operation, bytes, depth) = match work.operation {
        Operation::AppendDurable => (RawOperation::WriteDurable, blocks_of(work), callers),
        Operation::AppendUnsynced => (RawOperation::Write, blocks_of(work), callers),
        Operation::ReadBack => (RawOperation::Read, READ_BYTES, READ_DEPTH),
    };
    let mut ring = RawRing::new(bytes, depth)?;
    let shape = match work.operation {
        // A block read holds the records of as many bytes.
        Operation::ReadBack => {
            BatchShape { records: READ_BYTES / work.record_bytes, bytes: READ_BYTES as u64 }
        }
        _ => shape_of(work),
    };
    let setup_s = clock.elapsed().as_secs_f64();
    let mut raw = RawWork { operation, bytes, depth, count: 4 * u64::from(depth) };

    // The ring runs by count: the warm-up says how many fill the span.
    let mut rate = 1.0;
    let warming = Stopwatch::start();
    while warming.elapsed() < limits.warm_up {
        let run = ring.run(&mut file, raw)?;
        rate = raw.count as f64 / run.elapsed.as_secs_f64();
        raw.count = count_for(rate, limits.warm_up.min(Duration::from_millis(50)), &raw, limits);
    }
    raw.count = count_for(rate, limits.span, &raw, limits);
    let busy = BusyTime::now();
    let run = ring.run(&mut file, raw)?;
    let others = BusyTime::now().used_by_others_since(busy);
    Ok(Sample { setup_s, ..Sample::of(run.latencies, run.elapsed, shape, others)? })
}

fn blocks_of(work: &Work) -> usize {
    (work.record_bytes * work.records).next_multiple_of(BLOCK_BYTES)
}

fn count_for(rate: f64, span: Duration, raw: &RawWork, limits: Limits) -> u64 {
    let whole = (rate * span.as_secs_f64()) as u64;
    whole.min(limits.bytes_max / raw.bytes as u64).max(u64::from(raw.depth))
}
