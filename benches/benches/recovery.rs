//! Question: how long does an open take, after a crash and after a clean stop?
//!
//! Workload: a crash image (a copy of the directory, made while the log is open) with 240 MiB behind the last checkpoint,
//! walked and checked at open, beside a raw ring reading as many bytes. And 10,000 partitions that were closed in order,
//! with the bytes the open read, beside the bytes of their checkpoints. A good answer: ≤ 1 s per GiB walked; after a
//! clean stop no log data is read, so no more than the checkpoints.

use std::path::Path;
use std::time::Duration;

use criterion::Criterion;
use futures_util::future::join_all;
use palisade_benches::executor::block_on;
use palisade_benches::figure::{Goal, Relation};
use palisade_benches::load::{AppendWork, Caller, OpenLog, append_many, batch_filling, batch_of};
use palisade_benches::machine::device_bytes_read;
use palisade_benches::ratio::{Comparison, RatioTable, is_measuring, is_tracking, scaled};
use palisade_benches::raw_ring::{RawFile, RawOperation, RawRing, RawWork};
use palisade_benches::scratch::{Scratch, copy_directory, files_below};
use palisade_benches::stopwatch::Stopwatch;
use palisade_engine::engine::Engine;
use palisade_engine::id::PartitionName;
use palisade_engine::partition::{AppendOptions, PartitionSettings};

const SEGMENT_BYTES: u64 = 256 << 20;
/// 64 KiB groups; together they fill most of the one segment.
const CRASH_GROUPS: u64 = 3_840;
const READ_BYTES: usize = 1 << 20;
/// The goal's number; fewer in a trial.
const PARTITIONS: u64 = 10_000;
/// Room for a group of each of many partitions.
const MANY_ARENA_BYTES: usize = 256 << 20;
/// Partitions created at once: well below every limit of a shard.
const CREATED_AT_ONCE: usize = 50;

fn crash_settings() -> PartitionSettings {
    PartitionSettings {
        segment_bytes: SEGMENT_BYTES,
        first_segment_bytes: SEGMENT_BYTES,
        ..PartitionSettings::default()
    }
}

fn small_settings() -> PartitionSettings {
    PartitionSettings {
        segment_bytes: 1 << 20,
        first_segment_bytes: 64 << 10,
        ..PartitionSettings::default()
    }
}

/// A log that is open and full, to be copied as a crash would leave it.
fn open_and_fill(directory: &Path) -> OpenLog {
    let log = OpenLog::open(directory, crash_settings());
    let batch = batch_filling(64 << 10);
    let work = AppendWork { count: CRASH_GROUPS, window: 64 };
    log.run(Caller::OtherThread, move |partition| append_many(partition, batch, work));
    log.settle();
    log
}

/// Copies the open log, opens the copy, and returns how long that took.
fn recover_copy(log: &Path, copy: &Path) -> Duration {
    copy_directory(log, copy);
    let clock = Stopwatch::start();
    let recovered = OpenLog::open(copy, crash_settings());
    let elapsed = clock.elapsed();
    assert!(recovered.partition.watermarks().durable.0 > CRASH_GROUPS, "the log is all there");
    recovered.close();
    std::fs::remove_dir_all(copy).expect("the copy goes away");
    elapsed
}

/// Reads as many bytes as recovery walks, from the open log's own segment.
fn read_raw(log: &Path, ring: &mut RawRing) -> Duration {
    let files = files_below(log);
    let (path, _) = files.iter().find(|(_, length)| *length >= SEGMENT_BYTES).expect("a segment");
    let mut file = RawFile::open(path).expect("a segment to read");
    let count = CRASH_GROUPS * (64 << 10) / READ_BYTES as u64;
    let work = RawWork { operation: RawOperation::Read, bytes: READ_BYTES, depth: 4, count };
    ring.run(&mut file, work).expect("the raw ring reads").elapsed
}

#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
fn seconds_per_gib(elapsed: Duration) -> f64 {
    elapsed.as_secs_f64() * (1 << 30) as f64 / (CRASH_GROUPS * (64 << 10)) as f64
}

