//! L10, L31: rolls while writes are in flight, and a thousand of them.

use std::time::Duration;

use futures_util::future::join;
use palisade_engine::Engine;
use palisade_engine::id::Offset;
use palisade_engine::io::disk::DiskOperation;
use palisade_engine::io::simulated::{Fault, FaultKind};
use palisade_engine::partition::AppendOptions;
use palisade_tests::world::name;
use palisade_tests::{
    ReadLog, RealWorld, SimulatedWorld, Workload, World, batch, crash_everywhere, crash_in,
    read_log, segment_files,
};

use crate::TARGET;
use crate::promises::Promises;

/// Segment files follow each other without gap or overlap.
fn assert_files_follow(world: &impl World) {
    let mut expected = 0;
    for segment in segment_files(world) {
        assert_eq!(segment.offsets().start, expected, "{}", segment.path.display());
        for group in &segment.groups {
            assert_eq!(group.offsets.start, expected);
            expected = group.offsets.end;
        }
    }
}

/// Bursts that fill the segment while earlier groups are still in flight, with a roll asked for in between.
async fn bursts(promises: &mut Promises, engine: &Engine) {
    let partition = engine.open_partition(&name("s/0")).await.expect("nothing is wrong");
    let mut workload = Workload::new(10);
    for _ in 0..3 {
        let mut burst: Vec<_> = (0..5).map(|_| vec![workload.record(30_000)]).collect();
        burst.extend((0..3).map(|_| vec![workload.record(70_000)]));
        // All appends are submitted when the first is polled, and the roll finds them in flight.
        let appended = promises.append_at_once(&partition, burst);
        let (appended, rolled) = join(appended, partition.roll()).await;
        appended.expect("nothing is wrong");
        rolled.expect("nothing is wrong");
    }
}

#[test]
fn l10_writes_on_either_side_of_a_roll_land_in_the_right_files() {
    let world = SimulatedWorld::new(10);
    let engine = world.open();
    let slow = FaultKind::Delay(Duration::from_millis(20));
    for spared in [3, 9, 14, 20, 30] {
        let write = Fault::new(DiskOperation::Write, slow);
        world.storage().inject(write.with_extension("segment").after(spared));
    }
    let mut promises = Promises::default();
    world.run(bursts(&mut promises, &engine));
    promises.check(&world.run(read_log(&world.partition(&engine))).expect("it is readable"));
    world.kill(engine);
    assert_files_follow(&world);
    let engine = world.open();
    promises.check(&world.run(read_log(&world.partition(&engine))).expect("it is readable"));
    world.close(engine);

    let world = RealWorld::new(TARGET);
    let engine = world.open();
    let mut promises = Promises::default();
    world.run(bursts(&mut promises, &engine));
    world.kill(engine);
    assert_files_follow(&world);
    let engine = world.open();
    promises.check(&world.run(read_log(&world.partition(&engine))).expect("it is readable"));
    world.close(engine);
}

#[test]
fn l10_crash_at_every_operation_around_a_roll_loses_nothing() {
    crash_everywhere(|world, operation, crash| {
        let engine = world.open();
        let mut promises = Promises::default();
        crash_in(world, operation);
        if !world.run_to_crash(bursts(&mut promises, &engine)) {
            return false;
        }
        world.crash(crash);
        drop(engine);
        let engine = world.open();
        let log = match engine.find(&name("s/0")) {
            Some(partition) => world.run(read_log(&partition)).expect("it is readable"),
            None => ReadLog::default(),
        };
        promises.check(&log);
        true
    });
}

fn roll_often(world: &impl World, rolls: u64, open_files: impl Fn() -> usize) {
    let engine = world.open_as(|config| {
        config.settings.first_segment_bytes = 64 << 10;
        config.settings.segment_bytes = 64 << 10;
    });
    let engine = engine.expect("the engine opens");
    let partition = world.partition(&engine);
    let mut workload = Workload::new(31);
    let mut promises = Promises::default();
    world.run(async {
        for _ in 0..rolls {
            let records = vec![workload.record(100)];
            promises.append_at_once(&partition, vec![records]).await.expect("nothing is wrong");
            partition.roll().await.expect("nothing is wrong");
        }
    });

    let log = world.run(read_log(&partition)).expect("it is readable");
    promises.check(&log);
    drop(log);
    assert!(open_files() <= 12, "{} files are open", open_files());
    let metrics = engine.metrics().shards[0];
    assert!(metrics.tail_bytes <= engine.config().limits.tail_bytes_max as u64);
    let trimmed = world.run(partition.trim(Offset(rolls)));
    assert_eq!(trimmed.expect("a trim works").0, rolls);
    assert!(segment_files(world).len() <= 1);
    world.close(engine);
}

