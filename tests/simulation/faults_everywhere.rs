//! The engine against the model while the device fails: the first error ends a partition's appends, nothing that
//! was not durable is ever acknowledged, and the next open finds everything that was.

use std::ops::Range;

use palisade_engine::io::disk::DiskOperation;
use palisade_engine::io::simulated::{Fault, FaultKind};

use crate::workload::Workload;
use crate::world::{World, seeds};

const STEPS: usize = 50;
const SEEDS: Range<u64> = 0..60;

fn run_with_fault(seed: u64, operation: DiskOperation, kind: FaultKind) {
    let world = World::new(seed);
    world.run(async {
        // The first open makes everything; faults come after it.
        let opened = world.open().await.expect("an empty device");
        let spared = world.random.borrow_mut().u64(0..20);
        world.machine.storage().inject(Fault::new(operation, kind).after(spared));
        Workload::new(&world, &opened).expecting(kind).run(STEPS).await;
    });
    world.machine.storage().clear_faults();
    world.crash(world.draw_crash());
    // Faults may strike the recovery, too.
    let spared = world.random.borrow_mut().u64(0..20);
    world.machine.storage().inject(Fault::new(operation, kind).after(spared));
    let opened = world.run(world.try_open()).flatten();
    drop(opened);
    world.machine.storage().clear_faults();
    world.crash(world.draw_crash());

    let opened = world.recover();
    world.run(async {
        Workload::new(&world, &opened).run(STEPS / 4).await;
        world.check(&opened.partition).await;
        opened.engine.close().await.expect("it closes in order");
    });
    drop(opened);
    drop(world.recover());
}

/// L22 and its kind, at any write.
#[test]
fn failed_write_is_never_acknowledged_and_loses_nothing_else() {
    for seed in seeds(SEEDS) {
        run_with_fault(seed, DiskOperation::Write, FaultKind::Io);
        run_with_fault(seed, DiskOperation::Write, FaultKind::NoSpace);
    }
}

/// L22: one sync fails, later ones succeed.
#[test]
fn failed_sync_is_never_taken_for_one_that_worked() {
    for seed in seeds(SEEDS) {
        run_with_fault(seed, DiskOperation::Sync, FaultKind::Io);
        run_with_fault(seed, DiskOperation::SyncDirectory, FaultKind::Io);
    }
}

/// L19, L20: names fail to change in the middle of a replacement, files fail to open or to be read.
#[test]
fn failed_changes_of_names_and_reads_lose_nothing() {
    for seed in seeds(SEEDS) {
        run_with_fault(seed, DiskOperation::Open, FaultKind::Io);
        run_with_fault(seed, DiskOperation::Open, FaultKind::NoSpace);
        run_with_fault(seed, DiskOperation::Rename, FaultKind::Io);
        run_with_fault(seed, DiskOperation::Remove, FaultKind::Io);
        run_with_fault(seed, DiskOperation::Length, FaultKind::Io);
        run_with_fault(seed, DiskOperation::Read, FaultKind::Io);
    }
}

/// L17: the file system fills up; there is room again later.
#[test]
fn full_device_refuses_and_resumes() {
    for seed in seeds(SEEDS) {
        let world = World::new(seed);
        world.run(async {
            let opened = world.open().await.expect("an empty device");
            let storage = world.machine.storage();
            let space = storage.space();
            let used_bytes = space.total_bytes - space.available_bytes;
            let more_bytes = world.random.borrow_mut().u64(0..400 << 10);
            storage.set_capacity_bytes(used_bytes + more_bytes);
            Workload::new(&world, &opened).expecting(FaultKind::NoSpace).run(STEPS).await;
            world.check(&opened.partition).await;

            storage.set_capacity_bytes(space.total_bytes);
            let mut workload = Workload::new(&world, &opened).expecting(FaultKind::NoSpace);
            workload.run(STEPS).await;
            world.check(&opened.partition).await;
        });
        world.machine.storage().set_capacity_bytes(1 << 40);
        world.crash(world.draw_crash());
        drop(world.recover());
    }
}
