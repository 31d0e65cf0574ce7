//! Question: how close does a durable append come to the device?
//!
//! Workload: one partition on one shard, every append acknowledged after its sync: batches that fill a 64 KiB group, a
//! lone 1 KiB record, 1,000 records of 100 B, 64 single records in flight. Beside it a raw ring that writes blocks of
//! the same size with `RWF_DSYNC`. A good answer: ≥ 0.9 of the ring at the group size and depth the log chose, synced or not, copied or
//! filled where the shard lends memory;
//! a lone append within 30 us of a write; 64 callers at ≥ 5 times one write a record.

use std::time::Duration;

use criterion::{Criterion, Throughput};
use palisade_benches::disk_load::write_through_disk;
use palisade_benches::figure::{Goal, Relation};
use palisade_benches::load::{
    AppendWork, Caller, OpenLog, append_alone, append_many, append_many_as, append_reserved,
    batch_filling, batch_of, keep_off_the_shard,
};
use palisade_benches::ratio::{
    Comparison, RatioTable, is_measuring, is_tracking, is_wanted, scaled,
};
use palisade_benches::raw_ring::{DEPTH_MAX, RawFile, RawOperation, RawRing, RawWork};
use palisade_benches::scratch::Scratch;
use palisade_benches::stopwatch::{Stopwatch, pause, quantile};
use palisade_engine::engine::{Engine, ShardMetrics};
use palisade_engine::format::RecordBatch;
use palisade_engine::id::BLOCK_BYTES;
use palisade_engine::partition::{AppendOptions, Durability, PartitionSettings, ShardLimits};

/// As long as the engine's segments here, so that both sides stay within pre-written blocks.
const FILE_BYTES: u64 = 256 << 20;
const LONE_APPENDS: u64 = 400;

/// One kind of batch, and the blocks a raw ring writes in its stead.
struct Case {
    name: &'static str,
    batch: RecordBatch,
    append: AppendWork,
    raw: RawWork,
    unit: &'static str,
    /// What one batch counts for in `unit` times seconds, and what one raw block does.
    batch_units: f64,
    /// What one of the ring's blocks counts for; `None`: the ring does as much as the log's own groups hold, in blocks as
    /// long as those were on average and as many in flight.
    block_units: Option<f64>,
    options: AppendOptions,
    /// Whether the callers fill memory that the shard lends them.
    is_reserved: bool,
    goal: Option<Goal>,
}

fn durable(bytes: usize, depth: u32, count: u64) -> RawWork {
    RawWork { operation: RawOperation::WriteDurable, bytes, depth, count }
}

const GROUP_BYTES: usize = 64 << 10;
const GROUP_MB: f64 = 0.065_536;
/// The longest block of the ring here.
const RING_BYTES_MAX: usize = 512 << 10;
/// What goes over rolls in a round.
const ROLLED_BYTES: u64 = 512 << 20;
/// Blocks of that size in flight; smaller ones go up to [`DEPTH_MAX`].
const GROUP_DEPTH: u32 = 16;

fn large_groups(count: u64) -> Case {
    Case {
        name: "durable, 64 KiB groups",
        batch: batch_filling(GROUP_BYTES),
        append: AppendWork { count, window: 64 },
        raw: durable(GROUP_BYTES, 16, count),
        unit: "MB/s",
        batch_units: GROUP_MB,
        block_units: None,
        options: AppendOptions::default(),
        is_reserved: false,
        goal: Some(Goal::RelationAtLeast(0.9)),
    }
}

/// The same bytes, acknowledged from memory; measured until the last group has been written.
fn unsynced_groups(count: u64) -> Case {
    let mut case = large_groups(count);
    case.name = "not synced, 64 KiB groups";
    case.options.durability = Durability::Accepted;
    case.raw.operation = RawOperation::Write;
    case
}

