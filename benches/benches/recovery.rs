//! Question: how long does an open take, after a crash and after a clean stop?
//!
//! Workload: a crash image (a copy of the directory, made while the log is open, that is on the device and not in the
//! page cache) with 40 MiB behind the last checkpoint in each of 12 partitions, walked and checked at open, beside a raw
//! ring reading as many bytes. And 10,000 partitions that were closed in order,
//! with the bytes the open read, beside the bytes of their checkpoints. A good answer: ≤ 1 s per GiB walked; after a
//! clean stop no log data is read, so no more than the checkpoints.

use std::path::{Path, PathBuf};
use std::time::Duration;

use criterion::Criterion;
use futures_util::future::join_all;
use palisade_benches::executor::block_on;
use palisade_benches::figure::{Goal, Relation};
use palisade_benches::load::{AppendWork, append_many, batch_filling, batch_of, settle};
use palisade_benches::machine::device_bytes_read;
use palisade_benches::ratio::{Comparison, RatioTable, is_measuring, is_tracking, scaled};
use palisade_benches::raw_ring::{RawFile, RawOperation, RawRing, RawWork};
use palisade_benches::scratch::{Scratch, copy_directory, files_below};
use palisade_benches::stopwatch::Stopwatch;
use palisade_engine::engine::Engine;
use palisade_engine::id::PartitionName;
use palisade_engine::partition::{AppendOptions, PartitionSettings};

const CRASH_PARTITIONS: u64 = 12;
const SEGMENT_BYTES: u64 = 64 << 20;
/// 64 KiB each: enough for the next segment to be made, the last checkpoint of a log that goes on.
const CHECKPOINTED_GROUPS: u64 = 288;
/// What is appended behind that to each partition.
const CRASH_GROUPS: u64 = 640;
const GROUP_BYTES: u64 = 64 << 10;
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

fn open_crashed(directory: &Path) -> Engine {
    let engine = Engine::builder(directory).shards(1).settings(crash_settings()).open();
    engine.unwrap_or_else(|error| panic!("{}: {error}", directory.display()))
}

/// Logs that are open and full, to be copied as a crash would leave them.
fn open_and_fill(directory: &Path) -> Engine {
    let engine = open_crashed(directory);
    let batch = batch_filling(64 << 10);
    for index in 0..scaled(CRASH_PARTITIONS) {
        let name: PartitionName = format!("crash/{index}").parse().expect("a name");
        let partition = block_on(engine.open_partition(&name)).expect("a partition is created");
        for count in [CHECKPOINTED_GROUPS, CRASH_GROUPS] {
            let work = AppendWork { count, window: 64 };
            block_on(append_many(partition.clone(), batch.clone(), work));
            settle(directory);
        }
    }
    engine
}

/// Copies the open logs, opens the copy, and returns the seconds that took for each GiB walked.
#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
fn recover_copy(logs: &Path, copy: &Path) -> f64 {
    copy_directory(logs, copy);
    let clock = Stopwatch::start();
    let recovered = open_crashed(copy);
    let elapsed = clock.elapsed();
    let partitions = &recovered.report().partitions;
    let ends = partitions.iter().map(|partition| partition.log_end.0);
    assert!(ends.min() > Some(CHECKPOINTED_GROUPS + CRASH_GROUPS), "the logs are all there");
    let recoveries = partitions.iter().filter_map(|partition| partition.recovery.as_ref());
    let walked_bytes: u64 = recoveries.map(|recovery| recovery.walked_bytes).sum();
    assert!(walked_bytes > scaled(CRASH_PARTITIONS) * CRASH_GROUPS * GROUP_BYTES * 9 / 10);
    block_on(recovered.close()).expect("an orderly close");
    std::fs::remove_dir_all(copy).expect("the copy goes away");
    elapsed.as_secs_f64() * f64::from(1 << 30) / walked_bytes as f64
}

/// Reads as many bytes as recovery walks, from the open logs' own segments. Returns the seconds for each GiB.
#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
fn read_raw(logs: &Path, ring: &mut RawRing) -> f64 {
    let bytes = CRASH_GROUPS * GROUP_BYTES;
    let work = RawWork {
        operation: RawOperation::Read,
        bytes: READ_BYTES,
        depth: 4,
        count: bytes / READ_BYTES as u64,
    };
    let files = files_below(logs);
    let segments: Vec<_> = files.iter().filter(|(_, length)| *length == SEGMENT_BYTES).collect();
    let read = |(path, _): &&(PathBuf, u64)| {
        let mut file = RawFile::open(path).expect("a segment to read");
        ring.run(&mut file, work).expect("the raw ring reads").elapsed.as_secs_f64()
    };
    let elapsed: f64 = segments.iter().map(read).sum();
    elapsed * f64::from(1 << 30) / (bytes * segments.len() as u64) as f64
}

fn compare_crash(table: &mut RatioTable, scratch: &Scratch) {
    let directory = scratch.join("crash");
    let logs = open_and_fill(&directory);
    let mut ring = RawRing::new(READ_BYTES, 4).expect("a ring with 4 MiB of buffers");
    let comparison = Comparison {
        work: format!(
            "open of {} partitions after a crash, per GiB behind the last checkpoints",
            scaled(CRASH_PARTITIONS)
        ),
        unit: "s",
        beside: "raw ring reading it, 1 MiB x 4",
        relation: Relation::Ratio,
        goal: Some(Goal::AtMost(1.0)),
    };
    let engine = || recover_copy(&directory, &scratch.join("crash-copy"));
    table.alternate(comparison, engine, || read_raw(&directory, &mut ring));
    block_on(logs.close()).expect("an orderly close");
    std::fs::remove_dir_all(&directory).expect("the logs go away");
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
    let mut table = RatioTable::new("recovery", env!("CARGO_TARGET_TMPDIR"));
    if is_measuring() {
        compare_crash(&mut table, &scratch);
    }
    let many = scratch.join("many");
    make_many(&many);
    if is_measuring() {
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
