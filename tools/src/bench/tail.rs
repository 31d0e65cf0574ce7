//! `palisade bench tail`: what readers at the tail are handed out of memory, in bytes.

use super::args::TailArgs;
use super::lane::Lane;
use super::meter::{Meter, Section, Stop};
use super::read::{cold_reads, fill, scanner};
use super::reading::{Span, split};
use super::report::{Place, Report};
use super::site::{Site, close, create, settings_of};
use super::{check, finish, make_batch};
use crate::outcome::Outcome;

/// Well below what a shard keeps in memory for tail readers.
const TAIL_BYTES: u64 = 8 << 20;
const KEEP_BYTES: u64 = 64 << 20;

pub(crate) fn run(args: &TailArgs, json: bool) -> anyhow::Result<Outcome> {
    let common = &args.common;
    check::common(common)?;
    let batch = make_batch(args.batch, common.size)?;
    let batches = (TAIL_BYTES / batch.bytes() as u64).max(1);
    let site = Site::new(common, 2 * KEEP_BYTES)?;
    let place = Place::of(site.path());
    let engine = site.open("log", common)?;
    let partitions = create(&engine, "bench", 1, settings_of(1, KEEP_BYTES))?;
    let partition = &partitions[0];
    fill(partition, &batch, batches)?;
    let marks = partition.watermarks();
    let spans: Vec<Span> = (0..common.depth)
        .flat_map(|_| split(Span { from: marks.log_start, end: marks.committed }, args.batch, 1))
        .collect();
    let lanes: Vec<Lane> = (0..common.threads).map(|_| Lane::new()).collect();
    let mut meter = Meter::new(common.runtime, common.quiet);
    let section = Section { side: "palisade", ramp: common.ramp, length: common.runtime };
    let work = |index: usize, lane: &Lane, stop: &Stop| {
        scanner(partition, &spans, (index, lanes.len()), args.read_size, common).run(lane, stop);
    };
    let measured = check::measured(meter.run(section, &lanes, work, || {}))?;
    let cold_reads = cold_reads(&engine);
    drop(partitions);
    close(engine)?;
    let report = Report::of("tail", common, &[measured], place).with_cold_reads(cold_reads);
    finish(&report, &meter, common, json)
}