/// The same groups, filled by the callers where they are written from.
fn reserved(mut case: Case, name: &'static str) -> Case {
    case.name = name;
    case.is_reserved = true;
    case
}

fn small_records(count: u64) -> Case {
    Case {
        name: "durable, 1,000 records of 100 B a batch",
        batch: batch_of(1_000, 100),
        append: AppendWork { count, window: 64 },
        raw: durable(26 * 4096, 16, count),
        unit: "million records/s",
        batch_units: 1e-3,
        block_units: None,
        options: AppendOptions::default(),
        is_reserved: false,
        goal: Some(Goal::AtLeast(4.0)),
    }
}

fn many_singles(count: u64) -> Case {
    Case {
        name: "durable, single records of 1 KiB, 64 in flight; the ring: one write a record",
        batch: batch_of(1, 1024),
        append: AppendWork { count, window: 64 },
        raw: durable(4096, DEPTH_MAX, count),
        unit: "thousand records/s",
        batch_units: 1e-3,
        block_units: Some(1e-3),
        options: AppendOptions::default(),
        is_reserved: false,
        goal: Some(Goal::RelationAtLeast(5.0)),
    }
}

/// The raw side: one ring, one pre-written file.
struct Raw {
    /// For many small blocks in flight, and for fewer long ones.
    small: RawRing,
    large: RawRing,
    file: RawFile,
}

impl Raw {
    fn new(scratch: &Scratch) -> Raw {
        let file = RawFile::prewritten(&scratch.join("raw"), FILE_BYTES);
        Raw {
            small: RawRing::new(64 << 10, DEPTH_MAX).expect("a ring with 4 MiB of buffers"),
            large: RawRing::new(RING_BYTES_MAX, GROUP_DEPTH).expect("a ring with 8 MiB of buffers"),
            file: file.expect("room for the raw file"),
        }
    }

    fn elapsed(&mut self, work: RawWork) -> Duration {
        let ring = if work.depth > GROUP_DEPTH { &mut self.small } else { &mut self.large };
        ring.run(&mut self.file, work).expect("the raw ring writes").elapsed
    }

    fn median_us(&mut self, count: u64) -> f64 {
        let run = self.large.run(&mut self.file, durable(4096, 1, count));
        let mut latencies = run.expect("the raw ring writes").latencies;
        quantile(&mut latencies, 0.5).as_secs_f64() * 1e6
    }
}

fn append(log: &OpenLog, caller: Caller, case: &Case) -> Duration {
    let (batch, work, options) = (case.batch.clone(), case.append, case.options);
    let clock = Stopwatch::start();
    match case.is_reserved {
        true => log.run(caller, move |partition| append_reserved(partition, batch, work, options)),
        false => log.run(caller, move |partition| append_many_as(partition, batch, work, options)),
    };
    // What was acknowledged from memory is on its way still.
    let is_writing = || log.engine.metrics().shards.iter().any(|shard| shard.groups_in_flight > 0);
    while options.durability == Durability::Accepted && is_writing() {
        pause(Duration::from_micros(100));
    }
    clock.elapsed()
}

/// The ring's work beside `case`, and what one of its blocks counts for: as the case says, or like the log's own groups,
/// which a first run shows.
#[expect(clippy::cast_precision_loss, reason = "bytes of blocks, for a rate for people")]
fn work_beside(log: &OpenLog, caller: Caller, case: &Case) -> (RawWork, f64) {
    if let Some(units) = case.block_units {
        return (case.raw, units);
    }
    log.reset();
    let before = groups_of(log);
    append(log, caller, case);
    let (groups, bytes) = groups_of(log);
    let (groups, bytes) = ((groups - before.0).max(1), bytes - before.1);
    let batch_bytes = bytes / case.append.count;
    let mean = usize::try_from(bytes / groups).expect("a group is below 4 GiB");
    let block = mean.next_multiple_of(BLOCK_BYTES).clamp(BLOCK_BYTES, RING_BYTES_MAX);
    let in_flight = (case.append.window as u64 * batch_bytes).div_ceil(block as u64);
    let depth = u32::try_from(in_flight).map_or(GROUP_DEPTH, |depth| depth.clamp(1, GROUP_DEPTH));
    let count = (bytes / block as u64).max(u64::from(depth));
    let units = case.batch_units * block as f64 / batch_bytes as f64;
    (RawWork { bytes: block, depth, count, ..case.raw }, units)
}

