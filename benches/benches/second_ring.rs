//! Question: would a second, bare ring per shard for data be worth its complexity? Answered in ADR-0010.
//!
//! Workload: lone durable 4 KiB writes, durable 64 KiB writes 16 deep, durable 4 KiB writes and random 4 KiB reads 32 deep,
//! on one pre-written file, through the engine's `Disk`, a bare ring, and a ring beside tokio-uring (completions through
//! an eventfd), each with and without registered file and `DEFER_TASKRUN`. Good for a second ring: ≥ 1.1 of the engine.

use std::path::Path;

use palisade_benches::figure::Spread;
use palisade_benches::machine::{BusyTime, Machine};
use palisade_benches::ratio::{ROUNDS, is_measuring};
use palisade_benches::raw_ring::{RawFile, RawOperation, RawWork};
use palisade_benches::scratch::Scratch;
use palisade_benches::second_ring::{Cost, Lane, Setup};
use palisade_benches::stopwatch::quantile;

const FILE_BYTES: u64 = 256 << 20;

const LANES: [(&str, Lane); 7] = [
    ("the engine's Disk", Lane::Engine),
    ("beside the runtime, plain", Lane::Beside(Setup::Plain)),
    ("beside the runtime, COOP_TASKRUN, file registered", Lane::Beside(Setup::Cooperative)),
    ("beside the runtime, DEFER_TASKRUN, file registered", Lane::Beside(Setup::Deferred)),
    ("bare ring, plain", Lane::Bare(Setup::Plain)),
    ("bare ring, COOP_TASKRUN, file registered", Lane::Bare(Setup::Cooperative)),
    ("bare ring, DEFER_TASKRUN, file registered", Lane::Bare(Setup::Deferred)),
];

const fn work(operation: RawOperation, kib: usize, depth: u32, count: u64) -> RawWork {
    RawWork { operation, bytes: kib << 10, depth, count }
}

const WORKS: [(&str, RawWork); 4] = [
    ("durable 4 KiB write, 1 at a time", work(RawOperation::WriteDurable, 4, 1, 1_500)),
    ("durable 64 KiB writes, 16 in flight", work(RawOperation::WriteDurable, 64, 16, 6_000)),
    ("durable 4 KiB writes, 32 in flight", work(RawOperation::WriteDurable, 4, 32, 20_000)),
    ("random 4 KiB reads, 32 in flight", work(RawOperation::Read, 4, 32, 40_000)),
];

/// What one lane showed at one work, a sample a round.
#[derive(Default)]
struct Samples {
    per_s: Vec<f64>,
    p50_us: Vec<f64>,
    processor_us: Vec<f64>,
}

#[expect(clippy::cast_precision_loss, reason = "rates for people")]
impl Samples {
    fn push(&mut self, mut cost: Cost) {
        let count = cost.latencies.len() as f64;
        self.per_s.push(count / cost.elapsed.as_secs_f64());
        self.p50_us.push(quantile(&mut cost.latencies, 0.5).as_secs_f64() * 1e6);
        self.processor_us.push(cost.processor.as_secs_f64() * 1e6 / count);
    }
}

fn shown(samples: &[f64]) -> String {
    Spread::of(samples).map_or("–".into(), |spread| spread.to_string())
}

fn compare(path: &Path, name: &str, work: RawWork) {
    let run = |lane: Lane| lane.run(path, work).expect("a ring of this kernel");
    LANES.iter().for_each(|&(_, lane)| drop(run(lane)));
    let mut samples: [Samples; LANES.len()] = Default::default();
    let busy = BusyTime::now();
    for _ in 0..ROUNDS {
        for (samples, (_, lane)) in samples.iter_mut().zip(LANES) {
            samples.push(run(lane));
        }
    }
    let others = BusyTime::now().used_by_others_since(busy) * 100.0;
    for (own, (lane, _)) in samples.iter().zip(LANES) {
        let engine = &samples[0];
        let pairs = own.per_s.iter().zip(&engine.per_s);
        let ratio: Vec<f64> = pairs.map(|(own, engine)| own / engine).collect();
        println!(
            "| {name} | {lane} | {} | {} | {} | {} | {others:.0} % |",
            shown(&own.per_s),
            shown(&ratio),
            shown(&own.p50_us),
            shown(&own.processor_us),
        );
    }
}

fn main() {
    if !is_measuring() {
        return;
    }
    let scratch = Scratch::new(env!("CARGO_TARGET_TMPDIR"));
    let path = scratch.join("raw");
    drop(RawFile::prewritten(&path, FILE_BYTES).expect("room for the raw file"));
    println!("\nsecond_ring\n{}\n", Machine::of(scratch.path()));
    println!(
        "| work | lane | operations/s | of the engine's Disk | p50 us | CPU us an operation | others' CPU |"
    );
    println!("|---|---|---|---|---|---|---|");
    for (name, work) in WORKS {
        compare(&path, name, work);
    }
    println!();
}
