//! Question: what does a reader get from memory, how close does a cold scan come to the device, and what does it cost
//! the appends beside it?
//!
//! Workload: one partition of 64 KiB batches. At the tail: what was just appended, beside a plain copy of as many bytes.
//! Cold: 256 MiB after a fresh open, by the shard and by maps, checked and unchecked, beside a raw ring reading the very
//! same files with `O_DIRECT` at the size and depth of the read-ahead. Random: single batches. Hot: lone durable appends
//! to a second partition of the same shard, with and without a scan that never ends. A good answer: ≥ 10 GB/s at the
//! tail, ≥ 0.9 cold, p99 of appends at most twice as long beside a scan.

use std::hint::black_box;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use criterion::{Criterion, Throughput};
use futures_util::future::join_all;
use palisade_benches::executor::block_on;
use palisade_benches::figure::{Goal, Relation};
use palisade_benches::load::{
    AppendWork, Caller, OpenLog, ScanWork, append_alone, append_many, batch_filling, batch_of, scan,
};
use palisade_benches::ratio::{Comparison, RatioTable, is_measuring, is_tracking, scaled};
use palisade_benches::raw_ring::{RawFile, RawOperation, RawRing, RawWork};
use palisade_benches::scratch::{Scratch, files_below};
use palisade_benches::stopwatch::Stopwatch;
use palisade_engine::engine::Partition;
use palisade_engine::id::Offset;
use palisade_engine::partition::{PartitionSettings, Read, Verification};

const READ_BYTES: usize = 1 << 20;
const GROUP_BYTES: usize = 64 << 10;
/// Less than a shard keeps in memory for tail readers.
const TAIL_BATCHES: u64 = 128;
const READERS: u64 = 4;
/// What the engine reads ahead in, and how much of it is in flight. Source: ADR-0011.
const PIECE_BYTES: usize = 512 << 10;
const PIECES_IN_FLIGHT: u32 = 4;
const RANDOM_READS: u64 = 2_000;
const HOT_APPENDS: u64 = 3_000;

/// 256 MiB, or little in a trial.
fn cold_batches() -> u64 {
    scaled(4_096)
}

fn records_per_batch() -> u64 {
    u64::from(batch_filling(GROUP_BYTES).records())
}

fn fill(log: &OpenLog, count: u64) {
    let batch = batch_filling(GROUP_BYTES);
    let work = AppendWork { count, window: 32 };
    log.run(Caller::OtherThread, move |partition| append_many(partition, batch, work));
}

/// The last batches, all of them still in the arena.
fn tail_of(log: &OpenLog) -> ScanWork {
    let end = log.partition.watermarks().committed;
    let from = Offset(end.0 - TAIL_BATCHES * records_per_batch());
    ScanWork { from, end, bytes_max: READ_BYTES }
}

async fn scan_repeatedly(partition: Partition, work: ScanWork, rounds: u64) -> (u64, Duration) {
    let clock = Stopwatch::start();
    let mut bytes = 0;
    for _ in 0..rounds {
        bytes += scan(partition.clone(), work).await;
    }
    (bytes, clock.elapsed())
}

/// Scans the log with `readers` readers, each of its own part, all at once.
async fn scan_in_parts(partition: Partition, whole: ScanWork, readers: u64) -> (u64, Duration) {
    let batches = (whole.end.0 - whole.from.0) / records_per_batch();
    let part = batches.div_ceil(readers) * records_per_batch();
    let clock = Stopwatch::start();
    let scans = (0..readers).map(|reader| {
        let from = Offset(whole.from.0 + reader * part);
        let end = Offset((from.0 + part).min(whole.end.0));
        scan(partition.clone(), ScanWork { from, end, ..whole })
    });
    let bytes = join_all(scans).await.iter().sum();
    (bytes, clock.elapsed())
}

#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
fn gb_per_s((bytes, elapsed): (u64, Duration)) -> f64 {
    bytes as f64 / 1e9 / elapsed.as_secs_f64()
}

fn compare_tail(table: &mut RatioTable, log: &OpenLog) {
    let work = tail_of(log);
    let source = vec![0x5a_u8; usize::try_from(TAIL_BATCHES).expect("few") * GROUP_BYTES];
    let mut target = vec![0_u8; source.len()];
    for caller in Caller::BOTH {
        let comparison = Comparison {
            work: format!("tail reads out of the arena, {}", caller.name()),
            unit: "GB/s",
            beside: "a plain copy of as much",
            relation: Relation::Ratio,
            goal: Some(Goal::AtLeast(10.0)),
        };
        let engine =
            || gb_per_s(log.run(caller, move |partition| scan_repeatedly(partition, work, 100)));
        let copy = || {
            let clock = Stopwatch::start();
            for _ in 0..20 {
                black_box(&mut target).copy_from_slice(black_box(&source));
            }
            gb_per_s((20 * source.len() as u64, clock.elapsed()))
        };
        table.alternate(comparison, engine, copy);
    }
}