#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
fn rate(count: u64, units: f64, elapsed: Duration) -> f64 {
    count as f64 * units / elapsed.as_secs_f64()
}

fn compare(table: &mut RatioTable, log: &OpenLog, raw: &mut Raw, case: &Case) {
    for caller in Caller::BOTH {
        if !is_wanted(&format!("{}, {}", case.name, caller.name())) {
            continue;
        }
        let (raw_work, block_units) = work_beside(log, caller, case);
        let before = groups_of(log);
        let comparison = Comparison {
            work: format!("{}, {}", case.name, caller.name()),
            unit: case.unit,
            beside: "raw ring",
            relation: Relation::Ratio,
            goal: case.goal,
        };
        let engine = || {
            log.reset();
            rate(case.append.count, case.batch_units, append(log, caller, case))
        };
        let beside = || rate(raw_work.count, block_units, raw.elapsed(raw_work));
        table.alternate(comparison, engine, beside);
        let (groups, bytes) = groups_of(log);
        let mean = (bytes - before.1) / (groups - before.0).max(1);
        table.note(format!(
            "{}, {}: groups of {} KiB on average; the ring: {} KiB, {} in flight",
            case.name,
            caller.name(),
            mean / 1024,
            raw_work.bytes / 1024,
            raw_work.depth,
        ));
    }
}

/// How many groups the engine has handed to the device, and their bytes.
fn groups_of(log: &OpenLog) -> (u64, u64) {
    let metrics = log.engine.metrics();
    let sum = |of: fn(&ShardMetrics) -> u64| metrics.shards.iter().map(of).sum();
    (sum(|shard| shard.groups), sum(|shard| shard.group_bytes))
}

fn compare_lone(table: &mut RatioTable, log: &OpenLog, raw: &mut Raw) {
    let batch = batch_of(1, 1024);
    for caller in Caller::BOTH {
        let comparison = Comparison {
            work: format!("p50 of a lone durable 1 KiB append, {}", caller.name()),
            unit: "us",
            beside: "raw ring, 4 KiB",
            relation: Relation::Difference,
            goal: Some(Goal::RelationAtMost(30.0)),
        };
        let engine = || {
            log.reset();
            let batch = batch.clone();
            let mut latencies = log
                .run(caller, move |partition| append_alone(partition, batch, scaled(LONE_APPENDS)));
            quantile(&mut latencies, 0.5).as_secs_f64() * 1e6
        };
        table.alternate(comparison, engine, || raw.median_us(scaled(LONE_APPENDS)));
    }
}

/// The ring's work through the engine's `Disk` seam, without a log: what is left is the log's own cost.
fn compare_seam(table: &mut RatioTable, raw: &mut Raw) {
    let work = durable(GROUP_BYTES, 16, scaled(2_048));
    let comparison = Comparison {
        work: "durable 64 KiB writes, 16 in flight, through the Disk seam alone".into(),
        unit: "MB/s",
        beside: "raw ring",
        relation: Relation::Ratio,
        goal: None,
    };
    let path = raw.file.path().to_owned();
    let engine = || rate(work.count, GROUP_MB, write_through_disk(&path, work));
    table.alternate(comparison, engine, || rate(work.count, GROUP_MB, raw.elapsed(work)));
}

