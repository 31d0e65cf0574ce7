//! Question: what does the gate cost an append?
//!
//! Workload: the decision alone (promise, epoch, lease against a fresh reading of both clocks), and appends of 100 B on
//! the shard under a `fail-closed` lease beside the same appends in a standalone engine, whose epochs have no deadline.
//! Beside the decision: the reading of the clocks it cannot do without. A good answer: ≤ 60 ns a decision.

use std::hint::black_box;
use std::path::Path;
use std::time::Duration;

use criterion::Criterion;
use palisade_benches::executor::block_on;
use palisade_benches::figure::{Goal, Relation};
use palisade_benches::load::{AppendWork, Caller, OpenLog, append_many, batch_of};
use palisade_benches::ratio::{Comparison, RatioTable, is_measuring, is_tracking, scaled};
use palisade_benches::scratch::Scratch;
use palisade_benches::stopwatch::Stopwatch;
use palisade_engine::engine::{Coordinator, Engine, Lease};
use palisade_engine::format::{Descriptor, Member, Policy, ReplicaSet};
use palisade_engine::id::{Epoch, NodeId, PartitionId, PartitionIndex, StreamId};
use palisade_engine::io::SystemClock;
use palisade_engine::io::clock::Clock;
use palisade_engine::partition::authority::{LeaseRule, Ownership, Standing};
use palisade_engine::partition::lease::SharedLease;
use palisade_engine::partition::{Grant, LeaseTerm, PartitionSettings, PartitionSpec};

const DECISIONS: u64 = 1_000_000;
const APPENDS: u64 = 50_000;
const LEASE: Duration = Duration::from_secs(3_600);

/// The gate as an append meets it: this node owns an epoch until its lease ends.
struct Decision {
    clock: SystemClock,
    lease: SharedLease,
    standing: Standing,
}

impl Decision {
    fn new() -> Decision {
        let clock = SystemClock;
        let lease = SharedLease::default();
        lease.set(LeaseTerm { sent: clock.now(), duration: LEASE });
        let epoch = Epoch::named(1, NodeId::STANDALONE);
        let owned = Ownership { epoch, rule: LeaseRule::UntilDeadline };
        Decision { clock, lease, standing: Standing { promised: epoch, owned: Some(owned) } }
    }

    fn admit(&self) -> bool {
        black_box(self.standing).admit(|| self.lease.state_at(self.clock.now())).is_ok()
    }
}

fn decide(decision: &Decision, count: u64) -> Duration {
    let clock = Stopwatch::start();
    for _ in 0..count {
        assert!(black_box(decision.admit()), "the lease is long enough for a bench");
    }
    clock.elapsed()
}

fn read_clocks(clock: &SystemClock, count: u64) -> Duration {
    let watch = Stopwatch::start();
    for _ in 0..count {
        black_box(clock.now());
    }
    watch.elapsed()
}

#[expect(clippy::cast_precision_loss, reason = "a time for people")]
fn nanoseconds_each(elapsed: Duration, count: u64) -> f64 {
    elapsed.as_secs_f64() * 1e9 / count as f64
}

/// A log whose one partition is granted by a coordinator, this bench, under the strictest policy.
fn open_under_a_lease(directory: &Path) -> OpenLog {
    let node = NodeId::new(7).expect("a node id");
    let settings = settings();
    let engine = Engine::builder(directory)
        .shards(1)
        .settings(settings)
        .coordinator(Coordinator { node, cluster: 1 })
        .open();
    let engine = engine.unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let id = PartitionId { stream: StreamId(1), index: PartitionIndex(0) };
    let name = "bench/0".parse().expect("a valid name");
    let partition = block_on(engine.create_partition(PartitionSpec { id, name, settings }))
        .expect("a partition to measure");
    let set =
        ReplicaSet { members: vec![Member { node, storage: engine.storage() }], ack_quorum: 1 };
    let descriptor = Descriptor {
        term: 1,
        set,
        seal_sets: Vec::new(),
        policy: Policy::FailClosed,
        loss_generation: 0,
        successors: Vec::new(),
    };
    let epoch = Epoch::named(1, node);
    let policy = Policy::FailClosed;
    let (lineage, index) = (1, 1);
    let grant = Grant { partition: id, epoch, descriptor, policy, lineage, index };
    let gate = engine.gate();
    gate.renew(Lease { sent: engine.clock().now(), duration: LEASE, lineage, index });
    gate.applied(lineage, index);
    block_on(gate.grant(grant)).expect("the first grant of a fresh partition");
    OpenLog::of(engine, partition, directory)
}

fn settings() -> PartitionSettings {
    PartitionSettings {
        segment_bytes: 128 << 20,
        first_segment_bytes: 128 << 20,
        ..PartitionSettings::default()
    }
}

fn append_ns(log: &OpenLog) -> f64 {
    log.reset();
    let batch = batch_of(1, 100);
    let appends = scaled(APPENDS);
    let work = AppendWork { count: appends, window: 2_048 };
    let elapsed = log.run(Caller::Shard, move |partition| append_many(partition, batch, work));
    nanoseconds_each(elapsed, appends)
}

fn print_table(decision: &Decision, leased: &OpenLog, standalone: &OpenLog) {
    let mut table = RatioTable::new("gate", env!("CARGO_TARGET_TMPDIR"));
    table.alternate(
        Comparison {
            work: "the decision at admission, lease checked".into(),
            unit: "ns",
            beside: "reading both clocks",
            relation: Relation::Difference,
            goal: Some(Goal::AtMost(60.0)),
        },
        || nanoseconds_each(decide(decision, DECISIONS), DECISIONS),
        || nanoseconds_each(read_clocks(&decision.clock, DECISIONS), DECISIONS),
    );
    table.alternate(
        Comparison {
            work: "durable 100 B append on the shard, 2,048 in flight, under a lease".into(),
            unit: "ns",
            beside: "standalone",
            relation: Relation::Difference,
            goal: None,
        },
        || append_ns(leased),
        || append_ns(standalone),
    );
    table.finish();
}

fn main() {
    let scratch = Scratch::new(env!("CARGO_TARGET_TMPDIR"));
    let decision = Decision::new();

    if is_measuring() {
        let leased = open_under_a_lease(&scratch.join("leased"));
        let standalone = OpenLog::open(&scratch.join("standalone"), settings());
        print_table(&decision, &leased, &standalone);
        leased.close();
        standalone.close();
    }

    if !is_tracking() {
        return;
    }
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(1))
        .configure_from_args();
    criterion.bench_function("gate/decision", |bencher| {
        bencher.iter_custom(|count| decide(&decision, count));
    });
    criterion.final_summary();
}