/// The segments a scan reads, to read them raw.
struct RawSegments {
    ring: RawRing,
    files: Vec<PathBuf>,
}

impl RawSegments {
    fn of(log_directory: &std::path::Path, bytes: u64) -> RawSegments {
        let mut files: Vec<_> = files_below(log_directory)
            .into_iter()
            .filter(|(path, _)| path.extension().is_some_and(|extension| extension == "segment"))
            .collect();
        // The largest hold the log; one made ahead holds zeros, which read no differently.
        files.sort_by_key(|(_, length)| std::cmp::Reverse(*length));
        let total: u64 = files.iter().map(|(_, length)| length).sum();
        assert!(total >= bytes, "the segments are shorter than the log");
        RawSegments {
            ring: RawRing::new(READ_BYTES, 4).expect("a ring with 4 MiB of buffers"),
            files: files.into_iter().map(|(path, _)| path).collect(),
        }
    }

    /// Reads `bytes` of the files in reads of `read_bytes`, `depth` of them in flight.
    fn read(&mut self, bytes: u64, read_bytes: usize, depth: u32) -> (u64, Duration) {
        let (mut moved, mut elapsed) = (0, Duration::ZERO);
        for path in &self.files {
            let mut file = RawFile::open(path).expect("a segment to read");
            let length = file.length_bytes().min(bytes - moved);
            let count = length / read_bytes as u64;
            if count == 0 {
                continue;
            }
            let work = RawWork { operation: RawOperation::Read, bytes: read_bytes, depth, count };
            let run = self.ring.run(&mut file, work).expect("the raw ring reads");
            moved += run.bytes;
            elapsed += run.elapsed;
        }
        (moved, elapsed)
    }
}

fn compare_cold(table: &mut RatioTable, log: &OpenLog, raw: &mut RawSegments, whole: ScanWork) {
    for readers in [1, READERS] {
        for caller in Caller::BOTH {
            let comparison = Comparison {
                work: format!("cold scan by {readers} readers, {}", caller.name()),
                unit: "GB/s",
                beside: "raw ring, 512 KiB x 4",
                relation: Relation::Ratio,
                goal: Some(Goal::RelationAtLeast(0.9)),
            };
            let engine = || {
                let load = move |partition| scan_in_parts(partition, whole, readers);
                gb_per_s(log.run(caller, load))
            };
            let bytes = cold_batches() * GROUP_BYTES as u64;
            let beside = || gb_per_s(raw.read(bytes, PIECE_BYTES, PIECES_IN_FLIGHT));
            table.alternate(comparison, engine, beside);
        }
    }
}

/// Reads everything through a [`Reader`](palisade_engine::engine::Reader).
async fn read_all(
    partition: Partition,
    is_mapped: bool,
    verification: Verification,
) -> (u64, Duration) {
    let start = partition.watermarks().log_start;
    let reader = partition.reader(start).verification(verification);
    let mut reader = if is_mapped { reader.mapping_closed() } else { reader };
    let clock = Stopwatch::start();
    let mut bytes = 0;
    while let Some(batch) = reader.next().await {
        bytes += black_box(batch.expect("a sound log")).bytes().len() as u64;
    }
    (bytes, clock.elapsed())
}

fn compare_readers(table: &mut RatioTable, log: &OpenLog, raw: &mut RawSegments) {
    let bytes = cold_batches() * GROUP_BYTES as u64;
    let ways = [
        ("by a Reader", false, Verification::Full),
        ("by a Reader, payloads unchecked", false, Verification::HeadersOnly),
        ("by maps (page cache)", true, Verification::Full),
        ("by maps (page cache), payloads unchecked", true, Verification::HeadersOnly),
    ];
    for (way, is_mapped, verification) in ways {
        let comparison = Comparison {
            work: format!("whole log {way}, from another thread"),
            unit: "GB/s",
            beside: "raw ring, 512 KiB x 4",
            relation: Relation::Ratio,
            goal: None,
        };
        let load = move |partition| read_all(partition, is_mapped, verification);
        let engine = || gb_per_s(log.run(Caller::OtherThread, load));
        let beside = || gb_per_s(raw.read(bytes, PIECE_BYTES, PIECES_IN_FLIGHT));
        table.alternate(comparison, engine, beside);
    }
}

/// Reads single batches from everywhere in the log.
async fn read_randomly(partition: Partition, whole: ScanWork, seed: u64) -> (u64, Duration) {
    let clock = Stopwatch::start();
    let mut state = seed;
    for _ in 0..RANDOM_READS {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let from = Offset(whole.from.0 + (state >> 20) % (whole.end.0 - whole.from.0));
        let read = Read { bytes_max: 1, ..Read::from(from) };
        black_box(partition.read(read).await.expect("a committed batch"));
    }
    (RANDOM_READS, clock.elapsed())
}

