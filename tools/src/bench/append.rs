//! `palisade bench append` and `palisade bench partitions`: acknowledged appends, beside a raw ring and beside one partition.

use palisade_engine::format::GROUP_HEADER_BYTES;
use palisade_engine::{Partition, RecordBatch};

use super::appending::Appender;
use super::args::{AppendArgs, CommonArgs, PartitionsArgs, RawArgs, WriteArgs};
use super::lane::Lane;
use super::meter::{Measured, Meter, Section};
use super::pace::Pace;
use super::raw::{RawSide, RawTurn};
use super::report::{Place, Report};
use super::site::{Site, Trimmer, close, create, disk_bytes, settings_of};
use super::{check, finish, make_batch};
use crate::outcome::Outcome;

/// One kind of log a load runs on.
struct Target {
    side: &'static str,
    partitions: Vec<Partition>,
    trimmer: Trimmer,
}

/// Everything a turn needs.
struct Load<'a> {
    common: &'a CommonArgs,
    write: &'a WriteArgs,
    batch: RecordBatch,
    lanes: Vec<Lane>,
}

pub(crate) fn run(args: &AppendArgs, json: bool) -> anyhow::Result<Outcome> {
    measure(&args.common, &args.write, &args.raw, args.partitions, false, json)
}

pub(crate) fn run_partitions(args: &PartitionsArgs, json: bool) -> anyhow::Result<Outcome> {
    measure(&args.common, &args.write, &args.raw, args.partitions, true, json)
}

fn measure(
    common: &CommonArgs,
    write: &WriteArgs,
    raw: &RawArgs,
    partitions: u64,
    beside_one: bool,
    json: bool,
) -> anyhow::Result<Outcome> {
    check::common(common)?;
    check::partitions(partitions)?;
    check::rate(write.rate)?;
    let batch = make_batch(write.batch, common.size)?;
    let batch_bytes = batch.bytes() + GROUP_HEADER_BYTES;
    let site = Site::new(common, disk_bytes(partitions, write.keep))?;
    let place = Place::of(site.path());
    let engine = site.open("log", common)?;
    let stored = (batch_bytes as u64).div_ceil(write.batch);
    let target = |side, name: &str, count| -> anyhow::Result<Target> {
        let partitions = create(&engine, name, count, settings_of(count, write.keep))?;
        Ok(Target { side, partitions, trimmer: Trimmer::new(count, write.keep, stored) })
    };
    let many = target("palisade", "bench", partitions)?;
    let one = if beside_one { Some(target("one partition", "one", 1)?) } else { None };
    let mut ring = match raw.raw {
        true => {
            let records = write.batch;
            let depth = common.depth;
            let side = RawSide::writing(
                site.path(),
                batch_bytes,
                depth,
                write.durability,
                records,
                common.size,
            );
            Some(side?)
        }
        false => None,
    };
    let lanes = (0..common.threads).map(|_| Lane::new()).collect();
    let load = Load { common, write, batch, lanes };
    let rounds = if beside_one || raw.raw { u32::from(raw.rounds) } else { 1 };
    let mut meter = Meter::new(common.runtime * if rounds > 1 { 2 } else { 1 }, common.quiet);
    let (mut turns, mut one_turns, mut raw_turns) = (Vec::new(), Vec::new(), Vec::<RawTurn>::new());
    for _ in 0..rounds {
        turns.push(load.turn(&many, rounds, &mut meter)?);
        if let Some(one) = &one {
            one_turns.push(load.turn(one, rounds, &mut meter)?);
        }
        if let Some(ring) = &mut ring {
            raw_turns.push(ring.turn(load.section("raw ring", rounds), &mut meter)?);
        }
    }
    drop((many, one));
    close(engine)?;
    let bench = if beside_one { "partitions" } else { "append" };
    let mut report = Report::of(bench, common, &turns, place).beside_raw(ring.as_ref(), &raw_turns);
    if beside_one {
        report = report.beside_one(&one_turns);
    }
    finish(&report, &meter, common, json)
}

impl Load<'_> {
    fn section(&self, side: &'static str, rounds: u32) -> Section {
        Section { side, ramp: self.common.ramp, length: self.common.runtime / rounds }
    }

    /// Runs one turn; an append that failed ends it, and the command.
    fn turn(&self, target: &Target, rounds: u32, meter: &mut Meter) -> anyhow::Result<Measured> {
        let threads = self.lanes.len();
        let depth = usize::try_from(self.common.depth)?;
        let work = |index: usize, lane: &Lane, stop: &super::meter::Stop| {
            let appender = Appender {
                partitions: &target.partitions,
                first: index % target.partitions.len(),
                step: threads,
                batch: &self.batch,
                record_bytes: u64::from(self.batch.records()) * self.common.size,
                durability: self.write.durability.into(),
                depth: share_of(depth, index, threads),
                pace: self.pace(index, threads),
            };
            appender.run(lane, stop);
        };
        let section = self.section(target.side, rounds);
        let tend = || target.trimmer.trim(&target.partitions);
        check::measured(meter.run(section, &self.lanes, work, tend))
    }

    #[expect(clippy::cast_precision_loss, reason = "a rate below 2^52 a second")]
    fn pace(&self, thread: usize, threads: usize) -> Option<Pace> {
        let batches_per_s = self.write.rate? as f64 / self.write.batch as f64;
        Some(Pace::new(batches_per_s, thread as u64, threads as u64))
    }
}

/// The part of `depth` that thread `index` of `threads` has in flight.
fn share_of(depth: usize, index: usize, threads: usize) -> usize {
    depth / threads + usize::from(index < depth % threads)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_to_the_depth() {
        for (depth, threads) in [(16, 1), (7, 3), (3, 3)] {
            let shares = (0..threads).map(|index| share_of(depth, index, threads));
            assert_eq!(shares.sum::<usize>(), depth);
        }
    }
}
