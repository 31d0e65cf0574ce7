//! L1, L3, L4, L24: files cut, indexes lost, bits flipped.

use std::path::PathBuf;

use palisade_engine::engine::Engine;
use palisade_engine::id::Offset;
use palisade_engine::io::clock::WallTime;
use palisade_engine::partition::{AppendOptions, SetAsideReason};
use palisade_tests::{
    RealWorld, SegmentFile, SimulatedWorld, Workload, World, batch, read_log, segment_files,
};

use crate::TARGET;
use crate::promises::Promises;

/// Ten batches, acknowledged one by one, in one segment.
fn ten_batches(world: &impl World) -> (Engine, Promises, Workload) {
    let mut workload = Workload::new(1);
    let mut promises = Promises::default();
    let engine = world.open();
    let partition = world.partition(&engine);
    world.run(async {
        for _ in 0..10 {
            let records = vec![workload.record(300), workload.record(20)];
            promises.append_at_once(&partition, vec![records]).await.expect("nothing is wrong");
        }
    });
    (engine, promises, workload)
}

fn only_segment(world: &impl World) -> SegmentFile {
    let mut segments = segment_files(world);
    assert_eq!(segments.len(), 1);
    segments.remove(0)
}

/// The last batch is gone, the nine before it are there, and the next append takes its place.
fn nine_are_left(world: &impl World) {
    let engine = world.open();
    let partition = world.partition(&engine);
    let reports = &engine.report().partitions;

    assert_eq!(world.run(read_log(&partition)).expect("it is readable").whole().len(), 18);
    let lost: Vec<_> = reports.iter().filter_map(|report| report.recovery.as_ref()).collect();
    assert_eq!(lost.len(), 1, "{reports:?}");
    assert!(lost[0].torn_bytes > 0, "{lost:?}");
    let appended = partition.append(batch(&["new".into()]), AppendOptions::default());
    let appended = world.run(appended).expect("the log takes appends");
    assert_eq!(appended.base_offset, Offset(18));
    let whole = world.run(read_log(&partition)).expect("it is readable").whole();
    assert_eq!(whole.last().expect("19 records"), "new");
    world.close(engine);
}

fn cut_after_close(world: &impl World, bytes: u64) {
    let (engine, _, _) = ten_batches(world);
    world.close(engine);
    let segment = only_segment(world);
    let last = segment.groups.last().expect("ten groups");

    world.set_length(&segment.path, last.filled_end - bytes);

    nine_are_left(world);
}

fn cut_after_kill(world: &impl World, bytes: u64) {
    let (engine, _, _) = ten_batches(world);
    world.kill(engine);
    let segment = only_segment(world);
    let last = segment.groups.last().expect("ten groups");

    world.set_length(&segment.path, last.filled_end - bytes);

    nine_are_left(world);
}

#[test]
fn l1_last_batch_cut_off_by_hand_is_reported_and_its_offset_used_again() {
    for bytes in [1, 7, 100, 300] {
        cut_after_close(&SimulatedWorld::new(bytes), bytes);
        cut_after_kill(&SimulatedWorld::new(bytes), bytes);
    }
    cut_after_close(&RealWorld::new(TARGET), 7);
    cut_after_kill(&RealWorld::new(TARGET), 7);
}

/// Five closed segments and an active one; returns the end of each.
fn six_segments(world: &impl World, promises: &mut Promises) -> Vec<u64> {
    let mut workload = Workload::new(3);
    let engine = world.open();
    let partition = world.partition(&engine);
    let ends = world.run(async {
        let mut ends = Vec::new();
        for _ in 0..6 {
            promises.append(&partition, &mut workload, 6).await;
            ends.push(promises.asked_end());
            if ends.len() < 6 {
                partition.roll().await.expect("nothing is wrong");
            }
        }
        ends
    });
    world.close(engine);
    assert_eq!(segment_files(world).len(), 6);
    ends
}

/// Every record, and for each batch the offset that its time leads to.
fn answers(world: &impl World) -> (Vec<bytes::Bytes>, Vec<Offset>) {
    let engine = world.open();
    let partition = world.partition(&engine);
    let log = world.run(read_log(&partition)).expect("it is readable");
    let times: Vec<WallTime> = log.batches.iter().map(|batch| batch.append_time()).collect();
    let found = world.run(async {
        let mut found = Vec::new();
        for time in times {
            found.push(partition.offset_at(time).await.expect("nothing is wrong"));
        }
        found
    });
    world.close(engine);
    (log.whole(), found)
}

fn lost_indexes_are_rebuilt(world: &impl World) {
    let mut promises = Promises::default();
    six_segments(world, &mut promises);
    let before = answers(world);
    let segments = segment_files(world);
    let closed = &segments[..5];

    // The last one is cut off, then every one is: cut off, overwritten, or zeroed.
    for (number, segment) in closed.iter().enumerate().rev() {
        let end = segment.end_position();
        match number % 3 {
            0 => world.set_length(&segment.path, end),
            1 => world.overwrite(&segment.path, end, &[0xa5; 512]),
            _ => world.overwrite(&segment.path, end, &[0; 512]),
        }
        assert_eq!(answers(world), before, "without the index of segment {number}");
    }
}

#[test]
fn l3_lost_indexes_are_rebuilt_from_the_groups() {
    lost_indexes_are_rebuilt(&SimulatedWorld::new(3));
    lost_indexes_are_rebuilt(&RealWorld::new(TARGET));
}