fn compare_random(table: &mut RatioTable, log: &OpenLog, raw: &mut RawSegments, whole: ScanWork) {
    let comparison = Comparison {
        work: "random reads of one batch of 64 KiB, one at a time, on the shard".into(),
        unit: "reads/s",
        beside: "raw ring, 64 KiB x 1, in order",
        relation: Relation::Ratio,
        goal: None,
    };
    let mut seed = 0;
    let engine = || {
        seed += 1;
        per_s(log.run(Caller::Shard, move |partition| read_randomly(partition, whole, seed)))
    };
    let beside = || {
        let (bytes, elapsed) = raw.read(RANDOM_READS * GROUP_BYTES as u64, GROUP_BYTES, 1);
        per_s((bytes / GROUP_BYTES as u64, elapsed))
    };
    table.alternate(comparison, engine, beside);
}

#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
fn per_s((count, elapsed): (u64, Duration)) -> f64 {
    count as f64 / elapsed.as_secs_f64()
}

/// The p99 of lone durable 1 KiB appends, in microseconds; with a scan of the same shard's cold log that starts again
/// until they are done.
fn hot_p99(log: &OpenLog, hot: &Partition, scanned: Option<ScanWork>) -> f64 {
    let is_done = Arc::new(AtomicBool::new(false));
    let scanner = scanned.map(|work| {
        let (partition, is_done) = (log.partition.clone(), is_done.clone());
        std::thread::spawn(move || {
            let mut bytes = 0;
            while !is_done.load(Ordering::Relaxed) {
                let end = Offset((work.from.0 + 256 * records_per_batch()).min(work.end.0));
                bytes += block_on(scan(partition.clone(), ScanWork { end, ..work }));
            }
            bytes
        })
    });
    let batch = batch_of(1, 1024);
    let mut latencies = block_on(append_alone(hot.clone(), batch, scaled(HOT_APPENDS)));
    is_done.store(true, Ordering::Relaxed);
    if let Some(scanner) = scanner {
        scanner.join().expect("the scan goes on until it is told to end");
    }
    latencies.sort();
    latencies[latencies.len() * 99 / 100].as_secs_f64() * 1e6
}

fn compare_hot(table: &mut RatioTable, log: &OpenLog, whole: ScanWork) {
    let name = "bench/1".parse().expect("a valid name");
    let hot = block_on(log.engine.open_partition(&name)).expect("a second partition");
    let comparison = Comparison {
        work: "p99 of a lone durable 1 KiB append beside a cold scan".into(),
        unit: "us",
        beside: "without the scan",
        relation: Relation::Ratio,
        goal: Some(Goal::RelationAtMost(2.0)),
    };
    let engine = || hot_p99(log, &hot, Some(whole));
    table.alternate(comparison, engine, || hot_p99(log, &hot, None));
}

fn track(criterion: &mut Criterion, hot: &OpenLog, cold: &OpenLog, whole: ScanWork) {
    let tail = tail_of(hot);
    let mut group = criterion.benchmark_group("read");
    for caller in Caller::BOTH {
        group.throughput(Throughput::Bytes(TAIL_BATCHES * GROUP_BYTES as u64));
        group.bench_function(format!("tail_8_mib/{caller:?}"), |bencher| {
            bencher.iter_custom(|count| {
                hot.run(caller, move |partition| scan_repeatedly(partition, tail, count)).1
            });
        });
        let end = Offset((whole.from.0 + 256 * records_per_batch()).min(whole.end.0));
        let part = ScanWork { end, ..whole };
        group.throughput(Throughput::Bytes(256 * GROUP_BYTES as u64));
        group.bench_function(format!("cold_16_mib/{caller:?}"), |bencher| {
            bencher.iter_custom(|count| {
                cold.run(caller, move |partition| scan_repeatedly(partition, part, count)).1
            });
        });
    }
    group.finish();
}

fn main() {
    let scratch = Scratch::new(env!("CARGO_TARGET_TMPDIR"));
    let settings = PartitionSettings::default();
    let hot = OpenLog::open(&scratch.join("hot"), settings);
    fill(&hot, 2 * TAIL_BATCHES);
    let filled = OpenLog::open(&scratch.join("cold"), settings);
    let from = filled.partition.watermarks().log_start;
    fill(&filled, cold_batches());
    filled.settle();
    filled.close();
    let cold = OpenLog::open(&scratch.join("cold"), settings);
    let end = cold.partition.watermarks().committed;
    let whole = ScanWork { from, end, bytes_max: READ_BYTES };

    if is_measuring() {
        let mut table = RatioTable::new("read", env!("CARGO_TARGET_TMPDIR"));
        compare_tail(&mut table, &hot);
        let mut raw = RawSegments::of(&scratch.join("cold"), cold_batches() * GROUP_BYTES as u64);
        compare_cold(&mut table, &cold, &mut raw, whole);
        compare_readers(&mut table, &cold, &mut raw);
        compare_random(&mut table, &cold, &mut raw, whole);
        compare_hot(&mut table, &cold, whole);
        table.finish();
    }

    if !is_tracking() {
        hot.close();
        return cold.close();
    }
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    track(&mut criterion, &hot, &cold, whole);
    criterion.final_summary();
    hot.close();
    cold.close();
}
