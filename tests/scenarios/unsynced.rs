//! Large groups that nobody waits for are written first and synced later, many at once; nothing is said of them before.

use std::collections::VecDeque;
use std::time::Duration;

use palisade_engine::Engine;
use palisade_engine::engine::{Append, EngineConfig, Partition, ShardMetrics};
use palisade_engine::id::Offset;
use palisade_engine::io::disk::DiskOperation;
use palisade_engine::io::simulated::{Fault, FaultKind};
use palisade_engine::partition::{AppendError, AppendOptions, Durability, Read, Wait};
use palisade_tests::world::name;
use palisade_tests::{Crash, SimulatedWorld, Workload, World, batch, read_log};

/// Longer than the least group that goes unsynced.
const RECORD_BYTES: usize = 70_000;

fn accepted() -> AppendOptions {
    AppendOptions { durability: Durability::Accepted, ..AppendOptions::default() }
}

fn open(world: &SimulatedWorld) -> (Engine, Partition) {
    let long_segments = |config: &mut EngineConfig| {
        config.settings.first_segment_bytes = 8 << 20;
        config.settings.segment_bytes = 8 << 20;
    };
    let engine = world.open_as(long_segments).expect("the engine opens");
    let partition = world.run(engine.open_partition(&name("s/0"))).expect("nothing is wrong");
    (engine, partition)
}

fn metrics(engine: &Engine) -> ShardMetrics {
    engine.metrics().shards[0]
}

/// Appends `count` records with `window` of them unanswered.
async fn accept(partition: &Partition, workload: &mut Workload, count: usize, window: usize) {
    let mut unanswered = VecDeque::new();
    for _ in 0..count {
        if unanswered.len() == window {
            let oldest: Append = unanswered.pop_front().expect("it is full");
            oldest.await.expect("nothing is wrong");
        }
        let records = [workload.record(RECORD_BYTES)];
        unanswered.push_back(partition.append(batch(&records), accepted()));
    }
    for append in unanswered {
        append.await.expect("nothing is wrong");
    }
}

/// Waits until everything that was accepted may be read.
async fn settle(partition: &Partition) {
    while partition.watermarks().committed < partition.watermarks().log_end {
        let from = partition.watermarks().committed;
        let wait = Wait::UpTo(Duration::from_secs(1));
        partition.read(Read { bytes_max: 1, wait, ..Read::from(from) }).await.expect("it waits");
    }
}

#[test]
fn large_groups_that_nobody_waits_for_share_syncs() {
    let world = SimulatedWorld::new(1);
    let (engine, partition) = open(&world);

    world.run(async {
        accept(&partition, &mut Workload::new(1), 60, 8).await;
        settle(&partition).await;
    });

    let metrics = metrics(&engine);
    assert!(metrics.group_syncs > 0, "{metrics:?}");
    assert!(metrics.group_syncs * 2 <= metrics.groups, "{metrics:?}");
    assert_eq!(partition.watermarks().durable, Offset(60));
    world.crash(Crash::LoseUnsynced);
    drop((partition, engine));
    let (engine, partition) = open(&world);
    let log = world.run(read_log(&partition)).expect("it is readable");
    assert_eq!(log.whole().len(), 60);
    world.close(engine);
}

/// The answer to an append that waits covers everything before it.
#[test]
fn durable_append_behind_accepted_ones_makes_all_of_them_durable() {
    for (seed, crash) in [(2, Crash::LoseUnsynced), (3, Crash::Mixed), (4, Crash::Kill)] {
        let world = SimulatedWorld::new(seed);
        let (engine, partition) = open(&world);

        let appended = world.run(async {
            accept(&partition, &mut Workload::new(seed), 5, 5).await;
            partition.append(batch(&["last".into()]), AppendOptions::default()).await
        });

        assert_eq!(appended.expect("nothing is wrong").base_offset, Offset(5));
        world.crash(crash);
        drop((partition, engine));
        let (engine, partition) = open(&world);
        let log = world.run(read_log(&partition)).expect("it is readable");
        assert_eq!(log.whole().len(), 6);
        world.close(engine);
    }
}

/// Whoever keeps a few appends in flight meets the device's speed, not the limit on what is gathered.
#[test]
fn accepted_appends_are_slowed_before_they_are_refused() {
    let world = SimulatedWorld::new(5);
    let (engine, partition) = open(&world);
    for spared in 0..10 {
        let slow = FaultKind::Delay(Duration::from_millis(20));
        let write = Fault::new(DiskOperation::Write, slow).with_extension("segment");
        world.storage().inject(write.after(spared * 9));
    }

    world.run(accept(&partition, &mut Workload::new(5), 200, 8));

    assert_eq!(metrics(&engine).busy, 0);
    world.run(settle(&partition));
    world.close(engine);
}

#[test]
fn failed_sync_leaves_nothing_durable_that_it_was_to_cover() {
    let world = SimulatedWorld::new(6);
    let (engine, partition) = open(&world);
    let durable = partition.append(batch(&["first".into()]), AppendOptions::default());
    world.run(durable).expect("nothing is wrong");
    let fault = Fault::new(DiskOperation::Sync, FaultKind::Io).with_extension("segment");
    world.storage().inject(fault);

    world.run(accept(&partition, &mut Workload::new(6), 4, 4));
    world.runtime().run_for(Duration::from_secs(1));

    let append = partition.append(batch(&["last".into()]), AppendOptions::default());
    match world.run(append) {
        Err(AppendError::Stopped { .. }) => {}
        other => panic!("a durable append behind a failed sync was answered {other:?}"),
    }
    assert_eq!(partition.watermarks().durable, Offset(1));
    let log = world.run(read_log(&partition)).expect("reads go on");
    assert_eq!(log.whole().len(), 1);
    let report = world.run(engine.close()).expect("it closes");
    assert_eq!(report.unclean.len(), 1);
}
