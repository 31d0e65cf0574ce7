//! L19: the checkpoint is replaced while power is lost; the old or the new one loads.

use palisade_engine::Engine;
use palisade_engine::id::Offset;
use palisade_tests::world::name;
use palisade_tests::{Crash, RealWorld, SimulatedWorld, Workload, World, read_log, segment_files};

use crate::TARGET;
use crate::promises::Promises;

/// A closed segment takes some sixty bytes of a checkpoint; this many fill the first slot, and more.
const ROLLS: usize = 170;

/// Rolls until the checkpoint has outgrown its file.
async fn grow(engine: &Engine, promises: &mut Promises) {
    let partition = engine.open_partition(&name("s/0")).await.expect("nothing is wrong");
    let mut workload = Workload::new(19);
    for _ in 0..ROLLS {
        let records = vec![workload.record(8)];
        promises.append_at_once(&partition, vec![records]).await.expect("nothing is wrong");
        partition.roll().await.expect("nothing is wrong");
    }
}

fn checkpoint_bytes(world: &impl World) -> usize {
    let files = world.files();
    let path = files.iter().find(|path| path.ends_with("checkpoint")).expect("one partition");
    world.read_file(path).len()
}

/// Runs without a crash; returns the operations around the one that made the larger file.
fn operations_of_the_replacement() -> std::ops::Range<u64> {
    let world = SimulatedWorld::new(19);
    let engine = world.open();
    let mut promises = Promises::default();
    let partition = world.partition(&engine);
    let mut workload = Workload::new(19);
    let mut before = world.storage().operations();
    let start_bytes = checkpoint_bytes(&world);
    for _ in 0..ROLLS {
        world.run(async {
            let records = vec![workload.record(8)];
            promises.append_at_once(&partition, vec![records]).await.expect("nothing is wrong");
            partition.roll().await.expect("nothing is wrong");
        });
        let now = world.storage().operations();
        if checkpoint_bytes(&world) > start_bytes {
            return before..now + 3;
        }
        before = now;
    }
    panic!("{ROLLS} rolls did not outgrow the first file");
}

#[test]
fn l19_power_lost_while_the_checkpoint_is_replaced_leaves_the_old_or_the_new_one() {
    let operations = operations_of_the_replacement();
    assert!(operations.end - operations.start < 100, "{operations:?}");
    for crash in Crash::ALL {
        for operation in operations.clone() {
            let world = SimulatedWorld::new(19);
            let engine = world.open();
            let mut promises = Promises::default();
            world.storage().crash_at(operation);
            assert!(world.run_to_crash(grow(&engine, &mut promises)));
            world.crash(crash);
            drop(engine);

            let engine = world.open();

            assert!(engine.report().set_aside.is_empty(), "{crash:?} at {operation}");
            let partition = world.partition(&engine);
            promises.check(&world.run(read_log(&partition)).expect("it is readable"));
            let end = promises.asked_end();
            let trimmed = world.run(partition.trim(Offset(end))).expect("a trim works");
            assert_eq!(trimmed, Offset(end));
            world.close(engine);
        }
    }
}

#[test]
fn l19_checkpoint_on_real_files_outgrows_its_file() {
    let world = RealWorld::new(TARGET);
    let engine = world.open();
    let mut promises = Promises::default();
    world.run(grow(&engine, &mut promises));
    world.kill(engine);
    let engine = world.open();
    let partition = world.partition(&engine);
    promises.check(&world.run(read_log(&partition)).expect("it is readable"));
    assert_eq!(segment_files(&world).len(), ROLLS);
    world.close(engine);
}