/// The same through the default segments of 64 MiB, half a GiB a round: what rolls and the making of segments cost, and
/// what is left of that when segments are made of those that the round before was trimmed of.
fn compare_over_rolls(table: &mut RatioTable, scratch: &Scratch, raw: &mut Raw) {
    let mut case = large_groups(scaled(8_192));
    case.goal = None;
    for (name, directory, recycled_bytes_max) in [
        ("the same over rolls: 512 MiB through segments of 64 MiB, made meanwhile", "rolls", 0),
        ("the same over rolls, in recycled segments", "recycled", 2 * ROLLED_BYTES),
    ] {
        case.name = name;
        let directory = scratch.join(directory);
        let limits = ShardLimits { recycled_bytes_max, ..ShardLimits::default() };
        let engine = Engine::builder(&directory).shards(1).limits(limits).open();
        let engine = engine.unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
        let log = OpenLog::first_partition_of(engine, &directory);
        // The first round makes what the others recycle.
        log.run(Caller::Shard, {
            let (batch, work) = (case.batch.clone(), case.append);
            move |partition| append_many(partition, batch, work)
        });
        compare(table, &log, raw, &case);
        log.close();
    }
}

fn one_segment_a_round() -> PartitionSettings {
    PartitionSettings {
        segment_bytes: FILE_BYTES,
        first_segment_bytes: FILE_BYTES,
        ..PartitionSettings::default()
    }
}

/// The criterion side: the same loads, so that a change shows against the run before.
fn track(criterion: &mut Criterion, log: &OpenLog, raw: &mut Raw) {
    let mut group = criterion.benchmark_group("append");
    for (name, case) in [
        ("64_kib_groups", large_groups(1)),
        ("100_b_x_1000", small_records(1)),
        ("1_kib_x_1_64_in_flight", many_singles(1)),
    ] {
        group.throughput(Throughput::Bytes(case.batch.bytes() as u64));
        for caller in Caller::BOTH {
            group.bench_function(format!("{name}/{caller:?}"), |bencher| {
                bencher.iter_custom(|count| {
                    log.trim();
                    let (batch, work) = (case.batch.clone(), AppendWork { count, ..case.append });
                    log.run(caller, move |partition| append_many(partition, batch, work))
                });
            });
        }
        group.throughput(Throughput::Bytes(case.raw.bytes as u64));
        group.bench_function(format!("{name}/RawRing"), |bencher| {
            bencher.iter_custom(|count| raw.elapsed(RawWork { count, ..case.raw }));
        });
    }
    group.finish();
}

fn main() {
    let scratch = Scratch::new(env!("CARGO_TARGET_TMPDIR"));
    let log = OpenLog::open(&scratch.join("log"), one_segment_a_round());
    let mut raw = Raw::new(&scratch);

    if is_measuring() {
        let mut table = RatioTable::new("append", env!("CARGO_TARGET_TMPDIR"));
        // A lone caller does best where the scheduler puts it, beside the shard.
        compare_lone(&mut table, &log, &mut raw);
        keep_off_the_shard();
        compare(&mut table, &log, &mut raw, &large_groups(scaled(2_048)));
        compare(&mut table, &log, &mut raw, &unsynced_groups(scaled(2_048)));
        let durable = reserved(large_groups(scaled(2_048)), "durable, 64 KiB groups, reserved");
        compare(&mut table, &log, &mut raw, &durable);
        let unsynced =
            reserved(unsynced_groups(scaled(2_048)), "not synced, 64 KiB groups, reserved");
        compare(&mut table, &log, &mut raw, &unsynced);
        compare(&mut table, &log, &mut raw, &small_records(scaled(1_024)));
        compare(&mut table, &log, &mut raw, &many_singles(scaled(16_384)));
        compare_over_rolls(&mut table, &scratch, &mut raw);
        compare_seam(&mut table, &mut raw);
        table.finish();
    }

    if !is_tracking() {
        return log.close();
    }
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    track(&mut criterion, &log, &mut raw);
    criterion.final_summary();
    log.close();
}
