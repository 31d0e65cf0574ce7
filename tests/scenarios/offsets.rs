//! L32: offsets beyond 2^31 and 2^32 in one segment, and positions that could pass 4 GiB.

use bytes::Bytes;
use palisade_engine::Partition;
use palisade_engine::format::{SlotWrite, believe_slots, place_checkpoint};
use palisade_engine::id::Offset;
use palisade_engine::partition::{AppendOptions, PartitionSettings, Read};
use palisade_tests::{RealWorld, SimulatedWorld, Workload, World, batch, read_log};

use crate::TARGET;

/// Lets an empty log begin at `start`, as if everything below had been trimmed.
fn begin_at(world: &impl World, start: u64) {
    let files = world.files();
    let path = files.iter().find(|path| path.ends_with("checkpoint")).expect("one partition");
    let mut checkpoint = believe_slots(&world.read_file(path)).expect("a whole slot").checkpoint;
    assert!(checkpoint.active.is_none() && checkpoint.closed.is_empty());
    checkpoint.sequence += 1;
    checkpoint.log_start = Offset(start);
    checkpoint.committed = Offset(start);
    checkpoint.next_offset = Offset(start);
    match place_checkpoint(&checkpoint, world.read_file(path).len() as u64) {
        SlotWrite::InPlace { position, bytes } => world.overwrite(path, position.0, &bytes),
        SlotWrite::NewFile { .. } => unreachable!("a small checkpoint fits its slot"),
    }
}

fn look_ups_are_exact(world: &impl World, start: u64) {
    let engine = world.open();
    drop(world.partition(&engine));
    world.close(engine);
    begin_at(world, start);
    let engine = world.open();
    let partition = world.partition(&engine);
    assert_eq!(partition.watermarks().log_end, Offset(start));
    let mut workload = Workload::new(32);
    let mut records = Vec::new();
    world.run(async {
        for round in 0..40 {
            let more: Vec<_> = (0..3).map(|_| workload.record(2_000)).collect();
            let append = partition.append(batch(&more), AppendOptions::default());
            let appended = append.await.expect("nothing is wrong");
            assert_eq!(appended.base_offset.0, start + records.len() as u64);
            records.extend(more);
            if round == 20 {
                partition.roll().await.expect("nothing is wrong");
            }
        }
    });

    world.run(assert_exact(&partition, start, &records));
    world.kill(engine);
    // Once from what recovery found, once from what a clean close left.
    for _ in 0..2 {
        let engine = world.open();
        world.run(assert_exact(&world.partition(&engine), start, &records));
        world.close(engine);
    }
}

async fn assert_exact(partition: &Partition, start: u64, records: &[Bytes]) {
    let log = read_log(partition).await.expect("it is readable");
    assert_eq!(log.log_start, start);
    assert!(log.records().into_values().eq(records.iter().cloned()));
    for (offset, record) in (start..).zip(records) {
        let answer = partition.read(Read { bytes_max: 1, ..Read::from(Offset(offset)) }).await;
        let answer = answer.expect("it is readable");
        let found = answer.batches[0].record_bytes(Offset(offset));
        assert_eq!(found.as_ref(), Some(record), "at {offset}");
    }
}

#[test]
fn l32_look_ups_around_powers_of_two_are_exact() {
    for start in [(1 << 31) - 50, (1 << 32) - 50, (1 << 40) + 7, u64::MAX - 1_000] {
        look_ups_are_exact(&SimulatedWorld::new(32), start);
    }
    look_ups_are_exact(&RealWorld::new(TARGET), (1 << 32) - 50);
}

/// A file never gets long enough for a position that does not fit 32 bits.
#[test]
fn l32_segments_are_bounded_to_4_gib() {
    let wanted = PartitionSettings {
        segment_bytes: u64::MAX,
        first_segment_bytes: u64::MAX,
        ..PartitionSettings::default()
    };

    let settings = wanted.bounded();

    assert!(settings.segment_bytes <= 1 << 32);
    assert!(settings.first_segment_bytes <= settings.segment_bytes);
}

/// The number space of offsets ends: a batch that would pass it is refused, and the log stays as it is.
#[test]
fn l32_append_past_the_last_offset_is_refused() {
    let world = SimulatedWorld::new(33);
    let engine = world.open();
    drop(world.partition(&engine));
    world.close(engine);
    begin_at(&world, u64::MAX - 2);
    let engine = world.open();
    let partition = world.partition(&engine);
    let records = vec![Bytes::from_static(b"x"); 5];

    let refused = world.run(partition.append(batch(&records), AppendOptions::default()));

    assert!(refused.is_err(), "{refused:?}");
    assert_eq!(partition.watermarks().log_end, Offset(u64::MAX - 2));
    world.close(engine);
}
