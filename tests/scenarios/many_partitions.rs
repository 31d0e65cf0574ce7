//! L34: a start after a kill takes what the bytes since the checkpoints take, not what all bytes take. And what many
//! partitions want at the same time is done a few at a time.

use std::time::Duration;

use palisade_engine::Engine;
use palisade_engine::io::disk::DiskOperation;
use palisade_engine::io::simulated::{Fault, FaultKind};
use palisade_engine::partition::AppendOptions;
use palisade_tests::world::name;
use palisade_tests::{RealWorld, SimulatedWorld, Workload, World, batch, read_log};

use crate::TARGET;

const RECORD_BYTES: usize = 2_000;

async fn append_to(engine: &Engine, partitions: impl Iterator<Item = usize>, records: usize) {
    let mut workload = Workload::new(34);
    for index in partitions {
        let partition = engine.open_partition(&name(&format!("s/{index}"))).await;
        let partition = partition.expect("nothing is wrong");
        for _ in 0..records {
            let records = [workload.record(RECORD_BYTES)];
            let append = partition.append(batch(&records), AppendOptions::default());
            append.await.expect("nothing is wrong");
        }
    }
}

/// Fills partitions and closes; then a run touches one in twenty and is killed.
fn start_follows_new_bytes(world: &impl World, partitions: usize) {
    let engine = world.open();
    world.run(append_to(&engine, 0..partitions, 10));
    world.close(engine);
    let engine = world.open();
    let untouched = engine.report().partitions.iter();
    assert!(untouched.clone().all(|partition| partition.recovery.is_none()));
    let touched = || (0..partitions).step_by(20);
    world.run(append_to(&engine, touched(), 2));
    world.kill(engine);

    let engine = world.open();

    let recovered = engine.report().partitions.iter();
    let recovered: Vec<_> = recovered.filter_map(|partition| partition.recovery.as_ref()).collect();
    assert_eq!(engine.report().partitions.len(), partitions);
    assert_eq!(recovered.len(), touched().count());
    // A marker and two records each, in groups of whole blocks.
    for recovery in &recovered {
        assert!(recovery.walked_bytes <= 6 * 4_096, "{recovery:?}");
        assert_eq!(recovery.torn_bytes, 0);
    }
    for index in touched() {
        let partition = engine.find(&name(&format!("s/{index}"))).expect("it is there");
        assert_eq!(world.run(read_log(&partition)).expect("it is readable").whole().len(), 12);
    }
    world.close(engine);
}

#[test]
fn l34_start_after_a_kill_follows_the_bytes_since_the_checkpoints() {
    start_follows_new_bytes(&SimulatedWorld::new(34), 1_000);
    start_follows_new_bytes(&RealWorld::new(TARGET), 100);
}

/// After a clean stop no data is read at all: the device sees the same few operations however much there is.
#[test]
fn l34_start_after_a_clean_stop_reads_no_data() {
    let operations_to_open = |records| {
        let world = SimulatedWorld::new(35);
        let engine = world.open();
        world.run(append_to(&engine, 0..50, records));
        world.close(engine);
        let before = world.storage().operations();
        let engine = world.open();
        let operations = world.storage().operations() - before;
        world.close(engine);
        operations
    };

    assert_eq!(operations_to_open(1), operations_to_open(20));
}

fn segments(world: &SimulatedWorld) -> usize {
    let is_segment = |path: &std::path::PathBuf| path.extension().is_some_and(|e| e == "segment");
    world.files().iter().filter(|path| is_segment(path)).count()
}

/// All partitions come to need their next segment at once, and syncs are slow. Whoever closes meanwhile needs none.
#[test]
fn few_next_segments_are_made_at_a_time_and_none_for_a_log_that_closes() {
    const PARTITIONS: usize = 30;
    const MADE_AT_A_TIME: usize = 4;
    let world = SimulatedWorld::new(35);
    let engine = world.open();
    world.run(append_to(&engine, 0..PARTITIONS, 1));
    assert_eq!(segments(&world), PARTITIONS);
    let slow = Fault::new(DiskOperation::Sync, FaultKind::Delay(Duration::from_secs(5)));
    world.storage().inject(slow.with_extension("segment").for_ever());

    world.run(append_to(&engine, 0..PARTITIONS, 10));
    world.runtime().run_for(Duration::from_secs(1));

    assert_eq!(segments(&world), PARTITIONS + MADE_AT_A_TIME);
    world.storage().clear_faults();
    world.close(engine);
    // Those that had not begun to close when the first ones were done may have made one more.
    assert!(segments(&world) <= PARTITIONS + 2 * MADE_AT_A_TIME);
    let engine = world.open();
    for index in 0..PARTITIONS {
        let partition = engine.find(&name(&format!("s/{index}"))).expect("it is there");
        assert_eq!(world.run(read_log(&partition)).expect("it is readable").whole().len(), 11);
    }
    world.close(engine);
}
