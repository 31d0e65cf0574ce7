//! The engine against the model, through crashes at every operation on the device.
//!
//! A run is counted first, then repeated from the same seed with a crash at one operation after the other:
//! a killed process, a power cut, or both. Recovery itself is crashed, too.

use crate::workload::Workload;
use crate::world::{Opened, World, seeds};

/// The steps of one run.
const STEPS: usize = 60;

/// The seeds of an ordinary test run.
const SEEDS: std::ops::Range<u64> = 0..12;

/// How many operations of each seed's run are crashed at, spread evenly.
const CRASHES_PER_SEED: u64 = 40;

/// Names the case when a panic passes through.
struct Case {
    seed: u64,
    crash_at: Option<u64>,
}

impl Drop for Case {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed: seed {}, crash at operation {:?}", self.seed, self.crash_at);
        }
    }
}

/// A run without a crash; returns how many operations it took.
fn count_operations(seed: u64) -> u64 {
    let _case = Case { seed, crash_at: None };
    let world = World::new(seed);
    let operations = world.run(async {
        let opened = world.open().await.expect("an empty device");
        Workload::new(&world, &opened).run(STEPS).await;
        world.check(&opened.partition).await;
        let operations = world.machine.storage().operations();
        let report = opened.engine.close().await.expect("it closes in order");
        assert!(report.unclean.is_empty(), "{report:?}");
        operations
    });
    // A clean open finds the same log.
    let reopened = world.recover();
    drop(reopened);
    operations.expect("no crash was planned")
}

fn crash_at(seed: u64, operation: u64) {
    let _case = Case { seed, crash_at: Some(operation) };
    let world = World::new(seed);
    world.machine.storage().crash_at(operation);
    let ended = world.run(async {
        let opened = world.open().await.expect("an empty device");
        Workload::new(&world, &opened).run(STEPS).await;
        opened
    });
    drop(ended);
    world.crash(world.draw_crash());

    let opened = world.recover();
    // What was just served survives the loss of the machine.
    if world.random.borrow_mut().bool() {
        drop(opened);
        world.crash(world.draw_crash());
        go_on(&world);
    } else {
        append_and_check(&world, opened);
    }
}

fn go_on(world: &World) {
    let opened = world.recover();
    append_and_check(world, opened);
}

/// The log takes new records, closes in order and opens clean.
fn append_and_check(world: &World, opened: Opened) {
    world
        .run(async {
            Workload::new(world, &opened).run(STEPS / 4).await;
            world.check(&opened.partition).await;
            opened.engine.close().await.expect("it closes in order");
        })
        .expect("no crash was planned");
    drop(world.recover());
}

#[test]
fn acknowledged_and_served_records_survive_crashes_at_every_operation() {
    for seed in seeds(SEEDS) {
        let operations = count_operations(seed);
        let step = (operations / CRASHES_PER_SEED).max(1);
        // Another start for each seed, so that over all seeds every operation has its turn.
        let first = 1 + seed % step;
        let step = usize::try_from(step).expect("short runs");
        for operation in (first..=operations).step_by(step) {
            crash_at(seed, operation);
        }
    }
}

#[test]
fn same_seed_gives_the_same_run() {
    let run = |seed| {
        let world = World::new(seed);
        world.run(async {
            let opened = world.open().await.expect("an empty device");
            Workload::new(&world, &opened).run(STEPS).await;
        });
        (world.runtime.fingerprint(), world.machine.storage().operations(), world.seed())
    };

    assert_eq!(run(3), run(3));
}