/// The files below the world's directory that this process has open.
fn open_files_of(world: &RealWorld) -> usize {
    let directory = world.directory();
    let open = std::fs::read_dir("/proc/self/fd").expect("Linux has it");
    let links = open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    links.filter(|path| path.starts_with(&directory)).count()
}

#[test]
fn l31_a_thousand_rolls_leave_memory_and_open_files_bounded() {
    let world = SimulatedWorld::new(31);
    roll_often(&world, 1_000, || world.storage().open_files());
}

#[test]
fn l31_rolls_on_real_files_leave_open_files_bounded() {
    let world = RealWorld::new(TARGET);
    roll_often(&world, 150, || open_files_of(&world));
}

/// A process at its limit of open files rolls later; nothing stops for good.
#[test]
fn next_segment_that_cannot_be_opened_for_want_of_descriptors_is_opened_later() {
    for spared in 0..6 {
        let world = SimulatedWorld::new(40 + spared);
        let engine = world.open();
        let partition = world.partition(&engine);
        world
            .run(partition.append(batch(&["first".into()]), AppendOptions::default()))
            .expect("ok");
        let full = Fault::new(DiskOperation::Open, FaultKind::OpenFiles).after(spared);
        world.storage().inject(full.with_extension("segment"));
        let mut workload = Workload::new(40);

        for _ in 0..40 {
            let records = [workload.record(20_000)];
            let append = partition.append(batch(&records), AppendOptions::default());
            world.run(append).expect("it only takes longer");
        }

        assert!(partition.stopped().is_none());
        let log = world.run(read_log(&partition)).expect("it is readable");
        assert_eq!(log.whole().len(), 41);
        drop(partition);
        world.close(engine);
    }
}

/// Partitions that roll together want twice as many files as there are partitions. With few descriptors more than
/// partitions, some wait for others, and readers of closed segments give theirs up; nothing stops.
#[test]
fn partitions_that_roll_together_need_few_descriptors_more_than_one_each() {
    let world = SimulatedWorld::new(47);
    world.storage().set_open_files_max(ROLLING_TOGETHER + 8);
    roll_together(&world);
}

/// Full groups that wait for a roll leave the memory that closing a segment takes.
#[test]
fn partitions_that_roll_together_with_a_small_arena_go_on() {
    roll_together(&SimulatedWorld::new(48));
}

const ROLLING_TOGETHER: usize = 24;

fn roll_together(world: &SimulatedWorld) {
    let opened = world.open_as(|config| config.limits.open_segments_max = 2);
    let engine = opened.expect("the engine opens");
    let partitions: Vec<_> = (0..ROLLING_TOGETHER)
        .map(|index| {
            let name = format!("rolling/{index}").parse().expect("tests use valid names");
            world.run(engine.open_partition(&name)).expect("the partition opens")
        })
        .collect();
    let mut workload = Workload::new(47);
    let mut expected = vec![Vec::new(); partitions.len()];

    for _ in 0..40 {
        let records: Vec<_> = partitions.iter().map(|_| [workload.record(20_000)]).collect();
        let appends: Vec<_> = partitions
            .iter()
            .zip(&records)
            .map(|(partition, records)| partition.append(batch(records), AppendOptions::default()))
            .collect();
        for (append, (records, expected)) in
            appends.into_iter().zip(records.into_iter().zip(&mut expected))
        {
            world.run(append).expect("it only takes longer");
            expected.extend(records);
        }
    }

    for (partition, expected) in partitions.iter().zip(&expected) {
        assert!(partition.stopped().is_none());
        let log = world.run(read_log(partition)).expect("it is readable");
        assert!(log.whole() == *expected);
    }
    drop(partitions);
    world.close(engine);
}
