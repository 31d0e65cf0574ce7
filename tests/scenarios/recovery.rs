//! L6, L7, L8: what recovery serves stays, recovery may crash itself, and new files are there for good.

use std::path::PathBuf;
use std::time::Duration;

use palisade_engine::format::{Checkpoint, believe_slots};
use palisade_engine::io::disk::DiskOperation;
use palisade_engine::io::simulated::{Fault, FaultKind};
use palisade_engine::partition::AppendOptions;
use palisade_tests::{
    Crash, SimulatedWorld, Workload, World, batch, crash_everywhere, crash_in, read_log,
    segment_files,
};

use crate::promises::Promises;

/// Appends, in bursts and one by one, over several rolls, until it is done or the device stands still.
async fn appends(world: &SimulatedWorld, promises: &mut Promises, workload: &mut Workload) {
    let engine = world.run_open().await;
    let partition = engine.open_partition(&palisade_tests::world::name("s/0")).await;
    let partition = partition.expect("nothing is wrong");
    for round in 0..6 {
        let burst: Vec<_> = (0..=round % 3).map(|_| vec![workload.record(9_000)]).collect();
        promises.append_at_once(&partition, burst).await.expect("nothing is wrong");
    }
    partition.roll().await.expect("nothing is wrong");
    promises.append(&partition, workload, 3).await;
    engine.close().await.expect("nothing is wrong");
}

/// Crashes a machine that appends at an operation. Returns what it had promised, or `None` if it got to the end.
fn crashed(world: &SimulatedWorld, operation: u64, crash: Crash) -> Option<Promises> {
    let mut promises = Promises::default();
    let mut workload = Workload::new(operation);
    crash_in(world, operation);
    if !world.run_to_crash(appends(world, &mut promises, &mut workload)) {
        return None;
    }
    world.crash(crash);
    Some(promises)
}

fn check(world: &SimulatedWorld, promises: &mut Promises) {
    let engine = world.open();
    if let Some(partition) = engine.find(&palisade_tests::world::name("s/0")) {
        promises.check(&world.run(read_log(&partition)).expect("it is readable"));
    } else {
        promises.check(&palisade_tests::ReadLog::default());
    }
    drop(engine);
}

/// L6 and L8: what was acknowledged or served once is there after every further loss of power.
#[test]
fn l6_l8_what_was_acknowledged_or_served_survives_a_crash_at_every_operation() {
    crash_everywhere(|world, operation, crash| {
        let Some(mut promises) = crashed(world, operation, crash) else { return false };

        check(world, &mut promises);
        world.crash(Crash::LoseUnsynced);
        check(world, &mut promises);
        world.crash(Crash::Mixed);
        check(world, &mut promises);
        // And it goes on from there.
        let engine = world.open();
        let partition = world.partition(&engine);
        world.run(promises.append(&partition, &mut Workload::new(9), 2));
        world.close(engine);
        check(world, &mut promises);
        true
    });
}

fn checkpoint_path(world: &SimulatedWorld) -> PathBuf {
    let checkpoints = |path: &PathBuf| path.file_name().is_some_and(|name| name == "checkpoint");
    world.files().into_iter().find(checkpoints).expect("there is a partition")
}

/// The checkpoint that will be believed.
fn checkpoint(world: &SimulatedWorld) -> Checkpoint {
    let slots = world.read_file(&checkpoint_path(world));
    believe_slots(&slots).expect("a slot is whole").checkpoint
}

/// L7: recovery is crashed at each of its operations; until its one checkpoint is written the log stays unclean.
#[test]
fn l7_crash_during_recovery_leaves_the_log_unclean() {
    for first in [40, 50, 60] {
        crash_everywhere(|world, operation, crash| {
            let mut promises = crashed(world, first, Crash::Mixed).expect("it is not done by then");
            let before = checkpoint(world);
            assert!(!before.clean);
            crash_in(world, operation);
            let is_crashed = world.run_to_crash(async { drop(world.run_open().await) });
            if !is_crashed {
                return false;
            }
            world.crash(crash);
            // A write of the killed process may land late: only then does the checkpoint stand still.
            world.runtime().run_for(Duration::from_secs(1));
            let after = checkpoint(world);

            let engine = world.open();

            let report = engine.report().partitions.first();
            if before.sequence == after.sequence {
                assert!(report.is_some_and(|report| report.recovery.is_some()), "{report:?}");
            }
            drop(engine);
            check(world, &mut promises);
            world.crash(Crash::LoseUnsynced);
            check(world, &mut promises);
            true
        });
    }
}

/// What shows that the last group of a full segment was durable may lie in the next one, behind groups that are gone, too:
/// recovery looks there before it takes the group's place for the end of the log.
#[test]
fn group_lost_before_a_roll_is_reported_though_the_next_segment_begins_with_a_loss_too() {
    const RECORD_BYTES: usize = 70_000;
    const PEEKED_BYTES: u64 = 128 << 10;
    let world = SimulatedWorld::new(77);
    let opened = world.open_as(|config| {
        config.settings.first_segment_bytes = 1 << 20;
        config.settings.segment_bytes = 1 << 20;
    });
    let engine = opened.expect("the engine opens");
    let partition = world.partition(&engine);
    let mut workload = Workload::new(77);
    let mut append = |count: u64| {
        for _ in 0..count {
            let records = [workload.record(RECORD_BYTES)];
            let append = partition.append(batch(&records), AppendOptions::default());
            world.run(append).expect("nothing is wrong");
        }
    };
    append(6);
    // The next segment is made meanwhile, and no checkpoint after that one reaches the device.
    world.runtime().run_for(Duration::from_secs(5));
    let named = checkpoint(&world).next.expect("it is made").segment;
    let hang = Fault::new(DiskOperation::Write, FaultKind::Hang);
    world.storage().inject(hang.under(checkpoint_path(&world)).for_ever());
    append(16);
    assert_eq!(partition.watermarks().durable.0, 22);
    world.kill(engine);
    drop(partition);
    world.storage().clear_faults();
    let mut files = segment_files(&world);
    files.sort_by_key(|file| file.offsets().start);
    let [active, next] = &files[..] else { panic!("one roll: {} files", files.len()) };
    assert_eq!(checkpoint(&world).next.map(|next| next.segment), Some(named));
    let peeked_to = next.groups[0].positions.start + PEEKED_BYTES;
    assert!(next.end_position() > peeked_to + 2 * PEEKED_BYTES);
    let lost = active.groups.last().expect("it is full");
    let zero = |path: &std::path::Path, positions: &std::ops::Range<u64>| {
        let bytes = usize::try_from(positions.end - positions.start).expect("a group");
        world.overwrite(path, positions.start, &vec![0; bytes]);
    };
    zero(&active.path, &lost.positions);
    for group in next.groups.iter().filter(|group| group.positions.start < peeked_to) {
        zero(&next.path, &group.positions);
    }

    let engine = world.open();

    let partition = world.partition(&engine);
    let log = world.run(read_log(&partition)).expect("damage is reported as such");
    assert!(!log.damage.is_empty(), "the log ends at {} without a word", log.committed);
    assert!(log.committed > lost.offsets.start, "what was acknowledged is not given out again");
    world.close(engine);
}