fn compare_crash(table: &mut RatioTable, scratch: &Scratch) {
    let directory = scratch.join("crash");
    let log = open_and_fill(&directory);
    let mut ring = RawRing::new(READ_BYTES, 4).expect("a ring with 4 MiB of buffers");
    let comparison = Comparison {
        work: "open after a crash, per GiB behind the last checkpoint".into(),
        unit: "s",
        beside: "raw ring reading it, 1 MiB x 4",
        relation: Relation::Ratio,
        goal: Some(Goal::AtMost(1.0)),
    };
    let engine = || seconds_per_gib(recover_copy(&directory, &scratch.join("crash-copy")));
    table.alternate(comparison, engine, || seconds_per_gib(read_raw(&directory, &mut ring)));
    log.close();
    std::fs::remove_dir_all(&directory).expect("the log goes away");
}

/// Makes the partitions with a batch each and closes them in order.
fn make_many(directory: &Path) {
    let engine = open_many(directory);
    let names: Vec<PartitionName> =
        (0..partitions()).map(|index| format!("bench/{index}").parse().expect("a name")).collect();
    for some in names.chunks(CREATED_AT_ONCE) {
        let created = block_on(join_all(some.iter().map(|name| engine.open_partition(name))));
        let appended = created.into_iter().map(|partition| {
            let partition = partition.expect("a partition is created");
            partition.append(batch_of(100, 100), AppendOptions::default())
        });
        for appended in block_on(join_all(appended)) {
            appended.expect("a batch is appended");
        }
    }
    block_on(engine.close()).expect("an orderly close");
}

fn partitions() -> u64 {
    scaled(PARTITIONS)
}

fn open_many(directory: &Path) -> Engine {
    let engine = Engine::builder(directory)
        .shards(1)
        .arena_bytes(MANY_ARENA_BYTES)
        .settings(small_settings())
        .open();
    engine.unwrap_or_else(|error| panic!("{}: {error}", directory.display()))
}

/// Opens all of them, and closes again outside the measurement. Returns the time and the bytes read from the device.
fn open_clean(directory: &Path) -> (Duration, u64) {
    let before = device_bytes_read();
    let clock = Stopwatch::start();
    let engine = open_many(directory);
    let opened = (clock.elapsed(), device_bytes_read() - before);
    assert_eq!(engine.partitions().len() as u64, partitions(), "every partition is open");
    block_on(engine.close()).expect("an orderly close");
    opened
}

#[expect(clippy::cast_precision_loss, reason = "a size for people")]
fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn bytes_of(directory: &Path, is_counted: impl Fn(&Path) -> bool) -> u64 {
    files_below(directory)
        .iter()
        .filter(|(path, _)| is_counted(path))
        .map(|(_, length)| length)
        .sum()
}

fn compare_clean(table: &mut RatioTable, directory: &Path) {
    let is_segment = |path: &Path| path.extension().is_some_and(|found| found == "segment");
    let segments = mib(bytes_of(directory, is_segment));
    table.alone(
        Comparison {
            work: format!(
                "open of {} partitions after a clean stop, {segments:.0} MiB of log",
                partitions()
            ),
            unit: "ms",
            beside: "",
            relation: Relation::Ratio,
            goal: Some(Goal::AtMost(1_000.0)),
        },
        || open_clean(directory).0.as_secs_f64() * 1e3,
    );
    table.alternate(
        Comparison {
            work: "bytes the same open read from the device".into(),
            unit: "MiB",
            beside: "files other than segments",
            relation: Relation::Ratio,
            goal: Some(Goal::RelationAtMost(1.0)),
        },
        || mib(open_clean(directory).1),
        || mib(bytes_of(directory, |path| !is_segment(path))),
    );
}

fn track(criterion: &mut Criterion, directory: &Path) {
    criterion.bench_function("recovery/clean_open", |bencher| {
        bencher.iter_custom(|count| (0..count).map(|_| open_clean(directory).0).sum());
    });
}

fn main() {
    let scratch = Scratch::new(env!("CARGO_TARGET_TMPDIR"));
    let many = scratch.join("many");
    make_many(&many);

    if is_measuring() {
        let mut table = RatioTable::new("recovery", env!("CARGO_TARGET_TMPDIR"));
        compare_crash(&mut table, &scratch);
        compare_clean(&mut table, &many);
        table.finish();
    }

    if !is_tracking() {
        return;
    }
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    track(&mut criterion, &many);
    criterion.final_summary();
}