/// Flips one bit inside the groups of the middle segment; everything outside the damaged range stays.
fn flipped_bit_is_reported(world: &impl World, position_in_group: u64) {
    let mut promises = Promises::default();
    six_segments(world, &mut promises);
    let before = answers(world).0;
    let segment = segment_files(world).remove(2);
    let group = segment.groups[2].clone();
    let filled_bytes = group.filled_end - group.positions.start;
    let position = group.positions.start + position_in_group % filled_bytes;

    world.flip(&segment.path, position, 0x10);

    let engine = world.open();
    let partition = world.partition(&engine);
    let log = world.run(read_log(&partition)).expect("damage is reported as such");
    assert_eq!(log.damage.len(), 1, "{:?}", log.damage);
    let damage = &log.damage[0];
    assert_eq!(damage.path, segment.path);
    assert!(damage.positions.start.0 <= position && position < damage.positions.end.0);
    // Nothing but that group is lost: before it and after it all is readable.
    assert!(damage.offsets.start >= group.offsets.start, "{damage:?} {group:?}");
    assert!(damage.offsets.end <= group.offsets.end, "{damage:?} {group:?}");
    for (offset, record) in log.records() {
        assert_eq!(record, before[usize::try_from(offset).expect("a few")]);
    }
    let appended = partition.append(batch(&["new".into()]), AppendOptions::default());
    let appended = world.run(appended).expect("the log takes appends");
    assert_eq!(appended.base_offset.0, before.len() as u64);
    world.close(engine);
}

#[test]
fn l4_flipped_bit_is_reported_and_all_around_it_stays_readable() {
    // Through the group's header, the batch's header and the records.
    for position in (0..300).step_by(7) {
        flipped_bit_is_reported(&SimulatedWorld::new(position), position);
    }
    flipped_bit_is_reported(&RealWorld::new(TARGET), 230);
}

/// Every copy of a file's bytes from the first group on, wherever it lies now.
fn holders_of(world: &impl World, groups: &[u8]) -> Vec<PathBuf> {
    let holds = |path: &PathBuf| {
        world.read_file(path).get(4096..).is_some_and(|bytes| bytes.starts_with(groups))
    };
    world.files().into_iter().filter(holds).collect()
}

fn unreadable_header_deletes_nothing(world: &impl World, was_killed: bool) {
    let mut promises = Promises::default();
    let ends = six_segments(world, &mut promises);
    let segment = segment_files(world).remove(1);
    let end = usize::try_from(segment.end_position()).expect("small");
    let groups = world.read_file(&segment.path)[4096..end].to_vec();
    let engine = world.open();
    if was_killed {
        let partition = world.partition(&engine);
        let mut workload = Workload::new(77);
        world.run(promises.append(&partition, &mut workload, 2));
        world.kill(engine);
    } else {
        world.close(engine);
    }
    let path = segment_files(world).remove(1).path;

    world.overwrite(&path, 0, &[0xff; 64]);

    let engine = world.open();
    let partition = world.partition(&engine);
    let log = world.run(read_log(&partition)).expect("damage is reported as such");
    let damaged: u64 =
        log.damage.iter().map(|damage| damage.offsets.end - damage.offsets.start).sum();
    assert!(damaged <= ends[1] - ends[0], "{:?}", log.damage);
    let start = world.run(partition.trim(Offset(ends[3]))).expect("a trim goes over it");
    assert_eq!(start, Offset(ends[3]));
    world.close(engine);
    let engine = world.open();
    assert_eq!(holders_of(world, &groups).len(), 1, "{:?}", world.files());
    let partition = world.partition(&engine);
    let log = world.run(read_log(&partition)).expect("what was kept is readable");
    assert_eq!((log.log_start, log.damage), (ends[3], Vec::new()));
    world.close(engine);
}

#[test]
fn l24_segment_with_an_unreadable_header_is_set_aside_and_never_deleted() {
    unreadable_header_deletes_nothing(&SimulatedWorld::new(24), false);
    unreadable_header_deletes_nothing(&SimulatedWorld::new(25), true);
    unreadable_header_deletes_nothing(&RealWorld::new(TARGET), false);
}

/// A segment that no checkpoint names and that is not understood is no garbage.
#[test]
fn l24_unknown_segment_with_an_unreadable_header_survives_the_clean_up() {
    let world = SimulatedWorld::new(26);
    let (engine, mut promises, mut workload) = ten_batches(&world);
    let partition = world.partition(&engine);
    world.run(async {
        partition.roll().await.expect("nothing is wrong");
        promises.append(&partition, &mut workload, 1).await;
    });
    // The active segment of the killed run: its header is lost before the next run walks it.
    world.kill(engine);
    let active = segment_files(&world).remove(1);
    let end = usize::try_from(active.end_position()).expect("small");
    let groups = world.read_file(&active.path)[4096..end].to_vec();
    world.overwrite(&active.path, 0, &[0; 4096]);

    let engine = world.open();
    let partition = world.partition(&engine);
    let log = world.run(read_log(&partition)).expect("what is left is readable");
    promises.check(&log);
    let aside = &engine.report().set_aside;
    assert!(
        aside.iter().all(|aside| matches!(aside.reason, SetAsideReason::BadSegmentHeader(_))),
        "{aside:?}"
    );
    world.close(engine);
    assert_eq!(holders_of(&world, &groups).len(), 1, "{:?}", world.files());
}
