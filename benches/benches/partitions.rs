//! Question: does the log stay as fast when its partitions are many?
//!
//! Workload: 100 B records, a batch each, 64 callers, every append acknowledged after its sync: in turn to 10,000 partitions
//! of one shard, beside the same to one partition of the same shard. A good answer: ≥ 0.7 of one partition.

use std::path::Path;
use std::time::Duration;

use criterion::{Criterion, Throughput};
use futures_util::future::join_all;
use palisade_benches::executor::block_on;
use palisade_benches::figure::{Goal, Relation};
use palisade_benches::load::{
    AppendWork, Caller, append_across, batch_of, keep_off_the_shard, on_shard,
};
use palisade_benches::ratio::{Comparison, RatioTable, is_measuring, is_tracking, scaled};
use palisade_benches::scratch::Scratch;
use palisade_engine::engine::{Engine, Partition};
use palisade_engine::id::PartitionName;
use palisade_engine::partition::{PartitionSettings, RetentionLimits};

const PARTITIONS: u64 = 10_000;
const CALLERS: usize = 64;
const RECORD_BYTES: usize = 100;
/// Enough that every round takes groups out of the journal to their segments, too.
const APPENDS: u64 = 300_000;
/// Room for a group of each partition.
const ARENA_BYTES: usize = 256 << 20;
/// Partitions created at once: well below every limit of a shard.
const CREATED_AT_ONCE: usize = 50;

fn small_settings() -> PartitionSettings {
    PartitionSettings {
        segment_bytes: 256 << 10,
        first_segment_bytes: 64 << 10,
        retention: RetentionLimits { bytes_max: Some(512 << 10), age_max: None },
    }
}

struct Logs {
    engine: Engine,
    many: Vec<Partition>,
    one: Vec<Partition>,
}

impl Logs {
    fn open(directory: &Path) -> Logs {
        let builder = Engine::builder(directory).shards(1).arena_bytes(ARENA_BYTES);
        let engine = builder.settings(small_settings()).open();
        let engine = engine.unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
        let many = create(&engine, "many", scaled(PARTITIONS));
        let one = create(&engine, "one", 1);
        Logs { engine, many, one }
    }

    /// Runs the load and returns records a second, in thousands.
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    fn append(&self, caller: Caller, partitions: &[Partition]) -> f64 {
        let count = scaled(APPENDS);
        count as f64 / 1e3 / self.elapsed(caller, partitions, count).as_secs_f64()
    }

    fn elapsed(&self, caller: Caller, partitions: &[Partition], count: u64) -> Duration {
        let partitions = partitions.to_vec();
        let load = move || {
            let work = AppendWork { count, window: CALLERS };
            append_across(partitions, batch_of(1, RECORD_BYTES), work)
        };
        match caller {
            Caller::OtherThread => block_on(load()),
            Caller::Shard => on_shard(&self.engine, load),
        }
    }
}

fn create(engine: &Engine, stream: &str, count: u64) -> Vec<Partition> {
    let names: Vec<PartitionName> =
        (0..count).map(|index| format!("{stream}/{index}").parse().expect("a name")).collect();
    let mut partitions = Vec::new();
    for some in names.chunks(CREATED_AT_ONCE) {
        let created = block_on(join_all(some.iter().map(|name| engine.open_partition(name))));
        partitions.extend(created.into_iter().map(|made| made.expect("a partition is created")));
    }
    partitions
}

/// Frames, groups in them, and writes that took groups to their segments.
fn journal_counts(engine: &Engine) -> [u64; 3] {
    let metrics = engine.metrics();
    let shard = &metrics.shards[0];
    [shard.journal_frames, shard.journal_groups, shard.stored_groups]
}

fn compare(table: &mut RatioTable, logs: &Logs) {
    for caller in Caller::BOTH {
        let comparison = Comparison {
            work: format!(
                "durable, single records of 100 B, 64 callers, {} partitions, {}",
                logs.many.len(),
                caller.name()
            ),
            unit: "thousand records/s",
            beside: "one partition",
            relation: Relation::Ratio,
            goal: Some(Goal::RelationAtLeast(0.7)),
        };
        let before = journal_counts(&logs.engine);
        let many = || logs.append(caller, &logs.many);
        table.alternate(comparison, many, || logs.append(caller, &logs.one));
        let after = journal_counts(&logs.engine);
        let [frames, groups, stored] = [0, 1, 2].map(|at| after[at] - before[at]);
        table.note(format!(
            "{}: {frames} frames of {} groups on average; {stored} writes took them to segments",
            caller.name(),
            groups / frames.max(1),
        ));
    }
}

fn track(criterion: &mut Criterion, logs: &Logs) {
    let mut group = criterion.benchmark_group("partitions");
    group.throughput(Throughput::Elements(1));
    for (name, partitions) in [("many", &logs.many), ("one", &logs.one)] {
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|count| logs.elapsed(Caller::OtherThread, partitions, count));
        });
    }
    group.finish();
}

fn main() {
    let scratch = Scratch::new(env!("CARGO_TARGET_TMPDIR"));
    let logs = Logs::open(&scratch.join("log"));
    keep_off_the_shard();

    if is_measuring() {
        let mut table = RatioTable::new("partitions", env!("CARGO_TARGET_TMPDIR"));
        compare(&mut table, &logs);
        table.finish();
    }

    if is_tracking() {
        let mut criterion = Criterion::default()
            .sample_size(10)
            .warm_up_time(Duration::from_millis(500))
            .measurement_time(Duration::from_secs(2))
            .configure_from_args();
        track(&mut criterion, &logs);
        criterion.final_summary();
    }
    block_on(logs.engine.close()).expect("an orderly close");
}
