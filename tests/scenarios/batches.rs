//! L27 and bad input: batches that are too large, empty, or made of nothing; offsets that do not exist.

use bytes::Bytes;
use palisade_engine::format::{BATCH_BYTES_MAX, BATCH_HEADER_BYTES, BatchError, RecordBatch};
use palisade_engine::id::Offset;
use palisade_engine::partition::{AppendError, AppendOptions, ChangeError, Read, ReadError};
use palisade_tests::{RealWorld, SimulatedWorld, Workload, World, batch, read_log};

use crate::TARGET;

fn largest() -> Vec<u8> {
    vec![0x5a; BATCH_BYTES_MAX - BATCH_HEADER_BYTES - 4]
}

/// L27. An 8 MiB arena takes batches up to a quarter of it; segments here are 64 to 256 KiB.
fn oversized_batches(world: &impl World) {
    let mut over = largest();
    over.push(0);
    let refused = RecordBatch::single(&over).expect_err("one byte too many");
    let bytes_max = BATCH_BYTES_MAX;
    assert_eq!(refused, BatchError::BatchTooLarge { bytes: BATCH_BYTES_MAX + 1, bytes_max });

    let engine = world.open();
    let partition = world.partition(&engine);
    let mut workload = Workload::new(27);
    let append =
        |records: &[Bytes]| world.run(partition.append(batch(records), AppendOptions::default()));
    let small = workload.record(100);
    append(std::slice::from_ref(&small)).expect("nothing is wrong");
    let before = partition.watermarks();

    // Larger than what the arena can take: refused before a byte or an offset.
    let beyond_arena = append(&[largest().into()]).expect_err("the arena is too small for it");
    assert!(matches!(beyond_arena, AppendError::BatchTooLarge { .. }), "{beyond_arena}");
    assert_eq!(partition.watermarks(), before);

    // Larger than a segment: it gets a segment of its own size, or it is refused; never half of it.
    let large = workload.record(1 << 20);
    let appended = append(std::slice::from_ref(&large));
    let mut expected = vec![small];
    match appended {
        Ok(_) => expected.push(large),
        Err(AppendError::BatchTooLarge { .. }) => {}
        Err(error) => panic!("{error}"),
    }
    for _ in 0..3 {
        let next = workload.record(50_000);
        append(std::slice::from_ref(&next)).expect("nothing is wrong");
        expected.push(next);
    }
    assert!(world.run(read_log(&partition)).expect("it is readable").whole() == expected);
    world.kill(engine);
    let engine = world.open();
    let partition = world.partition(&engine);
    assert!(world.run(read_log(&partition)).expect("it is readable").whole() == expected);
    world.close(engine);
}

#[test]
fn l27_batch_larger_than_maximum_segment_or_arena_leaves_the_log_whole() {
    oversized_batches(&SimulatedWorld::new(27));
    oversized_batches(&RealWorld::new(TARGET));
}

fn odd_batches(world: &impl World) {
    let engine = world.open();
    let partition = world.partition(&engine);
    world.run(async {
        let empty = RecordBatch::builder().finish();
        let refused = partition.append(empty, AppendOptions::default()).await;
        assert!(matches!(refused, Err(AppendError::EmptyBatch)), "{refused:?}");
        assert_eq!(partition.watermarks().log_end, Offset::ZERO);

        let nothings = vec![Bytes::new(); 5];
        let appended = partition.append(batch(&nothings), AppendOptions::default()).await;
        assert_eq!(appended.expect("records of no bytes are records").records, 5);
        let expected = AppendOptions { expected_offset: Some(Offset(4)), ..Default::default() };
        let refused = partition.append(batch(&nothings), expected).await;
        let Err(AppendError::OffsetMismatch { expected, log_end }) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!((expected, log_end), (Offset(4), Offset(5)));
        assert_eq!(read_log(&partition).await.expect("it is readable").whole(), nothings);
    });
    world.close(engine);
}

#[test]
fn empty_batches_are_refused_and_empty_records_are_not() {
    odd_batches(&SimulatedWorld::new(28));
    odd_batches(&RealWorld::new(TARGET));
}

fn odd_offsets(world: &impl World) {
    let engine = world.open();
    let partition = world.partition(&engine);
    let mut workload = Workload::new(29);
    world.run(async {
        let at_once = partition.read(Read::from(Offset(1))).await;
        assert!(matches!(at_once, Err(ReadError::BeyondEnd { .. })), "{at_once:?}");
        for _ in 0..4 {
            let records = [workload.record(100), workload.record(100)];
            let append = partition.append(batch(&records), AppendOptions::default());
            append.await.expect("nothing is wrong");
            partition.roll().await.expect("nothing is wrong");
        }
        let beyond = partition.read(Read::from(Offset(9))).await;
        let Err(ReadError::BeyondEnd { from, committed }) = beyond else { panic!("{beyond:?}") };
        assert_eq!((from, committed), (Offset(9), Offset(8)));
        let far = partition.read(Read::from(Offset(u64::MAX))).await;
        assert!(matches!(far, Err(ReadError::BeyondEnd { .. })), "{far:?}");
        let at_end = partition.read(Read::from(Offset(8))).await.expect("the end is no error");
        assert_eq!((at_end.batches.len(), at_end.next_offset), (0, Offset(8)));

        for out_of_range in [9, u64::MAX] {
            let trimmed = partition.trim(Offset(out_of_range)).await;
            assert!(matches!(trimmed, Err(ChangeError::OutOfRange { .. })), "{trimmed:?}");
            let cut = partition.truncate(Offset(out_of_range)).await;
            assert!(matches!(cut, Err(ChangeError::OutOfRange { .. })), "{cut:?}");
        }
        assert_eq!(partition.trim(Offset(3)).await.expect("it works"), Offset(3));
        let below = partition.read(Read::from(Offset(2))).await;
        let Err(ReadError::BelowLogStart { from, log_start }) = below else { panic!("{below:?}") };
        assert_eq!((from, log_start), (Offset(2), Offset(3)));
        let inside = partition.truncate(Offset(5)).await;
        assert!(matches!(inside, Err(ChangeError::OutOfRange { .. })), "{inside:?}");
        let log = read_log(&partition).await.expect("it is readable");
        assert_eq!(log.records().into_keys().collect::<Vec<_>>(), [3, 4, 5, 6, 7]);
    });
    world.close(engine);
}

#[test]
fn offsets_beyond_the_end_or_below_the_start_are_refused_with_the_right_ones() {
    odd_offsets(&SimulatedWorld::new(30));
    odd_offsets(&RealWorld::new(TARGET));
}
